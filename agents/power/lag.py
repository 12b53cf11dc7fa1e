"""Lag of a meter of the whole machine, measured by its response to a load that switches on and off.

The power is correlated with the CPU load shifted by each candidate lag; the lag with the highest correlation is the
estimate. It is the maximum likelihood estimate for a meter that follows the load with independent errors:
Knapp and Carter, The generalized correlation method for estimation of time delay (IEEE Transactions on Acoustics,
Speech and Signal Processing 24(4), 1976). Lags that explain the power nearly as well define the margin.
"""

import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise

from agents.power.curve import Curve
from inventory.energy_model import MeterLag

PULSES = 100
"""Length of the load pattern in units."""

EARLIEST, LATEST = -5, 30
"""Range of candidate lags in units."""

SHORTEST, LONGEST = 2, 8
"""Length of a phase with or without load in units; lengths vary, so that the pattern does not repeat."""

MOST_MARGIN = 3
"""A larger margin, in units, is rejected."""

LEAST_READINGS = 20

LEAST_CORRELATION = 0.6
"""Below this correlation, the power depends on something other than the load."""

CHANCE = 10.8
"""Log-likelihood ratio (times 2) of lags that cannot be distinguished, at a significance level of 0.001."""

_CELLS, _LAGS = 4, 10
"""Per unit: number of compared means, and of candidate lags."""


def pulses() -> Iterator[tuple[float, int]]:
    """Yield the load of all CPUs and its length in units; the pattern is always the same."""
    chance, left, share = random.Random(0), PULSES, 1.0  # noqa: S311 - it need not be secret
    while left:
        length = min(left, chance.randint(SHORTEST, LONGEST))
        yield share, length
        left, share = left - length, 1.0 - share


def find_lag(load: Curve, power: Sequence[Curve], start_ns: int, unit_ns: int) -> MeterLag | str:
    """Return the lag of a meter, or the reason why it cannot be determined.

    Args:
        load: cumulative CPU time.
        power: cumulative energy of every domain of the meter, with the meter's times.
        start_ns: start of `pulses`.
        unit_ns: their unit.
    """
    # The same readings are compared at every lag, within the time in which the load is known.
    first_ns, last_ns = start_ns + LATEST * unit_ns, start_ns + (PULSES + EARLIEST) * unit_ns
    cell_ns = unit_ns // _CELLS
    moments = range(first_ns, last_ns + 1, cell_ns)
    readings = min((curve.count(first_ns, last_ns) for curve in power), default=0)
    if readings < LEAST_READINGS:
        return f"the meter has too few readings: {readings}"
    drawn = [sum(levels) for levels in zip(*(_steps(curve, moments) for curve in power), strict=True)]
    found: dict[int, float] = {}
    for number in range(EARLIEST * _LAGS, LATEST * _LAGS + 1):
        lag_ns = number * unit_ns // _LAGS
        found[lag_ns] = _correlation(_steps(load, range(first_ns - lag_ns, last_ns - lag_ns + 1, cell_ns)), drawn)
    best_ns = max(found, key=lambda lag_ns: found[lag_ns])
    best = found[best_ns]
    if best < LEAST_CORRELATION:
        return f"its power does not follow the load: a correlation of {max(best, 0.0):.2f} at most"
    # Interpolated cells hold no more information than the readings.
    weight = min(readings, len(drawn))
    most_unexplained = (1 - best**2) * (1 + CHANCE / weight)
    likely = [lag_ns for lag_ns, each in found.items() if each > 0 and 1 - each**2 <= most_unexplained]
    if min(likely) == min(found) or max(likely) == max(found):
        least_s, most_s = EARLIEST * unit_ns / 1e9, LATEST * unit_ns / 1e9
        return f"its lag may be outside of the searched range, {least_s:g} s to {most_s:g} s"
    margin_ns = max(max(likely) - best_ns, best_ns - min(likely)) + unit_ns // _LAGS
    if margin_ns > MOST_MARGIN * unit_ns:
        return f"lags from {min(likely) / 1e9:.1f} s to {max(likely) / 1e9:.1f} s are all as likely"
    return MeterLag(best_ns / 1e9, margin_ns / 1e9, min(1.0, round(best, 4)))


def _steps(curve: Curve, moments: range) -> list[float]:
    levels = [curve.at(moment) for moment in moments]
    return [after - before for before, after in pairwise(levels)]


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Pearson's correlation; 0 when one of the sequences is constant."""
    try:
        return statistics.correlation(first, second)
    except statistics.StatisticsError:
        return 0.0
