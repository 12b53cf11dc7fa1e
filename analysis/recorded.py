"""Rows of runs from their records: figures of `run.json`, which need neither traces nor a report."""

from typing import Any

from analysis.results import Campaign, Run
from analysis.summary import METRICS, Metric, Row, Rows
from inventory.times import NS

RECORDED: tuple[Metric, ...] = tuple(
    metric
    for metric in METRICS
    if metric.name
    in (
        *("source_tuples_per_s", "sink_tuples_per_s", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms"),
        *("inter_worker_tuples_per_s", "inter_node_tuples_per_s"),
    )
)
"""Metrics of the report that records have, too."""


def recorded_rows(campaign: Campaign) -> Rows:
    """Return one row per run like those of the table `runs`, with the metrics in `RECORDED`; others are None."""
    return [
        {
            "run": run.id,
            "workload": run.workload,
            "scheduler": run.scheduler,
            "repetition": run.repetition,
            "counts": run.counts,
            "saturated": run.file.measured.saturated if run.file and run.file.measured else None,
            "suspect": run.suspect,
            **dict.fromkeys(metric.name for metric in METRICS),
            **_figures(run),
        }
        for run in campaign.runs
    ]


def _figures(run: Run) -> Row:
    measured = run.file.measured if run.counts and run.file else None
    if measured is None:
        return {}
    seconds = ((run.times.measure_end_ns or 0) - (run.times.measure_start_ns or 0)) / NS
    found: dict[str, Any] = {
        "source_tuples_per_s": measured.source_tuples_per_s,
        "sink_tuples_per_s": measured.sink_tuples_per_s,
        "latency_p50_ms": measured.latency_ms.p50,
        "latency_p95_ms": measured.latency_ms.p95,
        "latency_p99_ms": measured.latency_ms.p99,
        "latency_max_ms": measured.latency_ms.max,
    }
    for hop in ("inter_worker", "inter_node"):
        tuples = measured.hops.get(hop)
        found[f"{hop}_tuples_per_s"] = None if tuples is None or seconds <= 0 else tuples / seconds
    return found
