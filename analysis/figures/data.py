"""Data of the figures of one workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.figures.palette import Look
from analysis.statistics.intervals import Spread, without_noise


@dataclass(frozen=True)
class RunLine:
    """A series of one run: (x, y) with rising x; `suspect` runs are marked."""

    scheduler: str
    repetition: int
    points: Sequence[tuple[float, float]]
    suspect: bool = False


@dataclass(frozen=True)
class DotPlots:
    """Single values of every run, by metric.

    Attributes:
        looks: scheduler -> how it is drawn, in the campaign's order.
        values: metric -> scheduler -> value of each run.
        spreads: metric -> scheduler -> spread of the values.
        suspect: metric -> scheduler -> which of the values are of suspect runs.
    """

    looks: Mapping[str, Look]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    spreads: Mapping[str, Mapping[str, Spread | None]]
    suspect: Mapping[str, Mapping[str, Sequence[bool]]] = field(default_factory=dict)


@dataclass(frozen=True)
class NodeUsage:
    """A placement, and the repetitions of a scheduler that had it.

    Attributes:
        scheduler: the scheduler.
        repetitions: repetitions with this placement.
        executors: node -> number of executors.
        workers: node -> number of worker processes.
        slots: (node, slot) -> executors.
        overloaded: numbers of overloaded nodes and workers as text; empty: not examined.
    """

    scheduler: str
    repetitions: Sequence[int]
    executors: Mapping[str, int]
    workers: Mapping[str, int]
    slots: Mapping[tuple[str, int], Sequence[str]]
    overloaded: str = ""


@dataclass(frozen=True)
class Band:
    """A change of the running topology until the recovery from it, in seconds since the measured interval began."""

    name: str
    begin: float
    end: float


@dataclass(frozen=True)
class WorkloadData:
    """One workload under all schedulers.

    Attributes:
        label: the workload's label.
        looks: scheduler -> how it is drawn, in the campaign's order; only schedulers with runs that count.
        repetitions: scheduler -> number of runs that count.
        warmup_s: seconds of warm-up shown before the measured interval.
        throughput: tuples/s at sinks over seconds since the measured interval's start, per run.
        latency: latency in ms over the quantile, per run; `samples` holds the number of samples of each run.
        values: metric -> scheduler -> value of each run.
        spreads: metric -> scheduler -> spread of the values.
        seats: distinct placements, in the campaign's order.
        nodes: every node of the cluster.
        suspect: metric -> scheduler -> which of the values are of suspect runs.
        recoveries: scheduler -> seconds since the measured interval's start at which its runs recovered.
        latency_over_time: mean latency in ms over seconds since the measured interval's start, per run.
        bands: scheduler -> changes of the running topology in its first repetition.
    """

    label: str
    looks: Mapping[str, Look]
    repetitions: Mapping[str, int]
    warmup_s: float
    throughput: Sequence[RunLine]
    latency: Sequence[RunLine]
    samples: Mapping[tuple[str, int], int]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    spreads: Mapping[str, Mapping[str, Spread | None]]
    placements: Sequence[NodeUsage]
    nodes: Sequence[str]
    suspect: Mapping[str, Mapping[str, Sequence[bool]]] = field(default_factory=dict)
    recoveries: Mapping[str, Sequence[float]] = field(default_factory=dict)
    latency_over_time: Sequence[RunLine] = ()
    bands: Mapping[str, Sequence[Band]] = field(default_factory=dict)


@dataclass(frozen=True)
class ChangeData:
    """Changes against the baseline of one workload, in per cent.

    Attributes:
        looks: scheduler -> how it is drawn, without the baseline.
        baseline: the baseline.
        paired: heading of a metric -> scheduler -> change of every repetition that both have.
        middles: heading of a metric -> scheduler -> change of the median, with its interval or None.
        suspect: heading of a metric -> scheduler -> which of the changes involve a suspect run.
    """

    looks: Mapping[str, Look]
    baseline: str
    paired: Mapping[str, Mapping[str, Sequence[float]]]
    middles: Mapping[str, Mapping[str, tuple[float, tuple[float, float] | None]]]
    suspect: Mapping[str, Mapping[str, Sequence[bool]]]


@dataclass(frozen=True)
class FactorPoint:
    """A scheduler at one value of a factor: the median, and its interval or the range, as (low, high)."""

    x: float
    median: float
    ends: tuple[float, float]
    suspect: bool = False


@dataclass(frozen=True)
class FactorMultiple:
    """One workload over the values of a factor, at one combination of the other factors.

    Attributes:
        title: values of the other factors; empty if there are none.
        factor: name of the factor.
        ticks: position and text of every value of the factor.
        looks: scheduler -> how it is drawn.
        units: heading of a metric -> its unit.
        points: heading of a metric -> scheduler -> its points.
        limits: heading of a metric -> largest value in the figures of all combinations.
    """

    title: str
    factor: str
    ticks: Sequence[tuple[float, str]]
    looks: Mapping[str, Look]
    units: Mapping[str, str]
    points: Mapping[str, Mapping[str, Sequence[FactorPoint]]]
    limits: Mapping[str, float]


@dataclass(frozen=True)
class SlotData:
    """Time slots of one workload.

    Attributes:
        looks: scheduler -> how it is drawn; only those whose runs follow a communication schedule.
        over_time: column of the table `slot_timeline` or `slot_balance` -> values over seconds since the measured
            interval's start, per run; a NaN breaks a line.
        stalls: predicted and measured stall (ms), per run.
        stalled_slots: scheduler -> number of stalled slots in all runs.
        bands: scheduler -> changes of the running topology in its first repetition.
    """

    looks: Mapping[str, Look]
    over_time: Mapping[str, Sequence[RunLine]]
    stalls: Sequence[RunLine]
    stalled_slots: Mapping[str, int]
    bands: Mapping[str, Sequence[Band]] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One domain of a node by one meter: watts over seconds since the measured interval's start, per run.

    Attributes:
        node: the metered node.
        domain, source: the metered domain, and the reader.
        modelled: whether the values follow a model.
        in_total: whether it is a term of the node's energy.
        lines: one per run; a NaN breaks a line.
    """

    node: str
    domain: str
    source: str
    modelled: bool
    in_total: bool
    lines: Sequence[RunLine]


