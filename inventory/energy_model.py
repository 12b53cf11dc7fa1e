"""A node's energy model: P = p_s + p_d (f / f_ref)^kappa u, `u` being the busy share of all its CPUs."""

from msgspec import Struct

from inventory.amounts import NonNegative, Positive


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
