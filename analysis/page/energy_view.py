"""Energy of one workload, arranged for its figures and its part of the page, with sentences on its source and error."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.power.model import NOTHING_MEASURED
from analysis.figures.data import DotPlots, MeterData, Moment, Panel, Point, PowerData, RunLine, quantity
from analysis.figures.palette import Look
from analysis.page.energy_comparison import METRICS, PER_TUPLE, THROUGHPUT, Cell, EnergySource
from analysis.records.campaign import Run
from analysis.records.descriptions import MOMENT_LABELS
from analysis.statistics.intervals import ENOUGH, Spread, spread
from analysis.statistics.metrics import HOPS, Row, Rows
from inventory.times import NS

_DOUBTS = {
    "unsteady": "the idle baseline was unsteady",
    "loaded": "other programs used CPU time while the idle baseline was measured",
    "drift": "the idle baselines before and after the run differ by more than 5 %",
    "filtered": "the processor adds noise to its counters on purpose",
    "ambiguous": "a counter may have wrapped unnoticed",
    "clamped": "less power was drawn than when idle",
}
"""Flags of energy that readers must see -> their meaning."""


def meter_sentences(meter: EnergySource, runs: Rows, machines: Sequence[str], models: Sequence[str]) -> list[str]:
    """Return the sentences before the figures.

    Args:
        meter: the meter.
        runs: rows of `rows.energy_rows`, all by this meter.
        machines: names of the machines.
        models: descriptions of the parameters of the reader `model`.
    """
    number = f"{len(machines)} machine{'s' if len(machines) != 1 else ''}"
    said = [f"Energy is by {meter.source}, of {meter.domains}, on {number}: {', '.join(machines)}."]
    if meter.modelled:
        parameters = f" ({'; '.join(models)})" if models else ""
        said.append(
            f"It follows a model{parameters} and was not measured: it is hatched, and ranked with no measured energy."
        )
    said.append(_bound(meter, runs))
    together = [row["together_percent"] for row in runs if row["together_percent"] is not None]
    if together:
        unknown = (
            f"; of up to {max(together):.0f} % of their CPU time that is not known, and it is of all packages together"
        )
        said.append(
            f"Energy of a package is that of the workers that ran on it{unknown if max(together) >= 1 else ''}."
        )
    for flag, words in _DOUBTS.items():
        flagged = sum(flag in row["flags"].split(", ") for row in runs)
        if flagged:
            said.append(f"In {flagged} of {len(runs)} runs {words}.")
    return said


def missing_sentences(runs: Rows) -> list[str]:
    """Return sentences on runs without energy, with the reasons."""
    reasons: dict[str, list[str]] = {}
    for row in runs:
        if row["joules"] is None:
            reasons.setdefault(row["reason"] or "no reason was recorded", []).append(row["run"])
    return [
        f"{len(names)} of {len(runs)} runs have no energy, which is not zero: {reason}."
        for reason, names in reasons.items()
    ]


def source_summary(energy: Rows) -> str:
    """Return the sources of energy in all runs that count, for the head of the report."""
    known: dict[tuple[str, bool], int] = {}
    for row in energy:
        if row["joules"] is not None:
            key = row["source"], row["modelled"]
            known[key] = known.get(key, 0) + 1
    said = [
        f"{'modelled and not measured, ' if modelled else 'measured '}by {source} in {number} of {len(energy)} runs"
        for (source, modelled), number in sorted(known.items(), key=lambda each: (each[0][1], each[0]))
    ]
    lacking = sum(row["joules"] is None for row in energy)
    if lacking:
        said.append(f"missing in {lacking}, where it is not zero")
    return "; ".join(said)


def _bound(meter: EnergySource, runs: Rows) -> str:
    bounds = [(row["bound_joules"], row["joules"]) for row in runs if row["bound_joules"] is not None]
    if not bounds:
        return "Its error is not known."
    bound, gross = max(bounds, key=lambda each: each[0] / each[1])
    share = f"{100 * bound / gross:.2g} %"
    if meter.modelled:
        off = f"{quantity(bound)} J ({share})"
        return f"Because of the model's error and the times of the readings, a run's joules may be off by {off}."
    return (
        f"The readings leave an error of at most {quantity(bound)} J ({share}) per run; "
        "the error of the meter itself comes on top."
    )


def machine_names(domains: Rows) -> list[str]:
    """Return the name of every machine once, from rows of `rows.domain_rows`."""
    by_nodes: Mapping[str, Row] = {row["nodes"]: row for row in domains}
    return [
        row["node"] if row["node"] == nodes else f"{nodes} (one machine, whose joules count once)"
        for nodes, row in sorted(by_nodes.items())
    ]


CONSUMERS = ("executor", "transport", "rest", "idle")


@dataclass(frozen=True)
class MeterRuns:
    """One scheduler's runs by one meter.

    Attributes:
        scheduler, look: the scheduler, and how it is drawn.
        runs: rows of the table `energy`.
        spreads: metric -> spread of its values.
        consumers, hops: name -> spread of joules, and of joules per tuple.
        workers: per worker `node`, `worker`, and the values of all runs of `cpu_s` and `joules`.
        front: its row of the table `energy_front`; None below enough repetitions.
    """

    scheduler: str
    look: Look
    runs: Rows
    spreads: Mapping[str, Spread | None]
    consumers: Mapping[str, Spread | None]
    hops: Mapping[str, Spread | None]
    workers: Rows
    front: Row | None

    @property
    def suspect(self) -> int:
        """Number of suspect runs."""
        return sum(bool(row["suspect"]) for row in self.runs)

    @property
    def doubtful(self) -> bool:
        """True if differences to it may have another cause than the scheduler."""
        return any(row["suspect"] or row["saturated"] for row in self.runs)


@dataclass(frozen=True)
class EnergyRanking:
    """Comparable runs: those of one workload by one meter."""

    meter: EnergySource
    words: Sequence[str]
    groups: Sequence[MeterRuns]
    differences: Mapping[str, Mapping[str, Row]]

    @property
    def kind(self) -> str:
        """CSS class of its tables."""
        return "modelled" if self.meter.modelled else ""

    @property
    def enough(self) -> bool:
        """True if every scheduler has enough repetitions for intervals."""
        return all(len(group.runs) >= ENOUGH for group in self.groups)

    @property
    def attributed(self) -> bool:
        """True if the energy of any run was attributed to workers."""
        return any(group.workers for group in self.groups)

    @property
    def why_not(self) -> list[str]:
        """Reasons why the energy of other runs was not attributed."""
        return sorted({row["why_not_attributed"] for group in self.groups for row in group.runs} - {None})

    def doubtful(self, *schedulers: str | None) -> bool:
        """Return whether a run of these schedulers is suspect or had saturated sources."""
        return any(group.doubtful for group in self.groups if group.scheduler in schedulers)


@dataclass(frozen=True)
class EnergyView:
    """One workload: rankings, measured ones first; sentences on runs without energy; power over time or None."""

    rankings: Sequence[EnergyRanking]
    missing: Sequence[str]
    power: PowerData | None


def energy_view(
    label: str, runs: Sequence[Run], looks: Mapping[str, Look], tables: Mapping[str, Rows], cells: Sequence[Cell]
) -> EnergyView:
    """Arrange one workload.

    Args:
        label: the workload's label.
        runs: those that count.
        looks: scheduler -> how it is drawn.
        tables: all tables of the report.
        cells: of the whole campaign.
    """
    mine = [cell for cell in cells if cell.workload == label]
    meters = list(dict.fromkeys(cell.meter for cell in mine))
    return EnergyView(
        rankings=[_ranking(meter, [c for c in mine if c.meter == meter], looks, tables) for meter in meters],
        missing=missing_sentences([row for row in tables["energy"] if row["workload"] == label]),
        power=_power(runs, looks, tables),
    )


def meter_data(ranking: EnergyRanking) -> MeterData:
    """Return the data of a ranking's figures."""
    names = [metric.name for metric in METRICS]
    groups = ranking.groups

    def known(group: MeterRuns, metric: str) -> Rows:
        return [row for row in group.runs if row[metric] is not None]

    return MeterData(
        source=ranking.meter.words,
        modelled=ranking.meter.modelled,
        dot_plots=DotPlots(
            looks={group.scheduler: group.look for group in groups},
            values={m: {g.scheduler: [row[m] for row in known(g, m)] for g in groups} for m in names},
            spreads={m: {group.scheduler: group.spreads[m] for group in groups} for m in names},
            suspect={m: {g.scheduler: [bool(row["suspect"]) for row in known(g, m)] for g in groups} for m in names},
        ),
        runs=[
            Point(group.scheduler, row[THROUGHPUT], row[PER_TUPLE], bool(row["suspect"]))
            for group in groups
            for row in group.runs
            if row[THROUGHPUT] is not None and row[PER_TUPLE] is not None
        ],
        middles=[
            Point(
                group.scheduler,
                row[THROUGHPUT],
                row[PER_TUPLE],
                bool(row["suspect"]),
                (row["tuples_low"], row["tuples_high"]),
                (row["joules_low"], row["joules_high"]),
                row["on_front"],
            )
            for group in groups
            if (row := group.front)
        ],
    )


