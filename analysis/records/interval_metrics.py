"""Metrics of an interval of a run, in `run.json`: of the measured interval, and of its windows."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from inventory.values import FileName, Seconds, SomeSeconds


class Latency(Struct, frozen=True, kw_only=True):
    """Time from the intended emission to the sink, in milliseconds, over sampled tuples.

    Attributes:
        samples: number of sampled tuples.
        censored: number of samples that are missing: due in the interval, and not out of the topology at its end. Where
            it is not small beside `samples`, latencies are lower bounds. Null if unknown.
        bound: largest error due to different clocks; 0 if the nodes share one.
        withheld: names of the values that do not exceed the bound, which are null.
    """

    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    samples: int | None = None
    censored: int | None = None
    bound: float | None = None
    withheld: Sequence[str] = ()


class Backlog(Struct, frozen=True, kw_only=True):
    """Records of the sources that were due and not out of the topology: not emitted yet, or waiting in its queues.

    At rate `max`, where nothing is due, emitted records count instead.

    Attributes:
        begin_records, end_records: at the begin and at the end of the interval.
        share: those at the end as a share of the records that were due in the interval, at most 1; null without any.
    """

    begin_records: int
    end_records: int
    share: float | None = None


class Draining(Struct, frozen=True, kw_only=True):
    """Work that a topology has yet to do when its sources have stopped.

    Attributes:
        rows: rows that its bolts have yet to process, by what waits and the selectivities so far.
        rows_per_s: rows processed per second; null while unknown.
        seconds: time that it takes at this rate; null without one.
        waiting: component -> rows in its input queues; of a spout, records that are due and not emitted.
        emitted_records, due_records: emitted by sources, and due when they were stopped; null without a schedule, and
            at the end of a finite input.
    """

    rows: int
    rows_per_s: float | None = None
    seconds: float | None = None
    waiting: Mapping[str, int] = {}
    emitted_records: int = 0
    due_records: int | None = None


class IntervalMetrics(Struct, frozen=True, kw_only=True):
    """Metrics of an interval; rates are in tuples per second.

    Attributes:
        due_tuples_per_s: by the schedule of the spouts.
        source_tuples_per_s, sink_tuples_per_s: emitted by spouts, and counted by sinks.
        throughput_tuples_per_s: what sinks took in, as `sink_tuples_per_s`.
        saturated: whether the sources fell behind, or the topology behind them; null for rate `max`, which has no
            schedule.
        backlog: what was left for later; null if unknown.
        hops: delivered tuples by kind of hop.
    """

    due_tuples_per_s: float | None = None
    source_tuples_per_s: float | None = None
    sink_tuples_per_s: float | None = None
    throughput_tuples_per_s: float | None = None
    latency_ms: Latency = Latency()
    saturated: bool | None = None
    backlog: Backlog | None = None
    hops: Mapping[str, int | None] = {}


class Window(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A part of the measured interval, in seconds since its begin."""

    name: FileName
    from_s: Seconds
    to_s: SomeSeconds


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
