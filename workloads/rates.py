"""When a source's tuples are due: the open-loop schedules of an agenda.

A schedule is a total over all spout executors: record g of the whole input is due `due_ns(g)` after source
start, whoever emits it. Being late against it is latency, never a reason to shift the schedule.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import lcm
from typing import Annotated, Any, Protocol

from msgspec import Meta, Struct

from inventory.documents import Document

NS = 1_000_000_000
# YAML knows infinity; a rate beyond one record per nanosecond, or a step decades away, is a slip of the pen.
Positive = Annotated[float, Meta(gt=0, le=1e9)]
NonNegative = Annotated[float, Meta(ge=0, le=1e9)]


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

    The cumulative count N(t) is piecewise linear in time; record g is due when it leaves g, so that the first record
    is due at the start of the first step with a rate, a step of d seconds at rate r holds r * d records, and a pause
    holds none. All arithmetic is in whole numbers: due times never drift, whatever the number of the record.
    """

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        starts = [round(start * NS) for start, _ in steps]
        rates = [Fraction(rate) / NS for _, rate in steps]
        reached = [Fraction(0)]
        for (start, end), rate in zip(pairwise(starts), rates, strict=False):
            reached.append(reached[-1] + rate * (end - start))
        # N at the step's start is _reached / _unit; its rate per ns is the fraction _rates.
        self._unit = lcm(*(count.denominator for count in reached))
        self._reached = [int(count * self._unit) for count in reached]
        self._starts = starts
        self._rates = [(rate.numerator, rate.denominator) for rate in rates]

    def due_ns(self, record: int) -> int:
        """See `Schedule.due_ns`."""
        wanted = record * self._unit
        step = bisect_right(self._reached, wanted) - 1
        over, under = self._rates[step]
        # Rounded up: nothing is due before its time.
        return self._starts[step] - (self._reached[step] - wanted) * under // (over * self._unit)

    def due_count(self, elapsed_ns: int) -> int:
        """See `Schedule.due_count`."""
        step = bisect_right(self._starts, elapsed_ns) - 1
        if step < 0:
            return 0
        over, under = self._rates[step]
        if over == 0:
            return -(-self._reached[step] // self._unit)
        into = (elapsed_ns - self._starts[step]) * over * self._unit
        return (self._reached[step] * under + into) // (under * self._unit) + 1


def rate_of(plain: Mapping[str, Any]) -> Rate:
    """The rate that plain data describes, as it stands in an agenda.

    Raises:
        InputError: an unknown kind or key (with the nearest one), or a value that cannot be.
    """
    rate: Rate = Document("rate", plain).convert(Rate)  # type: ignore[arg-type]  # a union of Structs is no type[T]
    return rate
