"""A machine whose only load is a calibration, and an external meter program that lags.

CPU times in the tree are those of the processes of `agents.power.load` that work for it, independent of the real load.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random

from trees import meters

from agents.power.energy import Curve
from agents.power.external import PULSES, pulses
from agents.power.reader import ROOT_VARIABLE
from agents.sensors.kernel import process_cpu_ns

NS = 1_000_000_000
PERIOD_S = 0.015
REPORT_EVERY, SCAN_EVERY, HISTORY = 2, 20, 400
MEAN_NS = NS // 20
TICKS = os.sysconf("SC_CLK_TCK")


def machine(root: Path, lag_s: float, idle_watts: float, watts: float) -> Path:
    """Write the tree of the machine, which draws `watts` for every busy CPU."""
    command = [sys.executable, __file__, str(lag_s), str(idle_watts), str(watts)]
    settings = {"external": {"command": command, "silence_s": 20.0}}
    cpus = len(os.sched_getaffinity(0))
    stat = "".join(f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0\n" for cpu in range(cpus))
    return meters.plant(root, {"etc/millrace/power.yaml": json.dumps(settings), "proc/stat": stat})


def load_curve(unit_ns: int, cpus: int = 2) -> Curve:
    """Return the CPU seconds of `pulses` from 0 on."""
    points = [(0, 0.0)]
    for share, units in pulses():
        t_ns, level = points[-1]
        points.append((t_ns + units * unit_ns, level + share * cpus * units * unit_ns / NS))
    return Curve(points)


def meter_curve(
    load: Curve, unit_ns: int, lag_s: float, period_s: float, noise_watts: float, seed: int, watts: float = 30.0
) -> Curve:
    """Return the energy curve of a lagging meter with uneven sampling intervals: 40 W, and `watts` per busy CPU."""
    random = Random(seed)  # noqa: S311 - it need not be secret
    moments = [-2 * NS]
    while moments[-1] < (PULSES + 2) * unit_ns:
        moments.append(moments[-1] + round(period_s * random.uniform(0.9, 1.1) * NS))
    mean_ns = unit_ns // 20
    drawn = [
        40 + watts * load.between(t - round(lag_s * NS) - mean_ns, t - round(lag_s * NS) + mean_ns) / (2 * mean_ns / NS)
        for t in moments
    ]
    drawn = [each + random.gauss(0, noise_watts) for each in drawn]
    points = [(moments[0], 0.0)]
    for (before, after), (was, now) in zip(pairwise(moments), pairwise(drawn), strict=True):
        points.append((after, points[-1][1] + (was + now) / 2 * (after - before) / NS))
    return Curve(points)


def _loads(root: str) -> Iterator[int]:
    """Yield ids of the processes that load the machine of this tree."""
    ours = f"{ROOT_VARIABLE}={root}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                is_load = b"agents.power.load" in (folder / "cmdline").read_bytes().split(b"\0")
                if is_load and ours in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


def _run(lag_s: float, idle_watts: float, watts: float) -> None:
    root = os.environ[ROOT_VARIABLE]
    stat, fresh = Path(root, "proc/stat"), Path(root, f"proc/stat.{os.getpid()}")
    before = {int(line.split()[0][3:]): int(line.split()[1]) for line in stat.read_text().split("\n") if line}
    begun_ns = {process: process_cpu_ns(process) or 0 for process in _loads(root)}
    now_ns = dict(begun_ns)
    points = [(time.monotonic_ns(), 0.0)]
    while True:
        time.sleep(PERIOD_S)
        if len(points) % SCAN_EVERY == 0:
            now_ns |= dict.fromkeys(set(_loads(root)) - now_ns.keys(), 0)
        now_ns = {process: process_cpu_ns(process) or spent_ns for process, spent_ns in now_ns.items()}
        busy_s = sum(spent_ns - begun_ns.get(process, 0) for process, spent_ns in now_ns.items()) / NS
        points.append((time.monotonic_ns(), busy_s))
        ticks = round(busy_s * TICKS / len(before))
        fresh.write_text("".join(f"cpu{cpu} {ticks + old} 0 0 0 0 0 0 0 0 0\n" for cpu, old in before.items()))
        fresh.rename(stat)
        if len(points) % REPORT_EVERY:
            continue
        then_ns = points[-1][0] - round(lag_s * NS)
        used_s = Curve(points[-HISTORY:]).between(then_ns - MEAN_NS, then_ns) * NS / MEAN_NS
        print(json.dumps({"t": time.time(), "watts": idle_watts + watts * used_s}), flush=True)


if __name__ == "__main__":
    _run(*map(float, sys.argv[1:]))
