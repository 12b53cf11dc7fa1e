"""A Poisson process with random access: times do not depend on draws for earlier records.

The records are the leaves of a binary tree. Given the time that 2m gaps take together, the share of the first
m of them has the distribution Beta(m, m); given the time of a leaf's gaps, the times in it are sorted uniform numbers:
so it is with independent exponential gaps. Every draw is a hash of the seed and its place in the tree, so that any
process finds the same times in any order, and a path from the root to a leaf is all that is kept.
"""

from bisect import bisect_left
from fractions import Fraction
from hashlib import blake2b, shake_128
from math import cos, expm1, log, pi, sqrt
from struct import Struct

from workloads.rates.schedule import NS

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
        """See `Schedule.due_ns`."""
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
        """See `Schedule.due_count`."""
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
