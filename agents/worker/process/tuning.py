"""What a worker asks of its own process before it works: timers, memory, garbage collection."""

import ctypes
import gc
import os

_PR_SET_TIMERSLACK = 29
_PR_SET_PTRACER = 0x59616D61
_TIMER_SLACK_NS = 1_000
_GC_THRESHOLDS = (100_000, 20, 100)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 16 * 1024 * 1024


def tune_process() -> None:
    """Make this process one that moves batches of rows all day."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, _TIMER_SLACK_NS)
    # Where the kernel lets only parents look into a process (Yama), what our agent starts may do so too.
    libc.prctl(_PR_SET_PTRACER, os.getppid(), 0, 0, 0)
    if hasattr(libc, "mallopt"):
        # What a batch of large fields took is kept for the next; as glibc comes, it goes back to the kernel each time,
        # and half of the receiver's CPU time is page faults.
        libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        libc.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES // 4)
    # Rows are tuples of plain values, which never form cycles; left at its defaults, the collector walks through
    # every batch on its way and takes a seventh of the CPU time of word count.
    gc.set_threshold(*_GC_THRESHOLDS)
