"""Least-squares fit of an energy model to metered steps: P = p_s + p_d (f / f_ref)^kappa u."""

import random
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from agents.host.calibration import Step
from agents.power.model import KAPPA, power
from inventory.energy_model import EnergyModel
from inventory.errors import RunError

LEAST_KAPPA, MOST_KAPPA, GRAIN = 1.0, 4.0, 0.01

HELD_OUT = 0.2
"""Share of steps that measure the error of the fit; the choice is deterministic."""

LEAST_APART = 0.05
"""Relative difference of clocks below which kappa cannot be estimated."""


class Fit(NamedTuple):
    """Fitted model.

    Attributes:
        model: its parameters; `mape` is the mean absolute percentage error on the steps that were held out.
        kappa_is_fitted: whether clocks differed enough; otherwise kappa is 3.
        rmse_watts: root mean squared error on the other steps.
        held_out: numbers of the steps that were held out.
    """

    model: EnergyModel
    kappa_is_fitted: bool
    rmse_watts: float
    held_out: tuple[int, ...]


def fit(steps: Sequence[Step], f_ref_hz: float | None) -> Fit:
    """Fit the model to four fifths of the steps and test it on the others.

    Raises:
        RunError: power does not rise with load.
    """
    numbers = range(len(steps))
    held_out = tuple(sorted(random.Random(0).sample(numbers, max(1, round(HELD_OUT * len(steps))))))  # noqa: S311
    used = [steps[number] for number in numbers if number not in held_out]
    ratios = [_ratio(step, f_ref_hz) for step in used]
    apart = max(ratios) - min(ratios) >= LEAST_APART
    count = round((MOST_KAPPA - LEAST_KAPPA) / GRAIN)
    kappas = [LEAST_KAPPA + GRAIN * number for number in range(count + 1)] if apart else [KAPPA]
    error, best = min(
        ((_error(model, used, f_ref_hz), model) for model in (_line(used, ratios, kappa) for kappa in kappas)),
        key=lambda pair: pair[0],
    )
    if best.p_d <= 0:
        raise RunError("power does not rise with load: no model can be fitted")
    relative = [
        abs(power(best, step.busy, _ratio(step, f_ref_hz)) - step.watts) / step.watts
        for step in (steps[number] for number in held_out)
    ]
    mape = statistics.fmean(relative)
    ghz = f_ref_hz / 1e9 if f_ref_hz else None
    return Fit(EnergyModel(best.p_s, best.p_d, best.kappa, ghz, mape), apart, (error / len(used)) ** 0.5, held_out)


def _line(steps: Sequence[Step], ratios: Sequence[float], kappa: float) -> EnergyModel:
    """Return the best static and dynamic power for one kappa; static power is not below 0."""
    x = [ratio**kappa * step.busy for ratio, step in zip(ratios, steps, strict=True)]
    y = [step.watts for step in steps]
    if max(x) == min(x):
        raise RunError("the CPUs were equally busy in all steps: something else loads this node")
    slope, intercept = statistics.linear_regression(x, y)
    if intercept < 0:
        slope, intercept = statistics.linear_regression(x, y, proportional=True)
    return EnergyModel(intercept, max(slope, 0.0), round(kappa, 2))


def _error(model: EnergyModel, steps: Sequence[Step], f_ref_hz: float | None) -> float:
    return sum((power(model, step.busy, _ratio(step, f_ref_hz)) - step.watts) ** 2 for step in steps)


def _ratio(step: Step, f_ref_hz: float | None) -> float:
    return step.hz / f_ref_hz if step.hz and f_ref_hz else 1.0
