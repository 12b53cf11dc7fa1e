"""What pyRAPL, pyJoules and CodeCarbon make of the same counters as we do.

    python -m venv peers && peers/bin/pip install pyRAPL pyJoules codecarbon
    sudo .venv/bin/python benchmarks/power/peers.py --python peers/bin/python [--seconds 8]

They read `/sys/class/powercap` and nothing else, so that they run in a mount namespace of their own where a tree lies
there (that wants root; nothing of the host changes). A process turns the counters of a package and its DRAM: the load
is a square wave. The cases:

    plain     no turn of a counter
    turn      each register begins a few joules below its top: one turn
    turns     registers of 100 J: several turns, as in an interval of an hour
    two trees the package once more in `intel-rapl-mmio`
    psys      a platform zone lies between two sockets

pyRAPL and pyJoules are asked at the beginning and the end, as they are meant to be; CodeCarbon samples once a second,
its shortest, and is compared with the packages alone, since it takes the power of memory from a model. Truth is what
the files said at the beginning and the end of each tool's own interval, by the log of whoever wrote them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from replaying import Replay  # noqa: E402 - found there
from trees import meters  # noqa: E402

POWERCAP = meters.POWERCAP
TOOLS = ("millrace", "pyRAPL", "pyJoules", "CodeCarbon")
RANGE = 262_143_328_850
SMALL = 100_000_000
SERVER = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram"}
TWO_SOCKETS = {**SERVER, "intel-rapl:1": "psys", "intel-rapl:2": "package-1", "intel-rapl:2:0": "dram"}
TWO_TREES = {**SERVER, "intel-rapl-mmio:0": "package-0"}
CASES = {
    "plain": (SERVER, RANGE, 0),
    "turn": (SERVER, RANGE, RANGE - 60_000_000),
    "turns": (SERVER, SMALL, 0),
    "two trees": (TWO_TREES, RANGE, 0),
    "psys": (TWO_SOCKETS, RANGE, 0),
}

ASK = """
import json, logging, os, sys, time, warnings
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
tool, seconds = sys.argv[1], float(sys.argv[2])
import contextlib, io
with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
    if tool == "pyRAPL":
        import pyRAPL
        pyRAPL.setup()
        meter = pyRAPL.Measurement("x")
        cpu, start = time.process_time(), time.monotonic_ns()
        meter.begin(); time.sleep(seconds); meter.end()
        end, cpu = time.monotonic_ns(), time.process_time() - cpu
        parts = [*(meter._results.pkg or []), *(meter._results.dram or [])]
        joules = sum(parts) / 1e6
    elif tool == "pyJoules":
        from pyJoules.device.rapl_device import RaplDevice
        from pyJoules.energy_meter import EnergyMeter
        device = RaplDevice()
        wanted = [d for d in device.available_domains() if d.get_domain_name() in ("package", "dram")]
        device.configure(wanted)
        meter = EnergyMeter([device])
        cpu, start = time.process_time(), time.monotonic_ns()
        meter.start(); time.sleep(seconds); meter.stop()
        end, cpu = time.monotonic_ns(), time.process_time() - cpu
        joules = sum(sum(sample.energy.values()) for sample in meter.get_trace()) / 1e6
    else:
        from codecarbon import OfflineEmissionsTracker
        tracker = OfflineEmissionsTracker(country_iso_code="DEU", measure_power_secs=1, save_to_file=False,
                                          log_level="critical", allow_multiple_runs=True)
        tracker.start()
        # It takes seconds to begin: what it costs and counts is looked at from then on.
        cpu, start = time.process_time(), time.monotonic_ns()
        time.sleep(seconds)
        end, cpu = time.monotonic_ns(), time.process_time() - cpu
        tracker.stop()
        joules = tracker.final_emissions_data.cpu_energy * 3.6e6
print(json.dumps({"joules": joules, "start_ns": start, "end_ns": end, "cpu_s": cpu}))
"""

OURS = """
import json, sys, time
from pathlib import Path
from agents.power.reader import MeteredHost
from agents.power.meter import measure
from agents.power.settings import PowerSettings
cpu = time.process_time()
got = measure(MeteredHost(Path(sys.argv[1])), PowerSettings(), float(sys.argv[2]), lambda left: None)
print(json.dumps({"joules": got.total.joules, "start_ns": got.start_ns, "end_ns": got.end_ns,
                  "bound": got.total.bound_joules, "flags": got.total.flags, "cpu_s": time.process_time() - cpu}))
"""

MOUNTS = """
mount -t tmpfs none /sys/class && mkdir /sys/class/powercap && mount --bind "$1" /sys/class/powercap && shift
exec "$@"
"""


def plant(root: Path, zones: dict[str, str], size: int) -> None:
    """A tree as the kernel has it: zones flat, and the children inside their parents and the control type too."""
    for folder, name in zones.items():
        for path, text in meters.zone(folder, name, size).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")
    for folder in zones:
        inside = folder.rpartition(":")[0]
        parent = root / POWERCAP / inside
        parent.mkdir(exist_ok=True)
        (parent / folder).symlink_to(f"../{folder}")
    (root / POWERCAP / "intel-rapl/subsystem").symlink_to("..")


def ask(tool: str, root: Path, python: str, seconds: float) -> dict[str, float] | str:
    """What a tool says, or why it says nothing."""
    command = [sys.executable, "-c", OURS, str(root), str(seconds)]
    if tool != "millrace":
        asked = [python, "-c", ASK, tool, str(seconds)]
        command = ["unshare", "--mount", "sh", "-c", MOUNTS, "sh", str(root / POWERCAP), *asked]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} if tool == "millrace" else None
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:100]
    said: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def run(case: str, tool: str, python: str, seconds: float) -> str:
    zones, size, offset = CASES[case]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        plant(root, zones, size)
        waves = {}
        for folder, kind in zones.items():
            low, high = {"package": (20.0, 80.0), "dram": (2.0, 6.0), "psys": (60.0, 120.0)}[kind.partition("-")[0]]
            waves[f"{POWERCAP}/{folder}/energy_uj"] = (low, high, 0.5, size + 61)
        with Replay(root, waves, offset) as replay:
            said = ask(tool, root, python, seconds)
        if isinstance(said, str):
            return f"nothing: {said}"
        terms = [f"{POWERCAP}/{folder}/energy_uj" for folder, kind in zones.items() if _counts(tool, folder, kind)]
        between = [replay.joules_between(path, said["start_ns"], said["end_ns"]) for path in terms]
        truth = sum(sum(ends) / 2 for ends in between)
        if said["joules"] is None:
            return f"missing of {truth:.1f} J"
        bound = f" +- {said['bound']:.2f}" if "bound" in said else ""
        flags = f" {','.join(said['flags'])}" if said.get("flags") else ""
        error = (said["joules"] - truth) / truth
        length = (said["end_ns"] - said["start_ns"]) / 1e9
        cost = f"CPU {said['cpu_s'] / length:.2%}"
        return f"{said['joules']:.1f}{bound} J of {truth:.1f} J ({error:+.2%}){flags}; {cost}"


def _counts(tool: str, folder: str, kind: str) -> bool:
    if kind == "dram" and tool == "CodeCarbon":
        return False
    return kind != "psys" and not folder.startswith("intel-rapl-mmio")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--python", required=True, help="the Python that has the others installed")
    options.add_argument("--seconds", type=float, default=8.0)
    given = options.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {given.seconds:g} s each")
    for case in CASES:
        for tool in TOOLS:
            print(f"{case:<10} {tool:<11} {run(case, tool, given.python, given.seconds)}", flush=True)


if __name__ == "__main__":
    main()
