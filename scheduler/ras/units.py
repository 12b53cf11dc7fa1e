"""CPU points and MB as integers, so that sums and comparisons are exact.

A value of 33.3 in a file is exact: three such executors need 99.9 points, in any order of addition. Every value is read
as a decimal, and all are counted in the largest unit that divides them (a point, a tenth of a point, ...).
"""

import math
import sys
from collections.abc import Iterable
from fractions import Fraction


class Unit:
    """The largest decimal fraction of 1 of which all given values are multiples."""

    def __init__(self, values: Iterable[float]) -> None:
        """Determine the unit of `values`, which are finite."""
        self._per_one = math.lcm(*(Fraction(repr(value)).denominator for value in set(values)))

    def count(self, value: float) -> int:
        """Return `value`, one of the given values or an integer, in this unit."""
        scaled = Fraction(repr(value)) * self._per_one
        return int(scaled)

    def written(self, count: int) -> str:
        """Return a count as a decimal text in the original unit."""
        try:
            return f"{count / self._per_one:g}"
        except OverflowError:
            return str(count // self._per_one)


def ratio(count: int, of: int) -> float:
    """Return `count / of` for a positive `of`, limited to the range of floats."""
    try:
        return count / of
    except OverflowError:
        return sys.float_info.max if count > 0 else -sys.float_info.max
