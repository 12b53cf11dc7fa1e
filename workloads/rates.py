"""Rates of an agenda: kinds of them, in their form there.

Each kind provides its schedule if it is the same for any spout. `replay` uses the times of the spout's own records, and
`max` has no times. `workloads.source_clock` derives the clock of one executor.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from inventory.documents import Document
from inventory.errors import RunError
from workloads.schedules import PiecewiseConstant, PoissonArrivals, Schedule, SineWave

# YAML has infinity; a rate beyond one record per nanosecond, or a step decades away, is a typing error.
Positive = Annotated[float, Meta(gt=0, le=1e9)]
NonNegative = Annotated[float, Meta(ge=0, le=1e9)]
Mean = Annotated[float, Meta(ge=1e-6, le=1e9)]
Share = Annotated[float, Meta(ge=0, le=1)]
Load = Annotated[float, Meta(ge=0.001, le=100)]
Period = Annotated[float, Meta(ge=1e-3, le=1e9)]
Speedup = Annotated[float, Meta(ge=1e-6, le=1e9)]


class Constant(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="constant"):
    """`tuples_per_s`, evenly spaced; or `load`, the share of a sustainable rate that a calibration finds."""

    tuples_per_s: Positive | None = None
    load: Load | None = None

    def __post_init__(self) -> None:
        if self.tuples_per_s is None and self.load is None:
            raise ValueError("the key 'tuples_per_s' is missing, or 'load', a share of the sustainable rate")
        if self.tuples_per_s is not None and self.load is not None:
            raise ValueError("give either 'tuples_per_s' or 'load', a share of the sustainable rate")

    def schedule(self, seed: int = 0) -> Schedule:
        """Return the schedule of this rate."""
        return PiecewiseConstant([(0.0, self.peak_per_s)])

    @property
    def peak_per_s(self) -> float:
        """The highest rate.

        Raises:
            RunError: it is a load, which the calibration has not converted yet.
        """
        if self.tuples_per_s is None:
            raise RunError("a load is no rate before its calibration")
        return self.tuples_per_s


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

    def schedule(self, seed: int = 0) -> Schedule:
        """Return the schedule of this rate."""
        return PiecewiseConstant(self.steps)

    @property
    def peak_per_s(self) -> float:
        """The highest rate."""
        return max(rate for _, rate in self.steps)


class Poisson(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="poisson"):
    """`tuples_per_s` on average, tuples independent of each other."""

    tuples_per_s: Positive

    def schedule(self, seed: int = 0) -> Schedule:
        """Return the schedule of this rate; each seed has its own."""
        return PoissonArrivals(self.tuples_per_s, seed)

    @property
    def peak_per_s(self) -> float:
        """The mean rate, which does not change."""
        return self.tuples_per_s


class Bursts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="bursts"):
    """`tuples_per_s` for `on_s` seconds, then `off_tuples_per_s` for `off_s` seconds, repeatedly."""

    on_s: Period
    off_s: Period
    tuples_per_s: Positive
    off_tuples_per_s: NonNegative = 0.0

    def schedule(self, seed: int = 0) -> Schedule:
        """Return the schedule of this rate."""
        phases = [(0.0, self.tuples_per_s), (self.on_s, self.off_tuples_per_s)]
        return PiecewiseConstant(phases, period_s=self.on_s + self.off_s)

    @property
    def peak_per_s(self) -> float:
        """The highest rate."""
        return max(self.tuples_per_s, self.off_tuples_per_s)


class Sine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="sine"):
    """`mean_tuples_per_s` plus a sine wave with the relative `amplitude`."""

    mean_tuples_per_s: Mean
    amplitude: Share
    period_s: Period

    def schedule(self, seed: int = 0) -> Schedule:
        """Return the schedule of this rate."""
        return SineWave(self.mean_tuples_per_s, self.amplitude, self.period_s)

    @property
    def peak_per_s(self) -> float:
        """The highest rate."""
        return self.mean_tuples_per_s * (1 + self.amplitude)


class Replay(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="replay"):
    """Recorded times of the spout's records, `speedup` times as fast."""

    speedup: Speedup = 1.0

    peak_per_s: ClassVar[None] = None

    def schedule(self, seed: int = 0) -> None:
        """Return None: the schedule depends on the spout."""


class Max(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="max"):
    """As fast as the topology accepts rows; the intended time of a record is its emission."""

    peak_per_s: ClassVar[None] = None

    def schedule(self, seed: int = 0) -> None:
        """Return None: every record is due at once."""


Rate = Constant | Steps | Poisson | Bursts | Sine | Replay | Max


def rate_of(plain: Mapping[str, Any]) -> Rate:
    """Return the rate described by plain data, as in an agenda.

    Raises:
        InputError: an unknown kind or key (with the nearest one), or a value that cannot be.
    """
    rate: Rate = Document("rate", plain).convert(Rate)  # type: ignore[arg-type]  # a union of Structs is no type[T]
    return rate
