"""Processes that end with their parent, so that `kill -9` of the parent leaves no children."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from inventory.libc import LIBC, PARENT_DEATH_SIGNAL, set_property

LEAVING_S = 10


def leave_on_sigterm() -> None:
    """Raise SystemExit at the first SIGTERM, so that blocks clean up; ignore further ones.

    A process that has not ended after `LEAVING_S` is ended by the system.
    """

    def leave(number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LEAVING_S)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def live_on() -> None:
    """Stop receiving a signal when the parent dies. Linux only, as `end_with`."""
    set_property(PARENT_DEATH_SIGNAL, 0)


@contextmanager
def signals_held() -> Iterator[Callable[[], None]]:
    """Hold back signals that end programs; yield a function that lets them through before the end of the block.

    While a process starts, Python swallows the exception of a signal's handler if the handler is called in a function
    that is registered for forks; and an exception at the wrong moment would leave a process that nobody ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))

    def let_through() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        yield let_through
    finally:
        let_through()


def end_with(
    parent: int, before: Callable[[], None] = lambda: None, number: signal.Signals = signal.SIGTERM
) -> Callable[[], None]:
    """Return a function for a new process to call first: it requests a signal on the death of its parent `parent`.

    Linux only; elsewhere it calls `before` and nothing more.
    """
    if not hasattr(LIBC, "prctl"):
        return before

    def ask() -> None:
        before()
        set_property(PARENT_DEATH_SIGNAL, number)
        # The parent may have died before the request.
        if os.getppid() != parent:
            os.kill(os.getpid(), number)

    return ask
