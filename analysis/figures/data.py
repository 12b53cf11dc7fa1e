"""Data of the figures of one workload."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analysis.figures.theme import Look
from analysis.statistics import Spread, without_noise


@dataclass(frozen=True)
class Line:
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
    """

    scheduler: str
    repetitions: Sequence[int]
    executors: Mapping[str, int]
    workers: Mapping[str, int]
    slots: Mapping[tuple[str, int], Sequence[str]]


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
    """

    label: str
    looks: Mapping[str, Look]
    repetitions: Mapping[str, int]
    warmup_s: float
    throughput: Sequence[Line]
    latency: Sequence[Line]
    samples: Mapping[tuple[str, int], int]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    spreads: Mapping[str, Mapping[str, Spread | None]]
    placements: Sequence[NodeUsage]
    nodes: Sequence[str]
    suspect: Mapping[str, Mapping[str, Sequence[bool]]] = field(default_factory=dict)
    recoveries: Mapping[str, Sequence[float]] = field(default_factory=dict)


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
    lines: Sequence[Line]


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
