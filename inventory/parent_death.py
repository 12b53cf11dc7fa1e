"""Processes that end with their parent, so that a kill -9 of the one leaves nothing of the other."""

import ctypes
import os
import signal
import sys
from collections.abc import Callable

LEAVING_S = 10

_PR_SET_PDEATHSIG = 1


def leave_on_sigterm() -> None:
    """Leave by way of SystemExit at the first SIGTERM, so that blocks clean up; further ones do not disturb that.

    A process that has not ended after `LEAVING_S` is ended by the system.
    """

    def leave(number: int, _frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(LEAVING_S)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def live_on() -> None:
    """Get no signal any more when the parent dies; Linux only, as `end_with`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)


def end_with(parent: int) -> Callable[[], None]:
    """Return what a new process calls first to get SIGTERM when its parent, the process `parent`, dies.

    Linux only; elsewhere it does nothing. The C library is loaded now, since between fork and exec nothing may be.
    """
    try:
        prctl = ctypes.CDLL(None, use_errno=True).prctl
    except (AttributeError, OSError):
        return lambda: None

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the kernel was asked.
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGTERM)

    return ask
