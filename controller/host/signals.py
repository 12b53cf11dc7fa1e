"""Ctrl-C, requests to end and hang-ups: taken once, and never in the middle of tidying up."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

INTERRUPTED = 130
"""Exit status of a program that was interrupted."""


def _is_taken(number: signal.Signals) -> bool:
    # `nohup` ignores hang-ups for what it starts, and that is what its user wants.
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


SIGNALS = tuple(filter(_is_taken, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)))
"""Signals that interrupt; a SIGHUP that is ignored when this module is loaded stays ignored."""

_Handler = Callable[[int, FrameType | None], None] | int | signal.Handlers | None


def _leave(_number: int, _frame: FrameType | None) -> None:
    # No exception, which could get lost in what Python does between the lines of an import, and no buffers, in whose
    # midst the signal may have come.
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
    """Inside the block the first signal raises KeyboardInterrupt, and all later ones are ignored.

    What the block does on its way out is therefore done to its end, however impatient somebody is.
    """
    with _handled_by(_interrupt):
        yield


def ignore_interrupts() -> None:
    """Ignore them from now on, until the end of the block of `interrupted_once`."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def leave_when_interrupted() -> None:
    """End this process at the next signal, with one line: nothing has been started yet, or all is done."""
    for number in SIGNALS:
        signal.signal(number, _leave)


@contextmanager
def loading() -> Iterator[None]:
    """Import modules in the block: a signal that `interrupted_once` would take ends the process at once."""
    if signal.getsignal(signal.SIGINT) is not _interrupt:
        yield
        return
    with _handled_by(_leave):
        yield
