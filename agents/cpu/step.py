"""What every feature of `agents.cpu` is made of: the state it looks at, the steps it asks for, and how one is taken."""

from dataclasses import dataclass
from typing import Protocol

from agents.cpu.answer import Refusal, Setting
from agents.cpu.policies import Policy, read_policies
from agents.cpu.snapshot import Snapshot
from agents.cpu.topology import Core, Topology, read_topology
from agents.cpu.wish import CpuRequest
from agents.host_files import Finding, HostFiles


@dataclass(frozen=True, slots=True)
class View:
    """A host's CPUs at one moment: its files, its topology and the policies whose CPUs are on line."""

    host: HostFiles
    topology: Topology
    policies: tuple[Policy, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One value to write.

    Attributes:
        what: the setting in words.
        path: the file.
        before: what it holds.
        asked: what shall take effect.
        write: what is written: `asked`, or the nearest that the hardware takes.
        within: how far what is read back may be from `asked`; 0 for words.
        grain: steps in which the driver rounds what it is given; 0 when it does not.
    """

    what: str
    path: str
    before: str
    asked: str
    write: str
    within: int = 0
    grain: int = 0

    def accepts(self, got: str) -> bool:
        """Whether this value is what was asked for."""
        return _near(got, self.asked, self.within)

    @property
    def is_taken(self) -> bool:
        """Whether writing would change nothing, up to the driver's rounding."""
        return _near(self.before, self.write, self.grain)


class Feature(Protocol):
    """One kernel feature that can be set; every module of a feature is one."""

    def probe(self, host: HostFiles) -> Finding:
        """Whether this host lets us set it."""

    def paths(self, host: HostFiles) -> list[str]:
        """The files that can be set and are there now."""

    def refusals(self, wish: CpuRequest, view: View) -> list[Refusal]:
        """What of the wish is impossible here."""

    def steps(self, wish: CpuRequest, view: View) -> list[Step]:
        """What to write, in order, for the wish to come true; those that are right already included."""

    def steps_back(self, before: Snapshot, view: View) -> list[Step]:
        """What to write, in order, for its files to hold what they held."""


def look(host: HostFiles, known: tuple[Core, ...] = ()) -> View:
    """Read everything anew."""
    topology = read_topology(host, known)
    return View(host, topology, read_policies(host, topology.online))


def take(step: Step, host: HostFiles) -> Setting:
    """Write a step, also when it seems to be taken already, and read back what took effect."""
    reason = ""
    if step.before != step.write:
        try:
            host.write(step.path, step.write)
        except OSError as fault:
            reason = f"writing {step.write!r}: {fault.strerror or fault}"
    got = host.read_if_there(step.path)
    ok = got is not None and step.accepts(got)
    if ok:
        # A driver that refuses what it already holds has done no harm.
        reason = ""
    elif not reason:
        reason = "it cannot be read back" if got is None else f"the driver made it {got!r}"
    return Setting(step.what, step.path, step.before, step.asked, got, ok, reason)


def differing(what: str, paths: list[str], before: Snapshot, view: View) -> list[Step]:
    """One step back for every file that holds something else than it did."""
    steps = []
    for path in paths:
        old, now = before.value(path), view.host.read_if_there(path)
        if old is not None and now is not None and now != old:
            steps.append(Step(f"{what} of {path.split('/')[-2]}", path, now, old, old))
    return steps


def hidden(before: Snapshot, host: HostFiles) -> frozenset[int]:
    """CPUs to turn on because their policy has something to be put back, and cannot be read while they are off."""
    return frozenset(
        int(folder[6:])
        for path in before.later
        if (folder := path.split("/")[-2]).startswith("policy")
        and host.exists(path)
        and host.read_if_there(path) is None
    )


def settable(host: HostFiles, paths: list[str], absent: str) -> Finding:
    """Whether files are there and may be written; `absent` says what it means that there is none."""
    if not paths:
        return Finding("absent", absent)
    for path in paths:
        try:
            host.read(path)
        except PermissionError:
            return Finding("denied", f"/{path} may not be read by this user")
        except OSError as fault:
            return Finding("unreadable", f"/{path} cannot be read: {fault.strerror}")
        if not host.is_writable(path):
            return Finding("denied", f"/{path} may not be written by this user")
    return Finding("ok", f"{len(paths)} files" if len(paths) > 1 else f"/{paths[0]}")


def _near(value: str, other: str, within: int) -> bool:
    if value == other:
        return True
    return bool(within) and value.isdigit() and other.isdigit() and abs(int(value) - int(other)) <= within
