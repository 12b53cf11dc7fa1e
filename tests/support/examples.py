"""Numbers of examples of costly property tests, which follow the profile."""

from hypothesis import settings


def one_in(parts: int) -> int:
    """Return a part of the number of examples that the profile draws by default: of 50 examples, `one_in(5)` is 10."""
    return max(1, settings().max_examples // parts)
