"""Standard input and output belong to the protocol; and a child must not outlive its parent.

Used first thing by the agent and by every worker.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def keep_protocol() -> tuple[int, int]:
    """Take the protocol's descriptors away from file descriptors 0 and 1; return (input, output).

    Afterwards whatever is printed, by Python or by a C library, goes to standard error; reading standard input finds
    its end. The returned descriptors are not inherited by children.
    """
    taken, given = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    return taken, given


def log_to(path: Path) -> None:
    """Send what is printed from now on (descriptors 1 and 2) to the end of a file.

    Raises:
        OSError: the file cannot be opened.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the thread that started this process ends, in whatever way.

    If the parent died before this call, standard input is at its end already and the first read says so.

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
