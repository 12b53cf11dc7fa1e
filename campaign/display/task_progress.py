"""Which task of a playbook is under way, and for how long: one line on a terminal, a line per task elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click

from inventory.foreign import printable


class TaskProgress(Protocol):
    """Who is told how far a playbook is; everything goes to standard error."""

    def begins(self, task: str) -> None:
        """A task has begun."""
        ...

    def tells(self, lines: Sequence[str]) -> None:
        """Lines that stay."""
        ...


@contextmanager
def tasks_shown(playbook: str, quiet: bool, color: bool) -> Iterator[TaskProgress]:
    """Show the tasks of a playbook; with `quiet` only the lines that stay."""
    if quiet:
        yield _Shown(playbook, lambda _line: None)
    elif sys.stderr.isatty():
        from campaign.display.console import plain_console

        with plain_console(color, stderr=True).status(playbook) as status:
            yield _Shown(playbook, status.update)
    else:
        yield _Shown(playbook, lambda line: click.echo(printable(line), err=True))


class _Shown:
    """Tasks by number, with the time since the playbook began."""

    def __init__(self, playbook: str, show: Callable[[str], None]) -> None:
        self._playbook, self._show = playbook, show
        self._begun, self._tasks = time.monotonic(), 0

    def begins(self, task: str) -> None:
        self._tasks += 1
        self._show(f"{self._playbook} {time.monotonic() - self._begun:3.0f} s  {self._tasks}: {task}")

    def tells(self, lines: Sequence[str]) -> None:
        for line in lines:
            click.echo(printable(line), err=True)
