"""Table of `millrace results`: the runs of a campaign."""

from collections.abc import Sequence

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from campaign.display.terminal import plain_console
from campaign.results.run_summary import RunSummary
from inventory.foreign import printable

MAX_WIDTH = 1000
"""Characters; enough for every number."""

HEADINGS = ("run", "status", "tuples/s", "p50 ms", "p95 ms", "p99 ms", "between nodes", "J/tuple")


def print_runs(runs: Sequence[RunSummary], color: bool = True) -> None:
    """Print a row per run on standard output, then why runs do not count or are doubtful."""
    console = plain_console(color)
    table = Table(box=SIMPLE)
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("run", "status") else "right", no_wrap=True)
    for run in runs:
        between = _number(run.inter_node_percent, ".0f")
        table.add_row(
            printable(run.run),
            run.status if run.counts or run.status != "ok" else "does not count",
            _number(run.throughput_tuples_per_s, ",.0f"),
            *(_number(ms, ".3g") for ms in (run.latency_p50_ms, run.latency_p95_ms, run.latency_p99_ms)),
            f"{between} %" if between else "",
            _number(run.joules_per_tuple, ".3g"),
        )
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)  # numbers are never cut
    console.print(table)
    for run in runs:
        suspect = "" if run.reason and run.reason in run.suspect else run.suspect
        saturated = "saturated: its sources, or the topology behind them, fell behind" if run.saturated else ""
        for reason in (run.reason, saturated, suspect):
            if reason:
                console.print(f"{printable(run.run)}: {printable(reason)}")
    console.print(f"{sum(run.counts for run in runs)} of {len(runs)} runs count")


def _number(value: float | None, form: str) -> str:
    """Return a number as text, empty if it is unknown."""
    return "" if value is None else format(value, form)
