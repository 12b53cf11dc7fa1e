"""A machine whose energy counter follows a known power model; a separate process advances the counter.

CPU times are those of the real machine; the clock is what is written to the tree.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from trees import meters

POLICY = "sys/devices/system/cpu/cpufreq/policy0"
COUNTER = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
LOW_KHZ, HIGH_KHZ = 1_000_000, 3_000_000

PROGRAM = """
import json, os, sys, time
from pathlib import Path

root, (p_s, p_d, kappa, reference) = Path(sys.argv[1]), json.loads(sys.argv[2])
counter, clock, limit = (root / sys.argv[at] for at in (3, 4, 5))
stat, fresh = root / "proc/stat", root / "proc/stat.new"

def look():
    lines = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
    fields = [list(map(int, line.split()[1:8])) for line in lines if line[3].isdigit()]
    busy = [sum(f[:3]) + f[5] + f[6] for f in fields]
    return lines, sum(busy) / os.sysconf("SC_CLK_TCK") / len(busy)

def write(path, number):
    descriptor = os.open(path, os.O_WRONLY)
    os.pwrite(descriptor, f"{number:020d}\\n".encode(), 0)
    os.close(descriptor)

joules, at_s = 1.0, time.monotonic()
_, busy_s = look()
parent = os.getppid()
while os.getppid() == parent:
    lines, now_busy_s = look()
    # What the kernel says of a CPU may fall a little.
    now_busy_s = max(busy_s, now_busy_s)
    now_s = time.monotonic()
    khz = int(limit.read_text() or reference)
    joules += p_s * (now_s - at_s) + p_d * (khz / reference) ** kappa * (now_busy_s - busy_s)
    at_s, busy_s = now_s, now_busy_s
    fresh.write_text("\\n".join(lines))
    fresh.rename(stat)
    write(counter, int(joules * 1e6))
    write(clock, khz)
    time.sleep(0.005)
"""


class PowerModelParameters(NamedTuple):
    """Parameters of the power model."""

    p_s: float
    p_d: float
    kappa: float


class ModelledMachine:
    """Tree below `root` whose counters advance within `with`."""

    def __init__(self, root: Path, parameters: PowerModelParameters) -> None:
        lines = [line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu")]
        last = len(lines) - 2
        policy = {
            "scaling_driver": "acpi-cpufreq",
            "related_cpus": f"0-{last}",
            "affected_cpus": f"0-{last}",
            "scaling_governor": "performance",
            "scaling_available_governors": "performance powersave",
            "cpuinfo_min_freq": str(LOW_KHZ),
            "cpuinfo_max_freq": str(HIGH_KHZ),
            "scaling_min_freq": str(LOW_KHZ),
            "scaling_max_freq": str(HIGH_KHZ),
            "scaling_cur_freq": str(HIGH_KHZ),
        }
        files = {
            **meters.zone("intel-rapl:0", "package-0"),
            **{f"{POLICY}/{name}": text for name, text in policy.items()},
            **{f"sys/devices/system/cpu/cpu{n}/uevent": "" for n in range(last + 1)},
            "proc/stat": "\n".join(lines),
        }
        self.root, self._parameters = meters.plant(root, files), parameters

    @property
    def limits(self) -> tuple[str, str]:
        """Current limits of the clock, in kHz."""
        low, high = ((self.root / POLICY / name).read_text() for name in ("scaling_min_freq", "scaling_max_freq"))
        return low.strip(), high.strip()

    def __enter__(self) -> "ModelledMachine":
        files = (COUNTER, f"{POLICY}/scaling_cur_freq", f"{POLICY}/scaling_max_freq")
        parameters = json.dumps([*self._parameters, HIGH_KHZ])
        self._child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(self.root), parameters, *files])
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.poll() is None
        self._child.kill()
        self._child.wait()
