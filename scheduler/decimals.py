"""Parameters as the decimal fractions that people write, so that 0.1 of 30 is 3 and not a little more."""

import sys
from fractions import Fraction


def decimal(value: float) -> Fraction:
    """The number that is written down as `value`: 0.1 is a tenth."""
    return Fraction(repr(value))


def as_float(value: Fraction) -> float:
    """The nearest float; the largest one for what is beyond it."""
    return float(min(value, Fraction(sys.float_info.max)))
