"""The CPUs of this agent's node: set as the controller asks, and put back when it says so or the agent ends."""

from collections.abc import Callable

from agents.cpu.answer import Answer
from agents.cpu.control import CpuControl
from agents.cpu.journal import Lock
from agents.cpu.plan import plan
from agents.cpu.wish import CpuWish
from agents.probing import HostFiles
from agents.protocol import CpuSetting, CpusSet, SetCpus
from inventory.errors import MillraceError


class NodeCpus:
    """Answers the commands about CPUs. One call at a time; each may take seconds.

    Args:
        host: the node's files.
        owner: who is named to a second campaign that wants the same.
    """

    def __init__(self, host: HostFiles, owner: str) -> None:
        self._host, self._owner = host, owner
        self._control = CpuControl(host, owner)

    def set(self, command: SetCpus) -> CpusSet:
        """Do what the command says, or say why that is impossible."""
        return _answered(lambda: self._check(command) if command.check else self._set(command))

    def restore(self) -> CpusSet:
        """Put everything back; nothing happens when nothing was set."""

        def restore() -> Answer:
            answer = self._control.restore()
            self._control = CpuControl(self._host, self._owner)
            return answer

        return _answered(restore)

    def _check(self, command: SetCpus) -> Answer:
        answer = plan(CpuWish.from_document(command.settings), self._host)
        if not answer.refused:
            # Who may not take it, or finds it taken, could set nothing later.
            Lock(self._host.root, self._owner).close()
        return answer

    def _set(self, command: SetCpus) -> Answer:
        if command.hz is not None:
            return self._control.set_frequency(command.hz)
        return self._control.apply(CpuWish.from_document(command.settings))


def _answered(work: Callable[[], Answer]) -> CpusSet:
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
