"""Findings of a bundle beside those of this machine, as text for the terminal."""

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from analysis.descriptions import change
from analysis.ranking import HEADINGS
from analysis.summary import Row, Rows
from campaign.display.placement_tables import MAX_WIDTH
from campaign.display.terminal import plain_console
from campaign.results.repeated import HOLDS, HOLDS_NOT, UNDECIDED


def repeated_text(rows: Rows, color: bool = True) -> str:
    """Return a row per finding, and how many hold, for standard output."""
    if not rows:
        return "the bundle has no pair of schedulers with metrics, so there are no findings"
    console = plain_console(color)
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for column in ("workload", "schedulers", "metric", "bundle", "here", "verdict"):
        table.add_column(column, no_wrap=True)
    for row in rows:
        who = f"{row['scheduler']} / {row['other']}"
        numbers = (_cell(row["before"]), _cell(row["now"]))
        table.add_row(row["workload"], who, HEADINGS[row["metric"]], *numbers, row["verdict"])
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)
    with console.capture() as text:
        console.print(table)
    verdicts = [row["verdict"] for row in rows]
    known = sum(verdicts.count(each) for each in (HOLDS, HOLDS_NOT, UNDECIDED))
    parts = [f"{verdicts.count(HOLDS)} of {known} findings hold on this machine"] if known else []
    if known < len(rows):
        parts.append(f"{len(rows) - known} comparisons have no conclusion in the bundle, or were not measured here")
    lines = [line.rstrip() for line in text.get().strip().splitlines()]
    return "\n".join([*lines, "; ".join(parts)])


def _cell(row: Row | None) -> str:
    """Return a change with its outcome: in per cent, or in the metric's unit without a ratio."""
    if row is None:
        return "-"
    by = (
        f"{row['difference']:+.3g} {row['unit']}".replace("-", "−")
        if row["ratio"] is None
        else change(100 * (row["ratio"] - 1))
    )
    outcome = row["outcome"] or f"n = {row['n']}"
    return f"{by} ({outcome})"
