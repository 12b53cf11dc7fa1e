"""A schedule whose rate swings around a mean, as the load of a day does."""

from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate
from math import cos, inf, nextafter, pi

from workloads.rates.schedule import NS

_UNIT = 1 << 64
"""Parts of a record in which the count is kept."""

_KNOTS = 4096


class SineWave:
    """Records due at the rate mean * (1 + amplitude * sin(2 pi t / period)).

    The cumulative count is N(t) = mean * (t + amplitude * period / (2 pi) * (1 - cos(2 pi t / period))), and record g
    is due at the first nanosecond with N(t) >= g, found by halving. Whole periods are counted in whole numbers, so that
    nothing drifts. Both directions halve alike, and therefore agree even where rounding makes N dip.
    """

    def __init__(self, mean_tuples_per_s: float, amplitude: float, period_s: float) -> None:
        self._period_ns = round(period_s * NS)
        self._period = round(Fraction(mean_tuples_per_s) * self._period_ns * _UNIT / NS)
        self._slope = self._period / self._period_ns
        self._turn = 2 * pi / self._period_ns
        self._swing = self._period * amplitude / (2 * pi)
        count = min(_KNOTS, self._period_ns)
        self._knots = [self._period_ns * at // count for at in range(count + 1)]
        inner = (min(self._reached(knot), self._period) for knot in self._knots[1:-1])
        self._counts = [*accumulate((0, *inner), max), self._period]

    def _reached(self, into_ns: int) -> float:
        """N, in units, so far into a period."""
        return self._slope * into_ns + self._swing * (1 - cos(self._turn * into_ns))

    def due_ns(self, record: int) -> int:
        """See `Schedule.due_ns`."""
        periods, wanted = divmod(record * _UNIT, self._period)
        if not wanted:
            return periods * self._period_ns
        knot = bisect_left(self._counts, wanted)
        enough = float(wanted)
        if enough < wanted:
            enough = nextafter(enough, inf)
        low, high = self._knots[knot - 1], self._knots[knot]
        slope, swing, turn = self._slope, self._swing, self._turn
        while high - low > 1:
            middle = (low + high) >> 1
            if slope * middle + swing * (1 - cos(turn * middle)) >= enough:
                high = middle
            else:
                low = middle
        return periods * self._period_ns + high

    def due_count(self, elapsed_ns: int) -> int:
        """See `Schedule.due_count`."""
        if elapsed_ns < 0:
            return 0
        periods, into = divmod(elapsed_ns, self._period_ns)
        knot = bisect_right(self._knots, into)
        low, high = self._knots[knot - 1], self._knots[knot]
        reached, most = self._counts[knot - 1], self._counts[knot]
        slope, swing, turn = self._slope, self._swing, self._turn
        while high - low > 1:
            middle = (low + high) >> 1
            count = min(most, slope * middle + swing * (1 - cos(turn * middle)))
            if into >= middle:
                low = middle
                reached = max(reached, count)
            else:
                high = middle
                most = count
        # What a whole period completes is due when the next one begins.
        within = min(int(reached), self._period - 1)
        return (periods * self._period + within) // _UNIT + 1
