"""Probes of the features of a host other than power, one per feature."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from agents.cpu import frequency, hotplug
from agents.host_files import Finding, HostFiles

CLOCKSOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
PROGRAM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
"""Search path for programs; administration tools are often not on a user's path."""


def program(name: str, purpose: str) -> Finding:
    """Return whether a program is installed."""
    found = shutil.which(name, path=PROGRAM_PATH)
    return Finding("ok", found) if found else Finding("absent", f"the program {name} is not installed; {purpose}")


def tc(host: HostFiles) -> Finding:
    """Probe the shaping of links."""
    found = program("tc", "links cannot be shaped (Debian: apt install iproute2)")
    if found.status == "ok" and os.geteuid() != 0:
        return Finding("denied", f"{found.reason}; only root may shape links")
    return found


def netem(host: HostFiles) -> Finding:
    """Probe the kernel's emulation of delay and loss, without using it; only use shows for certain that it works."""
    if host.exists("sys/module/sch_netem"):
        return Finding("ok", "sch_netem is loaded")
    release = os.uname().release
    for folder in (f"lib/modules/{release}", f"usr/lib/modules/{release}"):
        for index in ("modules.builtin", "modules.dep"):
            if "/sch_netem.ko" in (host.read_if_there(f"{folder}/{index}") or ""):
                return Finding("ok", f"sch_netem belongs to this kernel (/{folder}/{index})")
    return Finding("absent", f"no module sch_netem for the kernel {release}")


def cgroups_v2(host: HostFiles) -> Finding:
    """Probe CPU quotas and memory limits in the unified hierarchy."""
    mounts = [where for where, kind, _ in _mounts(host) if kind == "cgroup2"]
    if not mounts:
        return Finding("absent", "no cgroup2 file system is mounted")
    where = mounts[0].lstrip("/")
    controllers = (host.read_if_there(f"{where}/cgroup.controllers") or "").split()
    if "cpu" not in controllers:
        return Finding("absent", f"/{where} is mounted, but without the cpu controller")
    return _owned(host, where, f"controllers {' '.join(controllers)}")


def cgroups_v1(host: HostFiles) -> Finding:
    """Probe CPU quotas and memory limits in one hierarchy per controller."""
    mounts = [(where, options) for where, kind, options in _mounts(host) if kind == "cgroup" and "cpu" in options]
    if not mounts:
        return Finding("absent", "no cgroup file system with the cpu controller is mounted")
    return _owned(host, mounts[0][0].lstrip("/"), f"cpu controller at {mounts[0][0]}")


def namespaces(host: HostFiles) -> Finding:
    """Probe namespaces, for nodes with their own network and root."""
    kinds = [kind for kind in ("net", "mnt", "uts", "pid", "user") if host.exists(f"proc/self/ns/{kind}")]
    if not {"net", "mnt"} <= set(kinds):
        return Finding("absent", "the kernel has no network and mount namespaces")
    if os.geteuid() == 0:
        return Finding("ok", f"{' '.join(kinds)}, as root")
    if "user" not in kinds or host.read_if_there("proc/sys/user/max_user_namespaces") == "0":
        return Finding("denied", "not root, and users may not make namespaces of their own")
    for switch, closed in (("unprivileged_userns_clone", "0"), ("apparmor_restrict_unprivileged_userns", "1")):
        if host.read_if_there(f"proc/sys/kernel/{switch}") == closed:
            return Finding("denied", f"not root, and kernel.{switch} is {closed}")
    return Finding("ok", f"{' '.join(kinds)}, through user namespaces")


def clock(host: HostFiles) -> Finding:
    """Probe the clock for intervals and latencies."""
    source = host.read_if_there(CLOCKSOURCE)
    if source is None:
        return Finding("absent", f"there is no /{CLOCKSOURCE}")
    resolution = time.clock_getres(time.CLOCK_MONOTONIC) * 1e9
    return Finding("ok", f"clock source {source}, CLOCK_MONOTONIC in steps of {resolution:g} ns")


CHECKS: Mapping[str, Callable[[HostFiles], Finding]] = {
    "cpufreq": frequency.probe,
    "hotplug": hotplug.probe,
    "tc": tc,
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


def _owned(host: HostFiles, folder: str, what: str) -> Finding:
    if not host.is_writable(folder):
        return Finding("denied", f"{what}; this user may not make groups in /{folder}")
    return Finding("ok", what)
