"""Values that many files have: bounded numbers, slots of nodes, energy models of nodes, and lags of their meters.

Points, MB, rates and seconds have an upper bound, which keeps their sums and squares from overflowing a float.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

MOST = 1e15
"""Larger values are taken for typing errors."""

NonNegative = Annotated[float, Meta(ge=0, le=MOST)]
Positive = Annotated[float, Meta(gt=0, le=MOST)]

YEAR_S = 366 * 24 * 3600

Seconds = Annotated[float, Meta(ge=0, le=YEAR_S)]
SomeSeconds = Annotated[float, Meta(gt=0, le=YEAR_S)]
"""Times of an agenda; longer ones are taken for typing errors, too."""

FileName = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,99}\Z",
        description="at most 100 letters, digits and . _ + - with a letter or a digit first",
    ),
]
"""Text that is used in file names."""


class Slot(Struct, frozen=True, order=True, forbid_unknown_fields=True, rename={"index": "slot"}):
    """Slot of a node, which hosts at most one worker process: node id and index on the node.

    In JSON it is `{"node": ..., "slot": ...}`. Reports of an agent about itself have the index -1. Like a pair, a slot
    can be unpacked: `node, index = slot`.
    """

    node: str
    index: Annotated[int, Meta(ge=-1, le=2**31 - 1)]

    def __iter__(self) -> Iterator[str | int]:
        yield self.node
        yield self.index


class EnergyModel(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Energy model of a node: P = p_s + p_d (f / f_ref)^kappa u, `u` being the busy share of all its CPUs.

    Attributes:
        p_s: static power in watts.
        p_d: dynamic power in watts, at full load and the reference clock.
        kappa: exponent of the clock.
        f_ref_ghz: the reference clock; None: the node's highest.
        mape: mean relative error of the calibration, 0.05 is 5 %; None without calibration.
    """

    p_s: NonNegative
    p_d: NonNegative
    kappa: Positive = 3.0
    f_ref_ghz: Positive | None = None
    mape: NonNegative | None = None


class MeterLag(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Lag of an external meter: time between power use and the reading that reports it.

    Attributes:
        lag_s: the lag; negative if the meter's time stamps are too early.
        margin_s: uncertainty of `lag_s`.
        correlation: correlation of its power with the CPU load, if the lag was found that way.
    """

    lag_s: Annotated[float, Meta(ge=-60, le=60)]
    margin_s: NonNegative = 0.0
    correlation: Annotated[float, Meta(ge=0, le=1)] | None = None