def _ranking(
    meter: EnergySource, cells: Sequence[Cell], looks: Mapping[str, Look], tables: Mapping[str, Rows]
) -> EnergyRanking:
    workload = cells[0].workload
    names = {row["run"] for cell in cells for row in cell.rows}
    said = {row["detail"] for row in tables["events"] if _is_model(row) and row["run"] in names}
    models = sorted(detail.removeprefix(f"ok: {NOTHING_MEASURED}") for detail in said)
    machines = machine_names([row for row in tables["energy_domains"] if row["run"] in names])
    every = [row for cell in cells for row in cell.rows]

    def here(row: Row) -> bool:
        return (row["workload"], EnergySource(row["source"], row["domains"], row["modelled"])) == (workload, meter)

    differences: dict[str, dict[str, Row]] = {}
    for row in filter(here, tables["energy_differences"]):
        differences.setdefault(row["scheduler"], {})[row["metric"]] = row
    fronts = {row["scheduler"]: row for row in filter(here, tables["energy_front"])}
    return EnergyRanking(
        meter=meter,
        words=meter_sentences(meter, every, machines, models),
        groups=[_group(cell, looks[cell.scheduler], tables, fronts.get(cell.scheduler)) for cell in cells],
        differences=differences,
    )


def _is_model(event: Row) -> bool:
    return bool(event["kind"] == "power_reader" and event["subject"] == "model" and event["detail"])


