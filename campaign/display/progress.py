"""Progress of a campaign: a live display on a terminal, otherwise plain lines, or nothing with `--quiet`.

The display shows the content of `live.json` (`campaign.results.live_file`). It is written to standard error; standard
output contains results only.
"""

import sys
import time
from typing import Protocol

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from analysis.records.file_types import FAILED, INCOMPLETE, OK
from campaign.display.terminal import plain_console
from campaign.results.live_file import LiveRecord, duration_text, ms_in_words
from campaign.results.suspect_runs import drain_in_words
from controller.coordinator.event_log import LiveDecision
from inventory.foreign import printable
from scheduler.explain.worker_loads import count_text

PLAIN_EVERY_S = 10.0
"""Interval of plain lines during a run."""


class ProgressView(Protocol):
    """Display of a campaign's progress."""

    def open(self) -> None:
        """Start the display."""
        ...

    def draw(self, live: LiveRecord) -> None:
        """Draw the current state; called every second."""
        ...

    def print_line(self, text: str, style: str = "") -> None:
        """Print a permanent line; control characters are escaped."""
        ...

    def close(self) -> None:
        """End the display."""
        ...


def view_for(quiet: bool, color: bool) -> ProgressView:
    """Return the view for the terminal and the options."""
    if quiet:
        return Silence()
    if sys.stderr.isatty():
        return Display(plain_console(color, stderr=True))
    return LineProgress()


class Silence:
    """View that shows nothing."""

    def open(self) -> None:
        """See `ProgressView`."""

    def draw(self, live: LiveRecord) -> None:
        """See `ProgressView`."""

    def print_line(self, text: str, style: str = "") -> None:
        """See `ProgressView`."""

    def close(self) -> None:
        """See `ProgressView`."""


class LineProgress:
    """View that prints a line for every event and every ten seconds."""

    def open(self) -> None:
        self._next = time.monotonic() + PLAIN_EVERY_S

    def draw(self, live: LiveRecord) -> None:
        if live.run is not None and time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_EVERY_S
            flow = flow_in_words(live)
            self.print_line(
                f"run {live.number}/{live.of} {live.run}: {live.stage}"
                f"{(': ' if live.draining else ', ') + flow if flow else ''}, {duration_text(live.time_left_s)} left"
            )

    def print_line(self, text: str, style: str = "") -> None:
        click.echo(printable(text), err=True)

    def close(self) -> None:
        """See `ProgressView`."""


class Display:
    """View that redraws a few lines at the bottom of the terminal every second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def open(self) -> None:
        self._live.start()

    def draw(self, live: LiveRecord) -> None:
        self._live.update(Group(*head(live)), refresh=True)

    def print_line(self, text: str, style: str = "") -> None:
        self._live.console.print(Text(printable(text), style=style))

    def close(self) -> None:
        self._live.stop()


def head(live: LiveRecord) -> list[RenderableType]:
    """Return three lines: the run, its stage with current metrics, and the remaining time."""
    outcomes = live.outcomes
    which = Text.assemble((live.campaign, "bold"), f"  run {live.number} of {live.of}")
    if live.run is not None:
        which.append(f"  {live.run}")
        if live.attempt is not None and live.attempt > 1:
            which.append(f"  attempt {live.attempt}", "yellow")
    stage = Table.grid(padding=(0, 1))
    for _ in range(4):
        stage.add_column(no_wrap=True)
    meant_s, elapsed_s = live.stage_s, live.stage_elapsed_s
    bar = ProgressBar(total=meant_s, completed=elapsed_s, width=24) if meant_s else Text("")
    of = f"/{meant_s:g}" if meant_s else ""
    stage.add_row(Text(f"{live.stage:<16}"), bar, f"{elapsed_s:.0f}{of} s", Text(flow_in_words(live), "cyan"))
    foot = Text(f"{duration_text(live.time_left_s)} left, {outcomes[OK]} ok", "dim")
    if outcomes[FAILED]:
        foot.append(f", {outcomes[FAILED]} failed", "red")
    if outcomes.get(INCOMPLETE):
        foot.append(f", {outcomes[INCOMPLETE]} incomplete", "yellow")
    if live.overloaded_nodes is not None:
        workers = count_text(live.overloaded_workers, live.undetermined_workers or 0)
        foot.append(f"; placed with overloaded nodes {live.overloaded_nodes}, workers {workers}")
    return [which, stage, foot]


def flow_in_words(live: LiveRecord) -> str:
    """Return the progress of file transfers, throughput and latency; empty without any."""
    parts = []
    if live.sending:
        parts.append(f"sending files, {live.sending.sent_bytes / 1e6:,.0f} of {live.sending.of_bytes / 1e6:,.0f} MB")
    if live.draining:
        parts.append(drain_in_words(live.draining))
    if live.tuples_per_s is not None:
        parts.append(f"{live.tuples_per_s:,.0f} tuples/s")
    if live.latency_p50_ms is not None:
        parts.append(f"p50 {ms_in_words(live.latency_p50_ms)}")
    return ", ".join(parts)


def decision_in_words(decision: LiveDecision) -> str:
    """Return a decision and what became of it: `cut, 37 moves, done in 0.05 s`."""
    parts = [decision.reason] if decision.reason else []
    if decision.moves:
        parts.append("1 move" if decision.moves == 1 else f"{decision.moves} moves")
    outcome = (decision.outcome or "under way").replace("_", " ")
    parts.append(outcome if decision.took_s is None else f"{outcome} in {decision.took_s:.2g} s")
    return ", ".join(parts) + (f": {decision.message}" if decision.message else "")
