"""The C library, for system calls that Python's own library lacks: prctl, unshare, mount, inotify.

It is loaded when this module is imported: loading takes a quarter of a millisecond in every forked worker, and nothing
may be loaded between fork and exec. Code for hosts without Millrace (`agents.host_files`) and compiled code
(`agents.host.facts`, `scheduler.partitioning.jit_cache`) use `ctypes` themselves; nothing else does.
"""

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
"""Functions of the C library; `checked` makes errors of their answers."""

PARENT_DEATH_SIGNAL = 1
PROCESS_NAME = 15
TIMER_SLACK_NS = 29
ADOPTS_ORPHANS = 36
DEBUGGER = 0x59616D61
"""Properties for `set_property`: `PR_SET_PDEATHSIG`, `PR_SET_NAME`, `PR_SET_TIMERSLACK`, `PR_SET_CHILD_SUBREAPER` and
`PR_SET_PTRACER` of prctl(2)."""


def set_property(option: int, value: int | bytes) -> int:
    """Set a property of the calling process or thread by prctl(2).

    Args:
        option: the property.
        value: its value.

    Returns:
        0, or -1 if the kernel refuses or lacks the property: for `checked` where that matters.
    """
    answer: int = LIBC.prctl(option, value, 0, 0, 0)
    return answer


def checked(answer: int, what: str) -> int:
    """Return the answer of a function of the C library that returns -1 for an error.

    >>> checked(LIBC.chdir(b"/no such folder"), "chdir")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] chdir: No such file or directory

    Args:
        answer: its answer.
        what: begin of the message.

    Raises:
        OSError: it is an error, by errno.
    """
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return answer
