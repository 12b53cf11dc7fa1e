"""Arithmetic of an energy counter that turns over, is reset, or is looked at too seldom."""

from typing import NamedTuple

from agents.power.domain import Domain

_GRAIN_S = 0.002
"""Counters are brought up to date every millisecond or so: between two looks there may be two more of that."""

LOOKS_PER_HALF_TURN = 2
"""How often a counter must be looked at, so that no turn is lost."""


class Step(NamedTuple):
    """What happened between two looks at a counter.

    Attributes:
        counts: by how much it went up; None when that is not known.
        flags: `wrap`, `reset`, `ambiguous`.
    """

    counts: float | None
    flags: tuple[str, ...]


_RESET = Step(None, ("reset",))
_WRAP, _AMBIGUOUS, _BOTH = ("wrap",), ("ambiguous",), ("wrap", "ambiguous")


class Counter:
    """One domain's counter, as much of it as arithmetic needs."""

    __slots__ = ("_ambiguous_s", "_most_per_s", "_turn", "_unit")

    def __init__(self, domain: Domain) -> None:
        if domain.joules_per_count is None:
            raise ValueError(f"{domain.name} is no counter")
        self._most_per_s = domain.most_watts / domain.joules_per_count
        self._unit = domain.unit or 1
        self._turn: float | None = None
        self._ambiguous_s = float("inf")
        if domain.raw_max is not None:
            self._turn = domain.raw_max + (domain.unit or 0)
            self._ambiguous_s = domain.raw_max / self._most_per_s / 2

    @property
    def longest_period_s(self) -> float:
        """Samples must not be further apart."""
        return self._ambiguous_s / LOOKS_PER_HALF_TURN

    def step(self, before: int, now: int, elapsed_s: float) -> Step:
        """From one value to the next.

        Args:
            before: what the counter said.
            now: what it says.
            elapsed_s: how long that is, sleep of the host included.
        """
        counts: float = now - before
        wrapped = counts < 0
        if wrapped:
            if self._turn is None:
                return _RESET
            counts += self._turn
        if counts < 0 or counts > self._most_per_s * (elapsed_s + _GRAIN_S) + self._unit:
            return _RESET
        if elapsed_s > self._ambiguous_s:
            return Step(counts, _BOTH if wrapped else _AMBIGUOUS)
        return Step(counts, _WRAP if wrapped else ())
