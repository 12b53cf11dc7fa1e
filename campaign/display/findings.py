"""What a campaign found, as text for the terminal: a row per workload and scheduler, and the report's sentences."""

from collections.abc import Mapping
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from analysis.descriptions import change
from analysis.ranking import HEADINGS, TEXT, sentences, shown_in
from analysis.summary import Metric, Row
from analysis.table_files import read_csv
from campaign.display.placement_tables import MAX_WIDTH
from campaign.display.terminal import plain_console
from inventory.foreign import printable

NOTHING = "no run counts, so nothing was found"


def findings_text(report: Path, color: bool = True) -> str:
    """Return what was found according to the report in a folder, for standard output."""
    found: dict[tuple[str, str], dict[str, Row]] = {}
    for row in read_csv(report / "tables" / "ranking.csv", TEXT):
        found.setdefault((row["workload"], row["scheduler"]), {})[row["metric"]] = row
    if not found:
        return NOTHING
    console = plain_console(color)
    table = _table(found)
    console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)  # numbers are never cut
    with console.capture() as text:
        console.print(table)
    pairs, clear = (read_csv(report / "tables" / f"{table}.csv", TEXT) for table in ("pairs", "pairs_without_suspect"))
    baseline = next((row["baseline"] for rows in found.values() for row in rows.values()), "")
    said = [
        f"{workload}: {sentence}"
        for workload in dict.fromkeys(workload for workload, _ in found)
        for sentence in sentences(pairs, workload, baseline, clear)
    ]
    return "\n".join([text.get().rstrip(), *([""] if said else []), *map(printable, said)])


def _table(found: Mapping[tuple[str, str], Mapping[str, Row]]) -> Table:
    baseline = next((row["baseline"] for rows in found.values() for row in rows.values()), "")
    against = f" (against {baseline})" if baseline else ""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, title=f"Medians{against}", title_justify="left")
    table.add_column("workload", no_wrap=True)
    table.add_column("scheduler", no_wrap=True)
    table.add_column("n", justify="right", no_wrap=True)
    shown = shown_in({metric for rows in found.values() for metric in rows})
    for metric in shown:
        table.add_column(
            HEADINGS[metric.name].replace(" ", "\n", 1) + f",\n{metric.unit}", justify="right", no_wrap=True
        )
        table.add_column("", justify="right", no_wrap=True)
    before = None
    for (workload, scheduler), rows in found.items():
        cells = [text for metric in shown for text in _cells(metric, rows.get(metric.name), scheduler == baseline)]
        n = max(row["n"] for row in rows.values())
        table.add_row(workload if workload != before else "", scheduler, f"{n:.0f}", *cells)
        before = workload
    return table


def _cells(metric: Metric, row: Row | None, is_baseline: bool) -> tuple[str, str]:
    """Return a median, and its change against the baseline."""
    if row is None:
        return "-", ""
    percent = row["change_percent"]
    return f"{row['median']:,.{metric.digits}f}", "" if is_baseline or percent is None else change(percent)
