"""Schedules of constant rate within each step, once or periodically."""

from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from math import lcm

from workloads.rates.schedule import NS


class PiecewiseConstant:
    """Records evenly spaced within each step of constant rate.

    The cumulative count N(t) is piecewise linear in time; record g is due when it leaves g, so that the first record
    is due at the start of the first step with a rate, a step of d seconds at rate r holds r * d records, and a pause
    holds none. All arithmetic is in whole numbers: due times never drift, whatever the number of the record.
    """

    def __init__(self, steps: Sequence[tuple[float, float]], period_s: float | None = None) -> None:
        """Take `steps` of (start in seconds, tuples/s), repeated with `period_s` if given."""
        starts = [round(start * NS) for start, _ in steps]
        rates = [Fraction(rate) / NS for _, rate in steps]
        reached = [Fraction(0)]
        self._period_ns = None if period_s is None else round(period_s * NS)
        ends = starts[1:] if self._period_ns is None else [*starts[1:], self._period_ns]
        for start, end, rate in zip(starts, ends, rates, strict=False):
            reached.append(reached[-1] + rate * (end - start))
        # N at the step's start is _reached / _unit; its rate per ns is the fraction _rates.
        self._unit = lcm(*(count.denominator for count in reached))
        whole = [int(count * self._unit) for count in reached]
        self._reached, self._period = whole[: len(steps)], whole[-1]
        self._starts = starts
        self._rates = [(rate.numerator, rate.denominator) for rate in rates]

    def due_ns(self, record: int) -> int:
        """See `Schedule.due_ns`."""
        wanted = record * self._unit
        begun_ns = 0
        if self._period_ns is not None:
            periods, wanted = divmod(wanted, self._period)
            begun_ns = periods * self._period_ns
        step = bisect_right(self._reached, wanted) - 1
        over, under = self._rates[step]
        # Rounded up: no record is due early.
        return begun_ns + self._starts[step] - (self._reached[step] - wanted) * under // (over * self._unit)

    def due_count(self, elapsed_ns: int) -> int:
        """See `Schedule.due_count`."""
        if elapsed_ns < 0:
            return 0
        before = 0
        if self._period_ns is not None:
            periods, elapsed_ns = divmod(elapsed_ns, self._period_ns)
            before = periods * self._period
        step = bisect_right(self._starts, elapsed_ns) - 1
        reached = before + self._reached[step]
        over, under = self._rates[step]
        if over == 0:
            return -(-reached // self._unit)
        into = (elapsed_ns - self._starts[step]) * over * self._unit
        return (reached * under + into) // (under * self._unit) + 1
