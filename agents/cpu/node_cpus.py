"""CPU settings of this agent's node: changed and restored by commands, and restored when the agent ends.

After either, the CPU affinity of the agent and its workers is restored as well.
"""

import logging
from collections.abc import Callable, Iterable

from msgspec import structs

from agents.cpu.affinity import Affinity, format_cpus
from agents.cpu.control import CpuControl
from agents.cpu.journal import Lock
from agents.cpu.plan import plan
from agents.cpu.request import CpuRequest
from agents.cpu.result import CpuResult
from agents.host_files import HostFiles
from agents.protocol import CpuSetting, CpusSet, SetCpus
from inventory.errors import MillraceError

_KEPT_BACK = "its control group (cpuset) no longer contains them"

_log = logging.getLogger(__name__)


class NodeCpus:
    """Handler of the CPU commands. Calls must not overlap; each may take seconds.

    Args:
        host: the node's files.
        owner: name shown to a second campaign that requests the same node.
        affinity: CPU affinity of the agent at its start.
        processes: returns the process ids of the agent, its workers, and the process that forks them.
    """

    def __init__(self, host: HostFiles, owner: str, affinity: Affinity, processes: Callable[[], Iterable[int]]) -> None:
        self._host, self._owner = host, owner
        self._affinity, self._processes = affinity, processes
        self._control = CpuControl(host, owner)

    def set(self, command: SetCpus) -> CpusSet:
        """Carry out a command; the reply reports settings that are impossible."""
        if command.check:
            return _as_message(lambda: self._check(command))
        result = _as_message(lambda: self._set(command))
        return structs.replace(result, settings=result.settings + self._restore_affinity())

    def restore(self) -> CpusSet:
        """Restore everything; do nothing when nothing was changed."""

        def restore() -> CpuResult:
            result = self._control.restore()
            self._control = CpuControl(self._host, self._owner)
            return result

        result = _as_message(restore)
        for setting in self._restore_affinity():
            _log.info("%s: %s, were %s %s", setting.setting, setting.got, setting.before, setting.reason)
        return result

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
        result = plan(CpuRequest.from_document(command.settings), self._host)
        if not result.refused:
            # Without the lock, later commands would fail.
            Lock(self._host.root, self._owner).close()
        return result

    def _set(self, command: SetCpus) -> CpuResult:
        if command.hz is not None:
            return self._control.set_frequency(command.hz)
        return self._control.apply(CpuRequest.from_document(command.settings))


def _as_message(work: Callable[[], CpuResult]) -> CpusSet:
    try:
        result = work()
    except MillraceError as fault:
        return CpusSet(refused=(str(fault),))
    return CpusSet(
        settings=tuple(
            CpuSetting(setting=s.what, before=s.before, asked=s.asked, got=s.got, ok=s.ok is True, reason=s.reason)
            for s in result.settings
        ),
        refused=tuple(str(refusal) for refusal in result.refused),
    )
