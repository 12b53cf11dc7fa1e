"""Topology of a host: its CPUs, which of them are online, and their cores and sockets.

The kernel describes the topology of online CPUs only; offline CPUs are known from an earlier snapshot, or not at all.
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
        online: CPUs that are online.
        fixed: CPUs that cannot be turned off.
        cores: known cores, ordered by their lowest CPU.
    """

    present: tuple[int, ...]
    online: frozenset[int]
    fixed: frozenset[int]
    cores: tuple[Core, ...]

    @property
    def unknown(self) -> tuple[int, ...]:
        """Offline CPUs of cores that the kernel does not describe."""
        known = {cpu for core in self.cores for cpu in core.cpus}
        return tuple(cpu for cpu in self.present if cpu not in known)

    @property
    def cores_online(self) -> tuple[Core, ...]:
        """Cores with at least one online CPU."""
        return tuple(core for core in self.cores if self.online.intersection(core.cpus))

    @property
    def sockets(self) -> tuple[int, ...]:
        """Sockets with a known core."""
        return tuple(sorted({core.socket for core in self.cores}))


def switch(cpu: int) -> str:
    """Return the file that turns a CPU on and off."""
    return f"{FOLDER}/cpu{cpu}/online"


def parse_list(text: str) -> tuple[int, ...]:
    """Parse a kernel's list of CPUs, such as `0-3,8`.

    Raises:
        ValueError: the text is not such a list.
    """
    found: list[int] = []
    for part in filter(None, text.replace(" ", ",").split(",")):
        first, dash, last = part.partition("-")
        found.extend(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(set(found)))


def read_topology(host: HostFiles, known: Iterable[Core] = ()) -> Topology:
    """Read the topology; `known` are cores found earlier, which may be offline now."""
    names = host.names(FOLDER)
    present = tuple(sorted(int(name[3:]) for name in names if name.startswith("cpu") and name[3:].isdigit()))
    mask = _list(host, f"{FOLDER}/online")
    said = {cpu: host.read_if_there(switch(cpu)) for cpu in present}
    # A CPU without an `online` file is online, unless the kernel's mask excludes it.
    online = {cpu for cpu in present if (said[cpu] == "1" if said[cpu] is not None else mask is None or cpu in mask)}
    fixed = {cpu for cpu in present if not host.exists(switch(cpu))}
    sockets: dict[frozenset[int], int] = {frozenset(core.cpus): core.socket for core in known}
    for cpu in sorted(online):
        found = _siblings(host, cpu)
        if found is None:
            continue
        siblings, socket = found
        # The kernel does not list an offline sibling, so earlier cores are merged.
        for earlier in [other for other in sockets if other & siblings]:
            siblings |= earlier
            del sockets[earlier]
        sockets[siblings] = socket
    cores = sorted((Core(socket, tuple(sorted(cpus))) for cpus, socket in sockets.items()), key=lambda core: core.cpus)
    return Topology(present, frozenset(online), frozenset(fixed), tuple(cores))


def with_switched(topology: Topology, switched: Mapping[int, bool]) -> frozenset[int]:
    """Return the online CPUs once those of `switched` are on (True) or off (False)."""
    return frozenset(cpu for cpu in topology.present if switched.get(cpu, cpu in topology.online))


def _siblings(host: HostFiles, cpu: int) -> tuple[frozenset[int], int] | None:
    """Return the CPUs of this CPU's core, itself included, and its socket."""
    folder = f"{FOLDER}/cpu{cpu}/topology"
    if not host.exists(folder):
        return frozenset({cpu}), 0
    siblings = _list(host, f"{folder}/core_cpus_list") or _list(host, f"{folder}/thread_siblings_list") or ()
    socket = host.read_if_there(f"{folder}/physical_package_id") or ""
    # Some ARM firmware reports -1 for an unknown socket.
    return frozenset({cpu, *siblings}), int(socket) if socket.isdigit() else 0


def _list(host: HostFiles, path: str) -> tuple[int, ...] | None:
    try:
        return parse_list(host.read(path))
    except (OSError, ValueError):
        return None
