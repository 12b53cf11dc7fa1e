"""Probes of a host's features other than power, and recordings of its files for later study.

A recording has copies of the files about power meters and CPU settings. The recorded tree stands for `/` in commands
with the option `--sysfs`. Unreadable files are empty in it, and their errors are in `recording.json`, so that reading
the recording raises the same errors. Serial numbers are left out.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agents.cpu.plan import CLOCK_RANGE, CORES
from agents.host_files import HostFiles, ProbeResult
from agents.power.reader import RECORDING, REFUSED
from inventory.atomic_files import replacing_folder
from inventory.errors import InputError
from inventory.own_files import OutputFolder
from inventory.times import utc_stamp

CLOCKSOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
PROGRAM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
"""Search path for programs; administration tools are often not on a user's path."""

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


def program(name: str, purpose: str) -> ProbeResult:
    """Return whether a program is installed."""
    file = shutil.which(name, path=PROGRAM_PATH)
    return ProbeResult("ok", file) if file else ProbeResult("absent", f"the program {name} is not installed; {purpose}")


def probe_tc(host: HostFiles) -> ProbeResult:
    """Probe the shaping of links."""
    tc = program("tc", "links cannot be shaped (Debian: apt install iproute2)")
    if tc.status == "ok" and os.geteuid() != 0:
        return ProbeResult("denied", f"{tc.reason}; only root may shape links")
    return tc


def netem(host: HostFiles) -> ProbeResult:
    """Probe the kernel's emulation of delay and loss, without using it; only use shows for certain that it works."""
    if host.exists("sys/module/sch_netem"):
        return ProbeResult("ok", "sch_netem is loaded")
    release = os.uname().release
    for folder in (f"lib/modules/{release}", f"usr/lib/modules/{release}"):
        for index in ("modules.builtin", "modules.dep"):
            if "/sch_netem.ko" in (host.read_if_there(f"{folder}/{index}") or ""):
                return ProbeResult("ok", f"sch_netem belongs to this kernel (/{folder}/{index})")
    return ProbeResult("absent", f"no module sch_netem for the kernel {release}")


def cgroups_v2(host: HostFiles) -> ProbeResult:
    """Probe CPU quotas and memory limits in the unified hierarchy."""
    mounts = [where for where, kind, _ in _mounts(host) if kind == "cgroup2"]
    if not mounts:
        return ProbeResult("absent", "no cgroup2 file system is mounted")
    where = mounts[0].lstrip("/")
    controllers = (host.read_if_there(f"{where}/cgroup.controllers") or "").split()
    if "cpu" not in controllers:
        return ProbeResult("absent", f"/{where} is mounted, but without the cpu controller")
    return _owned(host, where, f"controllers {' '.join(controllers)}")


def cgroups_v1(host: HostFiles) -> ProbeResult:
    """Probe CPU quotas and memory limits in one hierarchy per controller."""
    mounts = [(where, options) for where, kind, options in _mounts(host) if kind == "cgroup" and "cpu" in options]
    if not mounts:
        return ProbeResult("absent", "no cgroup file system with the cpu controller is mounted")
    return _owned(host, mounts[0][0].lstrip("/"), f"cpu controller at {mounts[0][0]}")


def namespaces(host: HostFiles) -> ProbeResult:
    """Probe namespaces, for nodes with their own network and root."""
    kinds = [kind for kind in ("net", "mnt", "uts", "pid", "user") if host.exists(f"proc/self/ns/{kind}")]
    if not {"net", "mnt"} <= set(kinds):
        return ProbeResult("absent", "the kernel has no network and mount namespaces")
    if os.geteuid() == 0:
        return ProbeResult("ok", f"{' '.join(kinds)}, as root")
    if "user" not in kinds or host.read_if_there("proc/sys/user/max_user_namespaces") == "0":
        return ProbeResult("denied", "not root, and users may not make namespaces of their own")
    for switch, closed in (("unprivileged_userns_clone", "0"), ("apparmor_restrict_unprivileged_userns", "1")):
        if host.read_if_there(f"proc/sys/kernel/{switch}") == closed:
            return ProbeResult("denied", f"not root, and kernel.{switch} is {closed}")
    return ProbeResult("ok", f"{' '.join(kinds)}, through user namespaces")


def clock(host: HostFiles) -> ProbeResult:
    """Probe the clock for intervals and latencies."""
    source = host.read_if_there(CLOCKSOURCE)
    if source is None:
        return ProbeResult("absent", f"there is no /{CLOCKSOURCE}")
    resolution = time.clock_getres(time.CLOCK_MONOTONIC) * 1e9
    return ProbeResult("ok", f"clock source {source}, CLOCK_MONOTONIC in steps of {resolution:g} ns")


CHECKS: Mapping[str, Callable[[HostFiles], ProbeResult]] = {
    "cpufreq": CLOCK_RANGE.probe,
    "hotplug": CORES.probe,
    "tc": probe_tc,
    "netem": netem,
    "cgroups-v2": cgroups_v2,
    "cgroups-v1": cgroups_v1,
    "namespaces": namespaces,
    "clock": clock,
}
"""Name -> probe."""


def _mounts(host: HostFiles) -> Iterator[tuple[str, str, list[str]]]:
    """Yield mount point, type of file system and options of every mount."""
    for line in (host.read_if_there("proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) >= 4:
            yield fields[1], fields[2], fields[3].split(",")


def _owned(host: HostFiles, folder: str, what: str) -> ProbeResult:
    if not host.is_writable(folder):
        return ProbeResult("denied", f"{what}; this user may not make groups in /{folder}")
    return ProbeResult("ok", what)


class Recorded(NamedTuple):
    """Summary of a recording: the number of files, and the unreadable ones with the reason."""

    files: int
    refused: dict[str, str]


def record(root: Path, target: Path) -> Recorded:
    """Copy the files of the host below `root` into the new folder `target`.

    Raises:
        InputError: `target` exists already.
        UnfitError: it cannot be written.
    """
    if os.path.lexists(target):
        raise InputError(f"{target} exists already; give the name of a new folder")
    with replacing_folder(target, OutputFolder("no new folder", "")) as partial:
        return _copy(root, partial)


def _copy(root: Path, target: Path) -> Recorded:
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
        "recorded_at": utc_stamp("seconds"),
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
