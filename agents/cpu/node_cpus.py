"""CPU settings of this agent's node: changed and restored by commands, and restored when the agent ends.

After either, the CPU affinity of the agent and its workers is restored as well. Processes survive when a CPU goes
offline, but their affinity does not fully come back with the CPU: a process that was bound to that CPU alone may use
all others from then on, and a cgroup v1 `cpuset` drops the CPU for all its processes.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from agents.cpu.control import CpuControl
from agents.cpu.journal import Lock
from agents.cpu.plan import plan
from agents.cpu.request import CpuRequest, CpuResult
from agents.cpu.topology import FOLDER, parse_list
from agents.host_files import HostFiles
from agents.protocol import CpuSetting, CpusSet, SetCpus
from inventory.errors import MillraceError

_PROC, _ONLINE = Path("/proc"), Path("/", FOLDER, "online")
_FIELD = "Cpus_allowed_list:"

_KEPT_BACK = "its control group (cpuset) no longer contains them"

_log = logging.getLogger(__name__)


class BoundProcess(NamedTuple):
    """A process that was not allowed to use some online CPUs: its CPUs before, as wanted, and now."""

    process: int
    before: frozenset[int]
    wanted: frozenset[int]
    now: frozenset[int]

    @property
    def ok(self) -> bool:
        """True if the process may use all wanted CPUs again."""
        return self.wanted <= self.now


class CpuAffinity:
    """Affinity of this process at construction, to be restored later for it and other processes."""

    def __init__(self) -> None:
        self._wanted = _allowed(_PROC / str(os.getpid())) or frozenset()

    def restore_all(self, processes: Iterable[int]) -> list[BoundProcess]:
        """Allow processes the saved CPUs that are online, in addition to those that they may use already.

        Args:
            processes: process ids; processes that have ended are skipped.

        Returns:
            The processes that lacked some of these CPUs.
        """
        try:
            wanted = self._wanted & frozenset(parse_list(_ONLINE.read_text().strip()))
        except (OSError, ValueError):
            return []
        return [bound for process in processes for bound in _restore_affinity(process, wanted)]


def _restore_affinity(process: int, wanted: frozenset[int]) -> Iterator[BoundProcess]:
    folder = _PROC / str(process)
    before = _allowed(folder)
    tasks: list[Path] = []
    with suppress(OSError):
        tasks = list((folder / "task").iterdir())
    lacked = False
    for task in tasks:
        allowed = _allowed(task)
        if allowed is not None and not wanted <= allowed:
            lacked = True
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), allowed | wanted)
    now = _allowed(folder)
    if lacked and before is not None and now is not None:
        yield BoundProcess(process, before, wanted, now)


def _allowed(folder: Path) -> frozenset[int] | None:
    """Return the CPUs that a task may use, offline ones included; None when it has ended."""
    try:
        lines = (folder / "status").read_text().splitlines()
        return frozenset(parse_list(next(line for line in lines if line.startswith(_FIELD)).split()[1]))
    except (OSError, StopIteration, ValueError):
        return None


def format_cpus(cpus: Iterable[int]) -> str:
    """Format CPUs as the kernel lists them, one by one: `0,2,3`."""
    return ",".join(map(str, sorted(cpus)))


class NodeCpus:
    """Handler of the CPU commands. Calls must not overlap; each may take seconds.

    Args:
        host: the node's files.
        owner: name shown to a second campaign that requests the same node.
        affinity: CPU affinity of the agent at its start.
        processes: returns the process ids of the agent, its workers, and the process that forks them.
    """

    def __init__(
        self, host: HostFiles, owner: str, affinity: CpuAffinity, processes: Callable[[], Iterable[int]]
    ) -> None:
        self._host, self._owner = host, owner
        self._affinity, self._processes = affinity, processes
        self._control = CpuControl(host, owner)

    def set(self, command: SetCpus) -> CpusSet:
        """Carry out a command; the reply reports settings that are impossible."""
        if command.check:
            return _as_message(lambda: self._check(command))
        cpus_set = _as_message(lambda: self._set(command))
        return structs.replace(cpus_set, settings=cpus_set.settings + self._restore_affinity())

    def restore(self) -> CpusSet:
        """Restore everything; do nothing when nothing was changed."""

        def restore() -> CpuResult:
            restored = self._control.restore()
            self._control = CpuControl(self._host, self._owner)
            return restored

        cpus_set = _as_message(restore)
        for setting in self._restore_affinity():
            _log.info("%s: %s, were %s %s", setting.setting, setting.got, setting.before, setting.reason)
        return cpus_set

    def _restore_affinity(self) -> tuple[CpuSetting, ...]:
        """Restore the affinity of processes after CPUs were offline; return what changed."""
        return tuple(
            CpuSetting(
                setting=f"CPUs of process {bound.process}",
                before=format_cpus(bound.before),
                asked=format_cpus(bound.wanted),
                got=format_cpus(bound.now),
                ok=bound.ok,
                reason="" if bound.ok else _KEPT_BACK,
            )
            for bound in self._affinity.restore_all(self._processes())
        )

    def _check(self, command: SetCpus) -> CpuResult:
        planned = plan(CpuRequest.from_document(command.settings), self._host)
        if not planned.refused:
            # Without the lock, later commands would fail.
            Lock(self._host.root, self._owner).close()
        return planned

    def _set(self, command: SetCpus) -> CpuResult:
        if command.hz is not None:
            return self._control.set_frequency(command.hz)
        return self._control.apply(CpuRequest.from_document(command.settings))


def _as_message(work: Callable[[], CpuResult]) -> CpusSet:
    try:
        outcome = work()
    except MillraceError as fault:
        return CpusSet(refused=(str(fault),))
    return CpusSet(
        settings=tuple(
            CpuSetting(setting=s.what, before=s.before, asked=s.asked, got=s.got, ok=s.ok is True, reason=s.reason)
            for s in outcome.settings
        ),
        refused=tuple(str(refusal) for refusal in outcome.refused),
    )
