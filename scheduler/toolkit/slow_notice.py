"""Notice that a scheduler is still deciding: schedulers have no time limit, but the operator can interrupt them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

NOTICE_S = 10.0
"""Seconds after which a scheduler that is still deciding is reported."""

_shows: list[Callable[[str], None]] = []
"""Receivers of notices in this process, the innermost last; decisions are made in several threads."""


@contextmanager
def showing_slow_schedulers(show: Callable[[str], None]) -> Iterator[None]:
    """Call `show` with a message, in another thread, whenever a scheduler decides for long inside the block."""
    _shows.append(show)
    try:
        yield
    finally:
        _shows.remove(show)


@contextmanager
def slow_notice(scheduler: str) -> Iterator[None]:
    """Report that `scheduler` is still deciding if the block takes longer than `NOTICE_S`."""
    if not _shows:
        yield
        return
    timer = Timer(NOTICE_S, _shows[-1], [f"the scheduler {scheduler!r} is still deciding, Ctrl-C ends it"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
