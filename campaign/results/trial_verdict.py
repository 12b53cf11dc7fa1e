"""Verdict on one trial of a search for the sustainable rate: whether a run met the objectives, from its traces."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import NormalDist, median, median_low
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from analysis.measure.covered import Spans, read_table, weighted, weighted_total
from analysis.measure.run_metrics import is_backlogged
from analysis.records.conditions import SloRecord, TrialRecord
from analysis.records.file_types import INCOMPLETE, Measured, RunRecord
from inventory.errors import RunError
from inventory.times import NS

SLOPE_RESOLUTION = 0.001
"""Slopes of the lag up to this are jitter: seconds per second, a shortfall of 0.1 % of the rate."""

CONFIDENCE = 0.95
"""Confidence in the growth of the lag that is asked for."""

WHOLE = 0.99
"""Share of the measured interval that a trial must last."""

BUSY, BLOCKED = 2 / 3, 0.05
"""A late source that computes for this share of the time, and waits for the topology for less than that, is the limit
itself."""


def verdict_of(traces: Path, record: RunRecord, tuples_per_s: float, slo: SloRecord, duration_s: float) -> TrialRecord:
    """Return whether a run met the objectives.

    Args:
        traces: folder of `<table>.parquet`.
        record: its `run.json`.
        tuples_per_s: the offered rate.
        slo: the objectives.
        duration_s: length of the measured interval in the agenda.

    Raises:
        RunError: nothing is known of this rate: the input ended, latencies are unknown, or the sources themselves are
            too slow for it.
    """
    measured, times = record.measured or Measured(), record.times
    lasted_s = ((times.measure_end_ns or 0) - (times.measure_start_ns or 0)) / NS
    if lasted_s < WHOLE * duration_s:
        raise RunError(
            f"the input ended after {lasted_s:.3g} of the {duration_s:g} s that are measured; "
            "nothing is known of this rate"
        )
    spans = Spans(
        read_table(traces, "event", "kind", "detail", "value"),
        {node: known.clock.offset_ns for node, known in record.nodes.items()},
    )
    spouts = read_table(traces, "throughput", "executor", "role", "late_ns")
    delays = delays_of(spouts.filter(pc.equal(spouts["role"], "spout")), spans)
    late_s = max((late for readings in delays.values() for _, late in readings), default=None)
    latencies = latencies_of(read_table(traces, "latency", "value_ns", "count"), spans)
    slope = slope_of([*latencies, *(reading for readings in delays.values() for reading in readings)])
    if late_s is None:
        raise RunError("the lag is unknown: the sources emitted nothing")
    is_late = [
        *([f"sources late by {late_s:.3g} s, at most {slo.late_s:g} are allowed"] if late_s > slo.late_s else []),
        *(["sources emitted less than what was due"] if measured.saturated and not is_backlogged(measured) else []),
    ]
    if is_late:
        _check_sources(traces, spans, delays, lasted_s)
    if is_backlogged(measured) and measured.backlog is not None:
        is_late.append(f"{measured.backlog.end_records:,} due records were not out of the topology at the end")
    if slope is None:
        is_late.append("workers were too busy to report their lag in more than one second")
    elif slope.low > max(slo.lag_slope_max, SLOPE_RESOLUTION):
        is_late.append(
            f"lag grows by {slope.value:.3g} s/s (at least {slope.low:.3g}), at most {slo.lag_slope_max:g} is allowed"
        )
    # An answer that is not complete is none, at whatever rate.
    reasons = [*is_late, *([record.reason] if record.status == INCOMPLETE else _slow(measured, slo))]
    return TrialRecord(
        tuples_per_s=tuples_per_s,
        holds=not reasons,
        reason="; ".join(reasons),
        source_tuples_per_s=measured.source_tuples_per_s,
        p99_ms=measured.latency_ms.p99,
        late_s=round(late_s, 6),
        lag_slope=None if slope is None else round(slope.value, 6),
    )


def _slow(measured: Measured, slo: SloRecord) -> list[str]:
    """Return how the latency exceeds the objective; empty if it does not."""
    if slo.p99_ms is None:
        return []
    latency = measured.latency_ms
    if latency.p99 is None:
        if "p99" in latency.withheld and (latency.bound or 0.0) <= slo.p99_ms:
            return []
        why = (
            f"latencies are known to ± {latency.bound:.3g} ms" if "p99" in latency.withheld else "no tuple was sampled"
        )
        raise RunError(f"whether p99 is within {slo.p99_ms:g} ms is unknown: {why}")
    if latency.p99 <= slo.p99_ms:
        return []
    return [f"p99 {latency.p99:.3g} ms, at most {slo.p99_ms:g} are allowed"]


Delays = Mapping[str, Sequence[tuple[float, float]]]
"""Source -> (seconds since the begin of the interval, delay behind its schedule in seconds)."""


def delays_of(spouts: pa.Table, spans: Spans) -> Delays:
    """Return the delays of spouts in the measured interval, in order of time."""
    delays: dict[str, list[tuple[float, float]]] = {}
    for row in spouts.filter(pc.is_valid(spouts["late_ns"])).to_pylist():
        start, end = spans.of(row["node"], row["worker"])
        if start < row["t_ns"] <= end:
            delays.setdefault(row["executor"], []).append(((row["t_ns"] - start) / NS, row["late_ns"] / NS))
    return {executor: sorted(readings) for executor, readings in delays.items()}


class Slope(NamedTuple):
    """Growth of the lag in seconds per second, and the lower end of its one-sided 95 % interval."""

    value: float
    low: float


def latencies_of(samples: pa.Table, spans: Spans) -> list[tuple[float, float]]:
    """Return the median latency at the sinks in each second of the measured interval, in seconds, with its time."""
    counts: dict[int, Counter[int]] = {}
    for row in samples.to_pylist():
        start, end = spans.of(row["node"], row["worker"])
        if start < row["t_ns"] <= end:
            counts.setdefault(round((row["t_ns"] - start) / NS), Counter())[row["value_ns"]] += row["count"]
    return [(float(second), median_low(of_second.elements()) / NS) for second, of_second in sorted(counts.items())]


def slope_of(readings: Sequence[tuple[float, float]]) -> Slope | None:
    """Return the growth of the lag from (seconds, lag) in any order; None with fewer than two seconds.

    The lag of a second is the largest one in it: of the sources behind their schedule, or of the tuples at the sinks
    behind the time at which they were due. The latter also has what waits in the topology's queues.

    It is the median of the slopes between all pairs of seconds, which single outliers do not change, with the interval
    of Sen (1968, Estimates of the regression coefficient based on Kendall's tau).
    """
    largest: dict[int, float] = {}
    for at_s, late in readings:
        largest[round(at_s)] = max(late, largest.get(round(at_s), 0.0))
    pairs = combinations(sorted(largest.items()), 2)
    slopes = sorted((later - late) / (at_later - at) for (at, late), (at_later, later) in pairs)
    if not slopes:
        return None
    count = len(largest)
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    rank = round((len(slopes) - NormalDist().inv_cdf(CONFIDENCE) * deviation) / 2)
    return Slope(median(slopes), slopes[max(rank - 1, 0)])


def _check_sources(traces: Path, spans: Spans, delays: Delays, lasted_s: float) -> None:
    """Check that the topology, and not the latest source itself, is too slow.

    Raises:
        RunError: the source computes most of the time and rarely waits for the topology.
    """
    latest = max(delays, key=lambda executor: max(late for _, late in delays[executor]))
    times = read_table(traces, "executor", "executor", "busy_ns", "blocked_ns")
    mine = weighted(times.filter(pc.equal(times["executor"], latest)), spans)
    busy, blocked = (weighted_total(mine, column) / NS / lasted_s for column in ("busy_ns", "blocked_ns"))
    if busy >= BUSY and blocked < BLOCKED:
        raise RunError(
            f"the sources are slower than the rate: {latest} computes for {busy:.0%} of the time and waits for the "
            f"topology for {blocked:.0%}, so that nothing is known of the topology; give the spout more executors"
        )
