"""Statistics of repeated runs.

Below `ENOUGH` repetitions nothing is inferred: every run is shown, with the range and the number of runs. From there
on the median comes with a percentile bootstrap interval (Efron and Tibshirani, An Introduction to the Bootstrap, 1993,
chapter 13), and a scheduler is compared with the baseline by differences within repetitions, which removes effects that
all runs of a repetition share (inputs, seeds, the machine's state).

Every interval has its own seed, derived from its subject: the same values give the same interval, whatever else is in
the report.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

ENOUGH = 10
"""Number of repetitions from which intervals are given."""

LEVEL = 0.95
RESAMPLES = 10_000

NOISE = 1e-9
"""Values below this, in any unit of the report, are rounding errors."""

SAME = 1e-9
"""Relative tolerance of equal values: tables hold nine digits."""


@dataclass(frozen=True)
class ConfidenceInterval:
    """An estimate of `n` values with its confidence interval at `LEVEL`."""

    n: int
    estimate: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        """True if the interval lies on one side of 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Spread:
    """Values of repeated runs: number, smallest, largest, and from `ENOUGH` values on the median's interval."""

    n: int
    low: float
    high: float
    median: ConfidenceInterval | None


def without_noise(value: float) -> float:
    """Return 0 for rounding errors of sums, which are smaller than `NOISE` in every unit of the report."""
    return 0.0 if abs(value) < NOISE else value


def spread(values: Sequence[float], *about: object) -> Spread | None:
    """Describe repeated values; None without any.

    Args:
        values: one per run.
        about: what the values are; seeds the interval.
    """
    if not values:
        return None
    return Spread(len(values), min(values), max(values), median_interval(values, *about))


def median_interval(values: Sequence[float], *about: object) -> ConfidenceInterval | None:
    """Return the bootstrap interval of the median; None below `ENOUGH` values."""
    n = len(values)
    if n < ENOUGH:
        return None
    # Sorted, so that resamples do not depend on the order in which runs were read.
    ordered = np.sort(np.asarray(values, dtype=float))
    generator = np.random.default_rng(zlib.crc32("\0".join(map(str, about)).encode()))
    medians = np.median(ordered[generator.integers(0, n, size=(RESAMPLES, n))], axis=1)
    low, high = np.quantile(medians, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ConfidenceInterval(n, float(np.median(ordered)), float(low), float(high))


def paired_difference(
    values: Mapping[int, float], baseline: Mapping[int, float], *about: object
) -> ConfidenceInterval | None:
    """Return the interval of the median difference to the baseline over common repetitions; None below `ENOUGH`.

    Args:
        values: repetition -> value of the scheduler.
        baseline: repetition -> value of the baseline.
        about: what the values are; seeds the interval.
    """
    both = sorted(values.keys() & baseline.keys())
    return median_interval([without_rounding(values[k], baseline[k]) for k in both], *about)


def without_rounding(value: float, base: float) -> float:
    """Return the difference of two values; 0 if they agree within `SAME`."""
    return 0.0 if math.isclose(value, base, rel_tol=SAME) else value - base
