"""Which CPUs there are, which are on line, and which are one core of one socket.

The kernel describes the topology only of CPUs that are on line: the rest is known from before, or not at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.host_files import HostFiles

FOLDER = "sys/devices/system/cpu"


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core: its socket (`physical_package_id`) and its CPUs, ascending."""

    socket: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """The CPUs of a host.

    Attributes:
        present: all CPUs, ascending.
        online: those that work.
        fixed: those that cannot be turned off.
        cores: what is known of cores, by their lowest CPU.
    """

    present: tuple[int, ...]
    online: frozenset[int]
    fixed: frozenset[int]
    cores: tuple[Core, ...]

    @property
    def unknown(self) -> tuple[int, ...]:
        """CPUs that are off and belong to a core that the kernel does not name."""
        known = {cpu for core in self.cores for cpu in core.cpus}
        return tuple(cpu for cpu in self.present if cpu not in known)

    @property
    def cores_online(self) -> tuple[Core, ...]:
        """Cores of which at least one CPU works."""
        return tuple(core for core in self.cores if self.online.intersection(core.cpus))

    @property
    def sockets(self) -> tuple[int, ...]:
        """Sockets with a known core."""
        return tuple(sorted({core.socket for core in self.cores}))


def switch(cpu: int) -> str:
    """The file that turns a CPU on and off."""
    return f"{FOLDER}/cpu{cpu}/online"


def parse_list(text: str) -> tuple[int, ...]:
    """CPUs of a kernel's list, like `0-3,8`.

    Raises:
        ValueError: it is no such list.
    """
    found: list[int] = []
    for part in filter(None, text.replace(" ", ",").split(",")):
        first, dash, last = part.partition("-")
        found.extend(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(set(found)))


def read_topology(host: HostFiles, known: Iterable[Core] = ()) -> Topology:
    """Read the topology; `known` are cores as they were found earlier, which may be off by now."""
    names = host.names(FOLDER)
    present = tuple(sorted(int(name[3:]) for name in names if name.startswith("cpu") and name[3:].isdigit()))
    mask = _list(host, f"{FOLDER}/online")
    said = {cpu: host.read_if_there(switch(cpu)) for cpu in present}
    # A CPU without a switch of its own is on, unless the mask says otherwise.
    online = {cpu for cpu in present if (said[cpu] == "1" if said[cpu] is not None else mask is None or cpu in mask)}
    fixed = {cpu for cpu in present if not host.exists(switch(cpu))}
    sockets: dict[frozenset[int], int] = {frozenset(core.cpus): core.socket for core in known}
    for cpu in sorted(online):
        found = _siblings(host, cpu)
        if found is None:
            continue
        siblings, socket = found
        # While one sibling is off the other does not name it, so that earlier knowledge is joined.
        for earlier in [other for other in sockets if other & siblings]:
            siblings |= earlier
            del sockets[earlier]
        sockets[siblings] = socket
    cores = sorted((Core(socket, tuple(sorted(cpus))) for cpus, socket in sockets.items()), key=lambda core: core.cpus)
    return Topology(present, frozenset(online), frozenset(fixed), tuple(cores))


def with_switched(topology: Topology, switched: Mapping[int, bool]) -> frozenset[int]:
    """CPUs on line once those of `switched` are on (True) or off (False)."""
    return frozenset(cpu for cpu in topology.present if switched.get(cpu, cpu in topology.online))


def _siblings(host: HostFiles, cpu: int) -> tuple[frozenset[int], int] | None:
    """The CPUs of this CPU's core, itself included, and the socket; None where the kernel tells no topology."""
    folder = f"{FOLDER}/cpu{cpu}/topology"
    if not host.exists(folder):
        return frozenset({cpu}), 0
    siblings = _list(host, f"{folder}/core_cpus_list") or _list(host, f"{folder}/thread_siblings_list") or ()
    socket = host.read_if_there(f"{folder}/physical_package_id") or ""
    # Some ARM firmware answers -1: nothing is known of sockets then.
    return frozenset({cpu, *siblings}), int(socket) if socket.isdigit() else 0


def _list(host: HostFiles, path: str) -> tuple[int, ...] | None:
    try:
        return parse_list(host.read(path))
    except (OSError, ValueError):
        return None
