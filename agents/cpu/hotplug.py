"""Cores on line (`cpuN/online`): whole physical cores, evenly over the sockets, the highest off first."""

from agents.cpu import smt
from agents.cpu.answer import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import Step, View, hidden
from agents.cpu.topology import FOLDER, Core, Topology, parse_list, switch
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles

ON, OFF = "1", "0"


def probe(host: HostFiles) -> Finding:
    """Turning CPUs off and on."""
    cpus = [name for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdigit()]
    switches = paths(host)
    if not switches:
        return Finding("absent", f"none of {len(cpus)} CPUs can be turned off")
    wrong = host.check_number(switches[0])
    if wrong:
        return wrong
    if not host.is_writable(switches[0]):
        return Finding("denied", f"{len(switches)} of {len(cpus)} CPUs can be turned off, but not by this user")
    return Finding("ok", f"{len(switches)} of {len(cpus)} CPUs can be turned off")


def paths(host: HostFiles) -> list[str]:
    """The switches of all CPUs that have one, by number."""
    numbers = sorted(int(name[3:]) for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdigit())
    return [switch(cpu) for cpu in numbers if host.exists(switch(cpu))]


def refusals(wish: CpuRequest, view: View) -> list[Refusal]:
    """More cores than there are, or fewer than can be."""
    if wish.cores is None or wish.cores == len(view.topology.cores_online):
        return []
    found = probe(view.host)
    if found.status != "ok":
        there = len(view.topology.cores_online)
        return [Refusal("cores", str(wish.cores), str(there), found.reason)]
    most = len(view.topology.cores) + _sleeping_cores(view.topology)
    least = len(kept(view.topology, 1))
    if wish.cores > most:
        reason = f"there are {most} physical cores"
    elif wish.cores < least:
        reason = "every socket keeps one core, and so do CPUs that have no switch"
    else:
        return []
    return [Refusal("cores", str(wish.cores), f"{least} to {most}" if least < most else str(most), reason)]


def steps(wish: CpuRequest, view: View) -> list[Step]:
    """Cores to turn on, then cores to turn off, the highest first.

    When more cores are wanted than the kernel names, all that are off come first: their cores show then, and a
    second look finds what is too many.
    """
    if wish.cores is None:
        return []
    topology = view.topology
    if wish.cores > len(topology.cores):
        asleep = [cpu for core in topology.cores for cpu in _to_wake(core, view)]
        return [_turn(view, cpu, on=True) for cpu in sorted({*topology.unknown, *asleep})]
    keep = kept(topology, wish.cores)
    on = [cpu for core in keep for cpu in _to_wake(core, view)]
    off = [cpu for core in topology.cores if core not in keep for cpu in core.cpus if cpu not in topology.fixed]
    return [_turn(view, cpu, on=True) for cpu in on] + [_turn(view, cpu, on=False) for cpu in sorted(off, reverse=True)]


def steps_back(before: Snapshot, view: View) -> list[Step]:
    """CPUs to turn on: those that were on, and those of policies that have something to be put back."""
    were_on = {path for path in paths(view.host) if before.values.get(path) == ON}
    asleep = {switch(cpu) for cpu in hidden(before, view.host)}
    off_now = [path for path in paths(view.host) if view.host.read_if_there(path) == OFF]
    return [Step(_name(path), path, OFF, ON, ON) for path in off_now if path in were_on | asleep]


def steps_off_again(before: Snapshot, view: View) -> list[Step]:
    """CPUs that were off before, the highest first: the last that is put back."""
    on_now = [path for path in paths(view.host) if view.host.read_if_there(path) == ON]
    return [Step(_name(path), path, ON, OFF, OFF) for path in reversed(on_now) if before.values.get(path) == OFF]


def kept(topology: Topology, number: int) -> tuple[Core, ...]:
    """The cores that stay when `number` are wanted; more than that where no more can be turned off."""
    stays = list(topology.cores)
    while len(stays) > number:
        in_socket = {socket: [core for core in stays if core.socket == socket] for socket in topology.sockets}
        # The fullest socket gives its highest core; of equals the highest socket.
        for _, socket in sorted(((len(cores), socket) for socket, cores in in_socket.items()), reverse=True):
            free = [core for core in in_socket[socket] if not topology.fixed.intersection(core.cpus)]
            if free and len(in_socket[socket]) > 1:
                stays.remove(free[-1])
                break
        else:
            break
    return tuple(stays)


def mask(host: HostFiles) -> frozenset[int] | None:
    """The kernel's own list of CPUs on line; None where there is none."""
    try:
        return frozenset(parse_list(host.read(f"{FOLDER}/online")))
    except (OSError, ValueError):
        return None


def _to_wake(core: Core, view: View) -> list[int]:
    """The CPUs of a core that is off as a whole, without siblings that SMT keeps off."""
    if view.topology.online.intersection(core.cpus):
        return []
    return list(core.cpus[:1] if smt.is_off(view.host) else core.cpus)


def _sleeping_cores(topology: Topology) -> int:
    """How many cores the CPUs are that the kernel does not describe, if their cores are like the others."""
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    return -(-len(topology.unknown) // threads)


def _turn(view: View, cpu: int, on: bool) -> Step:
    value = ON if on else OFF
    return Step(_name(switch(cpu)), switch(cpu), view.host.read_if_there(switch(cpu)) or "", value, value)


def _name(path: str) -> str:
    return path.split("/")[-2]
