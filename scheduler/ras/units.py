"""CPU points and MB as whole numbers, so that sums and comparisons are exact.

A file says 33.3 and means it: three such executors need 99.9 points, whatever the order in which they are added.
Every value is read as the decimal that was written, and all are counted in the largest unit that divides
them (a point, a tenth of a point, ...).
"""

import math
import sys
from collections.abc import Iterable
from fractions import Fraction


class Unit:
    """The largest decimal fraction of 1 in which all of some values are whole."""

    def __init__(self, values: Iterable[float]) -> None:
        """Collect the unit of `values`, which are finite."""
        self._per_one = math.lcm(*(Fraction(repr(value)).denominator for value in set(values)))

    def count(self, value: float) -> int:
        """`value`, one of those collected or a whole number, in this unit."""
        scaled = Fraction(repr(value)) * self._per_one
        return int(scaled)

    def written(self, count: int) -> str:
        """A count as a person writes the value."""
        try:
            return f"{count / self._per_one:g}"
        except OverflowError:
            return str(count // self._per_one)


def ratio(count: int, of: int) -> float:
    """`count / of` for a positive `of`; at most, and at least, the largest floating-point number."""
    try:
        return count / of
    except OverflowError:
        return sys.float_info.max if count > 0 else -sys.float_info.max
