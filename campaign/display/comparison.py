"""A comparison of campaigns as text for the terminal: differences of set-up, then medians side by side."""

from collections.abc import Mapping

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from analysis.records.descriptions import change
from analysis.statistics.metrics import Row, Rows
from analysis.statistics.ranking import HEADINGS, SHOWN
from campaign.display.placement_tables import MAX_WIDTH
from campaign.display.terminal import plain_console

LONGEST = 40
"""Maximum length of a setting's value on the terminal."""


def comparison_text(tables: Mapping[str, Rows], color: bool = True) -> str:
    """Return the tables `setup` and `comparison` as text, for standard output."""
    labels = [row["campaign"] for row in tables["campaigns"]]
    console = plain_console(color)
    shown = [_campaigns(tables["campaigns"])]
    if tables["setup"]:
        shown.append(_setup(tables["setup"], labels))
    if tables["comparison"]:
        shown.append(_metrics(tables["comparison"]))
    with console.capture() as text:
        for table in shown:
            console.width = max(console.width, Console(width=MAX_WIDTH).measure(table).maximum)
            console.print(table)
    return "\n".join(line.rstrip() for line in text.get().rstrip().splitlines())


def _table(title: str, *columns: str) -> Table:
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False, title=title, title_justify="left")
    for column in columns:
        table.add_column(column, no_wrap=True)
    return table


def _campaigns(rows: Rows) -> Table:
    table = _table("Campaigns", "campaign", "folder", "version", "machine", "runs that count")
    for row in rows:
        count = f"{row['counted']} of {row['runs']}"
        table.add_row(row["campaign"], row["folder"], row["version"] or "-", str(row["hostname"] or "-"), count)
    return table


def _setup(rows: Rows, labels: list[str]) -> Table:
    table = _table("Differences of the set-up", "part", "setting", *labels)
    for row in rows:
        table.add_row(row["part"], _cut(row["setting"]), *(_cut(row[label]) for label in labels))
    return table


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _metrics(rows: Rows) -> Table:
    baseline = rows[0]["baseline"]
    title = f"Medians (against {baseline} of the same campaign)" if baseline else "Medians"
    table = _table(title, "workload", "scheduler", "campaign")
    table.add_column("n", justify="right", no_wrap=True)
    for metric in SHOWN:
        heading = HEADINGS[metric.name].replace(" ", "\n", 1) + f",\n{metric.unit}"
        table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("", justify="right", no_wrap=True)
    metrics_of: dict[tuple[str, str, str], dict[str, Row]] = {}
    for row in rows:
        metrics_of.setdefault((row["workload"], row["scheduler"], row["campaign"]), {})[row["metric"]] = row
    for key, cells in metrics_of.items():
        numbers = []
        for metric in SHOWN:
            cell = cells.get(metric.name)
            numbers.append(f"{cell['median']:,.{metric.digits}f}" if cell else "-")
            numbers.append(change(100 * (cell["ratio"] - 1)) if cell and cell["ratio"] is not None else "")
        table.add_row(*key, str(max(row["n"] for row in cells.values())), *numbers)
    return table
