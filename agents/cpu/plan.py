"""CPU settings that a host offers, and a dry run of a request to change them.

The dry run returns the changes that a request would make, and the settings that are impossible. The facts are for
inventories and run records.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from agents.cpu.cores import ON, SMT_CONTROL, OnlineCores, Smt, siblings
from agents.cpu.feature import CpuView, Feature, SettingChange, read_view
from agents.cpu.frequency import ClockRange, Turbo, choices_hz
from agents.cpu.governor import DRIVER_NOTES, DriverMode, Epp, Governor
from agents.cpu.journal import CpuSnapshot
from agents.cpu.request import CpuRequest, CpuResult, Refusal, Setting
from agents.cpu.topology import Core, Policy, with_switched
from agents.host_files import HostFiles

DRIVER_MODE, SMT, CORES, TURBO = DriverMode(), Smt(), OnlineCores(), Turbo()
GOVERNOR, CLOCK_RANGE, EPP = Governor(), ClockRange(), Epp()

FEATURES: tuple[Feature, ...] = (DRIVER_MODE, SMT, CORES, TURBO, GOVERNOR, CLOCK_RANGE, EPP)
"""In the order in which they are set: each may affect the later ones."""

INITIAL_NAMESPACES = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
"""Inode numbers of the host's initial namespaces (Linux, include/uapi/linux/nsfs.h)."""

AS_ROOT = "set once, by provisioning; or by agents that are root (millrace_user: root)"

PROBES = {
    "cores": CORES,
    "governor": GOVERNOR,
    "clock": CLOCK_RANGE,
    "turbo": TURBO,
    "epp": EPP,
    "smt": SMT,
    "driver_mode": DRIVER_MODE,
}


def plan(request: CpuRequest, host: HostFiles, before: CpuSnapshot | None = None) -> CpuResult:
    """Check a request against a host, and predict what would be written.

    Policies of CPUs that must be turned on first do not exist yet and are not predicted.

    Args:
        request: requested settings.
        host: the host.
        before: original settings, when something has been changed since; they include the offline cores.
    """
    view = read_view(host, before.cores if before else ())
    refused = tuple(impossible(request, view))
    closed = why_not_settable(host)
    settings: list[Setting] = []
    changed = False
    for feature in FEATURES:
        changes = feature.changes(request, view) if not refused else []
        settings += [Setting(change.what, change.path, change.before, change.asked) for change in changes]
        changed = changed or not all(change.is_in_effect for change in changes)
        view = _after(view, changes)
    if closed and (changed or refused):
        # One refusal instead of one per file.
        refused = (closed,)
    return CpuResult(changed and not refused, tuple(settings) if not refused else (), refused)


def impossible(request: CpuRequest, view: CpuView) -> list[Refusal]:
    """Return all impossible settings; missing permission is a refusal only where a value must be written."""
    refused: list[Refusal] = []
    for feature in FEATURES:
        changes = [change for change in feature.changes(request, view) if not change.is_in_effect]
        finding = feature.probe(view.host)
        if finding.status != "denied":
            refused += feature.refusals(request, view)
        elif changes:
            refused.append(Refusal(changes[0].what, changes[0].asked, AS_ROOT, finding.reason))
    return refused


def take_snapshot(host: HostFiles) -> CpuSnapshot:
    """Read everything that can be set, before any change."""
    view = read_view(host)
    working = {policy.name for policy in view.policies}
    values: dict[str, str] = {}
    unreadable: list[str] = []
    for feature in FEATURES:
        for path in feature.paths(host):
            folder = path.split("/")[-2]
            if folder.startswith("policy") and folder not in working:
                continue
            try:
                values[path] = host.read(path)
            except OSError:
                unreadable.append(path)
    return CpuSnapshot(host.boot_id, values, {}, tuple(unreadable), view.topology.cores)


def why_not_settable(host: HostFiles) -> Refusal | None:
    """Return why no CPU setting can be changed from here: `/sys` is read-only, or this is a container."""
    if "ro" in _mount_of_sys(host)[1]:
        return Refusal("host", "CPU settings", "", "/sys is mounted read-only")
    if not is_real_sysfs(host):
        return None
    for name, initial in INITIAL_NAMESPACES.items():
        try:
            ours = str((host.root / f"proc/self/ns/{name}").readlink())
        except OSError:
            continue
        if ours != initial:
            reason = f"this process is not in the host's own {name} namespace: a container must not set the host's CPUs"
            return Refusal("host", "CPU settings", "", reason)
    return None


