"""What the figures of one workload are drawn from."""

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
class Strips:
    """Single values of every run, by metric.

    Attributes:
        looks: scheduler -> how it is drawn, in the campaign's order.
        values: metric -> scheduler -> value of each run.
        spreads: metric -> scheduler -> their description.
        suspect: metric -> scheduler -> which of the values are of suspect runs.
    """

    looks: Mapping[str, Look]
    values: Mapping[str, Mapping[str, Sequence[float]]]
    spreads: Mapping[str, Mapping[str, Spread | None]]
    suspect: Mapping[str, Mapping[str, Sequence[bool]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Seats:
    """A placement that some repetitions of a scheduler had.

    Attributes:
        scheduler: who placed so.
        repetitions: in which repetitions.
        executors: node -> how many executors it got.
        workers: node -> how many worker processes it got.
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
        repetitions: scheduler -> how many runs of it count.
        warmup_s: seconds of warm-up shown before the measured interval.
        throughput: tuples/s at sinks over seconds since the measured interval's start, per run.
        latency: latency in ms over the quantile, per run; `samples` says how many each run has.
        values: metric -> scheduler -> value of each run.
        spreads: metric -> scheduler -> their description.
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
    seats: Sequence[Seats]
    nodes: Sequence[str]
    suspect: Mapping[str, Mapping[str, Sequence[bool]]] = field(default_factory=dict)
    recoveries: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """One domain of a node by one meter: watts over seconds since the measured interval's start, per run.

    Attributes:
        node: whose meter it is.
        domain, source: what was metered, and by which reader.
        modelled: whether it follows a model.
        in_total: whether it is a term of the node's energy.
        lines: a y that is not a number breaks a line.
    """

    node: str
    domain: str
    source: str
    modelled: bool
    in_total: bool
    lines: Sequence[Line]


@dataclass(frozen=True)
class Moment:
    """What happened in a run, seconds after its measured interval began; `node` is empty when it was everywhere."""

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
        moments: what is marked.
    """

    looks: Mapping[str, Look]
    warmup_s: float
    panels: Sequence[Panel]
    moments: Sequence[Moment]


@dataclass(frozen=True)
class Point:
    """A run, or many in the middle: tuples/s at sinks and J per tuple, with their intervals where there are any."""

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
        source: the meter in words.
        modelled: whether it follows a model.
        strips: single values of runs.
        runs: a point for every run.
        middles: a point for every scheduler with enough runs.
    """

    source: str
    modelled: bool
    strips: Strips
    runs: Sequence[Point]
    middles: Sequence[Point]


def quantity(value: float | None) -> str:
    """A number for people: three significant digits, k, M and G from ten thousand on; a dash for what is missing."""
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
