"""Showing a campaign's board to people: a live display on a terminal, plain lines elsewhere, nothing when quiet.

All of it goes to standard error; standard output holds results only.
"""

import sys
import time
from typing import Any, Protocol

import click
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from campaign.live import Board, in_words
from campaign.store import FAILED, OK

PLAIN_EVERY_S = 10.0
"""Distance of the plain lines between those of beginning and ending runs."""


class View(Protocol):
    """One way to show the board."""

    def open(self) -> None:
        """Begin."""
        ...

    def draw(self, board: Board) -> None:
        """Show the board; called every second."""
        ...

    def say(self, text: str, style: str = "") -> None:
        """Show a line that stays."""
        ...

    def close(self) -> None:
        """End; the last board stays where it can."""
        ...


def view_for(quiet: bool, color: bool) -> View:
    """The view that fits the terminal and the options."""
    if quiet:
        return Silence()
    if sys.stderr.isatty():
        return Display(Console(stderr=True, no_color=not color, highlight=False))
    return Lines()


class Silence:
    """Nothing at all."""

    def open(self) -> None:
        """See `View`."""

    def draw(self, board: Board) -> None:
        """See `View`."""

    def say(self, text: str, style: str = "") -> None:
        """See `View`."""

    def close(self) -> None:
        """See `View`."""


class Lines:
    """A line whenever something happens, and one every ten seconds."""

    def open(self) -> None:
        """See `View`."""
        self._next = time.monotonic() + PLAIN_EVERY_S

    def draw(self, board: Board) -> None:
        """See `View`."""
        if board.run is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY_S
            flow = flow_in_words(board)
            self.say(
                f"run {board.number}/{board.total} {board.run.name}: {board.stage_name}"
                f"{', ' + flow if flow else ''}, {in_words(board.time_left_s)} left"
            )

    def say(self, text: str, style: str = "") -> None:
        """See `View`."""
        click.echo(text, err=True)

    def close(self) -> None:
        """See `View`."""


class Display:
    """A few lines at the bottom of the terminal that are drawn again every second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def open(self) -> None:
        """See `View`."""
        self._live.start()

    def draw(self, board: Board) -> None:
        """See `View`."""
        self._live.update(Group(*_drawing(board)), refresh=True)

    def say(self, text: str, style: str = "") -> None:
        """See `View`."""
        self._live.console.print(Text(text, style=style))

    def close(self) -> None:
        """See `View`."""
        self._live.stop()


def _drawing(board: Board) -> list[Any]:
    ok, failed = board.outcomes[OK], board.outcomes[FAILED]
    head = Text.assemble((board.campaign, "bold"), f"  run {board.number} of {board.total}")
    if board.run is not None:
        head.append(f"  {board.run.name}")
        if board.attempt > 1:
            head.append(f"  attempt {board.attempt}", "yellow")
    stage = Table.grid(padding=(0, 1))
    bar = ProgressBar(total=board.stage_s, completed=board.in_stage_s, width=24) if board.stage_s else Text("")
    of = f"/{board.stage_s:g}" if board.stage_s else ""
    stage.add_row(
        Text(f"{board.stage_name:<16}"), bar, f"{board.in_stage_s:.0f}{of} s", Text(flow_in_words(board), "cyan")
    )
    foot = Text(f"{in_words(board.time_left_s)} left, {ok} ok", "dim")
    if failed:
        foot.append(f", {failed} failed", "red")
    return [head, stage, foot]


def flow_in_words(board: Board) -> str:
    """Current throughput and latency; empty when nothing flows."""
    sample = board.sample
    parts = []
    if sample.tuples_per_s is not None:
        parts.append(f"{sample.tuples_per_s:,.0f} tuples/s")
    if sample.latency_p50_ms is not None:
        parts.append(f"p50 {sample.latency_p50_ms:.3g} ms")
    return ", ".join(parts)
