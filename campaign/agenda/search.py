"""Search for the sustainable rate: its key in an agenda, the rates that it tries, and where it ends.

A bracket is found by doubling the workload's rate while it holds, or halving it while it does not, and narrowed by
bisection. The next rate follows from the trials so far, so a search can be continued after any of them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from analysis.records.conditions import SloRecord, TrialRecord
from inventory.documents import Located, Origin
from workloads.rates import Constant, Poisson, Rate

MOST_DOUBLINGS = 8
"""Maximum number of doublings, and of halvings, of the first rate of an agenda."""

CALIBRATION_DOUBLINGS = 14
"""The same for a calibration, which begins at a rate that nobody has chosen for the workload."""

CALIBRATION_FIRST_PER_S = 50.0
"""First rate of a calibration."""

FASTEST_PER_S = 1e9
"""Highest rate that a workload can have."""

SHORTEST_S = 3.0
"""Shortest measured interval of a trial: the growth of a delay follows from readings once a second."""

DIGITS = 6
"""Significant digits of the rates that are tried."""


class SloEntry(SloRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Objectives that a sustainable rate meets."""


class SearchEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Runs are searches for the highest rate that meets the objectives.

    Attributes:
        kind: what is searched.
        slo: the objectives.
        checks: maximum number of trials at one rate, of which more than half must hold.
        tolerance_percent: maximum width of the last bracket, in per cent of its lower end.
    """

    most_doublings: ClassVar[int] = MOST_DOUBLINGS

    kind: Literal["sustainable"]
    slo: SloEntry = SloEntry()
    checks: Annotated[int, Meta(ge=1, le=99)] = 3
    tolerance_percent: Annotated[float, Meta(ge=0.5, le=100)] = 5.0

    @property
    def enough(self) -> int:
        """Number of trials that must hold at a rate."""
        return self.checks // 2 + 1

    @property
    def most_trials(self) -> int:
        """Maximum number of trials of one search."""
        bisections = math.ceil(math.log2(math.log(2) / math.log1p(self.tolerance_percent / 100)))
        return (1 + self.most_doublings + max(0, bisections)) * self.checks


class CalibrationEntry(SearchEntry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Search for the sustainable rate that loads are shares of."""

    most_doublings: ClassVar[int] = CALIBRATION_DOUBLINGS


CALIBRATION = CalibrationEntry(kind="sustainable")


@dataclass(frozen=True)
class SearchProgress:
    """State of a search.

    Attributes:
        holds: the highest rate that holds; None if there is none yet.
        fails: the lowest rate that does not hold; None if there is none yet.
        brackets: both after each rate.
        next_rate: rate of the next trial; None at the end.
        message: why there is no bracket; empty if there is one, or if the search has not ended.
    """

    holds: float | None
    fails: float | None
    brackets: tuple[tuple[float | None, float | None], ...]
    next_rate: float | None
    message: str = ""


def progress_of(entry: SearchEntry, first_per_s: float, trials: Sequence[TrialRecord]) -> SearchProgress:
    """Return the state of a search after its trials.

    Args:
        entry: the search.
        first_per_s: the workload's rate.
        trials: its trials in order; those at one rate follow each other.
    """
    holds = fails = None
    brackets: list[tuple[float | None, float | None]] = []
    rate, left = first_per_s, iter(trials)
    while True:
        verdict = _verdict(entry, left)
        if verdict is None:
            return SearchProgress(holds, fails, tuple(brackets), rate)
        holds, fails = (rate, fails) if verdict else (holds, rate)
        brackets.append((holds, fails))
        if fails is None:
            faster = rate * 2
            if faster > FASTEST_PER_S or faster > first_per_s * 2**entry.most_doublings:
                message = f"every rate up to {_per_s(rate)} holds, so there is no upper end; start at a higher rate"
                return SearchProgress(holds, fails, tuple(brackets), None, message)
            rate = faster
        elif holds is None:
            if rate / 2 < first_per_s / 2**entry.most_doublings:
                message = f"no rate from {_per_s(rate)} on holds, so there is no lower end; start at a lower rate"
                return SearchProgress(holds, fails, tuple(brackets), None, message)
            rate = rate / 2
        elif fails <= holds * (1 + entry.tolerance_percent / 100) * (1 + 10 ** (1 - DIGITS)):
            return SearchProgress(holds, fails, tuple(brackets), None)
        else:
            rate = float(f"{math.sqrt(holds * fails):.{DIGITS}g}")


def _verdict(entry: SearchEntry, trials: Iterable[TrialRecord]) -> bool | None:
    """Return whether a rate holds, by its next trials; None if more are needed."""
    held = failed = 0
    for trial in trials:
        held, failed = held + trial.holds, failed + (not trial.holds)
        if held == entry.enough:
            return True
        if failed > entry.checks - entry.enough:
            return False
    return None


def _per_s(rate: float) -> str:
    return f"{rate:,.6g} tuples/s"


def at_rate(rate: Rate, tuples_per_s: float) -> Rate:
    """Return a rate of the same kind with another number of tuples per second."""
    return Poisson(tuples_per_s) if isinstance(rate, Poisson) else Constant(tuples_per_s)


def first_rate(rate: Rate, origin: Origin) -> float:
    """Return the rate at which the search for a workload with this rate begins.

    Raises:
        InputError: the rate is neither constant nor Poisson.
    """
    if isinstance(rate, Constant) and rate.load is not None:
        raise origin.error("a search needs the 'tuples_per_s' at which it begins, got a 'load'")
    if isinstance(rate, Constant | Poisson):
        return rate.peak_per_s
    raise origin.error(
        f"got the kind {type(rate).__struct_config__.tag!r}; a search needs 'constant' or 'poisson', "
        "and no event of the timeline that changes the rate"
    )


def check_search(located: Located[SearchEntry | None], duration_s: float, rates: Iterable[Located[Rate]]) -> None:
    """Check that runs with these rates can be searches; do nothing in an agenda without `search`.

    Raises:
        InputError: a rate cannot be searched, or the measured interval is too short.
    """
    if located.value is None:
        return
    if duration_s < SHORTEST_S:
        raise located.origin.error(
            f"needs a duration_s of {SHORTEST_S:g} or more, got {duration_s:g}: delays are read once a second"
        )
    for rate in rates:
        first_per_s = first_rate(rate.value, rate.origin)
        if first_per_s > FASTEST_PER_S / 2:
            raise rate.origin.error(f"{_per_s(first_per_s)} cannot be doubled; a search needs a lower first rate")
