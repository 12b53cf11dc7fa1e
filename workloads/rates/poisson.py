"""A Poisson process that can be entered anywhere: no gap before a record needs to have been drawn.

The records are dealt to the leaves of a binary tree. Given the time that 2m gaps take together, the share of the first
m of them has the distribution Beta(m, m); given the time of a leaf's gaps, the times in it are sorted uniform numbers:
so it is with independent exponential gaps. Every draw is a hash of the seed and its place in the tree, so that any
process finds the same times in any order, and a path from the root to a leaf is all that is kept.
"""

from bisect import bisect_left
from fractions import Fraction
from hashlib import blake2b, shake_128
from math import cos, expm1, log, pi, sqrt
from struct import Struct
from typing import NamedTuple

from workloads.rates.schedule import NS

_LEVELS = 60
_LEAF_LEVEL = 5
_LEAF = 1 << _LEAF_LEVEL

_FRACTION_BITS = 20
"""Times are whole multiples of 2^-20 ns, so that gaps at the highest rates are not all the same."""

_NUMBERS = Struct("<BQ")
_PAIR = Struct("<QQ")
_DRAWS = Struct(f"<{_LEAF - 1}Q")


class _Node(NamedTuple):
    """Records [place << level, (place + 1) << level): the last one before them is due at `low`, their last at `high`.

    The last record of the first half is due at `middle`.
    """

    level: int
    place: int
    low: int
    high: int
    middle: int


class _Leaf(NamedTuple):
    """Records from `first` on: the one before them is due at `low`, their last at `low + span`."""

    first: int
    low: int
    span: int
    draws: list[int]


class PoissonArrivals:
    """Arrivals at a mean rate, independent of one another: the gaps are exponential, the first one included.

    There are 2^60 of them, enough for 36 years at the highest rate. A look-up costs a few draws, or some 50 when it is
    far from the one before. Two machines whose mathematical libraries differ in the last digit differ by a nanosecond
    at most.
    """

    def __init__(self, tuples_per_s: float, seed: int) -> None:
        self._key = blake2b(f"poisson {seed}".encode(), digest_size=16).digest()
        # Held to its mean: the deviation of so many gaps together, 1e-9 of it, is more than any run could see.
        total = round((NS << (_LEVELS + _FRACTION_BITS)) / Fraction(tuples_per_s))
        root = self._node(_LEVELS, 0, 0, total)
        # Records that are emitted and records that are due lie apart when a source is late.
        self._emitted, self._due = [root], [root]
        self._leaf = _Leaf(-1, 0, 0, [])

    def due_ns(self, record: int) -> int:
        """See `Schedule.due_ns`."""
        path = self._emitted
        while record >> path[-1].level != path[-1].place:
            path.pop()
        node = path[-1]
        while node.level > _LEAF_LEVEL + 1:
            node = self._child(node, record >> (node.level - 1) & 1)
            path.append(node)
        leaf = self._leaf_of(node, record >> _LEAF_LEVEL & 1)
        at = record - leaf.first
        into = leaf.span if at == _LEAF - 1 else leaf.span * leaf.draws[at] >> 64
        # Rounded up: nothing is due before its time.
        return -(-(leaf.low + into) >> _FRACTION_BITS)

    def due_count(self, elapsed_ns: int) -> int:
        """See `Schedule.due_count`."""
        now = elapsed_ns << _FRACTION_BITS
        if now < 0:
            return 0
        path = self._due
        while len(path) > 1 and not path[-1].low <= now < path[-1].high:
            path.pop()
        node = path[-1]
        while node.level > _LEAF_LEVEL + 1:
            node = self._child(node, now >= node.middle)
            path.append(node)
        leaf = self._leaf_of(node, now >= node.middle)
        # Draws u whose time, span * u >> 64, is at most what has passed.
        return leaf.first + bisect_left(leaf.draws, -(-((now - leaf.low + 1) << 64) // leaf.span))

    def _node(self, level: int, place: int, low: int, high: int) -> _Node:
        over, turn = _PAIR.unpack(blake2b(self._key + _NUMBERS.pack(level, place), digest_size=16).digest())
        # Beta(m, m) from two uniform numbers: Ulrich 1984, see Devroye 1996, "Random variate generation in one line".
        exponent = 2 / ((1 << level) - 1)
        radius = sqrt(-expm1(exponent * log((over + 1) / (1 << 64))))
        share = (1 + radius * cos(2 * pi * turn / (1 << 64))) / 2
        return _Node(level, place, low, high, low + ((high - low) * int(share * (1 << 53)) >> 53))

    def _child(self, node: _Node, second: int) -> _Node:
        return self._node(node.level - 1, *_half(node, second))

    def _leaf_of(self, node: _Node, second: int) -> _Leaf:
        place, low, high = _half(node, second)
        if self._leaf.first != place << _LEAF_LEVEL:
            raw = shake_128(self._key + _NUMBERS.pack(_LEAF_LEVEL, place)).digest(_DRAWS.size)
            self._leaf = _Leaf(place << _LEAF_LEVEL, low, high - low, sorted(_DRAWS.unpack(raw)))
        return self._leaf


def _half(node: _Node, second: int) -> tuple[int, int, int]:
    """Place and times of the first or second half of a node's records."""
    if second:
        return node.place << 1 | 1, node.middle, node.high
    return node.place << 1, node.low, node.middle
