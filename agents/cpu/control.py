"""Exclusive control of a host's CPU settings by one campaign, with guaranteed restoration.

A guardian process restores the settings when the process that changed them has died, also by SIGKILL. It runs in its
own session and holds the host's lock and the read end of a pipe. The other end closes when its parent ends for any
reason. Then it restores the settings from the journal, if there still is one.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from agents.cpu.apply import SavedSettings, apply, restore_settings, write
from agents.cpu.feature import read_view
from agents.cpu.frequency import clock_bounds, range_changes
from agents.cpu.journal import CpuJournal, CpuSnapshot, Lock, journal_path, read_journal, remove_journal, write_journal
from agents.cpu.plan import CLOCK_RANGE, plan, take_snapshot, why_not_settable
from agents.cpu.request import CpuRequest, CpuResult, Refusal
from agents.host_files import HostFiles
from inventory.errors import RunError, UnfitError

GUARDIAN_PROGRAM = (sys.executable, "-P", "-m", "agents.cpu.control")
"""Command of a guardian, without the host's root."""

READY = b"ready\n"
PATIENCE_S = 10.0
"""Timeout for a guardian to start, and to end when it is dismissed."""


class CpuControl:
    """Context manager that changes a host's CPU settings and restores them at its end.

    The first change takes the host's lock, restores what a dead campaign has left behind, writes the journal and starts
    the guardian. Without a change, nothing is created.

    >>> with CpuControl(HostFiles(), "campaign energy of alice") as control:  # doctest: +SKIP
    ...     control.apply(CpuRequest(cores=2, governor="performance", turbo=False))
    ...     control.set_frequency(1_800_000_000)

    Args:
        host: the host.
        owner: name shown to a second campaign that requests the same host.
        guardian: command of the guardian process.
    """

    def __init__(self, host: HostFiles, owner: str, guardian: tuple[str, ...] = GUARDIAN_PROGRAM) -> None:
        self._host, self._owner, self._program = host, owner, guardian
        self._held: tuple[Lock, SavedSettings, Guardian] | None = None
        self._request = CpuRequest()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        restored = self.restore()
        if not restored.ok and fault is None:
            raise RunError(describe_unrestored(restored))

    def apply(self, request: CpuRequest) -> CpuResult:
        """Apply a request and return what took effect; write nothing when any setting is impossible.

        Raises:
            UnfitError: another campaign holds the host, or the original settings cannot be saved.
        """
        earlier = self._request if request.driver_mode is None else replace(self._request, governor=None, epp=None)
        whole = CpuRequest(**(earlier.to_document() | request.to_document()))
        refused = plan(whole, self._host, self._before).refused
        if refused:
            return CpuResult(refused=refused)
        applied = apply(whole, self._host, self._save_settings())
        self._request = whole
        return applied

    def set_frequency(self, hz: int) -> CpuResult:
        """Fix the clock of all online CPUs by setting both limits; the governor does not change.

        The result holds the clock as rounded or clamped by the driver; it is `ok` only within one step of the driver's
        table or 50 MHz.

        Raises:
            UnfitError: as `apply`.
        """
        return self.set_range(hz, hz)

    def set_range(self, low_hz: int, high_hz: int) -> CpuResult:
        """Set both clock limits of all online CPUs.

        Raises:
            UnfitError: as `apply`.
        """
        view = read_view(self._host)
        closed = why_not_settable(self._host)
        if not view.policies:
            reason = CLOCK_RANGE.probe(self._host).reason
            closed = Refusal("clock", f"{low_hz / 1e9:g} to {high_hz / 1e9:g} GHz", "", reason)
        if closed:
            return CpuResult(refused=(closed,))
        bounds = clock_bounds(view.policies)
        if bounds:
            # CPUs that come online later get the same limits.
            asked = {"min_ghz": low_hz // 1000, "max_ghz": high_hz // 1000}
            got = {name: min(max(khz, bounds[name][0]), bounds[name][1]) / 1e6 for name, khz in asked.items()}
            self._request = CpuRequest(**(self._request.to_document() | got))
        changes = [change for p in view.policies for change in range_changes(p, low_hz // 1000, high_hz // 1000)]
        settings = write(changes, self._host, self._save_settings())
        return CpuResult(any(s.got != s.before for s in settings), tuple(settings))

    def set_governor(self, name: str) -> CpuResult:
        """Set the governor of all online CPUs.

        Raises:
            UnfitError: as `apply`.
        """
        return self.apply(CpuRequest(governor=name))

    def restore(self) -> CpuResult:
        """Restore everything and release the host's lock; do nothing when nothing was changed."""
        if self._held is None:
            return CpuResult()
        lock, saved, guardian = self._held
        self._held, self._request = None, CpuRequest()
        try:
            return _put_back(saved.before, self._host)
        finally:
            guardian.dismiss()
            lock.close()

    @property
    def _before(self) -> CpuSnapshot | None:
        return self._held[1].before if self._held else None

    def _save_settings(self) -> SavedSettings:
        """Return the original settings, saved on disk and watched by a live guardian."""
        root = self._host.root
        if self._held is None:
            lock = Lock(root, self._owner)
            try:
                _put_back_leftovers(self._host)
                before = take_snapshot(self._host)
                write_journal(root, CpuJournal(self._owner, before))
                saved = SavedSettings(before, lambda grown: write_journal(root, CpuJournal(self._owner, grown)))
                self._held = lock, saved, Guardian(root, lock, self._program)
            except BaseException:
                lock.close()
                raise
        lock, saved, guardian = self._held
        if not guardian.is_alive:
            self._held = lock, saved, Guardian(root, lock, self._program)
        return saved


def put_back(host: HostFiles, owner: str, patience_s: float | None = None) -> CpuResult:
    """Restore the settings that a dead campaign has left changed; usually its guardian has done so already.

    Raises:
        HeldError: a live campaign holds the host, also after `patience_s`.
        UnfitError: the journal cannot be read, or this user may not restore anything.
    """
    with _left_behind(host, owner, patience_s) as journal:
        return _put_back(journal.before, host) if journal else CpuResult()


def left_behind(host: HostFiles, owner: str) -> CpuJournal | None:
    """Return what `put_back` would restore; None when there is nothing.

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


def describe_unrestored(result: CpuResult) -> str:
    """Return a message that lists the settings that could not be restored."""
    left = [f"/{s.path} is {s.got!r}, was {s.asked!r}" for s in result.settings if not s.ok]
    return f"CPU settings could not be restored: {'; '.join(left)}"


def _put_back(before: CpuSnapshot, host: HostFiles) -> CpuResult:
    restored = restore_settings(before, host)
    if restored.ok:
        remove_journal(host.root)
    return restored


def _put_back_leftovers(host: HostFiles) -> None:
    journal = read_journal(host.root)
    if journal is None:
        return
    restored = _put_back(journal.before, host)
    if not restored.ok:
        raise UnfitError(f"{journal.owner} has left this host changed. {describe_unrestored(restored)}")


class Guardian:
    """Guardian of this process, watching once the constructor returns.

    Args:
        root: the host's root.
        lock: the host's lock, which the guardian holds until it ends.
        program: command that runs `watch`; the root is appended.

    Raises:
        UnfitError: the guardian does not start.
    """

    def __init__(self, root: Path, lock: Lock, program: tuple[str, ...] = GUARDIAN_PROGRAM) -> None:
        # Inherit nothing that marks this process as part of the campaign, so that no clean-up kills it.
        packages = str(Path(__file__).parents[2])
        try:
            self._process = subprocess.Popen(
                [*program, str(root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={"PYTHONPATH": packages},
                cwd="/",
                start_new_session=True,
                pass_fds=(lock.descriptor,),
            )
        except OSError as fault:
            raise UnfitError(f"{program[0]}: {fault.strerror}: CPU settings are left unchanged") from None
        output = self._process.stdout
        ready = output.readline() if output else b""
        if output:
            output.close()
        if ready != READY:
            self._process.kill()
            self.dismiss()
            raise UnfitError("the guardian of CPU settings does not start; they are left unchanged")

    @property
    def is_alive(self) -> bool:
        """True if the guardian is running."""
        return self._process.poll() is None

    def dismiss(self) -> None:
        """Close the pipe; the guardian restores what is still in the journal and ends."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def watch(host: HostFiles) -> int:
    """Wait for the end of standard input, then restore; return the exit status: 1 when a setting still differs.

    The journal is kept until everything is restored, so that a later attempt is possible.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A signal to the whole session or service also ends the parent, and then the settings must be restored.
        signal.signal(number, signal.SIG_IGN)
    os.write(1, READY)
    os.close(1)
    while os.read(0, 1):
        pass
    try:
        journal = read_journal(host.root)
    except UnfitError:
        return 1
    if journal is None:
        return 0
    if not restore_settings(journal.before, host).ok:
        return 1
    remove_journal(host.root)
    return 0


if __name__ == "__main__":
    sys.exit(watch(HostFiles(Path(sys.argv[1]))))
