"""Handling of SIGINT, SIGTERM and SIGHUP: interrupt once, and never during clean-up."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTED = 130
"""Exit status of a program that was interrupted."""


def _is_taken(number: signal.Signals) -> bool:
    # `nohup` starts programs with SIGHUP ignored; keep it ignored.
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


SIGNALS = tuple(filter(_is_taken, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
"""Signals that interrupt; a SIGHUP that is ignored when this module is loaded stays ignored."""

_Handler = Callable[[int, FrameType | None], None] | int | signal.Handlers | None


def _leave(_number: int, _frame: FrameType | None) -> None:
    # No exception: Python may swallow it during an import. No buffered output: the signal may have interrupted a write.
    with suppress(OSError):
        os.write(2, b"interrupted\n")
    os._exit(INTERRUPTED)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    ignore_interrupts()
    raise KeyboardInterrupt


@contextmanager
def _handled_by(handler: _Handler) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        try:
            _restore(before)
        except KeyboardInterrupt:
            # The last signal for this handler came just now.
            _restore(before)
            raise


def _restore(handlers: Mapping[signal.Signals, _Handler]) -> None:
    with interrupts_blocked():
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal inside the block, and ignore all later ones.

    The clean-up of the block is therefore never interrupted.
    """
    with _handled_by(_interrupt):
        yield


_held = False


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass


def _handle_by(handler: _Handler) -> None:
    for number in SIGNALS:
        signal.signal(number, handler)


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Call the handlers of signals that have arrived, and keep later ones until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold_interrupts() -> None:
    """Keep a signal, until the end of the `interrupted_once` block, for `raise_held_interrupt`."""
    _handle_by(_hold)


def _hold(_number: int, _frame: FrameType | None) -> None:
    global _held
    _held = True


def raise_held_interrupt() -> None:
    """Raise KeyboardInterrupt if a signal was held."""
    if _held:
        ignore_interrupts()
        raise KeyboardInterrupt


def ignore_interrupts() -> None:
    """Ignore the signals until the end of the `interrupted_once` block."""
    # Not SIG_IGN: Python complains of a signal that has arrived and whose handler is gone before it could be called.
    _handle_by(_ignore)


def ignore_interrupts_for_good() -> None:
    """Ignore the signals until the process has ended, also when Python no longer calls handlers."""
    with interrupts_blocked():
        _handle_by(signal.SIG_IGN)


def leave_when_interrupted() -> None:
    """Exit at the next signal with one line of output; for times when there is nothing to clean up."""
    _handle_by(_leave)


def unblock_interrupts() -> None:
    """Receive the signals that the installed program `millrace` blocks while Python starts."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))


@contextmanager
def loading() -> Iterator[None]:
    """Run a block of imports; a signal that `interrupted_once` would handle ends the process at once."""
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        yield
        return
    with _handled_by(_leave):
        yield
