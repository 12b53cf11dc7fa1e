"""Metrics of runs, and comparisons of schedulers from one row per run."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from analysis.records.campaign import Campaign
from analysis.statistics.intervals import paired_difference, spread

Row = dict[str, Any]


Rows = list[Row]


HOPS = ("intra_worker", "inter_worker", "inter_node")


@dataclass(frozen=True)
class Metric:
    """A metric of runs: its column, its heading in two parts, unit, and digits after the decimal point.

    None stands for three significant digits, for values of any size.
    """

    name: str
    group: str
    title: str
    unit: str
    digits: int | None = 0


DUE, EMITTED = "due_tuples_per_s", "source_tuples_per_s"
"""Tuples that the agenda requests from sources, and tuples that they emitted; the two are equal by design."""


METRICS = (
    Metric(DUE, "tuples/s", "due", "tuples/s"),
    Metric(EMITTED, "tuples/s", "emitted", "tuples/s"),
    Metric("sink_tuples_per_s", "tuples/s", "at sinks", "tuples/s"),
    Metric("worst_late_ms", "sources, ms", "late at most", "ms", 1),
    Metric("latency_p50_ms", "latency, ms", "p50", "ms", 2),
    Metric("latency_p95_ms", "latency, ms", "p95", "ms", 2),
    Metric("latency_p99_ms", "latency, ms", "p99", "ms", 2),
    Metric("latency_max_ms", "latency, ms", "max", "ms", 1),
    Metric("latency_bound_ms", "latency, ms", "± clocks", "ms", 3),
    Metric("intra_worker_tuples_per_s", "tuples/s by hop", "within a worker", "tuples/s"),
    Metric("inter_worker_tuples_per_s", "tuples/s by hop", "between workers", "tuples/s"),
    Metric("inter_node_tuples_per_s", "tuples/s by hop", "between nodes", "tuples/s"),
    Metric("inter_node_bytes_per_s", "bytes/s", "between nodes", "bytes/s"),
    Metric("nodes_used", "used", "nodes", "nodes"),
    Metric("slots_used", "used", "workers", "processes"),
    Metric("worker_cores", "CPU, cores", "workers", "cores", 3),
    Metric("agent_cores", "CPU, cores", "agents", "cores", 3),
    Metric("host_cores", "CPU, cores", "whole host", "cores", 2),
    Metric("cpu_s_per_million_tuples", "CPU-s per 10⁶", "at sinks", "CPU-s", 2),
    Metric("worker_memory_mb", "memory, MB", "workers", "MB"),
)
"""Metrics that are compared, in the order of the report's columns."""


def comparison_rows(campaign: Campaign, runs: Rows) -> Rows:
    """Return n and range per workload, scheduler and metric; with enough repetitions also the median's interval."""
    rows = []
    for workload, scheduler, metric in _cells(campaign):
        values = by_repetition(runs, workload, scheduler, metric.name)
        seen = spread(list(values.values()), workload, scheduler, metric.name)
        if seen is None:
            continue
        median = seen.median
        rows.append(
            {
                "workload": workload,
                "scheduler": scheduler,
                "metric": metric.name,
                "unit": metric.unit,
                "n": seen.n,
                "suspect": suspect_count(runs, workload, {scheduler}, values),
                "saturated": saturated_count(runs, workload, {scheduler}, values),
                "smallest": seen.low,
                "largest": seen.high,
                "median": median.estimate if median else None,
                "median_low": median.low if median else None,
                "median_high": median.high if median else None,
            }
        )
    return rows


def difference_rows(campaign: Campaign, runs: Rows, baseline: str | None) -> Rows:
    """Return differences to the baseline, paired by repetition, where there are enough repetitions."""
    rows = []
    for workload, scheduler, metric in _cells(campaign):
        if baseline is None or scheduler == baseline:
            continue
        base = by_repetition(runs, workload, baseline, metric.name)
        values = by_repetition(runs, workload, scheduler, metric.name)
        difference = paired_difference(values, base, workload, scheduler, baseline, metric.name)
        if difference is None:
            continue
        rows.append(
            {
                "workload": workload,
                "scheduler": scheduler,
                "baseline": baseline,
                "metric": metric.name,
                "unit": metric.unit,
                "pairs": difference.n,
                "suspect": suspect_count(runs, workload, {scheduler, baseline}, values.keys() & base.keys()),
                "saturated": saturated_count(runs, workload, {scheduler, baseline}, values.keys() & base.keys()),
                "median_difference": difference.estimate,
                "low": difference.low,
                "high": difference.high,
                "excludes_zero": difference.excludes_zero,
            }
        )
    return rows


def by_repetition(runs: Rows, workload: str, scheduler: str, metric: str) -> dict[int, float]:
    """Return repetition -> value of the runs that count and have the value."""
    return {
        row["repetition"]: row[metric]
        for row in runs
        if row["counts"] and row["workload"] == workload and row["scheduler"] == scheduler and row[metric] is not None
    }


def suspect_count(runs: Rows, workload: str, schedulers: Set[str], repetitions: Iterable[int]) -> int:
    """Count the repetitions in which one of the schedulers had a suspect run."""
    repetitions_with = {
        row["repetition"]
        for row in runs
        if row["counts"] and row["suspect"] and row["workload"] == workload and row["scheduler"] in schedulers
    }
    return len(repetitions_with & set(repetitions))


def saturated_count(runs: Rows, workload: str, schedulers: Set[str], repetitions: Iterable[int]) -> int | None:
    """Count the repetitions in which one of the schedulers had saturated sources; None without a schedule."""
    wanted = set(repetitions)
    known = [
        (row["repetition"], row["saturated"])
        for row in runs
        if row["counts"]
        and row["workload"] == workload
        and row["scheduler"] in schedulers
        and row["repetition"] in wanted
        and row["saturated"] is not None
    ]
    return len({repetition for repetition, saturated in known if saturated}) if known else None


COMPARISON_COLUMNS = (
    *("workload", "scheduler", "metric", "unit", "n", "suspect", "saturated", "smallest", "largest"),
    *("median", "median_low", "median_high"),
)


DIFFERENCE_COLUMNS = (
    *("workload", "scheduler", "baseline", "metric", "unit", "pairs", "suspect", "saturated"),
    *("median_difference", "low", "high", "excludes_zero"),
)


def _cells(campaign: Campaign) -> Sequence[tuple[str, str, Metric]]:
    return [(w, s, metric) for w in campaign.workloads for s in campaign.schedulers for metric in METRICS]
