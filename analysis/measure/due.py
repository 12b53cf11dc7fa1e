"""Tuples that are due by the schedules of the sources, over time."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from agents.power.energy import Curve
from analysis.measure.covered import Intervals, by_worker

Reading = tuple[int, int, int]
"""Time and begin of the time covered, in nanoseconds from the begin of the interval, and the tuples due."""


def due_curves(spouts: pa.Table, intervals: Intervals) -> dict[str, Curve]:
    """Return source -> tuples due, over the time in nanoseconds from the begin of the interval.

    A source that is added later begins without tuples then. Sources without a schedule are left out.

    Args:
        spouts: rows of spouts in the table `throughput`, with `executor, due`.
        intervals: the interval.

    Raises:
        RunError: no event marks the interval of a worker.
    """
    readings: dict[str, list[Reading]] = {}
    for rows, start, _ in by_worker(spouts.filter(pc.is_valid(spouts["due"])), intervals):
        columns = (rows[name].to_pylist() for name in ("executor", "t_ns", "since_ns", "due"))
        for executor, t_ns, since_ns, due in zip(*columns, strict=True):
            readings.setdefault(executor, []).append((t_ns - start, since_ns - start, due))
    return {executor: _curve(sorted(found)) for executor, found in readings.items()}


def _curve(readings: list[Reading]) -> Curve:
    totals = rising_totals(due for *_, due in readings)
    return Curve([(readings[0][1], 0.0), *((at, float(each)) for (at, *_), each in zip(readings, totals, strict=True))])


def rising_totals(due: Iterable[int]) -> list[int]:
    """Return rising totals of the tuples due at one executor; an executor that is added again begins anew.

    Clocks of two workers may differ by a few tuples, and executors that share the records anew by what is late.

    >>> rising_totals([5, 9, 8, 10, 1, 2])
    [5, 9, 9, 10, 11, 12]
    """
    before, highest, found = 0, 0, []
    for level in due:
        if level < highest / 2:
            before, highest = before + highest, 0
        highest = max(highest, level)
        found.append(before + highest)
    return found
