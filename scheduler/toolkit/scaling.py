"""Rates and loads as whole numbers, so that sums are exact and no comparison needs a tolerance."""

import sys
from collections.abc import Sequence
from fractions import Fraction

MOST = 2**52
"""Sums of scaled values stay below, so that they are exact as floats too."""

LARGEST_SCALE = 2**1000
"""So much can still be multiplied with as a float; what is smaller than its inverse counts as nothing."""

DECIMALS = 6
"""Numbers with so many digits after the point, the way people write them, are scaled exactly."""


def scaled(*groups: Sequence[float]) -> tuple[int, list[list[int]]]:
    """The groups in one unit as whole numbers, and how many of the new units make an old one.

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
    """The number that is written down as `value`: 0.1 is a tenth."""
    return Fraction(repr(value))


def as_float(value: Fraction) -> float:
    """The nearest float; the largest one for what is beyond it."""
    return float(min(value, Fraction(sys.float_info.max)))
