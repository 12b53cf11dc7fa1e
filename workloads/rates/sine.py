"""A schedule whose rate oscillates around a mean, like a daily load."""

from bisect import bisect_left, bisect_right
from fractions import Fraction
from itertools import accumulate
from math import cos, isqrt, pi, sin

from workloads.rates.schedule import NS

_UNIT = 1 << 64
"""Parts of a record in which counts are kept."""

_PIECES = 4096
_RATE_UNIT = 1 << 30


class SineWave:
    """Records due at the rate mean * (1 + amplitude * sin(2 pi t / period)).

    N(t) = mean * (t + amplitude * period / (2 pi) * (1 - cos(2 pi t / period))) records are due by t, and record g
    is due at the first nanosecond with N(t) >= g. Between 4096 points of a period, where N has this value, its rate
    is a straight line, less than a millionth of the mean away from the sine. So N is made of parabolas, which whole
    numbers invert exactly, and nothing drifts, because every period holds the same count.
    """

    def __init__(self, mean_tuples_per_s: float, amplitude: float, period_s: float) -> None:
        self._period_ns = round(period_s * NS)
        self._period = round(Fraction(mean_tuples_per_s) * self._period_ns * _UNIT / NS)
        self._starts = [self._period_ns * at // _PIECES for at in range(_PIECES + 1)]
        turns = [2 * pi * start / self._period_ns for start in self._starts]
        counts = (round(self._period * (turn + amplitude * (1 - cos(turn))) / (2 * pi)) for turn in turns[1:-1])
        self._counts = [*accumulate((0, *counts), max), self._period]
        self._rates = [round(_RATE_UNIT * (1 + amplitude * sin(turn))) for turn in turns]

    def due_ns(self, record: int) -> int:
        """See `Schedule.due_ns`."""
        periods, wanted = divmod(record * _UNIT, self._period)
        begun_ns = periods * self._period_ns
        if not wanted:
            return begun_ns
        piece = bisect_left(self._counts, wanted) - 1
        begun_ns += self._starts[piece]
        wanted -= self._counts[piece]
        twice, bend, over, under = self._parabola(piece)
        # The first whole x with twice * x + bend * x^2 >= height; the root is rounded, x may be off by one or two.
        height = -(-wanted * under // over)
        root = isqrt(twice * twice + 4 * bend * height)
        into = 2 * height // (twice + root)
        while (twice + bend * into) * into >= height:
            into -= 1
        while (twice + bend * into) * into < height:
            into += 1
        return begun_ns + into

    def due_count(self, elapsed_ns: int) -> int:
        """See `Schedule.due_count`."""
        if elapsed_ns < 0:
            return 0
        periods, into = divmod(elapsed_ns, self._period_ns)
        piece = bisect_right(self._starts, into) - 1
        into -= self._starts[piece]
        twice, bend, over, under = self._parabola(piece)
        reached = self._counts[piece] + (twice + bend * into) * into * over // under
        return (periods * self._period + reached) // _UNIT + 1

    def _parabola(self, piece: int) -> tuple[int, int, int, int]:
        """Return (b, a, over, under): x ns into the piece, the count has grown by (b * x + a * x^2) * over / under."""
        length = self._starts[piece + 1] - self._starts[piece]
        first, last = self._rates[piece : piece + 2]
        grown = self._counts[piece + 1] - self._counts[piece]
        return 2 * first * length, last - first, grown, (first + last) * length * length
