"""Online cores (`cpuN/online`): whole physical cores, evenly over the sockets, the highest offline first."""

from agents.cpu import smt
from agents.cpu.feature import SettingChange, View, cpus_to_wake
from agents.cpu.request import CpuRequest
from agents.cpu.result import Refusal
from agents.cpu.snapshot import Snapshot
from agents.cpu.topology import FOLDER, Core, Topology, parse_list, switch
from agents.host_files import Finding, HostFiles

ON, OFF = "1", "0"


def probe(host: HostFiles) -> Finding:
    """Check whether CPUs can be turned off and on."""
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
    """Return the `online` files of all CPUs that have one, in order of CPU number."""
    numbers = sorted(int(name[3:]) for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdigit())
    return [switch(cpu) for cpu in numbers if host.exists(switch(cpu))]


def refusals(request: CpuRequest, view: View) -> list[Refusal]:
    """Refuse more cores than there are, or fewer than possible."""
    if request.cores is None or request.cores == len(view.topology.cores_online):
        return []
    found = probe(view.host)
    if found.status != "ok":
        there = len(view.topology.cores_online)
        return [Refusal("cores", str(request.cores), str(there), found.reason)]
    most = len(view.topology.cores) + _sleeping_cores(view.topology)
    least = len(cores_to_keep(view.topology, 1))
    if request.cores > most:
        reason = f"there are {most} physical cores"
    elif request.cores < least:
        reason = "every socket keeps one core online, and CPUs without an `online` file stay online"
    else:
        return []
    return [Refusal("cores", str(request.cores), f"{least} to {most}" if least < most else str(most), reason)]


def changes(request: CpuRequest, view: View) -> list[SettingChange]:
    """Return cores to turn on, then cores to turn off, the highest first.

    When more cores are requested than the kernel describes, all offline CPUs are turned on first. The kernel then
    describes their cores, and a second pass turns off the surplus.
    """
    if request.cores is None:
        return []
    topology = view.topology
    if request.cores > len(topology.cores):
        asleep = [cpu for core in topology.cores for cpu in _to_wake(core, view)]
        return [_turn(view, cpu, on=True) for cpu in sorted({*topology.unknown, *asleep})]
    keep = cores_to_keep(topology, request.cores)
    on = [cpu for core in keep for cpu in _to_wake(core, view)]
    off = [cpu for core in topology.cores if core not in keep for cpu in core.cpus if cpu not in topology.fixed]
    return [_turn(view, cpu, on=True) for cpu in on] + [_turn(view, cpu, on=False) for cpu in sorted(off, reverse=True)]


def changes_back(before: Snapshot, view: View) -> list[SettingChange]:
    """Return CPUs to turn on: those that were online, and those of policies that must be restored."""
    were_on = {path for path in paths(view.host) if before.values.get(path) == ON}
    asleep = {switch(cpu) for cpu in cpus_to_wake(before, view.host)}
    off_now = [path for path in paths(view.host) if view.host.read_if_there(path) == OFF]
    return [SettingChange(_name(path), path, OFF, ON, ON) for path in off_now if path in were_on | asleep]


def changes_off_again(before: Snapshot, view: View) -> list[SettingChange]:
    """Return CPUs that were offline before, the highest first; they are restored last."""
    on_now = [path for path in paths(view.host) if view.host.read_if_there(path) == ON]
    return [
        SettingChange(_name(path), path, ON, OFF, OFF) for path in reversed(on_now) if before.values.get(path) == OFF
    ]


def cores_to_keep(topology: Topology, number: int) -> tuple[Core, ...]:
    """Return the cores that stay online when `number` are requested; more when no other can be turned off."""
    stays = list(topology.cores)
    while len(stays) > number:
        in_socket = {socket: [core for core in stays if core.socket == socket] for socket in topology.sockets}
        # The socket with the most cores loses its highest core; of equal sockets, the highest.
        for _, socket in sorted(((len(cores), socket) for socket, cores in in_socket.items()), reverse=True):
            free = [core for core in in_socket[socket] if not topology.fixed.intersection(core.cpus)]
            if free and len(in_socket[socket]) > 1:
                stays.remove(free[-1])
                break
        else:
            break
    return tuple(stays)


def online_mask(host: HostFiles) -> frozenset[int] | None:
    """Return the kernel's list of online CPUs; None where there is none."""
    try:
        return frozenset(parse_list(host.read(f"{FOLDER}/online")))
    except (OSError, ValueError):
        return None


def _to_wake(core: Core, view: View) -> list[int]:
    """Return the CPUs of a core that is entirely offline, without siblings that SMT keeps offline."""
    if view.topology.online.intersection(core.cpus):
        return []
    return list(core.cpus[:1] if smt.is_off(view.host) else core.cpus)


def _sleeping_cores(topology: Topology) -> int:
    """Return the number of cores of undescribed CPUs, assuming that they are like the other cores."""
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    return -(-len(topology.unknown) // threads)


def _turn(view: View, cpu: int, on: bool) -> SettingChange:
    value = ON if on else OFF
    return SettingChange(_name(switch(cpu)), switch(cpu), view.host.read_if_there(switch(cpu)) or "", value, value)


def _name(path: str) -> str:
    return path.split("/")[-2]