def is_real_sysfs(host: HostFiles) -> bool:
    """Return whether `/sys` is the machine's own, and not a node's copy."""
    return _mount_of_sys(host)[0] == "sysfs"


def _after(view: CpuView, changes: list[SettingChange]) -> CpuView:
    """Return the view after these changes, as far as CPUs go offline or online."""
    switched = {
        int(change.path.split("/")[-2][3:]): change.write == ON for change in changes if change.path.endswith("/online")
    }
    if any(change.path == SMT_CONTROL and change.write == "off" for change in changes):
        switched |= dict.fromkeys(siblings(view.topology), False)
    online = with_switched(view.topology, switched)
    policies = tuple(policy for policy in view.policies if online.intersection(policy.cpus))
    return CpuView(view.host, replace(view.topology, online=online), policies)


def _mount_of_sys(host: HostFiles) -> tuple[str, list[str]]:
    """Return type and options of the mount at /sys; of several the last, which covers the others."""
    kind, options = "", list[str]()
    for line in (host.read_if_there("proc/mounts") or "").splitlines():
        fields = line.split()
        if len(fields) >= 4 and fields[1] in {"/sys", "/sys/devices", "/sys/devices/system", "/sys/devices/system/cpu"}:
            kind, options = fields[2], fields[3].split(",")
    return kind, options


def facts(host: HostFiles, known: tuple[Core, ...] = ()) -> dict[str, Any]:
    """Return facts as JSON: clocks in Hz, null for values that the kernel does not report.

    `frequencies_hz` lists the clocks that every CPU can be fixed at: the driver's table, else both ends of the range.
    `unavailable` maps every setting that this process cannot change to the reason.
    """
    view = read_view(host, known)
    topology = view.topology
    modes = {path.split("/")[-2]: host.read_if_there(path) or "" for path in DRIVER_MODE.paths(host)}
    drivers = sorted({policy.driver for policy in view.policies})
    findings = {name: feature.probe(host) for name, feature in PROBES.items()}
    return {
        "sockets": len(topology.sockets),
        "cores": len(topology.cores),
        "cores_online": len(topology.cores_online),
        "threads": len(topology.present),
        "online": sorted(topology.online),
        "cores_of_sockets": {
            str(socket): [list(core.cpus) for core in topology.cores if core.socket == socket]
            for socket in topology.sockets
        },
        "driver": " ".join(drivers) or None,
        "driver_mode": " ".join(modes.values()) or None,
        "driver_notes": [DRIVER_NOTES[name] for name in drivers if name in DRIVER_NOTES],
        "governors": _common(policy.governors for policy in view.policies),
        "governor": _same([policy.governor for policy in view.policies]),
        "epps": _common(policy.epps for policy in view.policies),
        "epp": _same([policy.epp for policy in view.policies]),
        "frequencies_hz": choices_hz(view.policies),
        "turbo": TURBO.state(host),
        "smt": host.read_if_there(SMT_CONTROL),
        "policies": [_policy(policy) for policy in view.policies],
        "unavailable": {name: finding.reason for name, finding in findings.items() if finding.status != "ok"},
    }


def _policy(policy: Policy) -> dict[str, Any]:
    def hz(khz: int | None) -> int | None:
        return None if khz is None else khz * 1000

    return {
        "name": policy.name,
        "cpus": list(policy.cpus),
        "driver": policy.driver,
        "governor": policy.governor,
        "min_hz": hz(policy.low),
        "max_hz": hz(policy.high),
        "hardware_min_hz": hz(policy.lowest),
        "hardware_max_hz": hz(policy.highest),
        "base_hz": hz(policy.base),
        "epp": policy.epp,
    }


def _common(choices: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the choices that all policies offer."""
    sets = [set(choice) for choice in choices]
    return sorted(set.intersection(*sets)) if sets else []


def _same(values: list[str | None]) -> str | None:
    """Return the value that all policies share; None when they differ or there is none."""
    return values[0] if len(set(values)) == 1 else None
