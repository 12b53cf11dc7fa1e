"""Interface of the features of `agents.cpu`: the state they read, the changes they return, and how one is written."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from agents.cpu.journal import CpuSnapshot
from agents.cpu.request import CpuRequest, Refusal, Setting
from agents.cpu.topology import Core, CpuTopology, Policy, read_policies, read_topology
from agents.host_files import HostFiles, ProbeResult


@dataclass(frozen=True, slots=True)
class CpuView:
    """State of a host's CPUs at one moment: its files, its topology and the policies with online CPUs."""

    host: HostFiles
    topology: CpuTopology
    policies: tuple[Policy, ...]


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One value to write.

    Attributes:
        what: the setting as text.
        path: the file.
        before: current value.
        asked: requested value.
        write: value to write: `asked`, or the nearest that the hardware supports.
        within: tolerance of the value read back from `asked`; 0 for text.
        grain: rounding of the driver; 0 when it does not round.
    """

    what: str
    path: str
    before: str
    asked: str
    write: str
    within: int = 0
    grain: int = 0

    def accepts(self, got: str) -> bool:
        """Return whether this value is the requested one, within the tolerance."""
        return _near(got, self.asked, self.within)

    @property
    def is_in_effect(self) -> bool:
        """True if writing would change nothing, up to the driver's rounding."""
        return _near(self.before, self.write, self.grain)


class Feature(ABC):
    """One kernel feature that can be set."""

    @abstractmethod
    def probe(self, host: HostFiles) -> ProbeResult:
        """Check whether this process can set it on this host."""

    @abstractmethod
    def paths(self, host: HostFiles) -> list[str]:
        """Return the files that exist now and can be set."""

    @abstractmethod
    def refusals(self, request: CpuRequest, view: CpuView) -> list[Refusal]:
        """Return the impossible settings of the request."""

    @abstractmethod
    def changes(self, request: CpuRequest, view: CpuView) -> list[SettingChange]:
        """Return the values to write, in order, including those that are already set."""

    @abstractmethod
    def changes_back(self, before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
        """Return the values to write, in order, to restore its files."""


def read_view(host: HostFiles, known: tuple[Core, ...] = ()) -> CpuView:
    """Read the current state."""
    topology = read_topology(host, known)
    return CpuView(host, topology, read_policies(host, topology.online))


def write_change(change: SettingChange, host: HostFiles) -> Setting:
    """Write a value unless the file holds it already, and read back what took effect."""
    reason = ""
    if change.before != change.write:
        try:
            host.write(change.path, change.write)
        except OSError as fault:
            reason = f"writing {change.write!r}: {fault.strerror or fault}"
    got = host.read_if_there(change.path)
    ok = got is not None and change.accepts(got)
    if ok:
        # A driver may reject a value that it already holds.
        reason = ""
    elif not reason:
        reason = "it cannot be read back" if got is None else f"the driver made it {got!r}"
    return Setting(change.what, change.path, change.before, change.asked, got, ok, reason)


def differing(what: str, paths: list[str], before: CpuSnapshot, view: CpuView) -> list[SettingChange]:
    """Return one change for every file whose value differs from the original one."""
    changes = []
    for path in paths:
        old, now = before.value(path), view.host.read_if_there(path)
        if old is not None and now is not None and now != old:
            changes.append(SettingChange(f"{what} of {path.split('/')[-2]}", path, now, old, old))
    return changes


def cpus_to_wake(before: CpuSnapshot, host: HostFiles) -> frozenset[int]:
    """Return offline CPUs whose policy must be restored, which is only possible while they are online."""
    return frozenset(
        int(folder[6:])
        for path in before.later
        if (folder := path.split("/")[-2]).startswith("policy")
        and host.exists(path)
        and host.read_if_there(path) is None
    )


def settable(host: HostFiles, paths: list[str], absent: str) -> ProbeResult:
    """Check that files exist and may be written; `absent` is the reason when there is none."""
    if not paths:
        return ProbeResult("absent", absent)
    for path in paths:
        try:
            host.read(path)
        except PermissionError:
            return ProbeResult("denied", f"/{path} may not be read by this user")
        except OSError as fault:
            return ProbeResult("unreadable", f"/{path} cannot be read: {fault.strerror}")
        if not host.is_writable(path):
            return ProbeResult("denied", f"/{path} may not be written by this user")
    return ProbeResult("ok", f"{len(paths)} files" if len(paths) > 1 else f"/{paths[0]}")


def _near(value: str, other: str, within: int) -> bool:
    if value == other:
        return True
    return bool(within) and value.isdigit() and other.isdigit() and abs(int(value) - int(other)) <= within
