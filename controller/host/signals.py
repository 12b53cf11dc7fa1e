"""Handling of SIGINT, SIGTERM and SIGHUP: interrupt once, and never during clean-up."""

import os
import signal
from collections.abc import Callable, Iterator
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
        for number, outer in before.items():
            signal.signal(number, outer)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal inside the block, and ignore all later ones.

    The clean-up of the block is therefore never interrupted.
    """
    with _handled_by(_interrupt):
        yield


def ignore_interrupts() -> None:
    """Ignore the signals until the end of the `interrupted_once` block."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def leave_when_interrupted() -> None:
    """Exit at the next signal with one line of output; for times when there is nothing to clean up."""
    for number in SIGNALS:
        signal.signal(number, _leave)


@contextmanager
def loading() -> Iterator[None]:
    """Run a block of imports; a signal that `interrupted_once` would handle ends the process at once."""
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        yield
        return
    with _handled_by(_leave):
        yield
