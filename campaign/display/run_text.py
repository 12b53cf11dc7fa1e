"""Runs as text: the table of `millrace results`, and the outcome of a run that has ended."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from analysis.records.file_types import FINISHED, OK, RunRecord
from campaign.display.terminal import plain_console
from campaign.results.live_file import duration_text, ms_in_words
from campaign.results.run_summary import RunSummary
from campaign.results.suspect_runs import doubts_from_recoveries
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


MISSING = 0.01
"""Share of the samples from which on missing ones are told: then they can change p99."""


def outcome_in_words(title: str, record: RunRecord, took_s: float, folder: Path) -> list[tuple[str, str]]:
    """Return lines, each with its style, on a run that has ended.

    Args:
        title: names the run.
        record: its `run.json`.
        took_s: its duration in seconds.
        folder: folder of its results.
    """
    measured, search = record.measured, record.search
    if record.status not in FINISHED or measured is None:
        return [(f"{title} failed: {record.reason} (in {folder})", "red")]
    latency = measured.latency_ms
    parts = [f"{title} {record.status} in {duration_text(took_s)}"]
    if search is not None and search.tuples_per_s is not None:
        parts.append(f"sustainable rate {search.tuples_per_s:,.6g} tuples/s by {len(search.trials)} trials")
    if measured.throughput_tuples_per_s is not None:
        parts.append(f"{measured.throughput_tuples_per_s:,.0f} tuples/s")
    else:
        parts.append("nothing measured: the input ended in the warm-up")
    if latency.p50 is not None:
        # The 99th percentile is known, too: it is not below the median.
        parts.append(f"p50 {ms_in_words(latency.p50)}, p99 {ms_in_words(latency.p99 or 0.0)}")
    if latency.bound:
        parts.append(f"latencies ± {latency.bound:.2g} ms for the nodes' clocks")
    if measured.saturated:
        parts.append("saturated")
    if latency.censored and latency.censored > MISSING * (latency.samples or 0):
        parts.append(f"{latency.censored:,} samples were not out at the end")
    parts += doubts_from_recoveries(measured.recoveries, measured.incomplete or None)
    lines = [(", ".join(parts), "" if record.status == OK else "yellow")]
    if record.reason:
        lines.append((f"{title}: {record.reason}", "yellow"))
    lines += [(f"suspect: {reason}", "yellow") for reason in record.suspect]
    replaced = {node: at.agent_replaced for node, at in (record.nodes or {}).items() if at.agent_replaced}
    lines += [(f"node {node} got a new agent: {reason}", "yellow") for node, reason in replaced.items()]
    missing = [profile.reason or "" for profile in record.profiles or () if profile.file is None]
    if missing:
        lines.append((f"profiles missing: {len(missing)}; {', '.join(sorted(set(missing)))}", "yellow"))
    return lines
