"""Processes that end with their parent, so that `kill -9` of the parent leaves no children."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

LEAVING_S = 10

_PR_SET_PDEATHSIG = 1


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
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def end_with(parent: int) -> Callable[[], None]:
    """Return a function for a new process to call first: it requests SIGTERM on the death of its parent `parent`.

    Linux only; elsewhere it does nothing. The C library is loaded in advance, since nothing may be loaded between fork
    and exec.
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):
        return lambda: None

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the request.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask
