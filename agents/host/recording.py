"""A recording of a host: copies of the files about its power meters and CPU settings.

The recorded tree stands for `/` in commands with the option `--sysfs`. Unreadable files are empty in it, and their
errors are in `recording.json`, so that reading the recording raises the same errors. Serial numbers are left out.
"""

import json
import os
import time
from pathlib import Path
from typing import NamedTuple

from agents.power.host import RECORDING, REFUSED
from inventory.errors import InputError, RunError

PATTERNS = (
    "sys/class/powercap/*/*",
    "sys/bus/event_source/devices/power/*",
    "sys/bus/event_source/devices/power/events/*",
    "sys/bus/event_source/devices/power/format/*",
    "sys/class/hwmon/*/name",
    "sys/class/hwmon/*/energy*",
    "sys/class/hwmon/*/power*",
    "sys/class/hwmon/*/in*_*",
    "sys/class/hwmon/*/curr*",
    "sys/class/power_supply/*/*",
    "sys/devices/system/cpu/*",
    "sys/devices/system/cpu/smt/*",
    "sys/devices/system/cpu/intel_pstate/*",
    "sys/devices/system/cpu/amd_pstate/*",
    "sys/devices/system/cpu/cpufreq/*",
    "sys/devices/system/cpu/cpufreq/policy*/*",
    "sys/devices/system/cpu/cpu[0-9]*/online",
    "sys/devices/system/cpu/cpu[0-9]*/topology/*",
    "sys/devices/system/cpu/cpu[0-9]*/cpufreq/*",
    "sys/devices/system/cpu/cpu[0-9]*/acpi_cppc/*",
    "sys/devices/system/clocksource/clocksource0/current_clocksource",
    "proc/cpuinfo",
    "proc/self/status",
    "proc/sys/kernel/perf_event_paranoid",
)
"""The files that meters and CPU settings use."""

_SECRET = ("serial", "uuid", "uevent")
_LARGEST = 1 << 20


class Recorded(NamedTuple):
    """Summary of a recording: the number of files, and the unreadable ones with the reason."""

    files: int
    refused: dict[str, str]


def record(root: Path, target: Path) -> Recorded:
    """Copy the files of the host below `root` into the new folder `target`.

    Raises:
        InputError: `target` exists already.
        RunError: it cannot be written.
    """
    if target.exists():
        raise InputError(f"{target} exists already; give the name of a new folder")
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        found = _copy(root, partial)
        partial.rename(target)
    except OSError as fault:
        raise RunError(f"{target} cannot be written: {fault.strerror or fault}") from None
    return found


def _copy(root: Path, target: Path) -> Recorded:
    target.mkdir(parents=True)
    codes: dict[str, int] = {}
    files = 0
    for path in sorted({path for pattern in PATTERNS for path in root.glob(pattern) if path.is_file()}):
        name = str(path.relative_to(root))
        if any(secret in path.name.lower() for secret in _SECRET):
            continue
        content = b""
        try:
            content = _readable(path)
        except OSError as fault:
            # Write-only files are not needed.
            if not path.stat().st_mode & 0o444:
                continue
            codes[name] = fault.errno or 0
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
        files += 1
    about = {
        "recorded_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "kernel": os.uname().release,
        REFUSED: codes,
    }
    (target / RECORDING).write_text(json.dumps(about, indent=2) + "\n")
    return Recorded(files, {name: os.strerror(code) for name, code in codes.items()})


def _readable(path: Path) -> bytes:
    with path.open("rb", buffering=0) as source:
        content = source.read(_LARGEST)
    lines = content.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.lower().startswith(b"serial"))
