"""Progress of a long operation on standard error: a bar on a terminal, otherwise a line every few seconds.

Operations that end within two seconds print nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

DELAY_S = 2.0
"""Time before the first output."""

PLAIN_EVERY_S = 10.0
"""Interval of lines without a terminal."""


@contextmanager
def progress_bar(what: str, quiet: bool, color: bool) -> Iterator[Callable[[float], None]]:
    """Show the progress of `what`; yield a function that takes the completed share, 0 to 1."""
    if quiet:
        yield lambda _share: None
    elif sys.stderr.isatty():
        with _bar(what, color) as update:
            yield update
    else:
        yield _lines(what)


def _lines(what: str) -> Callable[[float], None]:
    due = time.monotonic() + DELAY_S

    def update(share: float) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + PLAIN_EVERY_S
            click.echo(f"{what}: {share:.0%}", err=True)

    return update


@contextmanager
def _bar(what: str, color: bool) -> Iterator[Callable[[float], None]]:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from campaign.display.console import plain_console

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=plain_console(color, stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0, visible=False)
        begun = time.monotonic()

        def update(share: float) -> None:
            progress.update(task, completed=share, visible=time.monotonic() - begun >= DELAY_S)

        yield update
