"""How far something has come that takes a while: a bar on a terminal, a line now and then elsewhere.

All of it goes to standard error, and only once it has taken a moment.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

PATIENCE_S = 2.0
"""Nothing is shown before."""

PLAIN_EVERY_S = 10.0
"""Distance of the lines where there is no terminal."""


@contextmanager
def share_done(what: str, quiet: bool, color: bool) -> Iterator[Callable[[float], None]]:
    """Show how far `what` has come; the block calls what it is given with the share that is done, 0..1."""
    if quiet:
        yield lambda _share: None
    elif sys.stderr.isatty():
        with _bar(what, color) as tell:
            yield tell
    else:
        yield _lines(what)


def _lines(what: str) -> Callable[[float], None]:
    due = time.monotonic() + PATIENCE_S

    def tell(share: float) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + PLAIN_EVERY_S
            click.echo(f"{what}: {share:.0%}", err=True)

    return tell


@contextmanager
def _bar(what: str, color: bool) -> Iterator[Callable[[float], None]]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from campaign.display.console import plain_console

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=plain_console(color, stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0, visible=False)
        begun = time.monotonic()

        def tell(share: float) -> None:
            progress.update(task, completed=share, visible=time.monotonic() - begun >= PATIENCE_S)

        yield tell
