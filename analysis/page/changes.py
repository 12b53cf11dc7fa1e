"""Changes of running topologies in the report: their cost and gain, and means over whole runs and after the last one.

A change has the number of its revision; one of the agenda's timeline has a `t` before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from analysis.figures.data import Band
from analysis.records.accounts import EnergyExcess, RevisionCost, WindowMeans
from analysis.records.campaign import Campaign, Run
from analysis.records.file_types import RevisionRecord
from analysis.statistics.intervals import Spread, spread
from analysis.statistics.metrics import HOPS, Metric, Row, Rows
from inventory.times import NS
from scheduler.online.observation import KeyFigures

WINDOW = (
    Metric("due_tuples_per_s", "tuples/s", "due", "tuples/s"),
    Metric("sink_tuples_per_s", "tuples/s", "at sinks", "tuples/s"),
    Metric("latency_mean_ms", "latency, ms", "mean", "ms", 2),
    Metric("latency_p50_ms", "latency, ms", "p50", "ms", 2),
    Metric("latency_p95_ms", "latency, ms", "p95", "ms", 2),
    Metric("intra_worker_tuples_per_s", "tuples/s by hop", "within a worker", "tuples/s"),
    Metric("inter_worker_tuples_per_s", "tuples/s by hop", "between workers", "tuples/s"),
    Metric("inter_node_tuples_per_s", "tuples/s by hop", "between nodes", "tuples/s"),
    Metric("nodes", "used", "nodes", "nodes"),
    Metric("watts", "power", "W", "W", 1),
)
"""Means over a part of a run, in the order of the columns."""

PARTS: Mapping[str, str] = {"whole_run": "the whole run", "after_last_revision": "after the last change"}
"""Part of a run -> its name on the page."""

NO_METER: Row = {"source": None, "modelled": None}

_IDENTITY = ("run", "workload", "scheduler", "repetition")
_TIMES = ("begun_s", "ended_s", "recovered_s")
_COUNTED = (
    *("moves", "pause_max_s", "pause_sum_s", "silent_s", "buffered_rows", "replayed_tuples", "state_bytes"),
    *("moving_cpu_ms", "dip_tuples", "surplus_tuples", "net_loss_tuples", "net_loss_error_tuples"),
    *("latency_excess_tuple_s", "latency_error_tuple_s"),
)
_SIDES = ("before", "after")

REVISION_COLUMNS = (
    *(*_IDENTITY, "change", "scripted", "reason", "outcome", "deciding_cpu_s", "clocks"),
    *(*_TIMES, *_COUNTED),
    *("excess_joules", "excess_bound_joules", "source", "modelled"),
    *(f"{metric.name}_{side}" for metric in WINDOW for side in _SIDES),
    *("inter_node_tuples_per_s_expected", "watts_expected", "load_before", "load_after", "load_expected"),
    *("pay_back_latency_s", "pay_back_throughput_s", "pay_back_energy_s", "unknown"),
)
DECISION_COLUMNS = (
    *(*_IDENTITY, "number", "at_s", "decided_s", "cpu_s", "outcome", "reason", "text", "message"),
    *("moves", "clocks", "begun_s", "ended_s", "counts"),
)
MEAN_COLUMNS = (*_IDENTITY, "part", "from_s", "to_s", *(metric.name for metric in WINDOW), "source", "modelled")


def change_name(change: RevisionCost) -> str:
    """Return the name of a change in tables and figures.

    >>> change_name(RevisionCost(number=2, begun_s=1, ended_s=2)), name_of(
    ...     RevisionCost(number=1, scripted=True, begun_s=1, ended_s=2)
    ... )
    ('2', 't1')
    """
    return f"t{change.number}" if change.scripted else str(change.number)


def revision_rows(campaign: Campaign) -> Rows:
    """Return one row per change in the runs that count."""
    return [
        _revision_row(run, change, None if change.scripted else records.get(change.number))
        for run in campaign.counted
        for records in [{record.number: record for record in run.revisions}]
        for change in run.revision_costs
    ]


def _revision_row(run: Run, change: RevisionCost, record: RevisionRecord | None) -> Row:
    plain, energy = asdict(change), change.energy
    before, after = _means(change.before), _means(change.after)
    expects = record.expects if record else KeyFigures()
    return {
        **_identity(run),
        "change": change_name(change),
        "reason": record.reason if record else None,
        "outcome": record.outcome if record else None,
        "deciding_cpu_s": record.cpu_s if record else None,
        "clocks": len(record.clocks) if record else None,
        **{name: plain[name] for name in ("scripted", *_TIMES, *_COUNTED)},
        "excess_joules": energy.joules if energy else None,
        "excess_bound_joules": energy.bound_joules if energy else None,
        **_meter(run, energy, change.before, change.after),
        **{f"{metric.name}_before": before[metric.name] for metric in WINDOW},
        **{f"{metric.name}_after": after[metric.name] for metric in WINDOW},
        "inter_node_tuples_per_s_expected": expects.cut,
        "watts_expected": expects.watts,
        "load_before": record.before.load if record and record.before else None,
        "load_after": record.after.load if record and record.after else None,
        "load_expected": expects.load,
        **{f"pay_back_{name}_s": value for name, value in asdict(change.pay_back).items()},
        "unknown": change.reason,
    }


def decision_rows(campaign: Campaign) -> Rows:
    """Return one row per decision of an online scheduler, also in runs that do not count."""
    return [
        {
            **_identity(run),
            **{name: value for name, value in asdict(record).items() if name in DECISION_COLUMNS},
            "clocks": len(record.clocks),
            "counts": run.counts,
        }
        for run in campaign.runs
        for record in run.revisions
    ]


def mean_rows(campaign: Campaign) -> Rows:
    """Return one row per known part of the runs that count."""
    return [
        {
            **_identity(run),
            "part": part,
            "from_s": means.from_s,
            "to_s": means.to_s,
            **_means(means),
            **_meter(run, means),
        }
        for run in campaign.counted
        for part, means in _parts(run)
    ]


def _meter(run: Run, *parts: EnergyExcess | WindowMeans | None) -> Row:
    """Return where the energy of these is from, or that of the run: results of earlier versions lack it for watts.

    No number of energy stands without it.
    """
    for each in parts:
        if each is not None and each.sources:
            return {"source": ", ".join(each.sources), "modelled": each.modelled}
    known = run.energy is not None and run.energy.source
    return {"source": run.energy.source, "modelled": run.energy.modelled} if known and run.energy else NO_METER


def _identity(run: Run) -> Row:
    return {"run": run.id, "workload": run.workload, "scheduler": run.scheduler, "repetition": run.repetition}


def _parts(run: Run) -> Iterator[tuple[str, WindowMeans]]:
    for part in PARTS:
        means: WindowMeans | None = getattr(run.means, part)
        if means is not None:
            yield part, means


def _means(means: WindowMeans | None) -> dict[str, Any]:
    """Return the values of `WINDOW` by name."""
    plain: dict[str, Any] = asdict(means) if means else {}
    hops = plain.get("hops", {})
    return {metric.name: plain.get(metric.name) for metric in WINDOW} | {
        f"{hop}_tuples_per_s": hops.get(hop) for hop in HOPS
    }


def bands_of(runs: Sequence[Run]) -> dict[str, list[Band]]:
    """Return scheduler -> changes in its first repetition, in seconds since the measured interval began."""
    bands: dict[str, list[Band]] = {}
    for run in sorted(runs, key=lambda run: run.repetition or 0):
        lead_s = ((run.times.measure_start_ns or 0) - (run.times.source_start_ns or 0)) / NS
        if run.scheduler not in bands and run.revision_costs:
            bands[run.scheduler] = [
                Band(
                    change_name(change),
                    change.begun_s - lead_s,
                    (change.ended_s if change.recovered_s is None else change.recovered_s) - lead_s,
                )
                for change in run.revision_costs
            ]
    return bands


@dataclass(frozen=True)
class PartMeans:
    """Means of one scheduler's runs over one part; `n` runs have them, and `modelled` is whether any watts are."""

    scheduler: str
    part: str
    n: int
    modelled: bool
    spreads: Mapping[str, Spread | None]


