"""What it costs to sample a server's meters, and how well the thread keeps its deadlines.

    .venv/bin/python benchmarks/power/sampling.py [--seconds 20]

Counters of two packages, their DRAM and the platform lie in files on a memory file system, and stand still: an idle
process cannot be disturbed by whoever turns them. Reading a file there costs less than a register of a real CPU does
(some microseconds each). Sampled at 10 and 50 Hz, once as the machine is, once with a busy process per CPU. Memory is
that of a process that does nothing else, beside a Python that does nothing at all. In the same process a second thread
only waits for the same deadlines: how late it is, is what the machine does to anybody.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import timeit
from pathlib import Path

from agents.power.meter import Deadlines, PowerSampler
from agents.power.metering import Metering
from agents.power.reader import Domain, MeteredHost, Reading
from agents.power.series import Sample, Series
from agents.power.settings import PowerSettings

ZONES = {"0": "package-0", "0:0": "dram", "1": "psys", "2": "package-1", "2:0": "dram"}
RANGE_UJ = 262143328850
BURN = "while True: pass"
SAY_RSS = "print(*(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmRSS')))"


class HeldOpen(MeteredHost):
    """A tree whose files are held open, as those of a real host are."""

    @property
    def is_recorded(self) -> bool:
        return False


def plant(root: Path) -> None:
    for number, name in ZONES.items():
        zone = root / f"sys/class/powercap/intel-rapl:{number}"
        zone.mkdir(parents=True)
        for file, text in (("name", name), ("energy_uj", 10**9), ("max_energy_range_uj", RANGE_UJ)):
            (zone / file).write_text(f"{text}\n")


def sample(root: Path, rate_hz: float, seconds: float) -> dict[str, float]:
    """Of one process: CPU share of one core, deadline errors in ms, drift in ms, and what was skipped."""
    times: list[int] = []

    def take(samples: list[Sample]) -> None:
        if samples:
            times.append(samples[0].t_ns)

    sampler = PowerSampler(Metering(HeldOpen(root), PowerSettings(rate_hz=rate_hz)), take)
    sampler.start()
    ended, waits = threading.Event(), list[float]()
    waiting = threading.Thread(target=only_wait, args=(rate_hz, ended, waits))
    waiting.start()
    time.sleep(0.5)
    begin_s, begin_cpu_s = time.monotonic(), sampler.cpu_s
    time.sleep(seconds)
    share = (sampler.cpu_s - begin_cpu_s) / (time.monotonic() - begin_s)
    rss = int(next(s.split()[1] for s in Path("/proc/self/status").read_text().splitlines() if s.startswith("VmRSS")))
    ended.set()
    waiting.join()
    skipped = sampler.skipped
    begin_ns = sampler.deadlines.begin_ns
    sampler.stop()
    period = 1e9 / rate_hz
    errors = [((t - begin_ns) % period) / 1e6 for t in times[1:]]
    early, late = errors[: len(errors) // 4], errors[-len(errors) // 4 :]
    return {
        "share": share,
        "p50": statistics.median(errors),
        "p99": statistics.quantiles(errors, n=100)[98],
        "waiting_p50": statistics.median(waits),
        "waiting_p99": statistics.quantiles(waits, n=100)[98],
        "drift": statistics.median(late) - statistics.median(early),
        "skipped": skipped,
        "samples": len(times),
        "rss_mib": rss / 1024,
    }


def only_wait(rate_hz: float, ended: threading.Event, late_ms: list[float]) -> None:
    """What a thread at ordinary priority that does nothing is late by."""
    deadlines = Deadlines(time.monotonic_ns(), rate_hz)
    while not ended.wait((deadlines.due_ns - time.monotonic_ns()) / 1e9):
        now_ns = time.monotonic_ns()
        late_ms.append((now_ns - deadlines.due_ns) / 1e6)
        deadlines.advance(now_ns)


def arithmetic_us() -> float:
    """Microseconds for one reading to become a sample: unwrapping, plausibility, flags."""
    series = Series(Domain("package-0", "package", "rapl", "x", True, 1e-6, RANGE_UJ, 61.035, 400.0))
    step_ns, step_uj = 100_000_000, 5_000_000
    readings = [Reading(series.domain, n * step_ns, 500, n * step_uj % RANGE_UJ) for n in range(200_000)]
    work = timeit.Timer(lambda: [series.add(reading, 0, False) for reading in readings], timer=time.process_time)
    took = work.timeit(number=1)
    return took / len(readings) * 1e6


def python_rss_mib() -> float:
    said = subprocess.run([sys.executable, "-c", SAY_RSS], capture_output=True, check=True).stdout
    return int(said) / 1024


def apart(root: Path, rate_hz: float, seconds: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--root", str(root), "--rate", str(rate_hz), "--seconds", str(seconds)]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--rate", type=float, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.root:
        print(json.dumps(sample(given.root, given.rate, given.seconds)))
        return
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    print(f"arithmetic: {arithmetic_us():.2f} us per sample")
    bare = python_rss_mib()
    shared = Path("/dev/shm")  # noqa: S108 - a memory file system, in which a folder of our own is made
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as name:
        root = Path(name)
        plant(root)
        for busy in (0, os.cpu_count() or 1):
            burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(busy)]
            try:
                for rate in (10.0, 50.0):
                    got = apart(root, rate, given.seconds)
                    print(
                        f"{rate:g} Hz, {busy} busy processes: {got['share']:.2%} of a core, "
                        f"deadline error p50 {got['p50']:.2f} ms, p99 {got['p99']:.2f} ms "
                        f"(only waiting: {got['waiting_p50']:.2f} and {got['waiting_p99']:.2f}), "
                        f"drift {got['drift']:.2f} ms, "
                        f"{got['samples']:.0f} samples, {got['skipped']:.0f} skipped, "
                        f"RSS {got['rss_mib']:.1f} MiB, {got['rss_mib'] - bare:.1f} more than python -c pass"
                    )
            finally:
                for burner in burners:
                    burner.kill()
                    burner.wait()


if __name__ == "__main__":
    main()
