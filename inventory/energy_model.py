"""Energy model of a node, and lag of its meter.

The model is P = p_s + p_d (f / f_ref)^kappa u, `u` being the busy share of all its CPUs.
"""

from typing import Annotated

from msgspec import Meta, Struct

from inventory.amounts import NonNegative, Positive

EARLIEST_S, LATEST_S = -60.0, 60.0


class EnergyModel(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Parameters of the model.

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

    lag_s: Annotated[float, Meta(ge=EARLIEST_S, le=LATEST_S)]
    margin_s: NonNegative = 0.0
    correlation: Annotated[float, Meta(ge=0, le=1)] | None = None
