"""Findings of a campaign as text for the terminal: a row per workload and scheduler, and the report's sentences.

Also those of a bundle beside the findings of its repetition on this machine.
"""

from collections.abc import Mapping
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from analysis.page.compared_tables import HOLDS, HOLDS_NOT, UNDECIDED
from analysis.records.descriptions import change
from analysis.statistics.metrics import Metric, Row, Rows
from analysis.statistics.ranking import HEADINGS, sentences, shown_in
from campaign.display.placement_tables import MAX_WIDTH
from campaign.display.terminal import plain_console
from campaign.results.open_results import Results
from inventory.foreign import printable

FOUND_IN = ("ranking", "pairs", "pairs_without_suspect", "runs")
"""Tables with what was found."""

NOTHING = "no run counts, so nothing was found"


def findings_text(results: Results, color: bool = True) -> str:
    """Return what was found, for standard output: medians, and sentences about the changes against the baseline."""
    tables = {name: results.table(name).to_arrow().to_pylist() for name in FOUND_IN if name in results.tables}
    return tables_text(tables, results.folder, color)


def tables_text(tables: Mapping[str, Rows], folder: Path, color: bool = True) -> str:
    """Return what the tables `FOUND_IN` of the campaign in `folder` say, for standard output."""
    ranked: dict[tuple[str, str], dict[str, Row]] = {}
    for row in tables["ranking"]:
        ranked.setdefault((row["workload"], row["scheduler"]), {})[row["metric"]] = row
    if not ranked:
        return NOTHING
    console = plain_console(color)
    table = _table(ranked)
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)  # numbers are never cut
    with console.capture() as text:
        console.print(table)
    runs = [row for row in tables["runs"] if row["counts"]]
    doubtful = sum(bool(row["suspect"]) for row in runs)
    pairs, clear = (tables.get(name, []) for name in ("pairs", "pairs_without_suspect"))
    baseline = next((row["baseline"] for rows in ranked.values() for row in rows.values()), "")
    said = [
        f"{workload}: {sentence}"
        for workload in dict.fromkeys(workload for workload, _ in ranked)
        for sentence in sentences(pairs, workload, baseline, clear)
    ]
    if doubtful:
        said.append(
            f"{doubtful} of {len(runs)} runs are suspect, and changes in parentheses are from such; reasons: "
            f"millrace results {folder}"
        )
    return "\n".join([text.get().rstrip(), *([""] if said else []), *map(printable, said)])


def _table(ranked: Mapping[tuple[str, str], Mapping[str, Row]]) -> Table:
    baseline = next((row["baseline"] for rows in ranked.values() for row in rows.values()), "")
    title = f"Medians (against {baseline})" if baseline else "Medians"
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left")
    table.add_column("workload", no_wrap=True)
    table.add_column("scheduler", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    is_doubtful = any(row["suspect"] for rows in ranked.values() for row in rows.values())
    if is_doubtful:
        table.add_column("suspect", justify="right", no_wrap=True)
    shown = shown_in({metric for rows in ranked.values() for metric in rows})
    for metric in shown:
        table.add_column(
            HEADINGS[metric.name].replace(" ", "\n", 1) + f",\n{metric.unit}", justify="right", no_wrap=True
        )
        table.add_column("", justify="right", no_wrap=True)
    before = None
    for (workload, scheduler), rows in ranked.items():
        against = ranked.get((workload, baseline), {})
        cells = [
            text
            for metric in shown
            for text in _cells(metric, rows.get(metric.name), None if rows is against else against.get(metric.name))
        ]
        n, suspect = (max(row[name] or 0 for row in rows.values()) for name in ("n", "suspect"))
        counted = [f"{n:.0f}", *([f"{suspect:.0f}" if suspect else ""] if is_doubtful else [])]
        table.add_row(workload if workload != before else "", scheduler, *counted, *cells)
        before = workload
    return table


def _cells(metric: Metric, row: Row | None, base: Row | None) -> tuple[str, str]:
    """Return a median, and its change against the baseline, in parentheses if suspect runs are among those of the two.

    `base` is the row of the baseline; None of the baseline itself.
    """
    if row is None:
        return "-", ""
    percent = row["change_percent"]
    middle = f"{row['median']:,.{metric.digits}f}"
    if base is None or percent is None:
        return middle, ""
    return middle, f"({change(percent)})" if row["suspect"] or base["suspect"] else change(percent)


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
