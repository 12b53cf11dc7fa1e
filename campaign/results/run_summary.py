"""Status and main metrics of a run, as `millrace results` lists them."""

from msgspec import Struct

from analysis.records.campaign import Run
from analysis.records.file_types import Measured


class RunSummary(Struct, frozen=True, kw_only=True):
    """A run in one line; unknown values are None.

    Attributes:
        run: its name.
        workload, scheduler, repetition: labels and number; empty and None without `run.json`.
        status: `ok`, `incomplete`, `failed`, `skipped` or `cut off`.
        counts: whether the report compares it.
        reason: why not; empty if it does.
        throughput_tuples_per_s: what sinks took in.
        latency_p50_ms, latency_p95_ms, latency_p99_ms: end to end.
        inter_node_percent: share of the delivered tuples that came from another node.
        joules_per_tuple: gross energy per tuple.
        saturated: whether the sources, or the topology behind them, fell behind; None without a schedule.
        suspect: reasons to doubt the metrics; empty without any.
    """

    run: str
    workload: str
    scheduler: str
    repetition: int | None
    status: str
    counts: bool
    reason: str
    throughput_tuples_per_s: float | None
    latency_p50_ms: float | None
    latency_p95_ms: float | None
    latency_p99_ms: float | None
    inter_node_percent: float | None
    joules_per_tuple: float | None
    saturated: bool | None
    suspect: str


def summary_of(run: Run) -> RunSummary:
    """Return status and main metrics of a run."""
    measured = (run.file.measured if run.file else None) or Measured()
    latency = measured.latency_ms
    return RunSummary(
        run=run.id,
        workload=run.workload,
        scheduler=run.scheduler,
        repetition=run.repetition,
        status=run.status,
        counts=run.counts,
        reason=run.left_out,
        throughput_tuples_per_s=measured.throughput_tuples_per_s,
        latency_p50_ms=latency.p50,
        latency_p95_ms=latency.p95,
        latency_p99_ms=latency.p99,
        inter_node_percent=_inter_node_percent(measured),
        joules_per_tuple=measured.energy.joules_per_tuple if measured.energy else None,
        saturated=measured.saturated,
        suspect=run.suspect,
    )


def _inter_node_percent(measured: Measured) -> float | None:
    """Return the share of tuples between nodes; None if a count is unknown, or without tuples."""
    known = [tuples for tuples in measured.hops.values() if tuples is not None]
    total = sum(known)
    between = measured.hops.get("inter_node")
    if between is None or len(known) < len(measured.hops) or not total:
        return None
    return 100 * between / total
