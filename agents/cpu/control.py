"""The CPU settings of a host in the hands of one campaign: changed during runs, and put back whatever happens."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from agents.cpu import frequency
from agents.cpu.answer import CpuAnswer, Refusal
from agents.cpu.apply import SettingsKeeper, apply, write
from agents.cpu.guardian import PROGRAM, Guardian
from agents.cpu.journal import CpuJournal, Lock, journal_path, read_journal, remove_journal, write_journal
from agents.cpu.plan import closed_to_us, found, plan
from agents.cpu.restore import restore
from agents.cpu.snapshot import Snapshot
from agents.cpu.step import look
from agents.cpu.wish import CpuRequest
from agents.host_files import HostFiles
from inventory.errors import RunError, UnfitError


class CpuControl:
    """Verbs that set a host's CPUs, and `restore`; a context manager that restores at its end.

    The first change takes the host's lock, puts back what a dead campaign has left, writes the journal and starts the
    guardian; who changes nothing leaves no trace.

    >>> with CpuControl(HostFiles(), "campaign energy of alice") as control:  # doctest: +SKIP
    ...     control.apply(CpuWish(cores=2, governor="performance", turbo=False))
    ...     control.set_frequency(1_800_000_000)

    Args:
        host: the host.
        owner: who is named to a second campaign that wants the same.
        guardian: command of the guardian process.
    """

    def __init__(self, host: HostFiles, owner: str, guardian: tuple[str, ...] = PROGRAM) -> None:
        self._host, self._owner, self._program = host, owner, guardian
        self._held: tuple[Lock, SettingsKeeper, Guardian] | None = None
        self._wish = CpuRequest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        answer = self.restore()
        if not answer.ok and fault is None:
            raise RunError(told(answer))

    def apply(self, wish: CpuRequest) -> CpuAnswer:
        """Fulfil a wish and say what took effect; when something of it is impossible nothing is written.

        Raises:
            UnfitError: another campaign holds the host, or what was found cannot be kept safe.
        """
        earlier = self._wish if wish.driver_mode is None else replace(self._wish, governor=None, epp=None)
        whole = CpuRequest(**(earlier.to_document() | wish.to_document()))
        refused = plan(whole, self._host, self._before).refused
        if refused:
            return CpuAnswer(refused=refused)
        answer = apply(whole, self._host, self._keeper())
        self._wish = whole
        return answer

    def set_frequency(self, hz: int) -> CpuAnswer:
        """Fix the clock of all CPUs on line: both limits, the governor stays.

        A clock that a driver rounds or clamps is in the answer as it came out, `ok` only when it is within one step of
        its table or 50 MHz.

        Raises:
            UnfitError: as `apply`.
        """
        return self.set_range(hz, hz)

    def set_range(self, low_hz: int, high_hz: int) -> CpuAnswer:
        """Set both clock limits of all CPUs on line.

        Raises:
            UnfitError: as `apply`.
        """
        view = look(self._host)
        closed = closed_to_us(self._host)
        if not view.policies:
            reason = frequency.probe(self._host).reason
            closed = Refusal("clock", f"{low_hz / 1e9:g} to {high_hz / 1e9:g} GHz", "", reason)
        if closed:
            return CpuAnswer(refused=(closed,))
        bounds = frequency.reach(view.policies)
        if bounds:
            # CPUs that come on line later get what the others have got.
            asked = {"min_ghz": low_hz // 1000, "max_ghz": high_hz // 1000}
            got = {name: min(max(khz, bounds[name][0]), bounds[name][1]) / 1e6 for name, khz in asked.items()}
            self._wish = CpuRequest(**(self._wish.to_document() | got))
        steps = [step for p in view.policies for step in frequency.range_steps(p, low_hz // 1000, high_hz // 1000)]
        settings = write(steps, self._host, self._keeper())
        return CpuAnswer(any(s.got != s.before for s in settings), tuple(settings))

    def set_governor(self, name: str) -> CpuAnswer:
        """Set the governor of all CPUs on line.

        Raises:
            UnfitError: as `apply`.
        """
        return self.apply(CpuRequest(governor=name))

    def restore(self) -> CpuAnswer:
        """Put everything back and let go of the host; nothing happens when nothing was changed."""
        if self._held is None:
            return CpuAnswer()
        lock, keeper, guardian = self._held
        self._held, self._wish = None, CpuRequest()
        try:
            return _put_back(keeper.before, self._host)
        finally:
            guardian.dismiss()
            lock.close()

    @property
    def _before(self) -> Snapshot | None:
        return self._held[1].before if self._held else None

    def _keeper(self) -> SettingsKeeper:
        """What was found, safe on disk and with a guardian that lives."""
        root = self._host.root
        if self._held is None:
            lock = Lock(root, self._owner)
            try:
                _put_back_leftovers(self._host)
                before = found(self._host)
                write_journal(root, CpuJournal(self._owner, before))
                keeper = SettingsKeeper(before, lambda grown: write_journal(root, CpuJournal(self._owner, grown)))
                self._held = lock, keeper, Guardian(root, lock, self._program)
            except BaseException:
                lock.close()
                raise
        lock, keeper, guardian = self._held
        if not guardian.is_alive:
            self._held = lock, keeper, Guardian(root, lock, self._program)
        return keeper


def put_back(host: HostFiles, owner: str, patience_s: float | None = None) -> CpuAnswer:
    """Put back what a dead campaign has left on this host; its guardian has usually done it already.

    Raises:
        HeldError: a campaign that lives holds the host, also after `patience_s`.
        UnfitError: the journal cannot be read, or this user may not put anything back.
    """
    with _left_behind(host, owner, patience_s) as journal:
        return _put_back(journal.before, host) if journal else CpuAnswer()


def left_behind(host: HostFiles, owner: str) -> CpuJournal | None:
    """What `put_back` would put back; None when there is nothing.

    Raises:
        HeldError, UnfitError: see `put_back`.
    """
    with _left_behind(host, owner, None) as journal:
        return journal


@contextmanager
def _left_behind(host: HostFiles, owner: str, patience_s: float | None) -> Iterator[CpuJournal | None]:
    if not journal_path(host.root).exists():
        yield None
        return
    lock = Lock(host.root, owner, patience_s)
    try:
        yield read_journal(host.root)
    finally:
        lock.close()


def told(answer: CpuAnswer) -> str:
    """What could not be put back, in words."""
    left = [f"/{s.path} is {s.got!r}, was {s.asked!r}" for s in answer.settings if not s.ok]
    return f"CPU settings could not be put back: {'; '.join(left)}"


def _put_back(before: Snapshot, host: HostFiles) -> CpuAnswer:
    answer = restore(before, host)
    if answer.ok:
        remove_journal(host.root)
    return answer


def _put_back_leftovers(host: HostFiles) -> None:
    journal = read_journal(host.root)
    if journal is None:
        return
    answer = _put_back(journal.before, host)
    if not answer.ok:
        raise UnfitError(f"{journal.owner} has left this host changed. {told(answer)}")
