"""Parameters as the decimal fractions that people write, so that 0.1 of 30 is 3 and not a little more."""

from fractions import Fraction


def decimal(value: float) -> Fraction:
    """The number that is written down as `value`: 0.1 is a tenth."""
    return Fraction(repr(value))
