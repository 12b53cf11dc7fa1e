"""Simultaneous multithreading (`smt/control`): whether the siblings of a core are online.

Only `on` and `off` are written: `forceoff` cannot be undone without a reboot.
"""

from agents.cpu.feature import SettingChange, View, cpus_to_wake, settable
from agents.cpu.request import CpuRequest
from agents.cpu.result import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.topology import FOLDER, Topology
from agents.host_files import Finding, HostFiles

CONTROL = f"{FOLDER}/smt/control"
SETTABLE = ("on", "off")


def probe(host: HostFiles) -> Finding:
    """Check whether SMT can be turned on and off."""
    state = host.read_if_there(CONTROL)
    if state is not None and state not in SETTABLE:
        return Finding("absent", f"SMT cannot be set: /{CONTROL} holds {state!r}")
    return settable(host, [CONTROL] if host.exists(CONTROL) else [], f"there is no /{CONTROL}")


def paths(host: HostFiles) -> list[str]:
    """Return the control file, when it can be set."""
    return [CONTROL] if host.read_if_there(CONTROL) in SETTABLE else []


def refusals(request: CpuRequest, view: View) -> list[Refusal]:
    """Refuse SMT on a host without it, or where the firmware fixes it."""
    if request.smt is None:
        return []
    found = probe(view.host)
    if found.status == "ok" or (not request.smt and view.host.read_if_there(CONTROL) in {"notsupported", "forceoff"}):
        return []
    return [Refusal("smt", _word(request.smt), "", found.reason)]


def changes(request: CpuRequest, view: View) -> list[SettingChange]:
    """Return the change of the control file; the kernel turns siblings on or off with it."""
    if request.smt is None:
        return []
    return [
        SettingChange("SMT", path, view.host.read_if_there(path) or "", _word(request.smt), _word(request.smt))
        for path in paths(view.host)
    ]


def changes_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Turn SMT on first: siblings that it keeps offline cannot be turned on one by one."""
    wanted = before.value(CONTROL) == "on" or cpus_to_wake(before, view.host)
    return (
        [SettingChange("SMT", CONTROL, "off", "on", "on")]
        if wanted and view.host.read_if_there(CONTROL) == "off"
        else []
    )


def changes_off_again(before: Snapshot, view: View) -> list[SettingChange]:
    """Turn SMT off, once all settings of siblings are restored."""
    off = before.value(CONTROL) == "off" and view.host.read_if_there(CONTROL) == "on"
    return [SettingChange("SMT", CONTROL, "on", "off", "off")] if off else []


def is_off(host: HostFiles) -> bool:
    """Return whether SMT keeps siblings offline."""
    return host.read_if_there(CONTROL) in {"off", "forceoff"}


def siblings(topology: Topology) -> list[int]:
    """Return the CPUs that go offline with SMT: all but the first of each core."""
    return [cpu for core in topology.cores for cpu in core.cpus[1:]]


def _word(wanted: bool) -> str:
    return "on" if wanted else "off"
