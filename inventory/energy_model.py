"""What is known of a node's energy: its model, and how late its meter is.

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
        mape: mean relative error where it was calibrated, 0.05 is 5 %; None: it was not.
    """

    p_s: NonNegative
    p_d: NonNegative
    kappa: Positive = 3.0
    f_ref_ghz: Positive | None = None
    mape: NonNegative | None = None


class MeterLag(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How late a meter of the whole machine is: what it says of a moment was drawn some time before.

    Attributes:
        lag_s: how long before; below 0 where it names moments too early.
        margin_s: how far `lag_s` may be off.
        correlation: of its power with the load of the CPUs, where the lag was found by that.
    """

    lag_s: Annotated[float, Meta(ge=EARLIEST_S, le=LATEST_S)]
    margin_s: NonNegative = 0.0
    correlation: Annotated[float, Meta(ge=0, le=1)] | None = None
