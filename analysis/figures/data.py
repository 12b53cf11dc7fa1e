"""What the figures of one workload are drawn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.figures.theme import Look
from analysis.statistics import ENOUGH, Spread


@dataclass(frozen=True)
class Line:
    """A series of one run: (x, y) with rising x."""

    scheduler: str
    repetition: int
    points: Sequence[tuple[float, float]]


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

    def enough(self, scheduler: str) -> bool:
        """Whether intervals are shown for this scheduler."""
        return self.repetitions[scheduler] >= ENOUGH


def quantity(value: float | None) -> str:
    """A number for people: three significant digits, k, M and G from ten thousand on; a dash for what is missing."""
    if value is None:
        return "–"
    size = abs(value)
    if size < 999.5:
        return f"{value:.3g}"
    if size < 9_999.5:
        return f"{value:,.0f}".replace(",", " ")
    for factor, letter in ((1e3, "k"), (1e6, "M")):
        if size < 999.5 * factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value / 1e9:.3g} G"
