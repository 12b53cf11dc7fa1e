"""Topology of a host: its CPUs, which of them are online, their cores and sockets, and their cpufreq policies.

The kernel describes the topology of online CPUs only; offline CPUs are known from an earlier snapshot, or not at all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agents.host_files import HostFiles

FOLDER = "sys/devices/system/cpu"

POLICIES = f"{FOLDER}/cpufreq"


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core: its socket (`physical_package_id`) and its CPUs, ascending."""

    socket: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CpuTopology:
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


def online_file(cpu: int) -> str:
    """Return the file that turns a CPU on and off."""
    return f"{FOLDER}/cpu{cpu}/online"


def parse_list(text: str) -> tuple[int, ...]:
    """Parse a kernel's list of CPUs, such as `0-3,8`.

    Raises:
        ValueError: the text is not such a list.
    """
    numbers: list[int] = []
    for part in filter(None, text.replace(" ", ",").split(",")):
        first, dash, last = part.partition("-")
        numbers.extend(range(int(first), int(last if dash else first) + 1))
    return tuple(sorted(set(numbers)))


def as_list(cpus: Iterable[int]) -> str:
    """Return CPU numbers in the kernel's list format: `0-2,5`."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][-1] == cpu - 1:
            parts[-1] = [parts[-1][0], cpu]
        else:
            parts.append([cpu])
    return ",".join("-".join(map(str, part)) for part in parts)


def read_topology(host: HostFiles, known: Iterable[Core] = ()) -> CpuTopology:
    """Read the topology; `known` are cores found earlier, which may be offline now."""
    names = host.names(FOLDER)
    present = tuple(sorted(int(name[3:]) for name in names if name.startswith("cpu") and name[3:].isdigit()))
    mask = _list(host, f"{FOLDER}/online")
    switches = {cpu: host.read_if_there(online_file(cpu)) for cpu in present}
    # A CPU without an `online` file is online, unless the kernel's mask excludes it.
    online = {
        cpu for cpu in present if (switches[cpu] == "1" if switches[cpu] is not None else mask is None or cpu in mask)
    }
    fixed = {cpu for cpu in present if not host.exists(online_file(cpu))}
    sockets: dict[frozenset[int], int] = {frozenset(core.cpus): core.socket for core in known}
    for cpu in sorted(online):
        place = _siblings(host, cpu)
        if place is None:
            continue
        siblings, socket = place
        # The kernel does not list an offline sibling, so earlier cores are merged.
        for earlier in [other for other in sockets if other & siblings]:
            siblings |= earlier
            del sockets[earlier]
        sockets[siblings] = socket
    cores = sorted((Core(socket, tuple(sorted(cpus))) for cpus, socket in sockets.items()), key=lambda core: core.cpus)
    return CpuTopology(present, frozenset(online), frozenset(fixed), tuple(cores))


def with_switched(topology: CpuTopology, switched: Mapping[int, bool]) -> frozenset[int]:
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


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy with at least one online CPU. Clocks are in kHz; None when the kernel does not report a value.

    Attributes:
        name: such as `policy0`.
        cpus: all its CPUs, offline ones included.
        driver: the cpufreq driver.
        governor: current governor.
        governors: available governors.
        low, high: current range (`scaling_min_freq`, `scaling_max_freq`).
        lowest, highest: hardware range (`cpuinfo_min_freq`, `cpuinfo_max_freq`).
        base: the highest clock without turbo.
        table: available clocks, ascending; empty when every clock is available.
        epp: current energy-performance preference.
        epps: available preferences.
    """

    name: str
    cpus: tuple[int, ...]
    driver: str
    governor: str | None
    governors: tuple[str, ...]
    low: int | None
    high: int | None
    lowest: int | None
    highest: int | None
    base: int | None
    table: tuple[int, ...]
    epp: str | None
    epps: tuple[str, ...]

    def file(self, name: str) -> str:
        """Return the path of one of its files."""
        return f"{POLICIES}/{self.name}/{name}"


def read_policies(host: HostFiles, online: frozenset[int]) -> tuple[Policy, ...]:
    """Read the policies with an online CPU, in order of number.

    When all CPUs of a policy are offline, some kernels remove its files; with others, reading them fails with EBUSY.
    """
    names = [name for name in host.names(POLICIES) if name.startswith("policy") and name[6:].isdigit()]
    policies = (_read(host, name) for name in sorted(names, key=lambda name: int(name[6:])))
    return tuple(policy for policy in policies if policy and online.intersection(policy.cpus))


def _read(host: HostFiles, name: str) -> Policy | None:
    def text(file: str) -> str | None:
        return host.read_if_there(f"{POLICIES}/{name}/{file}") or None

    def clock(file: str) -> int | None:
        value = text(file)
        return int(value) if value and value.isdigit() else None

    driver = text("scaling_driver")
    if driver is None:
        return None
    try:
        cpus = parse_list(text("related_cpus") or text("affected_cpus") or name[6:])
    except ValueError:
        cpus = (int(name[6:]),)
    listed = f"{text('scaling_available_frequencies') or ''} {text('scaling_boost_frequencies') or ''}"
    return Policy(
        name=name,
        cpus=cpus,
        driver=driver,
        governor=text("scaling_governor"),
        governors=tuple((text("scaling_available_governors") or "").split()),
        low=clock("scaling_min_freq"),
        high=clock("scaling_max_freq"),
        lowest=clock("cpuinfo_min_freq"),
        highest=clock("cpuinfo_max_freq"),
        base=clock("base_frequency"),
        table=tuple(sorted({int(word) for word in listed.split() if word.isdigit()})),
        epp=text("energy_performance_preference"),
        epps=tuple((text("energy_performance_available_preferences") or "").split()),
    )


def no_policy(host: HostFiles) -> str:
    """Return the message for a host without cpufreq, and whether that is usual there."""
    return f"no cpufreq policy (usual in virtual machines{', and this is one' if host.is_virtual else ''})"
