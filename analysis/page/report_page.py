"""Contents of the report's page as plain values, so that the template only arranges them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from analysis.figures.data import NodeUsage, WorkloadData
from analysis.figures.palette import Look
from analysis.page.changes import WINDOW, WorkloadChanges
from analysis.page.energy_comparison import METRICS as ENERGY_METRICS
from analysis.page.energy_view import EnergyView
from analysis.page.factor_view import Family, RatioLine
from analysis.page.findings import WorkloadFinding
from analysis.page.notes import measuring_notes, notes_of, observed_events, saturation_text
from analysis.records.aa_rate import read_false_positives
from analysis.records.campaign import Campaign, Run
from analysis.records.conditions import Calibrated
from analysis.records.descriptions import TRACE_TABLES, Fidelity, fidelity_of, host_facts, one_line, rate_text, thin
from analysis.records.factors import entry_at
from analysis.statistics.intervals import ENOUGH, ConfidenceInterval
from analysis.statistics.metrics import DUE, EMITTED, METRICS, Metric, Row, Rows
from analysis.statistics.pairs import power_notes
from analysis.statistics.ranking import HEADINGS
from inventory.documents import dump_yaml
from inventory.foreign import escaped
from workloads.topology import ACKER


@dataclass(frozen=True)
class Figure:
    """A drawing: its file, its caption and the standalone SVG document."""

    file: str
    caption: str
    svg: str


@dataclass(frozen=True)
class EnergyPart:
    """One workload's energy: its view, power over time, and the figures of every ranking."""

    view: EnergyView
    power: Figure | None
    figures: Sequence[Sequence[Figure]]


@dataclass(frozen=True)
class FactorPart:
    """A workload over the values of factors: table of ratios, figures over one factor, number of those left out."""

    family: Family
    lines: Sequence[RatioLine]
    figures: Sequence[Figure]
    left_out: int


@dataclass(frozen=True)
class SchedulerRuns:
    """One scheduler's runs of a workload.

    Attributes:
        scheduler: its name.
        look: how it is drawn.
        runs: rows of `summary.run_rows`.
        spreads: metric name -> spread of its values.
        saturation: sentences on sources that fell behind; empty when all kept their schedule.
    """

    scheduler: str
    look: Look
    runs: Rows
    spreads: Mapping[str, Any]
    saturation: str

    @property
    def saturated(self) -> int:
        """Number of runs in which sources fell behind."""
        return sum(bool(row["saturated"]) for row in self.runs)

    @property
    def not_given(self) -> str:
        """Inputs that the scheduler would use and did not get; empty when it got everything."""
        return next((row["not_given"] for row in self.runs if row["not_given"]), "")

    @property
    def suspect(self) -> int:
        """Number of suspect runs."""
        return sum(bool(row["suspect"]) for row in self.runs)


@dataclass(frozen=True)
class WorkloadSection:
    """One workload.

    Attributes:
        label: its label.
        slug: for anchors and file names.
        about: name, rate, and parameters that are not at their default.
        finding: what was found.
        found_figure: shows it; None without anything to compare with.
        enough: whether every scheduler has enough repetitions for intervals.
        figures: in the page's order.
        groups: one per scheduler.
        differences: scheduler -> metric name -> difference to the baseline.
        seats: distinct placements.
        components: per component and scheduler, ranges over the runs.
        slots: per scheduler whose runs follow a communication schedule, ranges over the runs.
        slot_figures: of the same runs.
        energy: its energy.
        changes: changes of its running topologies.
    """

    label: str
    slug: str
    about: Sequence[tuple[str, str]]
    finding: WorkloadFinding
    found_figure: Figure | None
    enough: bool
    figures: Sequence[Figure]
    groups: Sequence[SchedulerRuns]
    differences: Mapping[str, Mapping[str, ConfidenceInterval]]
    placements: Sequence[NodeUsage]
    components: Rows
    slots: Rows
    slot_figures: Sequence[Figure]
    energy: EnergyPart
    changes: WorkloadChanges

    def look(self, scheduler: str) -> Look:
        """Return how a scheduler of this workload is drawn."""
        return next(group.look for group in self.groups if group.scheduler == scheduler)

    def saturated(self, *schedulers: str | None) -> bool:
        """Return whether sources fell behind in a run of these schedulers."""
        return any(group.saturated for group in self.groups if group.scheduler in schedulers)

    def suspect(self, *schedulers: str | None) -> bool:
        """Return whether a run of these schedulers is suspect."""
        return any(group.suspect for group in self.groups if group.scheduler in schedulers)

    def is_asked(self, metric: Metric) -> bool:
        """Return whether the agenda determines a metric: tuples due, and tuples emitted on a schedule."""
        has_schedule = any(DUE in row for row in self.differences.values())
        return metric.name == DUE or (metric.name == EMITTED and has_schedule)

    def not_given(self, scheduler: str) -> str:
        """Return the inputs that a scheduler would use and did not get; empty when it got everything."""
        return next(group.not_given for group in self.groups if group.scheduler == scheduler)

    def placed(self, placements: NodeUsage) -> list[str]:
        """Return the components that have executors in a placement, in the table's order."""
        names = [name for executors in placements.slots.values() for name in executors]
        order = {row["component"]: at for at, row in enumerate(self.components)}
        return sorted({name.rpartition("[")[0] for name in names}, key=lambda name: (order.get(name, len(order)), name))