@dataclass(frozen=True)
class Moment:
    """An event of a run, in seconds since its measured interval began; `node` is empty for events of all nodes."""

    scheduler: str
    second: float
    node: str
    words: str


@dataclass(frozen=True)
class PowerData:
    """Power over time of one workload.

    Attributes:
        looks: scheduler -> how it is drawn.
        warmup_s: seconds of warm-up shown before the measured interval.
        panels: terms of the total first.
        moments: marked events.
    """

    looks: Mapping[str, Look]
    warmup_s: float
    panels: Sequence[Panel]
    moments: Sequence[Moment]


@dataclass(frozen=True)
class Point:
    """A run, or the median of many: tuples/s at sinks and J per tuple, with intervals if there are any."""

    scheduler: str
    tuples_per_s: float
    joules: float
    suspect: bool = False
    tuples_interval: tuple[float, float] | None = None
    joules_interval: tuple[float, float] | None = None
    on_front: bool = False


@dataclass(frozen=True)
class MeterData:
    """One workload's energy by one meter.

    Attributes:
        source: description of the meter.
        modelled: whether it is a model.
        strips: single values of runs.
        runs: a point for every run.
        middles: a point for every scheduler with enough runs.
    """

    source: str
    modelled: bool
    dot_plots: DotPlots
    runs: Sequence[Point]
    middles: Sequence[Point]


def quantity(value: float | None) -> str:
    """Format a number for readers: three significant digits, k, M and G from ten thousand on; a dash for None."""
    if value is None:
        return "–"
    value = without_noise(value)
    size = abs(value)
    if size < 999.5:
        return f"{value:.3g}"
    if size < 9_999.5:
        return f"{value:,.0f}".replace(",", " ")
    for factor, letter in ((1e3, "k"), (1e6, "M")):
        if size < 999.5 * factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value / 1e9:.3g} G"
