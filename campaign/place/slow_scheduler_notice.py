"""Notice about a slow scheduler; schedulers have no time limit."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

NOTICE_S = 10.0


@contextmanager
def slow_scheduler_notice(scheduler: str) -> Iterator[None]:
    """Print on standard error that `scheduler` is still deciding if the block takes longer than `NOTICE_S`."""

    def print_notice() -> None:
        sys.stderr.write(f"millrace: the scheduler {scheduler!r} is still deciding, Ctrl-C ends it\n")

    timer = Timer(NOTICE_S, print_notice)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
