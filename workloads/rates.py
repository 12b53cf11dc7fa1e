"""When a source's tuples are due: the open-loop schedules of an agenda.

A schedule is a total over all spout executors: record g of the whole input is due `due_ns(g)` after source
start, whoever emits it. Being late against it is latency, never a reason to shift the schedule.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Protocol

from msgspec import Meta, Struct

NS = 1_000_000_000
Positive = Annotated[float, Meta(gt=0)]
NonNegative = Annotated[float, Meta(ge=0)]


class Schedule(Protocol):
    """Maps record numbers to intended times and back."""

    def due_ns(self, record: int) -> int:
        """Nanoseconds after source start at which `record` (0-based) is due."""
        ...

    def due_count(self, elapsed_ns: int) -> int:
        """How many records are due by `elapsed_ns`: the smallest n with due_ns(n) > elapsed_ns."""
        ...


class Constant(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="constant"):
    """`tuples_per_s`, evenly spaced."""

    tuples_per_s: Positive

    def schedule(self) -> Schedule:
        """The schedule of this rate."""
        return PiecewiseConstant([(0.0, self.tuples_per_s)])


class Steps(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="steps"):
    """`steps: [[from_s, tuples_per_s], ...]`, seconds counted from source start; rate 0 is a pause."""

    steps: Annotated[tuple[tuple[NonNegative, NonNegative], ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.steps]
        if starts[0] != 0:
            raise ValueError(f"the first step starts at {starts[0]} s, it must start at 0")
        if any(b <= a for a, b in pairwise(starts)):
            raise ValueError("the steps' start times must rise")
        if self.steps[-1][1] == 0:
            raise ValueError("the last step's rate is 0, so the source would never emit again")

    def schedule(self) -> Schedule:
        """The schedule of this rate."""
        return PiecewiseConstant(self.steps)


class Max(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="max"):
    """As fast as the topology takes it; the intended time of a record is its emission."""

    def schedule(self) -> None:
        """There is none: every record is due at once."""


Rate = Constant | Steps | Max


class PiecewiseConstant:
    """Records evenly spaced within each step of constant rate.

    The cumulative count is piecewise linear in time; record g is due when it reaches g. The first
    record of a schedule that starts with a positive rate is due at 0.
    """

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        self._rates = [rate for _, rate in steps]
        self._starts = [start for start, _ in steps]
        self._counts = [0.0]
        for (start, rate), (end, _) in pairwise(steps):
            self._counts.append(self._counts[-1] + rate * (end - start))

    def due_ns(self, record: int) -> int:
        """See `Schedule.due_ns`."""
        step = bisect_right(self._counts, record) - 1
        while self._rates[step] == 0:
            step += 1
        into = max(0.0, record - self._counts[step]) / self._rates[step]
        return round((self._starts[step] + into) * NS)

    def due_count(self, elapsed_ns: int) -> int:
        """See `Schedule.due_count`."""
        if elapsed_ns < 0:
            return 0
        step = bisect_right(self._starts, elapsed_ns / NS) - 1
        guess = int(self._counts[step] + self._rates[step] * (elapsed_ns / NS - self._starts[step])) + 1
        while guess > 0 and self.due_ns(guess - 1) > elapsed_ns:
            guess -= 1
        while self.due_ns(guess) <= elapsed_ns:
            guess += 1
        return guess
