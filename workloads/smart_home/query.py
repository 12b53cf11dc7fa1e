"""Parameters and times of the query.

Slice i of length s covers [BASE + i s, BASE + (i + 1) s) seconds; all lengths share their borders, and all
borders are ticks.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

BASE = 1377986400
"""Seconds since 1970 at which slice 0 begins, for every length; the official data begins one second later."""

TICK_S = 30
"""Seconds of stream time between predictions."""

FEWEST_SLICES = 3
"""Minimum slices in a day; otherwise the predicted slice of the day before would not be over."""

WATT_SECONDS_OF_A_KWH = 3_600_000.0


@dataclass(frozen=True)
class QueryParams:
    """Parameters of DEBS 2014 query 1, for any engine.

    Attributes:
        slices: lengths of slices in seconds, as a list or separated by commas.
        day_s: length of a day in seconds; a smaller one lets a short recording have history.
        fill: load of a plug without load reading in a slice: `none`, or from its `work` counter.
    """

    slices: tuple[int, ...] | int | str = (60, 300, 900, 3600, 7200)
    day_s: Annotated[int, Meta(ge=1)] = 86400
    fill: Literal["none", "work"] = "none"

    def __post_init__(self) -> None:
        object.__setattr__(self, "slices", _whole(self.slices))
        for length in self.lengths:
            if length < TICK_S or length % TICK_S:
                raise ValueError(
                    f"slices: got {length}, expected a multiple of {TICK_S} s, the time between predictions"
                )
            if self.day_s % length:
                raise ValueError(f"slices: {length} s is no whole part of a day of {self.day_s} s ('day_s')")
            if self.day_s < FEWEST_SLICES * length:
                raise ValueError(
                    f"slices: a day of {self.day_s} s ('day_s') has {self.day_s // length} slices of {length} s, "
                    f"expected at least {FEWEST_SLICES}"
                )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of slices in seconds, without duplicates, ascending."""
        assert isinstance(self.slices, tuple)  # noqa: S101 - made so above
        return self.slices


def _whole(slices: tuple[int, ...] | int | str) -> tuple[int, ...]:
    if isinstance(slices, int):
        slices = (slices,)
    if isinstance(slices, str):
        try:
            slices = tuple(int(text) for text in slices.split(","))
        except ValueError:
            raise ValueError(f"slices: got {slices!r}, expected whole seconds parted by commas, as in 60,300") from None
    if not slices:
        raise ValueError("slices: got none, expected at least one length")
    return tuple(sorted(set(slices)))
