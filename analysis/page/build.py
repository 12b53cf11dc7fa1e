"""The report's folder: tables as CSV, figures as SVG and the page, built from the tables of the Spark job.

index.html
figures/<workload>-<figure>.svg, on request also .pdf
tables/<table>.csv, and of comparisons .tex and .md
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from analysis.figures.data import NodeUsage, RunLine, SlotData, WorkloadData
from analysis.figures.palette import look
from analysis.figures.report_figures import (
    CHANGES_CAPTION,
    ENERGY_KINDS,
    FACTORS_CAPTION,
    KINDS,
    POWER_CAPTION,
    SLOT_KINDS,
    draw_all,
    draw_changes,
    draw_energy,
    draw_factors,
    draw_power,
    draw_slots,
)
from analysis.page import changes
from analysis.page.changes import bands_of
from analysis.page.compared_tables import COMPARED_COLUMNS, compared_tables
from analysis.page.energy_comparison import Cell, energy_cells, metered_rows
from analysis.page.energy_view import energy_view, meter_data
from analysis.page.factor_view import MOST_MULTIPLES, Family, families_of, multiples_of, ratio_lines
from analysis.page.figure_files import FigureFiles, slugs
from analysis.page.findings import change_data, finding_of
from analysis.page.html import render_page
from analysis.page.notes import without_withheld
from analysis.page.print_tables import write_csv, write_printed
from analysis.page.report_page import EnergyPart, FactorPart, WorkloadSection, page_of, section_of
from analysis.page.windows import window_groups
from analysis.records.campaign import BALANCE_S, Campaign, Run
from analysis.statistics.intervals import ENOUGH, ConfidenceInterval, spread
from analysis.statistics.metrics import METRICS, Row, Rows, by_repetition
from analysis.statistics.ranking import shown_of
from analysis.tables.summary import SPARK_COLUMNS, run_rows
from inventory.times import NS

COLUMNS: Mapping[str, tuple[str, ...]] = {**COMPARED_COLUMNS, **SPARK_COLUMNS}
"""Every table of the report -> its columns."""


def build(
    campaign: Campaign,
    tables: Mapping[str, Rows],
    folder: Path,
    baseline: str | None,
    on_progress: Callable[[str], None],
    pdf: bool = False,
) -> Path:
    """Write the whole report into `folder`, which exists and is empty; return the path of its page.

    Args:
        campaign: the campaign to report.
        tables: tidy rows of every table in `SPARK_COLUMNS`.
        folder: the report's folder.
        baseline: the scheduler that others are compared with.
        on_progress: called with the name of each step.
        pdf: whether to write every figure as PDF, too.
    """
    on_progress("comparing runs")
    tables = {
        **tables,
        **{name: without_withheld(campaign, tables[name]) for name in ("latency", "latency_timeline")},
        "power": metered_rows(campaign, tables["power"]),
    }
    tables |= compared_tables(campaign, run_rows(campaign, tables), baseline)
    differences, families = tables["differences"], families_of(campaign)
    cells = energy_cells(campaign, tables["energy"])
    (folder / "tables").mkdir()
    for name, rows in tables.items():
        write_csv(folder / "tables" / f"{name}.csv", COLUMNS[name], rows)
    write_printed(folder / "tables", tables)
    files = FigureFiles(folder / "figures", pdf)
    files.folder.mkdir()
    intervals = {(r["workload"], r["scheduler"], r["metric"]): _interval(r) for r in differences}
    over_factors = [
        _over_factors(campaign, family, slug, tables, baseline, files)
        for family, slug in zip(families, slugs([family.label for family in families]).values(), strict=True)
    ]
    sections = []
    for label, slug in slugs(campaign.workloads).items():
        if any(run.workload == label for run in campaign.counted):
            on_progress(f"drawing {label}")
            sections.append(_section(campaign, label, slug, tables, cells, intervals, baseline, files))
    page = folder / "index.html"
    windows = {label: window_groups(label, campaign.schedulers, tables["windows"]) for label in campaign.workloads}
    shown = page_of(campaign, tables, over_factors, sections, baseline)
    page.write_text(render_page(shown, windows, tables["searches"], tables["agreement"]), encoding="utf-8")
    return page


def _over_factors(
    campaign: Campaign, family: Family, slug: str, tables: Mapping[str, Rows], baseline: str | None, files: FigureFiles
) -> FactorPart:
    looks = {scheduler: look(at) for at, scheduler in enumerate(campaign.schedulers)}
    multiples = multiples_of(family, tables["ranking"], looks, shown_of(campaign))
    drawn = draw_factors(multiples[:MOST_MULTIPLES], slug, family.label, files.keep(slug))
    figures = [files.write(f"{slug}-{name}", FACTORS_CAPTION, svg) for name, svg in drawn]
    lines = ratio_lines(family, tables["pairs"], baseline)
    return FactorPart(family, lines, figures, len(multiples) - len(figures))


def _section(
    campaign: Campaign,
    label: str,
    slug: str,
    tables: Mapping[str, Rows],
    cells: Sequence[Cell],
    differences: Mapping[tuple[str, str, str], ConfidenceInterval],
    baseline: str | None,
    files: FigureFiles,
) -> WorkloadSection:
    data = workload_data(campaign, label, tables, tables["runs"])
    finding = finding_of(tables, label, data.looks, baseline)
    keep = files.keep(slug)
    changed_by = change_data(finding, tables["runs"], label, baseline)
    drawn = draw_changes(changed_by, slug, label, keep) if changed_by else None
    found_figure = files.write(f"{slug}-found", CHANGES_CAPTION, drawn) if drawn else None
    figures = [files.write(f"{slug}-{name}", KINDS[name].caption, svg) for name, svg in draw_all(data, slug, keep)]
    energy = _energy(campaign, data, slug, tables, cells, files)
    changed = changes.changes_of(label, list(data.looks), tables)
    slots = slot_data(campaign, data, tables)
    of_slots = [
        files.write(f"{slug}-{name}", SLOT_KINDS[name].caption, svg)
        for name, svg in (draw_slots(slots, slug, label, keep) if slots.looks else ())
    ]
    return section_of(
        campaign,
        data,
        slug,
        finding,
        found_figure,
        figures,
        energy,
        changed,
        of_slots,
        tables,
        tables["runs"],
        differences,
    )


def _energy(
    campaign: Campaign,
    data: WorkloadData,
    slug: str,
    tables: Mapping[str, Rows],
    cells: Sequence[Cell],
    files: FigureFiles,
) -> EnergyPart:
    """Return the energy part of a section; the names of its figures contain the meter."""
    runs = [run for run in campaign.counted if run.workload == data.label]
    view = energy_view(data.label, runs, data.looks, tables, cells)
    power = draw_power(view.power, slug, data.label, files.keep(slug)) if view.power else None
    meters = slugs([ranking.meter.words for ranking in view.rankings])
    return EnergyPart(
        view,
        files.write(f"{slug}-power", POWER_CAPTION, power) if power else None,
        [
            [
                files.write(f"{slug}-{name}-{meter}", f"{ENERGY_KINDS[name].caption} Source: {words}.", svg)
                for name, svg in draw_energy(
                    meter_data(ranking), f"{slug}-{meter}", data.label, files.keep(slug, f"-{meter}")
                )
            ]
            for ranking, (words, meter) in zip(view.rankings, meters.items(), strict=True)
        ],
    )


def _interval(row: Row) -> ConfidenceInterval:
    return ConfidenceInterval(row["pairs"], row["median_difference"], row["low"], row["high"])


def workload_data(campaign: Campaign, label: str, tables: Mapping[str, Rows], runs: Rows) -> WorkloadData:
    """Return the data of a workload's figures.

    Args:
        campaign: the campaign.
        label: the workload's label.
        tables: the Spark job's tables.
        runs: rows of `summary.run_rows`.
    """
    counted = [run for run in campaign.counted if run.workload == label]
    repetitions = {s: sum(run.scheduler == s for run in counted) for s in campaign.schedulers}
    # A scheduler has one style in the whole report, so its position in the campaign counts, not in this workload.
    looks = {s: look(at) for at, s in enumerate(campaign.schedulers) if repetitions[s]}
    by_metric = {m.name: {s: by_repetition(runs, label, s, m.name) for s in looks} for m in METRICS}
    values = {m: {s: list(each[s].values()) for s in looks} for m, each in by_metric.items()}
    doubtful = {(run.scheduler, run.repetition) for run in counted if run.suspect}
    scheduler_of = {run.id: run.scheduler for run in counted}
    recoveries: dict[str, list[float]] = {}
    for row in tables["moments"]:
        if row["kind"] == "recovery" and row["run"] in scheduler_of:
            recoveries.setdefault(scheduler_of[row["run"]], []).append(row["second"])
    return WorkloadData(
        label=label,
        looks=looks,
        repetitions={s: repetitions[s] for s in looks},
        warmup_s=max((_warmup_s(run) for run in counted), default=0.0),
        throughput=_lines(
            counted,
            # A rate is drawn in the middle of its step.
            ((row["run"], row["second"] + row["step_s"] / 2, row["sink_tuples_per_s"]) for row in tables["timeline"]),
        ),
        latency=_lines(counted, ((row["run"], row["quantile"], row["latency_ms"]) for row in tables["latency"])),
        samples={(run.scheduler, run.repetition or 0): _samples(run, tables["latency"]) for run in counted},
        values=values,
        spreads={m: {s: spread(v, label, s, m) for s, v in each.items()} for m, each in values.items()},
        placements=_node_usage(counted, list(looks)),
        nodes=campaign.nodes_of(label),
        suspect={m: {s: [(s, k) in doubtful for k in each[s]] for s in looks} for m, each in by_metric.items()},
        recoveries=recoveries,
        latency_over_time=_lines(
            counted,
            ((r["run"], r["second"] + r["step_s"] / 2, r["latency_ms"]) for r in tables["latency_timeline"]),
        ),
        bands=bands_of(counted),
    )


def slot_data(campaign: Campaign, data: WorkloadData, tables: Mapping[str, Rows]) -> SlotData:
    """Return the data of the figures of time slots; without schedulers if no run follows a communication schedule.

    From enough repetitions on, stalls are means over runs instead of steps.
    """
    runs = {run.id: run for run in campaign.counted if run.workload == data.label}
    slots = [row for row in tables["slots"] if row["run"] in runs]
    looks = {s: k for s, k in data.looks.items() if any(runs[row["run"]].scheduler == s for row in slots)}
    mine = [run for run in runs.values() if run.scheduler in looks]
    steps = tables["slot_timeline"]
    over_time = {
        column: _lines(mine, ((r["run"], r["second"] + r["step_s"] / 2, _or_nan(r[column])) for r in steps))
        for column in ("transfer_ms", "processing_ms", "packing_ms", "busy_slot_ms", "overlapped_ms", "buffer_percent")
    }
    balance = ((r["run"], r["second"] + BALANCE_S / 2, r["spread"]) for r in tables["slot_balance"])
    few = {s for s in looks if data.repetitions[s] < ENOUGH}
    stalls = [r for r in steps if r["run"] in runs and runs[r["run"]].scheduler in few]
    stalls += [r for r in slots if runs[r["run"]].scheduler not in few]
    return SlotData(
        looks=looks,
        over_time={**over_time, "spread": _lines(mine, balance)},
        stalls=_lines(
            mine,
            ((r["run"], r["stall_predicted_ms"], r["stall_ms"]) for r in stalls if r["stall_predicted_ms"] is not None),
        ),
        stalled_slots={s: sum(r["stalled_slots"] for r in slots if runs[r["run"]].scheduler == s) for s in looks},
        bands={s: bands for s, bands in data.bands.items() if s in looks},
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _warmup_s(run: Run) -> float:
    times = run.times
    return ((times.measure_start_ns or 0) - (times.source_start_ns or 0)) / NS


def _lines(runs: Sequence[Run], values: Iterable[tuple[str, float, float | None]]) -> list[RunLine]:
    """Return one line per run from (run's id, x, y)."""
    points: dict[str, list[tuple[float, float]]] = {}
    for run_id, x, y in values:
        if y is not None:
            points.setdefault(run_id, []).append((x, y))
    return [
        RunLine(run.scheduler, run.repetition or 0, sorted(points.get(run.id, [])), bool(run.suspect)) for run in runs
    ]


def _samples(run: Run, rows: Rows) -> int:
    return next((int(row["samples"]) for row in rows if row["run"] == run.id), 0)


def _node_usage(runs: Sequence[Run], schedulers: Sequence[str]) -> list[NodeUsage]:
    """Return distinct placements, by scheduler and then by the first repetition that had them."""
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda run: (schedulers.index(run.scheduler), run.repetition or 0)):
        if run.slots:
            alike.setdefault((run.scheduler, repr(run.slots)), []).append(run)
    usages = []
    for (scheduler, _), group in alike.items():
        executors: dict[str, int] = {}
        workers: dict[str, int] = {}
        for (node, _slot), placed in group[0].slots.items():
            executors[node] = executors.get(node, 0) + len(placed)
            workers[node] = workers.get(node, 0) + 1
        repetitions = [run.repetition or 0 for run in group]
        usages.append(NodeUsage(scheduler, repetitions, executors, workers, group[0].slots, group[0].overloaded))
    return usages
