"""Errors caused by the user or the environment, each with its exit status."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

MOST_SHOWN = 20
MOST_COMPARED = 10_000
"""Maximum choices named in a message, and maximum choices searched for the nearest."""


class MillraceError(Exception):
    """A failure with a message for the user; never shown with a traceback unless asked for."""

    exit_status = 1


class InputError(MillraceError):
    """User input is wrong; the message names file, line, key, value and the nearest valid choice."""

    exit_status = 2


class ParameterError(InputError):
    """A parameter is inconsistent with other input; its position in a file is added later.

    Attributes:
        steps: keys and places in lists that lead to the value, the parameter's name first.
        words: description of the error.
    """

    def __init__(self, steps: tuple[str | int, ...], words: str, message: str = "") -> None:
        """Describe the error; `message` adds the position, once it is known."""
        super().__init__(message or f"{steps[0]}: {words}")
        self.steps = steps
        self.words = words


class UnfitError(MillraceError):
    """This machine or cluster lacks something; the message names it."""

    exit_status = 3


class RunError(MillraceError):
    """A run failed while in progress."""

    exit_status = 1


class Faults:
    """Errors of input that are told together."""

    def __init__(self) -> None:
        self._faults: list[InputError] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Context manager that keeps an error of its block."""
        try:
            yield
        except InputError as fault:
            self._faults.append(fault)

    def check(self) -> None:
        """Raise all errors so far.

        Raises:
            InputError: there are some; a single one as it was raised, several in one message, each on a line.
        """
        if len(self._faults) == 1:
            raise self._faults[0]
        if self._faults:
            raise InputError("\n".join(map(str, self._faults)))


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
