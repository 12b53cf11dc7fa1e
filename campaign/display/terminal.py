"""Output on the terminal: global options and messages, consoles, the standard streams, and progress.

Standard output carries results: a failed write is an error. Standard error carries progress and messages: a failed
write is ignored. Without this, Python would raise an exception wherever something is printed.

A long operation has a bar on a terminal, otherwise a line every ten seconds; if it ends within two seconds, nothing is
printed. A job of Spark has one line on a terminal, otherwise one every ten seconds; a playbook one on a terminal,
otherwise one per task, and another every ten seconds of a long task.
"""

import io
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

import click

from inventory.errors import UnfitError
from inventory.foreign import escaped, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer
    from rich.console import Console
    from rich.text import Text


class Settings:
    """Global options, which commands get with `@click.pass_obj`."""

    def __init__(self, debug: bool = False, quiet: bool = False, color: bool = True) -> None:
        self.debug, self.quiet, self.color = debug, quiet, color

    def progress(self, line: str) -> None:
        """Print a line of progress on standard error, unless `--quiet` was given."""
        if not self.quiet:
            show(line, error=True)


def show(line: str, *, error: bool = False) -> None:
    """Print one line on standard output, or on standard error."""
    click.echo(printable(line), err=error)


def notice(line: str) -> None:
    """Print a message for the operator on standard error, whatever the options."""
    show(f"millrace: {line}", error=True)


def plain_console(color: bool, stderr: bool = False) -> "Console":
    """Return a console on standard output or standard error; only `Text` objects keep their styles.

    Printed text can neither control the terminal nor set a style: plain text is escaped, also in tables and titles.
    """
    from rich.console import Console  # rich takes long to import

    class PlainConsole(Console):
        def render_str(self, text: str, **options: Any) -> "Text":
            return super().render_str("\n".join(map(escaped, text.split("\n"))), **options)

    return PlainConsole(stderr=stderr, no_color=not color, highlight=False, markup=False, emoji=False)


WAIT_MS = 1000
"""Longest time that a write to standard error may block, once."""


def open_standard_streams() -> None:
    """Replace the standard streams of this process by streams that are open and behave as described above."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # Otherwise the next opened file gets this descriptor, and receives writes to the stream.
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a number, and open until the end
    sys.stdout = _text(_Output(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: TextIO | None) -> io.TextIOWrapper:
    """Return a line-buffered text stream on `raw` with the encoding of `before`."""
    encoding, errors = (before.encoding, before.errors) if before else ("utf-8", "backslashreplace")
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=True)


class _Output(io.FileIO):
    """Standard output. The first failed write raises an error; later writes, also at Python's exit, are dropped."""

    _is_lost = False

    def write(self, data: "ReadableBuffer") -> int:
        """Write the data.

        Raises:
            BrokenPipeError: the reader has closed the pipe.
            UnfitError: the write failed.
        """
        if self._is_lost:
            return len(memoryview(data))
        try:
            return super().write(data)
        except OSError as fault:
            self._is_lost = True
            if isinstance(fault, BrokenPipeError):
                raise
            raise UnfitError(f"standard output cannot be written: {fault.strerror}") from None


class _Messages(io.FileIO):
    """Standard error. Data that cannot be written, or is not read in time, is dropped."""

    _is_stuck = False

    def write(self, data: "ReadableBuffer") -> int:
        view = memoryview(data)
        poll = select.poll()
        poll.register(self, select.POLLOUT)
        try:
            self._is_stuck = not poll.poll(0 if self._is_stuck else WAIT_MS)
            # A pipe that is ready for writing takes at least this many bytes.
            written = None if self._is_stuck else super().write(view[: select.PIPE_BUF])
        except OSError:
            written = None
        return len(view) if written is None else written


DELAY_S = 2.0
"""Time before the first output."""

PLAIN_EVERY_S, TERMINAL_EVERY_S = 10.0, 1.0
"""Interval of lines without a terminal, and of changes of a line on one."""


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

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=plain_console(color, stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=1.0, visible=False)
        begun = time.monotonic()

        def update(share: float) -> None:
            progress.update(task, completed=share, visible=time.monotonic() - begun >= DELAY_S)

        yield update


@contextmanager
def stages_shown(quiet: bool, color: bool) -> Iterator[Callable[[str], None]]:
    """Show a job's lines of progress: on a terminal in one that disappears, otherwise the first, the last and some."""
    if quiet:
        yield lambda _line: None
    elif sys.stderr.isatty():
        with plain_console(color, stderr=True).status("") as status:
            yield lambda line: status.update(printable(line))
    else:
        with _some_lines() as update:
            yield update


@contextmanager
def _some_lines() -> Iterator[Callable[[str], None]]:
    """Print the first line, one every ten seconds, and the last one."""
    due = 0.0
    left = ""

    def update(line: str) -> None:
        nonlocal due, left
        left = line
        if time.monotonic() >= due:
            due, left = time.monotonic() + PLAIN_EVERY_S, ""
            show(line, error=True)

    try:
        yield update
    finally:
        if left:
            show(left, error=True)


class TaskProgress(Protocol):
    """Progress of a playbook."""

    def set_steps(self, steps: Sequence[str]) -> None:
        """Take the names of all tasks, in their order, once they are known; callable from any thread."""
        ...

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
        with (
            plain_console(color, stderr=True).status(playbook) as status,
            _TaskProgress(playbook, status.update).repeated(TERMINAL_EVERY_S) as progress,
        ):
            yield progress
    else:
        lines = _TaskProgress(playbook, lambda line: click.echo(printable(line), err=True))
        with lines.repeated(PLAIN_EVERY_S) as progress:
            yield progress


class _TaskProgress:
    """Tasks by number, with the time since the start of the playbook."""

    def __init__(self, playbook: str, show: Callable[[str], None]) -> None:
        self._playbook, self._show = playbook, show
        self._begun = self._shown = time.monotonic()
        self._task, self._tasks = "starting Ansible", 0
        self._steps: Sequence[str] = ()
        self._step = 0
        self._lock = threading.Lock()

    def set_steps(self, steps: Sequence[str]) -> None:
        with self._lock:
            self._steps = steps

    def begin_task(self, task: str) -> None:
        with self._lock:
            self._task = task
            self._tasks += 1
            # Some tasks are left out, and some are only known once they run: the place in the list counts.
            with suppress(ValueError):
                self._step = self._steps.index(task, self._step) + 1
            self._show_line()

    def show_change(self, lines: Sequence[str]) -> None:
        for line in lines:
            click.echo(printable(line), err=True)

    @contextmanager
    def repeated(self, every_s: float) -> Iterator[Self]:
        """Show the line again, with the new time, whenever nothing was shown for so long."""
        over = threading.Event()

        def repeat() -> None:
            while not over.wait(min(every_s, 1.0)):
                with self._lock:
                    if time.monotonic() - self._shown >= every_s:
                        self._show_line()

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _show_line(self) -> None:
        self._shown = time.monotonic()
        count = f"{self._step} of {len(self._steps)}: " if self._step else f"{self._tasks}: " if self._tasks else ""
        self._show(f"{self._playbook} {self._shown - self._begun:3.0f} s  {count}{self._task}")
