"""The report's folder: tables as CSV, figures as SVG and the page, built from the tables of the Spark job.

index.html
figures/<workload>-<figure>.svg
tables/<table>.csv
"""

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from analysis.clocks import without_withheld
from analysis.columns import SPARK_COLUMNS
from analysis.energy import comparison
from analysis.energy.comparison import Cell, cells_of
from analysis.energy.rows import (
    DOMAIN_COLUMNS,
    ENERGY_COLUMNS,
    HOP_COLUMNS,
    domain_rows,
    energy_rows,
    hop_rows,
    metered_rows,
)
from analysis.energy.view import energy_view, meter_data
from analysis.figures import ENERGY_KINDS, KINDS, POWER_CAPTION, draw_all, draw_energy, draw_power
from analysis.figures.data import WorkloadData
from analysis.html import render_page
from analysis.page import EnergyPart, Figure, Section, page_of, section_of
from analysis.results import Campaign
from analysis.statistics import Interval, without_noise
from analysis.summary import (
    COMPARISON_COLUMNS,
    DIFFERENCE_COLUMNS,
    RUN_COLUMNS,
    Row,
    Rows,
    comparison_rows,
    difference_rows,
    run_rows,
)
from analysis.views import workload_data

FORMULA = ("=", "+", "-", "@")
"""First characters of spreadsheet formulas."""

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "runs": RUN_COLUMNS,
    "comparison": COMPARISON_COLUMNS,
    "differences": DIFFERENCE_COLUMNS,
    "energy": ENERGY_COLUMNS,
    "energy_domains": DOMAIN_COLUMNS,
    "energy_hops": HOP_COLUMNS,
    "energy_comparison": comparison.COMPARISON_COLUMNS,
    "energy_differences": comparison.DIFFERENCE_COLUMNS,
    "energy_front": comparison.FRONT_COLUMNS,
    **SPARK_COLUMNS,
}
"""Every table of the report -> its columns."""


def build(
    campaign: Campaign,
    tables: Mapping[str, Rows],
    folder: Path,
    baseline: str | None,
    on_progress: Callable[[str], None],
) -> Path:
    """Write the whole report into `folder`, which exists and is empty; return the path of its page.

    Args:
        campaign: the campaign to report.
        tables: tidy rows of every table in `SPARK_COLUMNS`.
        folder: the report's folder.
        baseline: the scheduler that others are compared with.
        on_progress: called with the name of each step.
    """
    on_progress("comparing runs")
    tables = {
        **tables,
        "latency": without_withheld(campaign, tables["latency"]),
        "power": metered_rows(campaign, tables["power"]),
    }
    runs = run_rows(campaign, tables)
    differences = difference_rows(campaign, runs, baseline)
    energy = energy_rows(campaign, runs)
    cells = cells_of(campaign, energy)
    tables |= {
        "runs": runs,
        "comparison": comparison_rows(campaign, runs),
        "differences": differences,
        "energy": energy,
        "energy_domains": domain_rows(campaign),
        "energy_hops": hop_rows(campaign),
        "energy_comparison": comparison.comparison_rows(cells),
        "energy_differences": comparison.difference_rows(cells, baseline),
        "energy_front": comparison.front_rows(cells),
    }
    (folder / "tables").mkdir()
    for name, rows in tables.items():
        _write_csv(folder / "tables" / f"{name}.csv", COLUMNS[name], rows)
    (folder / "figures").mkdir()
    intervals = {(r["workload"], r["scheduler"], r["metric"]): _interval(r) for r in differences}
    sections = []
    for label, slug in _slugs(campaign.workloads).items():
        if any(run.workload == label for run in campaign.counted):
            on_progress(f"drawing {label}")
            sections.append(_section(campaign, label, slug, tables, cells, intervals, folder / "figures"))
    page = folder / "index.html"
    page.write_text(render_page(page_of(campaign, tables, runs, sections, baseline)), encoding="utf-8")
    return page


def _section(
    campaign: Campaign,
    label: str,
    slug: str,
    tables: Mapping[str, Rows],
    cells: Sequence[Cell],
    differences: Mapping[tuple[str, str, str], Interval],
    folder: Path,
) -> Section:
    data = workload_data(campaign, label, tables, tables["runs"])
    figures = [_figure(folder, f"{slug}-{name}", KINDS[name].caption, svg) for name, svg in draw_all(data, slug)]
    energy = _energy(campaign, data, slug, tables, cells, folder)
    return section_of(campaign, data, slug, figures, energy, tables, tables["runs"], differences)


def _energy(
    campaign: Campaign, data: WorkloadData, slug: str, tables: Mapping[str, Rows], cells: Sequence[Cell], folder: Path
) -> EnergyPart:
    """Return the energy part of a section; the names of its figures contain the meter."""
    runs = [run for run in campaign.counted if run.workload == data.label]
    view = energy_view(data.label, runs, data.looks, tables, cells)
    power = draw_power(view.power, slug, data.label) if view.power else None
    meters = _slugs([ranking.meter.words for ranking in view.rankings])
    return EnergyPart(
        view,
        _figure(folder, f"{slug}-power", POWER_CAPTION, power) if power else None,
        [
            [
                _figure(folder, f"{slug}-{name}-{meter}", f"{ENERGY_KINDS[name].caption} Source: {words}.", svg)
                for name, svg in draw_energy(meter_data(ranking), f"{slug}-{meter}", data.label)
            ]
            for ranking, (words, meter) in zip(view.rankings, meters.items(), strict=True)
        ],
    )


def _figure(folder: Path, name: str, caption: str, svg: str) -> Figure:
    file = f"{name}.svg"
    (folder / file).write_text(svg, encoding="utf-8")
    return Figure(file, caption, svg)


def _slugs(labels: Sequence[str]) -> dict[str, str]:
    """Return label -> unique text for file names and anchors."""
    found: dict[str, str] = {}
    for label in labels:
        slug = re.sub(r"[^A-Za-z0-9_-]+", "-", label).strip("-") or "workload"
        while slug in found.values():
            slug += "-2"
        found[label] = slug
    return found


def _interval(row: Row) -> Interval:
    return Interval(row["pairs"], row["median_difference"], row["low"], row["high"])


def _write_csv(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """Write a header and one line per row: missing values are empty, booleans `true` or `false`, formulas escaped."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([_cell(row[c]) for c in columns])


def _cell(value: object) -> object:
    """Return a value as written to a CSV file.

    Text that a spreadsheet would evaluate as a formula is escaped with an apostrophe.
    """
    match value:
        case bool():
            return str(value).lower()
        case float():
            return without_noise(value)
        case str() if value.startswith(FORMULA):
            return f"'{value}"
    return value
