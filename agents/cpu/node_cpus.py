"""The CPUs of this agent's node: set as the controller asks, and put back when it says so or the agent ends.

After either the agent and its workers may use the CPUs again that they had.
"""

import logging
from collections.abc import Callable, Iterable

from msgspec import structs

from agents.cpu.affinity import Affinity, as_list
from agents.cpu.answer import CpuAnswer
from agents.cpu.control import CpuControl
from agents.cpu.journal import Lock
from agents.cpu.plan import plan
from agents.cpu.wish import CpuRequest
from agents.host_files import HostFiles
from agents.protocol import CpuSetting, CpusSet, SetCpus
from inventory.errors import MillraceError

_KEPT_BACK = "its control group (cpuset) does not have them any more"

_log = logging.getLogger(__name__)


class NodeCpus:
    """Answers the commands about CPUs. One call at a time; each may take seconds.

    Args:
        host: the node's files.
        owner: who is named to a second campaign that wants the same.
        affinity: of the agent at its start.
        processes: gives the ids of the agent, its workers, and who makes them.
    """

    def __init__(self, host: HostFiles, owner: str, affinity: Affinity, processes: Callable[[], Iterable[int]]) -> None:
        self._host, self._owner = host, owner
        self._affinity, self._processes = affinity, processes
        self._control = CpuControl(host, owner)

    def set(self, command: SetCpus) -> CpusSet:
        """Do what the command says, or say why that is impossible."""
        if command.check:
            return _answered(lambda: self._check(command))
        answer = _answered(lambda: self._set(command))
        return structs.replace(answer, settings=answer.settings + self._give_back())

    def restore(self) -> CpusSet:
        """Put everything back; nothing happens when nothing was set."""

        def restore() -> CpuAnswer:
            answer = self._control.restore()
            self._control = CpuControl(self._host, self._owner)
            return answer

        answer = _answered(restore)
        for setting in self._give_back():
            _log.info("%s: %s, were %s %s", setting.setting, setting.got, setting.before, setting.reason)
        return answer

    def _give_back(self) -> tuple[CpuSetting, ...]:
        """What processes lacked that CPUs on line have taken along, and whether they have it again."""
        return tuple(
            CpuSetting(
                setting=f"CPUs of process {bound.process}",
                before=as_list(bound.before),
                asked=as_list(bound.wanted),
                got=as_list(bound.now),
                ok=bound.ok,
                reason="" if bound.ok else _KEPT_BACK,
            )
            for bound in self._affinity.give_back(self._processes())
        )

    def _check(self, command: SetCpus) -> CpuAnswer:
        answer = plan(CpuRequest.from_document(command.settings), self._host)
        if not answer.refused:
            # Who may not take it, or finds it taken, could set nothing later.
            Lock(self._host.root, self._owner).close()
        return answer

    def _set(self, command: SetCpus) -> CpuAnswer:
        if command.hz is not None:
            return self._control.set_frequency(command.hz)
        return self._control.apply(CpuRequest.from_document(command.settings))


def _answered(work: Callable[[], CpuAnswer]) -> CpusSet:
    try:
        answer = work()
    except MillraceError as fault:
        return CpusSet(refused=(str(fault),))
    return CpusSet(
        settings=tuple(
            CpuSetting(setting=s.what, before=s.before, asked=s.asked, got=s.got, ok=s.ok is True, reason=s.reason)
            for s in answer.settings
        ),
        refused=tuple(str(refusal) for refusal in answer.refused),
    )
