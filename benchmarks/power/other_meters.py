"""Compare the energy that `millrace meter`, pyRAPL, pyJoules and CodeCarbon read from the same counters.

    python -m venv peers && peers/bin/pip install pyRAPL pyJoules codecarbon
    sudo .venv/bin/python benchmarks/power/other_meters.py --python peers/bin/python [--seconds 8]

The other tools read `/sys/class/powercap` only. They run in a mount namespace with a simulated tree there, which needs
root and leaves the host unchanged. A process advances the counters of a package and its DRAM; power is a square wave.
The cases:

    plain     no counter overflow
    overflow  each counter begins a few joules below its range: one overflow
    overflows counters with a range of 100 J: several overflows, as in an interval of an hour
    two trees the package appears again in `intel-rapl-mmio`
    psys      a platform zone lies between two sockets

pyRAPL and pyJoules read at the beginning and the end, as documented. CodeCarbon samples once per second, its shortest
interval, and is compared with the packages only, since it models the power of memory. The reference is the difference
of the counters over each tool's own interval, from the log of the process that writes them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from counter_replay import CounterReplay  # noqa: E402 - needs the path above
from trees import meters  # noqa: E402

POWERCAP = meters.POWERCAP
TOOLS = ("millrace", "pyRAPL", "pyJoules", "CodeCarbon")
RANGE_UJ = 262_143_328_850
SMALL_RANGE_UJ = 100_000_000
SERVER = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram"}
TWO_SOCKETS = {**SERVER, "intel-rapl:1": "psys", "intel-rapl:2": "package-1", "intel-rapl:2:0": "dram"}
TWO_TREES = {**SERVER, "intel-rapl-mmio:0": "package-0"}
CASES = {
    "plain": (SERVER, RANGE_UJ, 0),
    "overflow": (SERVER, RANGE_UJ, RANGE_UJ - 60_000_000),
    "overflows": (SERVER, SMALL_RANGE_UJ, 0),
    "two trees": (TWO_TREES, RANGE_UJ, 0),
    "psys": (TWO_SOCKETS, RANGE_UJ, 0),
}
"""Name -> zones, range of the counters, and their first value."""

MEASURE_OTHER = """
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
        # The start takes seconds and is not measured.
        cpu, start = time.process_time(), time.monotonic_ns()
        time.sleep(seconds)
        end, cpu = time.monotonic_ns(), time.process_time() - cpu
        tracker.stop()
        joules = tracker.final_emissions_data.cpu_energy * 3.6e6
print(json.dumps({"joules": joules, "start_ns": start, "end_ns": end, "cpu_s": cpu}))
"""

MEASURE_MILLRACE = """
import json, sys, time
from pathlib import Path
from agents.power.reader import MeteredHost
from agents.power.meter import start_metering
from agents.power.settings import PowerSettings
cpu = time.process_time()
got = start_metering(MeteredHost(Path(sys.argv[1])), PowerSettings(), float(sys.argv[2]), lambda left: None)
print(json.dumps({"joules": got.total.joules, "start_ns": got.start_ns, "end_ns": got.end_ns,
                  "bound": got.total.bound_joules, "flags": got.total.flags, "cpu_s": time.process_time() - cpu}))
"""

MOUNT_AND_RUN = """
mount -t tmpfs none /sys/class && mkdir /sys/class/powercap && mount --bind "$1" /sys/class/powercap && shift
exec "$@"
"""


def write_tree(root: Path, zones: dict[str, str], range_uj: int) -> None:
    """Write a powercap tree as the kernel lays it out: zones side by side, with links from their parents."""
    for folder, name in zones.items():
        for path, text in meters.zone(folder, name, range_uj).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{text}\n")
    for folder in zones:
        parent = root / POWERCAP / folder.rpartition(":")[0]
        parent.mkdir(exist_ok=True)
        (parent / folder).symlink_to(f"../{folder}")
    (root / POWERCAP / "intel-rapl/subsystem").symlink_to("..")


def run_tool(tool: str, root: Path, python: str, seconds: float) -> dict[str, Any] | str:
    """Return the output of a tool, or its last error line."""
    command = [sys.executable, "-c", MEASURE_MILLRACE, str(root), str(seconds)]
    if tool != "millrace":
        measure = [python, "-c", MEASURE_OTHER, tool, str(seconds)]
        command = ["unshare", "--mount", "sh", "-c", MOUNT_AND_RUN, "sh", str(root / POWERCAP), *measure]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)} if tool == "millrace" else None
    completed = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    if completed.returncode:
        return (completed.stderr.strip().splitlines() or ["no error message"])[-1][:100]
    output: dict[str, Any] = json.loads(completed.stdout.strip().splitlines()[-1])
    return output


def measure_case(case: str, tool: str, python: str, seconds: float) -> str:
    """Run a tool on a case; return its energy, error and CPU time as text."""
    zones, range_uj, offset_uj = CASES[case]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o755)
        write_tree(root, zones, range_uj)
        waves = {}
        for folder, kind in zones.items():
            low, high = {"package": (20.0, 80.0), "dram": (2.0, 6.0), "psys": (60.0, 120.0)}[kind.partition("-")[0]]
            waves[f"{POWERCAP}/{folder}/energy_uj"] = (low, high, 0.5, range_uj + 61)
        with CounterReplay(root, waves, offset_uj) as replay:
            output = run_tool(tool, root, python, seconds)
        if isinstance(output, str):
            return f"failed: {output}"
        paths = [f"{POWERCAP}/{folder}/energy_uj" for folder, kind in zones.items() if _is_counted(tool, folder, kind)]
        ranges = [replay.joules_between(path, output["start_ns"], output["end_ns"]) for path in paths]
        reference = sum(sum(ends) / 2 for ends in ranges)
        if output["joules"] is None:
            return f"missing of {reference:.1f} J"
        bound = f" +- {output['bound']:.2f}" if "bound" in output else ""
        flags = f" {','.join(output['flags'])}" if output.get("flags") else ""
        error = (output["joules"] - reference) / reference
        interval_s = (output["end_ns"] - output["start_ns"]) / 1e9
        cpu = f"CPU {output['cpu_s'] / interval_s:.2%}"
        return f"{output['joules']:.1f}{bound} J of {reference:.1f} J ({error:+.2%}){flags}; {cpu}"


def _is_counted(tool: str, folder: str, kind: str) -> bool:
    if kind == "dram" and tool == "CodeCarbon":
        return False
    return kind != "psys" and not folder.startswith("intel-rapl-mmio")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="Python of the environment with the other tools")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds per tool and case (default: 8)")
    options = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {options.seconds:g} s each")
    for case in CASES:
        for tool in TOOLS:
            print(f"{case:<10} {tool:<11} {measure_case(case, tool, options.python, options.seconds)}", flush=True)


if __name__ == "__main__":
    main()
