"""How late a meter of the whole machine is, found by its answer to a load that goes on and off.

Power is laid against the load of the CPUs, shifted by one lag after the other; the one with the highest correlation is
the meter's. That is the estimate of greatest likelihood for a meter that follows the load with an error of its own:
Knapp and Carter, The generalized correlation method for estimation of time delay (IEEE Transactions on Acoustics,
Speech and Signal Processing 24(4), 1976). Lags that explain the power nearly as well make the margin.
"""

import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from agents.power.curve import Curve
from inventory.energy_model import MeterLag

PULSES = 100
"""Length of the load in units."""

EARLIEST, LATEST = -5, 30
"""Lags that are looked for, in units."""

SHORTEST, LONGEST = 2, 8
"""Of a stretch with or without load, in units: no two parts of the load look alike."""

MOST_MARGIN = 3
"""A margin of more units is no answer."""

LEAST_READINGS = 20

LEAST_CORRELATION = 0.6
"""Below this, something else than the load moves the power."""

CHANCE = 10.8
"""Likelihoods that differ by less, as twice their logarithm, may do so by chance: one time in a thousand otherwise."""

_CELLS, _LAGS = 4, 10
"""Per unit: means that are compared, and lags that are tried."""


def pulses() -> Iterator[tuple[float, int]]:
    """The load of all CPUs and for how many units, always the same ones."""
    chance, left, share = random.Random(0), PULSES, 1.0  # noqa: S311 - it need not be secret
    while left:
        length = min(left, chance.randint(SHORTEST, LONGEST))
        yield share, length
        left, share = left - length, 1.0 - share


def find_lag(load: Curve, power: Sequence[Curve], start_ns: int, unit_ns: int) -> MeterLag | str:
    """How late a meter is, or why that cannot be said.

    Args:
        load: CPU time since any beginning.
        power: energy since any beginning, as the meter dates it, of every domain that it tells of.
        start_ns: when `pulses` began.
        unit_ns: their unit.
    """
    # The same readings are compared at every lag, with load that is known at all of them.
    first_ns, last_ns = start_ns + LATEST * unit_ns, start_ns + (PULSES + EARLIEST) * unit_ns
    cell_ns = unit_ns // _CELLS
    moments = range(first_ns, last_ns + 1, cell_ns)
    readings = min((curve.count(first_ns, last_ns) for curve in power), default=0)
    if readings < LEAST_READINGS:
        return f"the meter has said too little: {readings} readings"
    drawn = [sum(levels) for levels in zip(*(_steps(curve, moments) for curve in power), strict=True)]
    found: dict[int, float] = {}
    for number in range(EARLIEST * _LAGS, LATEST * _LAGS + 1):
        lag_ns = number * unit_ns // _LAGS
        found[lag_ns] = _correlation(_steps(load, range(first_ns - lag_ns, last_ns - lag_ns + 1, cell_ns)), drawn)
    best_ns = max(found, key=lambda lag_ns: found[lag_ns])
    best = found[best_ns]
    if best < LEAST_CORRELATION:
        return f"its power does not follow the load: a correlation of {max(best, 0.0):.2f} at most"
    # A meter says no more than its readings do, however finely they are cut.
    weight = min(readings, len(drawn))
    most_unexplained = (1 - best**2) * (1 + CHANCE / weight)
    likely = [lag_ns for lag_ns, each in found.items() if each > 0 and 1 - each**2 <= most_unexplained]
    if min(likely) == min(found) or max(likely) == max(found):
        least_s, most_s = EARLIEST * unit_ns / 1e9, LATEST * unit_ns / 1e9
        return f"its lag may lie outside of what was looked for, {least_s:g} s to {most_s:g} s"
    margin_ns = max(max(likely) - best_ns, best_ns - min(likely)) + unit_ns // _LAGS
    if margin_ns > MOST_MARGIN * unit_ns:
        return f"lags from {min(likely) / 1e9:.1f} s to {max(likely) / 1e9:.1f} s are all as likely"
    return MeterLag(best_ns / 1e9, margin_ns / 1e9, min(1.0, round(best, 4)))


def _steps(curve: Curve, moments: range) -> list[float]:
    levels = [curve.at(moment) for moment in moments]
    return [after - before for before, after in pairwise(levels)]


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's; 0 where one of them does not change."""
    try:
        return statistics.correlation(first, second)
    except statistics.StatisticsError:
        return 0.0
