"""A scheduler that takes its time: said once, because nothing bounds how long somebody else's code may think."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE_S = 10.0


@contextmanager
def patience(scheduler: str) -> Iterator[None]:
    """Say on standard error that `scheduler` is still deciding when the block takes longer than `PATIENCE_S`."""

    def say() -> None:
        sys.stderr.write(f"millrace: the scheduler {scheduler!r} is still deciding, Ctrl-C ends it\n")

    timer = Timer(PATIENCE_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
