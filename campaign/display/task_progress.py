"""Progress of a playbook on standard error: one line on a terminal, otherwise one line per task."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click

from inventory.foreign import printable


class TaskProgress(Protocol):
    """Progress of a playbook."""

    def begin_task(self, task: str) -> None:
        """Show the task that begins."""
        ...

    def show_change(self, lines: Sequence[str]) -> None:
        """Print lines about a change."""
        ...


@contextmanager
def tasks_shown(playbook: str, quiet: bool, color: bool) -> Iterator[TaskProgress]:
    """Show the tasks of a playbook; with `quiet` only its changes."""
    if quiet:
        yield _TaskProgress(playbook, lambda _line: None)
    elif sys.stderr.isatty():
        from campaign.display.console import plain_console

        with plain_console(color, stderr=True).status(playbook) as status:
            yield _TaskProgress(playbook, status.update)
    else:
        yield _TaskProgress(playbook, lambda line: click.echo(printable(line), err=True))


class _TaskProgress:
    """Tasks by number, with the time since the start of the playbook."""

    def __init__(self, playbook: str, show: Callable[[str], None]) -> None:
        self._playbook, self._show = playbook, show
        self._begun, self._tasks = time.monotonic(), 0

    def begin_task(self, task: str) -> None:
        self._tasks += 1
        self._show(f"{self._playbook} {time.monotonic() - self._begun:3.0f} s  {self._tasks}: {task}")

    def show_change(self, lines: Sequence[str]) -> None:
        for line in lines:
            click.echo(printable(line), err=True)