def _group(cell: Cell, look: Look, tables: Mapping[str, Rows], front: Row | None) -> MeterRuns:
    names = {row["run"] for row in cell.rows}
    parts = [row for row in tables["consumers"] if row["run"] in names]
    used: dict[str, dict[str, float]] = {consumer: {} for consumer in CONSUMERS}
    workers: dict[tuple[str, int], dict[str, dict[str, float]]] = {}
    for row in parts:
        of_run = used[row["consumer"]]
        of_run[row["run"]] = of_run.get(row["run"], 0.0) + row["joules"]
        if row["consumer"] in ("executor", "transport"):
            mine = workers.setdefault((row["node"], row["worker"]), {"cpu_s": {}, "joules": {}})
            for column, values in mine.items():
                values[row["run"]] = values.get(row["run"], 0.0) + (row[column] or 0.0)
    hops: dict[str, list[float]] = {hop: [] for hop in HOPS}
    for row in tables["energy_hops"]:
        if row["run"] in names and row["joules_per_tuple"] is not None:
            hops[row["hop"]].append(row["joules_per_tuple"])
    about = (cell.workload, *cell.meter, cell.scheduler)
    return MeterRuns(
        scheduler=cell.scheduler,
        look=look,
        runs=sorted(cell.rows, key=lambda row: row["repetition"]),
        spreads={m.name: spread(list(cell.values(m.name).values()), *about, m.name) for m in METRICS},
        consumers={name: spread(list(values.values()), *about, name) for name, values in used.items()},
        hops={hop: spread(values, *about, hop) for hop, values in hops.items()},
        workers=[
            {"node": node, "worker": worker, **{column: list(each.values()) for column, each in of_worker.items()}}
            for (node, worker), of_worker in sorted(workers.items())
        ],
        front=front,
    )


def _power(runs: Sequence[Run], looks: Mapping[str, Look], tables: Mapping[str, Rows]) -> PowerData | None:
    of_run = {run.id: run for run in runs}
    series: dict[tuple[bool, str, str, str, bool], dict[str, list[tuple[float, float]]]] = {}
    for row in tables["power"]:
        if row["run"] in of_run:
            # Terms of the total come first.
            key = (not row["in_total"], row["node"], row["domain"], row["source"], row["modelled"])
            watts = math.nan if row["watts"] is None else row["watts"]
            points = series.setdefault(key, {}).setdefault(row["run"], [])
            points.append((row["second"] + row["step_s"] / 2, watts))
    if not series:
        return None
    return PowerData(
        looks=looks,
        warmup_s=max(((r.times.measure_start_ns or 0) - (r.times.source_start_ns or 0)) / NS for r in runs),
        panels=[
            Panel(
                node,
                domain,
                source,
                modelled,
                not outside,
                [
                    RunLine(of_run[r].scheduler, of_run[r].repetition or 0, sorted(points), bool(of_run[r].suspect))
                    for r, points in lines.items()
                ],
            )
            for (outside, node, domain, source, modelled), lines in sorted(series.items())
        ],
        moments=[
            Moment(of_run[row["run"]].scheduler, row["second"], row["node"], MOMENT_LABELS[row["kind"]])
            for row in tables["moments"]
            if row["run"] in of_run
        ],
    )
