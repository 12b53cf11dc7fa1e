"""Schedules: record numbers to intended times and back, independent of what has been emitted.

A schedule is a total over all executors of a spout: record g of the whole input is due `due_ns(g)` after source
start, by any executor. Lateness counts as latency; the schedule is never shifted.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from hashlib import blake2b, shake_128
from itertools import accumulate
from math import cos, expm1, isqrt, lcm, log, pi, sin, sqrt
from struct import Struct
from typing import Protocol

from inventory.times import NS


class Schedule(Protocol):
    """Maps record numbers to intended times and back, each an exact inverse of the other."""

    def due_ns(self, record: int) -> int:
        """Return the time in nanoseconds after source start at which `record` (0-based) is due."""
        ...

    def due_count(self, elapsed_ns: int) -> int:
        """Return the number of records due by `elapsed_ns`: the smallest n with due_ns(n) > elapsed_ns."""
        ...


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


_UNIT = 1 << 64
"""Parts of a record in which counts are kept."""

_PIECES = 4096
_RATE_UNIT = 1 << 30


class SineWave:
    """Records due at the rate mean * (1 + amplitude * sin(2 pi t / period)), like a daily load.

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


_LEVELS = 60
_LEAF_LEVEL = 5
_LEAF = 1 << _LEAF_LEVEL

_FRACTION_BITS = 20
"""Times are whole multiples of 2^-20 ns, so that gaps at the highest rates are not all the same."""

_PLACE = Struct("<BQ")
_PAIR = Struct("<QQ")
_DRAWS = Struct(f"<{_LEAF - 1}I")

_Node = tuple[int, int, int, int, int]
"""(level, place, low, middle, high): the records [place << level, (place + 1) << level).

The one before them is due at `low`, the last of their first half at `middle`, their last at `high`.
"""

_Leaf = tuple[int, int, int, list[int]]
"""(place, low, span, draws): the one before its records is due at `low`, their last at low + span."""


class PoissonArrivals:
    """Arrivals at a mean rate, independent of one another: the gaps are exponential, the first one included.

    The records are the leaves of a binary tree. Given the time that 2m gaps take together, the share of the first m of
    them has the distribution Beta(m, m); given the time of a leaf's gaps, the times in it are sorted uniform numbers:
    so it is with independent exponential gaps. Every draw is a hash of the seed and its place in the tree, so that any
    process finds the same times in any order, and a path from the root to a leaf is all that is kept.

    There are 2^60 of them, enough for 36 years at the highest rate. A look-up costs a few draws, or some 50 when it is
    far from the one before. Two machines whose mathematical libraries differ in the last digit differ by a nanosecond
    at most.
    """

    def __init__(self, tuples_per_s: float, seed: int) -> None:
        key = f"poisson {seed}:".encode()
        self._node_draws, self._leaf_draws = blake2b(key, digest_size=_PAIR.size), shake_128(key)
        # Held to its mean: the deviation of so many gaps together, 1e-9 of it, is more than any run could see.
        total = round((NS << (_LEVELS + _FRACTION_BITS)) / Fraction(tuples_per_s))
        root = self._node(_LEVELS, 0, 0, total)
        # Records that are emitted and records that are due lie apart when a source is late.
        self._emitted, self._due = [root], [root]
        self._leaf: _Leaf = (-1, 0, 0, [])

    def due_ns(self, record: int) -> int:
        path = self._emitted
        level, place, low, middle, high = path[-1]
        while record >> level != place:
            path.pop()
            level, place, low, middle, high = path[-1]
        while True:
            level -= 1
            place = record >> level
            low, high = (middle, high) if place & 1 else (low, middle)
            if level == _LEAF_LEVEL:
                break
            path.append(node := self._node(level, place, low, high))
            middle = node[3]
        _, low, span, draws = self._leaf_at(place, low, high)
        at = record % _LEAF
        # Rounded up: nothing is due before its time.
        return -(-(low + (span if at == _LEAF - 1 else span * draws[at] >> 32)) >> _FRACTION_BITS)

    def due_count(self, elapsed_ns: int) -> int:
        if elapsed_ns < 0:
            return 0
        now = elapsed_ns << _FRACTION_BITS
        path = self._due
        level, place, low, middle, high = path[-1]
        while not low <= now < high:
            path.pop()
            level, place, low, middle, high = path[-1]
        while True:
            level -= 1
            second = now >= middle
            place = place << 1 | second
            low, high = (middle, high) if second else (low, middle)
            if level == _LEAF_LEVEL:
                break
            path.append(node := self._node(level, place, low, high))
            middle = node[3]
        _, low, span, draws = self._leaf_at(place, low, high)
        # Draws u whose time, span * u >> 32, is at most what has passed.
        return (place << _LEAF_LEVEL) + bisect_left(draws, -(-((now - low + 1) << 32) // span))

    def _node(self, level: int, place: int, low: int, high: int) -> _Node:
        hashed = self._node_draws.copy()
        hashed.update(_PLACE.pack(level, place))
        first, second = _PAIR.unpack(hashed.digest())
        # Beta(m, m) from two uniform numbers: Ulrich 1984, see Devroye 1996, "Random variate generation in one line".
        radius = sqrt(-expm1(2 / ((1 << level) - 1) * log((first + 1) / (1 << 64))))
        share = (1 + radius * cos(2 * pi / (1 << 64) * second)) / 2
        return level, place, low, low + ((high - low) * int(share * (1 << 53)) >> 53), high

    def _leaf_at(self, place: int, low: int, high: int) -> _Leaf:
        if self._leaf[0] != place:
            hashed = self._leaf_draws.copy()
            hashed.update(_PLACE.pack(_LEAF_LEVEL, place))
            self._leaf = place, low, high - low, sorted(_DRAWS.unpack(hashed.digest(_DRAWS.size)))
        return self._leaf
