"""Metrics of an interval of a run, in `run.json`: of the measured interval, and of its windows."""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Latency(Struct, frozen=True, kw_only=True):
    """Time from the intended emission to the sink, in milliseconds, over sampled tuples.

    Attributes:
        samples: number of sampled tuples.
        bound: largest error due to different clocks; 0 if the nodes share one.
        withheld: names of the values that do not exceed the bound, which are null.
    """

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    samples: int | None = None
    bound: float | None = None
    withheld: Sequence[str] = ()


class IntervalMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of an interval; rates are in tuples per second.

    Attributes:
        due_tuples_per_s: by the schedule of the spouts.
        source_tuples_per_s, sink_tuples_per_s: emitted by spouts, and counted by sinks.
        throughput_tuples_per_s: what sinks took in, as `sink_tuples_per_s`.
        saturated: whether the sources fell behind; null for rate `max`, which has no schedule.
        hops: delivered tuples by kind of hop.
    """

    due_tuples_per_s: float | None = None
    source_tuples_per_s: float | None = None
    sink_tuples_per_s: float | None = None
    throughput_tuples_per_s: float | None = None
    latency_ms: Latency = Latency()
    saturated: bool | None = None
    hops: Mapping[str, int | None] = {}


class WindowRecord(IntervalMetrics, frozen=True, kw_only=True):
    """Metrics of a window.

    Attributes:
        name: name in the agenda, or `step` and the number of a step of the rate.
        from_s, to_s: begin and end, in seconds since the begin of the measured interval.
        seconds: length of its measured part, which is shorter if the input ended earlier; without one, all metrics are
            null.
    """

    name: str
    from_s: float
    to_s: float
    seconds: float
