"""Numbers of examples for property tests that are costly, or read bytes of anybody, relative to the profile."""

from hypothesis import settings


def one_in(parts: int) -> int:
    """Return a fraction of the number of examples of the current profile: `one_in(5)` of 50 examples is 10."""
    return max(1, settings().max_examples // parts)


def times(factor: int) -> int:
    """Return a multiple of the number of examples of the current profile: `times(4)` of 25 examples is 100."""
    return settings().max_examples * factor