@dataclass(frozen=True)
class Page:
    """The whole page."""

    title: str
    schedulers: Sequence[str]
    started: str
    counts: Mapping[str, int]
    repetitions: tuple[int, int]
    false_positives: str
    baseline: str | None
    fidelity: Fidelity
    has_energy: bool
    trust: Sequence[tuple[str, str]]
    measuring: Sequence[tuple[str, str]]
    host: Sequence[tuple[str, str]]
    over_factors: Sequence[FactorPart]
    sections: Sequence[WorkloadSection]
    excluded: Rows
    excluded_decisions: Rows
    verification: Rows
    calibration: Sequence[tuple[str, Calibrated]]
    observed: Rows
    traces: Rows
    has_ackers: bool
    acks: bool
    agenda: str
    version: str
    git_commit: str | None
    git_dirty: bool | None
    headings: Mapping[str, str]
    metrics: Sequence[Metric]
    energy_metrics: Sequence[Metric]
    window_metrics: Sequence[Metric]
    example: str

    @property
    def edges(self) -> list[Metric]:
        """Metrics that begin a group of columns."""
        return [m for at, m in enumerate(self.metrics) if at == 0 or self.metrics[at - 1].group != m.group]


def page_of(
    campaign: Campaign,
    tables: Mapping[str, Rows],
    over_factors: Sequence[FactorPart],
    sections: Sequence[WorkloadSection],
    baseline: str | None,
) -> Page:
    """Assemble the page.

    Args:
        campaign: the campaign.
        tables: all tables of the report.
        over_factors: one per workload with runs that count at several values of factors.
        sections: one per workload with runs that count.
        baseline: the scheduler that others are compared with.
    """
    runs = tables["runs"]
    counted = [row for row in runs if row["counts"]]
    per_pair = [len(group.runs) for section in sections for group in section.groups]
    return Page(
        title=campaign.name,
        schedulers=campaign.schedulers,
        started=_started(campaign),
        counts={
            "all": len(runs),
            "counted": len(counted),
            "exact": sum(r["verification"] == "passed" for r in counted),
            "saturated": sum(bool(r["saturated"]) for r in counted),
            "suspect": sum(bool(r["suspect"]) for r in counted),
            "modelled": sum(bool(r["modelled"]) for r in tables["energy"]),
        },
        repetitions=(min(per_pair, default=0), max(per_pair, default=0)),
        false_positives=rate.in_words if (rate := read_false_positives(campaign.folder)) else "not measured",
        baseline=baseline,
        fidelity=fidelity_of(next((run.file.tier for run in campaign.runs if run.file and run.counts), None)),
        has_energy=any(row["joules"] is not None for row in tables["energy"]),
        trust=[*notes_of(campaign, tables, counted), *power_notes(tables["pairs"])],
        measuring=measuring_notes(campaign, tables, counted),
        host=host_facts(campaign.file.host),
        over_factors=over_factors,
        sections=sections,
        excluded=[row for row in runs if not row["counts"]],
        excluded_decisions=[row for row in tables["decisions"] if not row["counts"]],
        verification=runs,
        calibration=[(run.id, entry) for run in campaign.counted if run.file for entry in run.file.calibration],
        observed=observed_events(tables["events"]),
        traces=_traces(campaign.counted),
        has_ackers=any(
            name.startswith(f"{ACKER}[") for run in campaign.counted for e in run.slots.values() for name in e
        ),
        acks=campaign.agenda.acks,
        agenda="\n".join(map(escaped, dump_yaml(campaign.file.agenda).split("\n"))),
        version=campaign.file.version,
        git_commit=campaign.file.git_commit,
        git_dirty=campaign.file.git_dirty,
        headings=HEADINGS,
        metrics=METRICS,
        energy_metrics=ENERGY_METRICS,
        window_metrics=WINDOW,
        example=next((run.id for run in campaign.counted), "<run>"),
    )


