"""Metrics of one run for `run.json`, computed from its traces over the measured interval.

`analysis.measure.covered` has what a row means, and the interval in the clock of every worker.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import asdict, replace

from analysis.measure.backlog import Backlogs
from analysis.measure.covered import (
    Intervals,
    PartOfIntervals,
    Spans,
    by_worker,
    due_curves,
    ends_within,
    read_table,
    weighted,
    weighted_total,
)
from analysis.records.file_types import ClockDifference, Measured
from analysis.records.interval_metrics import IntervalMetrics, Latency, Window, WindowRecord
from inventory.times import NS

HOPS = ("intra_worker", "inter_worker", "inter_node")

LATE_SHARE = 0.10
"""Saturated are sources with a delay above this share of the interval, or missing this share of tuples; and topologies
that still have this share of the records that were due in the interval at its end."""

GROWTH_SHARE = 0.05
"""So are sources whose delay grows by this share of the interval from its first to its last quarter, and topologies
whose backlog grows by this share of the records that were due in it."""


Reading = tuple[int, int]
"""Time in nanoseconds from the begin of the interval, and the value at that time."""


def measure(
    traces: Path,
    seconds: float,
    offsets: Mapping[str, int],
    apart: Sequence[ClockDifference] = (),
    windows: Sequence[Window] = (),
) -> Measured:
    """Return the metrics of `run.json` that follow from the Parquet files in `traces`.

    Rates are tuples per second: `due_` by the sources' schedule, `source_` emitted by spouts, `sink_` counted by sinks.
    The throughput is what the sinks counted. Values are None if the interval is empty or nothing was sampled.

    Args:
        traces: folder of `<table>.parquet`.
        seconds: length of the measured interval.
        offsets: node -> its monotonic clock minus the controller's, in nanoseconds.
        apart: bounds of clock differences between nodes.
        windows: parts of the measured interval.

    Raises:
        RunError: no event marks the interval of a worker.
    """
    events = read_table(traces, "event", "kind", "detail", "value")
    spans = Spans(events, offsets)
    throughput = read_table(traces, "throughput", "executor", "role", "emitted", "processed", "late_ns", "due")
    channels = read_table(traces, "channel", "source", "target", "hop", "tuples")
    samples = read_table(traces, "latency", "value_ns", "count")
    backlogs = Backlogs(throughput, read_table(traces, "executor", "executor", "queued"), channels)

    def over(intervals: Intervals, length_s: float) -> IntervalMetrics:
        metrics = _metrics(throughput, channels, samples, intervals, length_s, apart)
        if length_s <= 0:
            return metrics
        metrics = replace(
            metrics,
            backlog=backlogs.over(intervals),
            latency_ms=backlogs.with_censored(metrics.latency_ms, samples, intervals),
        )
        return replace(metrics, saturated=True) if is_backlogged(metrics) else metrics

    return Measured(
        **asdict(over(spans, seconds)),
        refused_connections=_refused(events),
        windows=[
            WindowRecord(
                **asdict(over(PartOfIntervals(spans, window.from_s, covered_s), covered_s)),
                name=window.name,
                from_s=window.from_s,
                to_s=window.to_s,
                seconds=round(covered_s, 3),
            )
            for window in windows
            for covered_s in [max(0.0, min(window.to_s, seconds) - window.from_s)]
        ],
    )


def _metrics(
    throughput: pa.Table,
    channels: pa.Table,
    samples: pa.Table,
    spans: Intervals,
    seconds: float,
    apart: Sequence[ClockDifference],
) -> IntervalMetrics:
    """Return the metrics of an interval of `seconds` from three trace tables."""
    rows = weighted(throughput, spans)
    sent = weighted(channels, spans)
    is_spout, is_sink = (pc.equal(rows["role"], role) for role in ("spout", "sink"))

    def rate(counted: pa.Table, column: str) -> float | None:
        return round(weighted_total(counted, column, "weight_per_s"), 3) if seconds > 0 else None

    sunk = rate(rows.filter(is_sink), "processed")
    due = due_in(rows.filter(is_spout), spans, seconds) if seconds > 0 else None
    return IntervalMetrics(
        due_tuples_per_s=None if due is None else round(due / seconds, 3),
        source_tuples_per_s=rate(rows.filter(is_spout), "emitted"),
        sink_tuples_per_s=sunk,
        throughput_tuples_per_s=sunk,
        latency_ms=known_latency(
            latency_in(samples if seconds > 0 else samples.slice(0, 0), spans),
            _largest_ns(apart, _nodes_of(rows.filter(is_spout)), _nodes_of(rows.filter(is_sink))) / 1e6,
        ),
        saturated=_saturated(rows.filter(is_spout), spans, seconds, due),
        hops={
            hop: round(weighted_total(sent.filter(pc.equal(sent["hop"], hop)), "tuples")) if seconds > 0 else None
            for hop in HOPS
        },
    )


def is_backlogged(measured: IntervalMetrics) -> bool:
    """Return whether the topology fell behind the schedule, however well the sources kept it; see `LATE_SHARE`."""
    backlog = measured.backlog
    if measured.saturated is None or backlog is None or backlog.share is None:
        return False
    grown = backlog.share * (1 - backlog.begin_records / max(1, backlog.end_records))
    return backlog.share > LATE_SHARE or grown > GROWTH_SHARE


def _refused(events: pa.Table) -> dict[str, int]:
    """Return the number of connections that workers refused in the whole run, by reason."""
    rows = events.filter(pc.equal(events["kind"], "refused_connection"))
    counted = rows.group_by("detail").aggregate([("value", "sum")]).sort_by("detail").to_pylist()
    return {row["detail"]: round(row["value_sum"]) for row in counted}


def latency_in(table: pa.Table, spans: Intervals) -> Latency:
    """Return percentiles of all samples in the interval, in milliseconds."""
    inside = [table.slice(0, 0)]
    for rows, start, end in by_worker(table, spans):
        inside.append(rows.filter(ends_within(rows, start, end)))
    counts = pa.concat_tables(inside).group_by("value_ns").aggregate([("count", "sum")]).sort_by("value_ns")
    values: list[int] = counts["value_ns"].to_pylist()
    running: list[int] = pc.cumulative_sum(counts["count_sum"]).to_pylist()
    if not values:
        return Latency(samples=0)

    def percentile(share: float) -> float:
        at = next(k for k, reached in enumerate(running) if reached >= share * running[-1])
        return round(values[at] / 1e6, 3)

    return Latency(
        p50=percentile(0.50),
        p95=percentile(0.95),
        p99=percentile(0.99),
        max=round(values[-1] / 1e6, 3),
        samples=running[-1],
    )


def known_latency(latency: Latency, bound_ms: float) -> Latency:
    """Return the latencies above the error bound of clocks, and the bound.

    Args:
        latency: percentiles, `max` and `samples`.
        bound_ms: error bound of each latency.
    """
    values = {"p50": latency.p50, "p95": latency.p95, "p99": latency.p99, "max": latency.max}
    withheld = [name for name, value in values.items() if value is not None and bound_ms and value <= bound_ms]
    return replace(latency, **dict.fromkeys(withheld), bound=round(bound_ms, 3), withheld=withheld)


def _nodes_of(rows: pa.Table) -> list[str]:
    nodes: list[str] = pc.unique(rows["node"]).to_pylist()
    return nodes


def _largest_ns(apart: Iterable[ClockDifference], sources: Collection[str], sinks: Collection[str]) -> int:
    """Return the largest error bound of latencies from `sources` to `sinks`; 0 if all share a clock."""
    ways = {(source, sink) for source in sources for sink in sinks}
    return max((p.bound_ns for p in apart if (p.node, p.to) in ways or (p.to, p.node) in ways), default=0)


def due_in(spouts: pa.Table, spans: Intervals, seconds: float) -> float | None:
    """Return the number of tuples due in the interval, for all sources; None without a schedule."""
    curves = due_curves(spouts, spans)
    return sum(curve.between(0, round(seconds * NS)) for curve in curves.values()) if curves else None


def _saturated(spouts: pa.Table, spans: Intervals, seconds: float, due: float | None) -> bool | None:
    """Return whether sources fell behind their schedule in the interval; None without a schedule."""
    if due is None:
        return None
    if weighted_total(spouts, "emitted") < (1 - LATE_SHARE) * due:
        return True
    lateness: list[Reading] = []
    for rows, start, end in by_worker(spouts, spans):
        inside = rows.filter(ends_within(rows, start, end))
        pairs = zip(inside["t_ns"].to_pylist(), inside["late_ns"].to_pylist(), strict=True)
        lateness += [(t_ns - start, late) for t_ns, late in pairs if late is not None]
    length = seconds * NS
    first = [late for since_start, late in lateness if since_start <= length / 4]
    last = [late for since_start, late in lateness if since_start > 3 * length / 4]
    if any(late > LATE_SHARE * length for _, late in lateness):
        return True
    return bool(first and last) and max(last) - max(first) > GROWTH_SHARE * length
