"""Arithmetic of an energy counter that wraps, is reset, or is read too rarely."""

from typing import NamedTuple

from agents.power.domain import Domain

_GRAIN_S = 0.002
"""Counters are updated about once a millisecond: between two reads there may be up to two more updates."""

LOOKS_PER_HALF_TURN = 2
"""Reads per half range of a counter that are needed to miss no wrap."""


class CounterChange(NamedTuple):
    """Change of a counter between two reads.

    Attributes:
        counts: increase; None when unknown.
        flags: `wrap`, `reset`, `ambiguous`.
    """

    counts: float | None
    flags: tuple[str, ...]


_RESET = CounterChange(None, ("reset",))
_WRAP, _AMBIGUOUS, _BOTH = ("wrap",), ("ambiguous",), ("wrap", "ambiguous")


class Counter:
    """Parameters of one domain's counter."""

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
        """Longest allowed time between samples in seconds."""
        return self._ambiguous_s / LOOKS_PER_HALF_TURN

    def step(self, before: int, now: int, elapsed_s: float) -> CounterChange:
        """Return the change from one value to the next.

        Args:
            before: previous value.
            now: current value.
            elapsed_s: time between them, including time in which the host was suspended.
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
            return CounterChange(counts, _BOTH if wrapped else _AMBIGUOUS)
        return CounterChange(counts, _WRAP if wrapped else ())
