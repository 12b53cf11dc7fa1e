"""Rates and loads as exact integers and fractions.

Sums of them are exact, and no comparison needs a tolerance.
"""

import sys
from collections.abc import Sequence
from fractions import Fraction

MOST = 2**52
"""Upper limit of sums of scaled values, so that they are exact as floats too."""

LARGEST_SCALE = 2**1000
"""Largest factor that keeps products within floats; values below its inverse count as 0."""

DECIMALS = 6
"""Maximum number of decimal places for which values are scaled exactly."""


def scaled(*groups: Sequence[float]) -> tuple[int, list[list[int]]]:
    """Return the groups as integers in one unit, and the number of these units per original unit.

    Exact for whole numbers and decimal fractions; other values are rounded by less than one part in 2^51 of
    their common sum.
    """
    total = sum(sum(group) for group in groups)
    different = {value for group in groups for value in group}
    for digits in range(DECIMALS + 1):
        scale = 10**digits
        if total * scale >= MOST:
            break
        if all(round(value * scale) / scale == value for value in different):
            return scale, [[round(value * scale) for value in group] for group in groups]
    scale = 1
    while total * scale * 2 < MOST and scale < LARGEST_SCALE:
        scale *= 2
    return scale, [[round(value * scale) for value in group] for group in groups]


def decimal(value: float) -> Fraction:
    """Return the decimal number written as `value`: 0.1 is a tenth."""
    return Fraction(repr(value))


def as_float(value: Fraction) -> float:
    """Return the nearest float, or the largest one for larger values."""
    return float(min(value, Fraction(sys.float_info.max)))
