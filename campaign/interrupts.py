"""Ctrl-C and requests to end: told once, and never in the middle of tidying up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Inside the block the first signal raises KeyboardInterrupt, and all later ones are ignored.

    What the block does on its way out is therefore done to its end, however impatient somebody is.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        ignore_interrupts()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore_interrupts() -> None:
    """Ignore them from now on, until the end of the block of `interrupted_once`."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
