"""Numbers of examples for costly property tests, relative to the profile."""

from hypothesis import settings


def one_in(parts: int) -> int:
    """Return a fraction of the number of examples of the current profile: `one_in(5)` of 50 examples is 10."""
    return max(1, settings().max_examples // parts)