def section_of(
    campaign: Campaign,
    data: WorkloadData,
    slug: str,
    finding: WorkloadFinding,
    found_figure: Figure | None,
    figures: Sequence[Figure],
    energy: EnergyPart,
    changes: WorkloadChanges,
    slot_figures: Sequence[Figure],
    tables: Mapping[str, Rows],
    runs: Rows,
    differences: Mapping[tuple[str, str, str], ConfidenceInterval],
) -> WorkloadSection:
    """Assemble one workload's part of the page; `differences` by (workload, scheduler, metric)."""
    mine = [row for row in runs if row["counts"] and row["workload"] == data.label]
    groups = []
    for scheduler, look in data.looks.items():
        its = sorted((row for row in mine if row["scheduler"] == scheduler), key=lambda row: row["repetition"])
        spreads = {metric: each.get(scheduler) for metric, each in data.spreads.items()}
        groups.append(SchedulerRuns(scheduler, look, its, spreads, saturation_text(its, tables)))
    return WorkloadSection(
        label=data.label,
        slug=slug,
        about=_about(campaign, data.label),
        finding=finding,
        found_figure=found_figure,
        enough=all(count >= ENOUGH for count in data.repetitions.values()),
        figures=figures,
        groups=groups,
        differences={
            scheduler: {
                m.name: differences[data.label, scheduler, m.name]
                for m in METRICS
                if (data.label, scheduler, m.name) in differences
            }
            for scheduler in data.looks
        },
        placements=data.placements,
        components=_components(data, groups, tables),
        slots=_slots(groups, tables),
        slot_figures=slot_figures,
        energy=energy,
        changes=changes,
    )


def _about(campaign: Campaign, label: str) -> list[tuple[str, str]]:
    run = next(run for run in campaign.counted if run.workload == label)
    named = (run.file.label or run.file.workload) if run.file else label
    factors = run.file.factors if run.file else {}
    asked = next((w for w in campaign.agenda.workloads if (w.get("label") or w.get("name")) == named), {})
    asked = entry_at(asked, "workloads", factors)
    entries = [("rate", rate_text(asked.get("rate"), run.file.load if run.file else None))]
    entries += [
        (key, one_line(value)) for key, value in (asked.get("params") or {}).items() if value not in (None, "", {})
    ]
    for each in run.file.inputs if run.file else ():
        records = f"{thin(each.records)} records, " if each.records is not None else ""
        entries.append((f"input {each.name}", f"{records}{each.origin}"))
    if asked.get("name") not in (None, named):
        entries.insert(0, ("workload", str(asked["name"])))
    if run.file and run.file.cpu_settings:
        entries.append(("CPU settings", run.file.cpu_settings))
    entries += [(f"factor {key}", one_line(value)) for key, value in factors.items()]
    return [(key, words) for key, words in entries if words]


def _started(campaign: Campaign) -> str:
    """Return when the first run started, to the minute; empty when unknown."""
    times = [run.times.started_utc for run in campaign.runs if run.times.started_utc]
    if not times:
        return ""
    try:
        return f"{datetime.fromisoformat(min(times)).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return min(times)


def _components(data: WorkloadData, groups: Sequence[SchedulerRuns], tables: Mapping[str, Rows]) -> Rows:
    """Return per component and scheduler the executors, and the values of every run."""
    busy = {(row["run"], row["component"]): row for row in tables["busy"]}
    entries: dict[tuple[str, str], Row] = {}
    for group in groups:
        ids = {row["run"] for row in group.runs}
        for row in tables["components"]:
            if row["run"] not in ids:
                continue
            key = (row["component"], group.scheduler)
            entry = entries.setdefault(
                key,
                {
                    "component": key[0],
                    "role": row["role"],
                    "executors": row["executors"],
                    "scheduler": key[1],
                    "values": {},
                },
            )
            for name, value in {**row, **busy.get((row["run"], row["component"]), {})}.items():
                if isinstance(value, (int, float)) and name != "executors":
                    entry["values"].setdefault(name, []).append(value)
    order = {"spout": 0, "bolt": 1, "sink": 2}
    places = {scheduler: at for at, scheduler in enumerate(data.looks)}
    return sorted(
        entries.values(),
        key=lambda e: (
            e["component"].startswith(ACKER),
            order.get(e["role"], 3),
            e["component"],
            places[e["scheduler"]],
        ),
    )


def _slots(groups: Sequence[SchedulerRuns], tables: Mapping[str, Rows]) -> Rows:
    """Return per scheduler with a communication schedule the values of the table `slots` of every run."""
    rows: Rows = []
    for group in groups:
        ids = {row["run"] for row in group.runs}
        mine = [row for row in tables["slots"] if row["run"] in ids]
        if mine:
            values = {name: [row[name] for row in mine if row[name] is not None] for name in mine[0] if name != "run"}
            rows.append({"scheduler": group.scheduler, "values": values})
    return rows


def _traces(runs: Sequence[Run]) -> Rows:
    return [
        {
            "table": table,
            "words": words,
            "rows": sum(run.sizes.get(table, (0, 0))[0] for run in runs),
            "bytes": sum(run.sizes.get(table, (0, 0))[1] for run in runs),
        }
        for table, words in TRACE_TABLES.items()
    ]
