"""A scheduler that takes its time: said once, because nothing bounds how long somebody else's code may think."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import click

PATIENCE_S = 10.0


@contextmanager
def patience(scheduler: str) -> Iterator[None]:
    """Say on standard error that `scheduler` is still deciding when the block takes longer than `PATIENCE_S`."""

    def say() -> None:
        click.echo(f"millrace: the scheduler {scheduler!r} is still deciding, Ctrl-C ends it", err=True)

    timer = Timer(PATIENCE_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
