"""Online CPUs: whole physical cores (`cpuN/online`), and siblings of a core (`smt/control`).

Cores stay online evenly over the sockets, the highest go offline first. Of SMT, only `on` and `off` are written:
`forceoff` cannot be undone without a reboot.
"""

from agents.cpu.feature import CpuView, Feature, SettingChange, cpus_to_wake, settable
from agents.cpu.journal import CpuSnapshot
from agents.cpu.request import CpuRequest, Refusal
from agents.cpu.topology import FOLDER, Core, CpuTopology, online_file, parse_list
from agents.host_files import HostFiles, ProbeResult

SMT_CONTROL = f"{FOLDER}/smt/control"
_SMT_SETTABLE = ("on", "off")

ON, OFF = "1", "0"


class Smt(Feature):
    """Simultaneous multithreading: whether the siblings of a core are online."""

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether SMT can be turned on and off."""
        state = host.read_if_there(SMT_CONTROL)
        if state is not None and state not in _SMT_SETTABLE:
            return ProbeResult("absent", f"SMT cannot be set: /{SMT_CONTROL} holds {state!r}")
        return settable(host, [SMT_CONTROL] if host.exists(SMT_CONTROL) else [], f"there is no /{SMT_CONTROL}")

    def paths(self, host: HostFiles) -> list[str]:
        """Return the control file, when it can be set."""
        return [SMT_CONTROL] if host.read_if_there(SMT_CONTROL) in _SMT_SETTABLE else []

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse SMT on a host without it, or where the firmware fixes it."""
        if request.smt is None:
            return []
        probed = self.probe(view.host)
        if probed.status == "ok" or (
            not request.smt and view.host.read_if_there(SMT_CONTROL) in {"notsupported", "forceoff"}
        ):
            return []
        return [Refusal("smt", _on_or_off(request.smt), "", probed.reason)]

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the change of the control file; the kernel turns siblings on or off with it."""
        if request.smt is None:
            return []
        return [
            SettingChange(
                "SMT", path, view.host.read_if_there(path) or "", _on_or_off(request.smt), _on_or_off(request.smt)
            )
            for path in self.paths(view.host)
        ]

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Turn SMT on first: siblings that it keeps offline cannot be turned on one by one."""
        wanted = before.value(SMT_CONTROL) == "on" or cpus_to_wake(before, view.host)
        return (
            [SettingChange("SMT", SMT_CONTROL, "off", "on", "on")]
            if wanted and view.host.read_if_there(SMT_CONTROL) == "off"
            else []
        )

    def changes_off_again(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Turn SMT off, once all settings of siblings are restored."""
        off = before.value(SMT_CONTROL) == "off" and view.host.read_if_there(SMT_CONTROL) == "on"
        return [SettingChange("SMT", SMT_CONTROL, "on", "off", "off")] if off else []


class OnlineCores(Feature):
    """Number of online cores."""

    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether CPUs can be turned off and on."""
        cpus = [name for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdigit()]
        switches = self.paths(host)
        if not switches:
            return ProbeResult("absent", f"none of {len(cpus)} CPUs can be turned off")
        wrong = host.check_number(switches[0])
        if wrong:
            return wrong
        if not host.is_writable(switches[0]):
            return ProbeResult("denied", f"{len(switches)} of {len(cpus)} CPUs can be turned off, but not by this user")
        return ProbeResult("ok", f"{len(switches)} of {len(cpus)} CPUs can be turned off")

    def paths(self, host: HostFiles) -> list[str]:
        """Return the `online` files of all CPUs that have one, in order of CPU number."""
        numbers = sorted(int(name[3:]) for name in host.names(FOLDER) if name.startswith("cpu") and name[3:].isdigit())
        return [online_file(cpu) for cpu in numbers if host.exists(online_file(cpu))]

    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Refuse more cores than there are, or fewer than possible."""
        if request.cores is None or request.cores == len(view.topology.cores_online):
            return []
        probed = self.probe(view.host)
        if probed.status != "ok":
            there = len(view.topology.cores_online)
            return [Refusal("cores", str(request.cores), str(there), probed.reason)]
        most = len(view.topology.cores) + _sleeping_cores(view.topology)
        least = len(cores_to_keep(view.topology, 1))
        if request.cores > most:
            reason = f"there are {most} physical cores"
        elif request.cores < least:
            reason = "every socket keeps one core online, and CPUs without an `online` file stay online"
        else:
            return []
        return [Refusal("cores", str(request.cores), f"{least} to {most}" if least < most else str(most), reason)]

    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
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
        return [_turn(view, cpu, on=True) for cpu in on] + [
            _turn(view, cpu, on=False) for cpu in sorted(off, reverse=True)
        ]

    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return CPUs to turn on: those that were online, and those of policies that must be restored."""
        were_on = {path for path in self.paths(view.host) if before.values.get(path) == ON}
        asleep = {online_file(cpu) for cpu in cpus_to_wake(before, view.host)}
        off_now = [path for path in self.paths(view.host) if view.host.read_if_there(path) == OFF]
        return [SettingChange(_name(path), path, OFF, ON, ON) for path in off_now if path in were_on | asleep]

    def changes_off_again(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return CPUs that were offline before, the highest first; they are restored last."""
        on_now = [path for path in self.paths(view.host) if view.host.read_if_there(path) == ON]
        return [
            SettingChange(_name(path), path, ON, OFF, OFF)
            for path in reversed(on_now)
            if before.values.get(path) == OFF
        ]


def smt_is_off(host: HostFiles) -> bool:
    """Return whether SMT keeps siblings offline."""
    return host.read_if_there(SMT_CONTROL) in {"off", "forceoff"}


def siblings(topology: CpuTopology) -> list[int]:
    """Return the CPUs that go offline with SMT: all but the first of each core."""
    return [cpu for core in topology.cores for cpu in core.cpus[1:]]


def _on_or_off(wanted: bool) -> str:
    return "on" if wanted else "off"


def cores_to_keep(topology: CpuTopology, number: int) -> tuple[Core, ...]:
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


def _to_wake(core: Core, view: CpuView) -> list[int]:
    """Return the CPUs of a core that is entirely offline, without siblings that SMT keeps offline."""
    if view.topology.online.intersection(core.cpus):
        return []
    return list(core.cpus[:1] if smt_is_off(view.host) else core.cpus)


def _sleeping_cores(topology: CpuTopology) -> int:
    """Return the number of cores of undescribed CPUs, assuming that they are like the other cores."""
    threads = max((len(core.cpus) for core in topology.cores), default=1)
    return -(-len(topology.unknown) // threads)


def _turn(view: CpuView, cpu: int, on: bool) -> SettingChange:
    value = ON if on else OFF
    return SettingChange(
        _name(online_file(cpu)), online_file(cpu), view.host.read_if_there(online_file(cpu)) or "", value, value
    )


def _name(path: str) -> str:
    return path.split("/")[-2]