@dataclass(frozen=True)
class WorkloadChanges:
    """One workload's changes and decisions: rows of these tables, and means per scheduler; empty without any.

    `source` is where numbers of energy are from.
    """

    revisions: Rows
    decisions: Rows
    means: Sequence[PartMeans]
    source: str = ""


def changes_of(label: str, schedulers: Sequence[str], tables: Mapping[str, Rows]) -> WorkloadChanges:
    """Return the changes of a workload.

    Args:
        label: the workload's label.
        schedulers: schedulers with runs that count, in the campaign's order.
        tables: rows of `revisions`, `decisions` and `means`.
    """

    def mine(rows: Iterable[Row]) -> Rows:
        rows = [row for row in rows if row["workload"] == label]
        return sorted(rows, key=lambda row: (schedulers.index(row["scheduler"]), row["repetition"] or 0))

    revisions = mine(tables["revisions"])
    decisions = mine(row for row in tables["decisions"] if row["counts"])
    if not revisions and not decisions:
        return WorkloadChanges([], [], [])
    means = []
    for scheduler in schedulers:
        for part, words in PARTS.items():
            rows = [row for row in mine(tables["means"]) if (row["scheduler"], row["part"]) == (scheduler, part)]
            values = {m.name: [row[m.name] for row in rows if row[m.name] is not None] for m in WINDOW}
            spreads = {metric: spread(known, label, scheduler, part, metric) for metric, known in values.items()}
            modelled = any(row["modelled"] and row["watts"] is not None for row in rows)
            means.append(PartMeans(scheduler, words, len(rows), modelled, spreads))
    meters = dict.fromkeys(
        f"{row['source']}, modelled" if row["modelled"] else str(row["source"])
        for row in [*revisions, *mine(tables["means"])]
        if row["source"]
    )
    return WorkloadChanges(revisions, decisions, means, "; ".join(meters) or "no meter")
