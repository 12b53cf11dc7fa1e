"""The errors a user can meet, each with the exit status of the command line."""

from collections.abc import Iterable
from difflib import get_close_matches

MOST_SHOWN = 20
MOST_COMPARED = 10_000
"""A message names a few choices, and looks for the nearest among a bounded number."""


class MillraceError(Exception):
    """A failure with a message for the user; never shown with a traceback unless asked for."""

    exit_status = 1


class InputError(MillraceError):
    """What the user wrote is wrong: file, line, key, value and the nearest valid choice."""

    exit_status = 2


class ParameterError(InputError):
    """A parameter does not fit what else was given. Who finds it does not know where the parameter was written.

    Attributes:
        steps: keys and places in lists that lead to the value, the parameter's name first.
        words: what is wrong.
    """

    def __init__(self, steps: tuple[str | int, ...], words: str, message: str = "") -> None:
        """Say what is wrong; `message` has it with the place, once that is known."""
        super().__init__(message or f"{steps[0]}: {words}")
        self.steps = steps
        self.words = words


class UnfitError(MillraceError):
    """This machine or cluster cannot do it; the message says what is missing."""

    exit_status = 3


class RunError(MillraceError):
    """A run failed while it was under way."""

    exit_status = 1


def nearest(value: object, choices: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` or, when nothing is close, `; valid: a, b, c`.

    Meant to be appended to an error message, so that it starts with its own separator.
    """
    names = sorted(choices)
    if not names:
        return ""
    folded = {name.casefold(): name for name in reversed(names[:MOST_COMPARED])}
    close = get_close_matches(str(value).casefold(), folded, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {folded[close[0]]!r}?"
    shown = ", ".join(names[:MOST_SHOWN])
    return f"; valid: {shown}" + (", ..." if len(names) > MOST_SHOWN else "")
