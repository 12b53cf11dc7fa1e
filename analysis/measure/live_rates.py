"""Samples of the reports of workers and nodes since a window began, and rates, loads and power over them.

Reports contain totals, which makes lost ones harmless: an interval without its reports counts as several equal samples,
and rates are differences of totals.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from agents.protocol import HEARTBEAT_S, PairSent, Progress, Vitals, Work
from analysis.measure.observations import ExecutorRates, PairFlow
from inventory.times import NS

R = TypeVar("R", bound=Progress | Vitals)

Values = Sequence[tuple[float, int]]
"""Values of intervals, oldest first, and how many samples each stands for."""

Average = Callable[[Values], float]


EARLY_NS = NS // 2
"""Reports that follow sooner, caused by marks and barriers, are no samples of their own."""

HEARTBEATS_S = 60.0
"""Time over which answered heartbeats are counted."""


class Interval(Struct, Generic[R], frozen=True, gc=False):
    """Two reports of one worker or node, the time between them, and how many samples they stand for."""

    before: R
    after: R
    seconds: float
    times: int


class Samples(Struct, Generic[R], frozen=True, gc=False):
    """The last reports of one worker or node since its window began, about a sample apart; `most` intervals of them.

    Immutable, as all that another thread sums up.
    """

    most: int
    kept: tuple[tuple[int, R], ...] = ()

    def add(self, at_ns: int, report: R, sample_s: float) -> "Samples[R]":
        """Return the samples with a report at `at_ns` of its node's clock, unless it comes too early or late."""
        if self.kept and at_ns - self.kept[-1][0] < sample_s * NS - EARLY_NS:
            return self
        return Samples(self.most, (*self.kept[-self.most :], (at_ns, report)))

    def intervals(self, most: int, sample_s: float) -> list[Interval[R]]:
        """Return the newest intervals, oldest first, which stand for at most `most` samples."""
        newest_first: list[Interval[R]] = []
        for (end_ns, after), (begin_ns, before) in pairwise(reversed(self.kept)):
            if most <= 0:
                break
            seconds = (end_ns - begin_ns) / NS
            times = min(most, max(1, round(seconds / sample_s)))
            most -= times
            newest_first.append(Interval(before, after, seconds, times))
        return newest_first[::-1]


def joined(intervals: Sequence[Interval[Progress]]) -> Sequence[Interval[Progress]]:
    """Return at most two intervals with the same mean rates: the oldest, which may count in part, and all others."""
    if len(intervals) < 3:
        return intervals
    oldest, *others = intervals
    seconds, times = sum(i.seconds for i in others), sum(i.times for i in others)
    return [oldest, Interval(others[0].before, others[-1].after, seconds, times)]


class Heartbeats(NamedTuple):
    """Times of a node's answers to heartbeats in the last minute; immutable."""

    times: tuple[float, ...] = ()

    def answered(self, at_s: float) -> "Heartbeats":
        """Return the answers with one more."""
        return Heartbeats((*self._within(at_s), at_s))

    def share(self, at_s: float) -> float | None:
        """Return the share that was answered, by the gaps between answers; None if none ever was."""
        times = self._within(at_s)
        if not times:
            return None
        begin_s = at_s - HEARTBEATS_S
        answers = sum(time_s > begin_s for time_s in times)
        gaps = pairwise([*(max(begin_s, time_s) for time_s in times), at_s])
        missed = sum(max(0, round((after - before) / HEARTBEAT_S) - 1) for before, after in gaps)
        return answers / (answers + missed)

    def _within(self, at_s: float) -> tuple[float, ...]:
        # One earlier answer stays: the gap behind it may reach into the minute.
        earlier = sum(time_s <= at_s - HEARTBEATS_S for time_s in self.times)
        return self.times[max(0, earlier - 1) :]


def pair_rates(intervals: Sequence[Interval[Progress]], average: Average) -> dict[tuple[int, int], PairFlow]:
    """Return the rates of the pairs that communicated in these intervals, whose totals began at 0."""
    if not intervals:
        return {}
    totals = [_by_pair(intervals[0].before), *(_by_pair(interval.after) for interval in intervals)]
    flows: dict[tuple[int, int], PairFlow] = {}
    for pair, newest in totals[-1].items():
        known = [total.get(pair) for total in totals]
        if known[0] is not None and known[0].tuples == newest.tuples:
            continue
        tuples = [0 if total is None else total.tuples for total in known]
        nbytes = [0 if total is None else total.nbytes or 0 for total in known]
        flows[pair] = PairFlow(average(_per_second(tuples, intervals)), average(_per_second(nbytes, intervals)))
    return flows


def _by_pair(report: Progress) -> dict[tuple[int, int], PairSent]:
    return {(entry.sender, entry.receiver): entry for entry in report.pairs or ()}


def _per_second(totals: Sequence[int], intervals: Sequence[Interval[Progress]]) -> Values:
    return [
        (max(0, after - before) / interval.seconds, interval.times)
        for (before, after), interval in zip(pairwise(totals), intervals, strict=True)
    ]


def executor_rates(name: str, intervals: Sequence[Interval[Progress]], average: Average) -> ExecutorRates | None:
    """Return the rates of an executor; None if none of these intervals has it at both ends."""
    ends = [(i.before.executors.get(name), i.after.executors.get(name), i) for i in intervals]
    known = [(before, after, i) for before, after, i in ends if before is not None and after is not None]
    if not known:
        return None

    def rate(total: Callable[[Work], int]) -> float:
        return average([(max(0, total(b) - total(a)) / i.seconds, i.times) for a, b, i in known])

    newest = known[-1][1]
    is_spout = newest.processed is None
    emitted = rate(lambda work: work.emitted)
    has_schedule = all(a.due is not None and b.due is not None for a, b, _ in known)
    return ExecutorRates(
        busy=rate(lambda work: work.busy_ns) / NS * 100,
        processed=rate(lambda work: work.processed or 0),
        emitted=emitted,
        blocked=min(1.0, rate(lambda work: work.blocked_ns) / NS),
        due=None if not is_spout else rate(lambda work: work.due or 0) if has_schedule else emitted,
    )


def sunk_per_s(intervals: Sequence[Interval[Progress]], average: Average) -> float:
    """Return the rate of tuples into the sinks of a worker; 0 without intervals."""
    if not intervals:
        return 0.0
    return average(_per_second([intervals[0].before.sunk, *(i.after.sunk for i in intervals)], intervals))


def known_average(
    intervals: Sequence[Interval[Vitals]], value: Callable[[Vitals], float | None], average: Average
) -> float | None:
    """Return the average of a node's values at the ends of intervals; None without any."""
    values = [(known, i.times) for i in intervals if (known := value(i.after)) is not None]
    return average(values) if values else None


def mean_watts(intervals: Iterable[Interval[Vitals]]) -> float | None:
    """Return the mean power over the intervals whose energy is known; None without any."""
    joules = elapsed_ns = 0.0
    for interval in intervals:
        before, after = interval.before, interval.after
        if before.joules is None or after.joules is None or before.joules_ns is None or after.joules_ns is None:
            continue
        joules += after.joules - before.joules
        elapsed_ns += after.joules_ns - before.joules_ns
    return max(0.0, joules) * NS / elapsed_ns if elapsed_ns > 0 else None
