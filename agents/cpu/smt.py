"""Simultaneous multithreading (`smt/control`): whether the siblings of a core are on line.

Only `on` and `off` are written: `forceoff` cannot be taken back without a reboot.
"""

from agents.cpu.answer import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, hidden, settable
from agents.cpu.topology import FOLDER, Topology
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles

CONTROL = f"{FOLDER}/smt/control"
SETTABLE = ("on", "off")


def probe(host: HostFiles) -> Finding:
    """Whether SMT can be turned on and off."""
    state = host.read_if_there(CONTROL)
    if state is not None and state not in SETTABLE:
        return Finding("absent", f"SMT cannot be set: /{CONTROL} says {state!r}")
    return settable(host, [CONTROL] if host.exists(CONTROL) else [], f"there is no /{CONTROL}")


def paths(host: HostFiles) -> list[str]:
    """The switch, while it can be set."""
    return [CONTROL] if host.read_if_there(CONTROL) in SETTABLE else []


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
    """SMT on a host that has none, or whose firmware has settled it."""
    if wish.smt is None:
        return []
    found = probe(view.host)
    if found.status == "ok" or (not wish.smt and view.host.read_if_there(CONTROL) in {"notsupported", "forceoff"}):
        return []
    return [Refusal("smt", _word(wish.smt), "", found.reason)]


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """The switch; the kernel turns siblings on or off with it."""
    if wish.smt is None:
        return []
    return [
        Step("SMT", path, view.host.read_if_there(path) or "", _word(wish.smt), _word(wish.smt))
        for path in paths(view.host)
    ]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """SMT to turn on: siblings that it keeps off cannot be turned on one by one."""
    wanted = before.value(CONTROL) == "on" or hidden(before, view.host)
    return [Step("SMT", CONTROL, "off", "on", "on")] if wanted and view.host.read_if_there(CONTROL) == "off" else []


def steps_off_again(before: Snapshot, view: View) -> list[Step]:
    """SMT to turn off, once all that siblings hold is put back."""
    off = before.value(CONTROL) == "off" and view.host.read_if_there(CONTROL) == "on"
    return [Step("SMT", CONTROL, "on", "off", "off")] if off else []


def is_off(host: HostFiles) -> bool:
    """Whether siblings are kept off."""
    return host.read_if_there(CONTROL) in {"off", "forceoff"}


def siblings(topology: Topology) -> list[int]:
    """The CPUs that go off with SMT: all but the first of each core."""
    return [cpu for core in topology.cores for cpu in core.cpus[1:]]


def _word(wanted: bool) -> str:
    return "on" if wanted else "off"
