"""Comparison of two schedulers in one metric, paired by repetition.

Runs of one repetition share inputs, seed and the state of the machine, so that differences and ratios within
repetitions are compared. Estimates and intervals are those of Hodges and Lehmann (Estimates of location based on rank
tests, 1963): the median of the means of all pairs of values (Walsh averages), and the averages between which the
Wilcoxon signed-rank test does not reject. They are exact for symmetric values of any distribution, and differences of
two equally distributed sides are symmetric. docs/statistics.md has the coverage of this and other methods.

The p value is that of Fisher's randomisation test (The Design of Experiments, 1935, section 21): without an effect, the
sign of every difference is a fair coin, whatever the distribution.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import nctdtrinc, ndtri, stdtrit

from analysis.statistics.intervals import LEVEL, ConfidenceInterval, without_rounding

FEWEST_PAIRS = 5
"""Number of pairs from which intervals are given: 93.75 % is then the largest possible coverage, and 95 % from 6 on."""

EXACT_UP_TO = 20
"""Number of pairs up to which all combinations of signs are counted; beyond, `FLIPS` random ones."""

FLIPS = 100_000
POWER = 0.8
SIGNIFICANCE = 1 - LEVEL

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """A scheduler compared with a baseline in one metric.

    Attributes:
        n: number of repetitions that both have.
        median: median of the scheduler in these repetitions.
        baseline_median: median of the baseline in these repetitions.
        median_difference: difference of the two medians, in the metric's unit.
        hodges_lehmann: Hodges-Lehmann estimate of the difference within repetitions.
        difference: the same with its interval; None below `FEWEST_PAIRS`.
        ratio_estimate: Hodges-Lehmann estimate of the ratio within repetitions, of logarithms; None if a value is not
            positive.
        ratio: the same with its interval; None below `FEWEST_PAIRS`, or if a value is not positive.
        p_value: two-sided p value of the sign-flip test of the mean difference, not adjusted.
        exact: whether `p_value` counts all combinations of signs, or a seeded sample of `FLIPS`.
        variation: coefficient of variation of the scheduler (standard deviation / mean); None if undefined.
        baseline_variation: the same of the baseline.
        smallest_effect: relative increase that a test of these repetitions finds with a probability of `POWER` at a
            significance level of 5 %, by the spread of ratios; None if no effect is large enough for n, or a value is
            not positive.
    """

    n: int
    median: float
    baseline_median: float
    median_difference: float
    hodges_lehmann: float
    difference: ConfidenceInterval | None
    ratio_estimate: float | None
    ratio: ConfidenceInterval | None
    p_value: float
    exact: bool
    variation: float | None
    baseline_variation: float | None
    smallest_effect: float | None


def compare(
    values: Mapping[int, float | None], baseline: Mapping[int, float | None], *about: object
) -> Comparison | None:
    """Compare a scheduler with a baseline; None without common repetitions.

    Args:
        values: repetition -> value of the scheduler; None if it is unknown.
        baseline: repetition -> value of the baseline; None if it is unknown.
        about: what the values are; seeds the sample of signs.
    """
    pairs = [(values[k], baseline[k]) for k in sorted(values.keys() & baseline.keys())]
    known = [(a, b) for a, b in pairs if a is not None and b is not None and math.isfinite(a) and math.isfinite(b)]
    if not known:
        return None
    own, base = np.array(known, dtype=float).T
    differences = np.array([without_rounding(a, b) for a, b in known])
    medians = float(np.median(own)), float(np.median(base))
    ratio_estimate = ratio = smallest = None
    if (own > 0).all() and (base > 0).all():
        # Equal values have a ratio of 1 exactly.
        logarithms = np.where(differences == 0, 0.0, np.log(own) - np.log(base))
        ratio_estimate = math.exp(float(np.median(walsh_averages(logarithms))))
        ratio = _exponential(hodges_lehmann_interval(logarithms))
        smallest = smallest_effect(logarithms)
    p_value, exact = sign_flip(differences, *about)
    return Comparison(
        n=len(known),
        median=medians[0],
        baseline_median=medians[1],
        median_difference=without_rounding(*medians),
        hodges_lehmann=float(np.median(walsh_averages(differences))),
        difference=hodges_lehmann_interval(differences),
        ratio_estimate=ratio_estimate,
        ratio=ratio,
        p_value=p_value,
        exact=exact,
        variation=variation(own),
        baseline_variation=variation(base),
        smallest_effect=smallest,
    )


def walsh_averages(values: Values) -> Values:
    """Return the sorted means of all pairs of values, each value with itself included."""
    i, j = np.triu_indices(len(values))
    return np.sort((values[i] + values[j]) / 2)


def hodges_lehmann_interval(values: Values) -> ConfidenceInterval | None:
    """Return the Hodges-Lehmann estimate with its exact interval; None below `FEWEST_PAIRS`.

    The interval reaches from the k-th smallest to the k-th largest Walsh average (Hollander, Wolfe and Chicken,
    Nonparametric Statistical Methods, 2014, section 3.3). At 5 values it is the whole range, with a coverage of
    93.75 %.
    """
    n = len(values)
    if n < FEWEST_PAIRS:
        return None
    averages = walsh_averages(values)
    cut = max(cut_averages(n), 1)
    return ConfidenceInterval(n, float(np.median(averages)), float(averages[cut - 1]), float(averages[-cut]))


@cache
def cut_averages(n: int) -> int:
    """Return k of the interval: how many values of the signed-rank sum have at most 2.5 % together."""
    shares = np.ones(1)
    for rank in range(1, n + 1):
        # With a probability of a half, the rank belongs to a positive value.
        shares = (np.pad(shares, (0, rank)) + np.pad(shares, (rank, 0))) / 2
    return int(np.searchsorted(np.cumsum(shares), (1 - LEVEL) / 2, side="right"))


def _exponential(interval: ConfidenceInterval | None) -> ConfidenceInterval | None:
    if interval is None:
        return None
    return ConfidenceInterval(interval.n, math.exp(interval.estimate), math.exp(interval.low), math.exp(interval.high))


def sign_flip(differences: Values, *about: object) -> tuple[float, bool]:
    """Return the two-sided p value of the sign-flip test of the mean, and whether it is exact.

    Up to `EXACT_UP_TO` differences all combinations of signs are counted. Beyond, `FLIPS` random combinations are, the
    observed one included, so that the p value is never 0 (Phipson and Smyth, Permutation p-values should never be
    zero, 2010).

    Args:
        differences: one per repetition.
        about: what the values are; seeds the sample.
    """
    n = len(differences)
    observed = abs(float(differences.sum()))
    # Combinations of equal sums count as equal, in whatever order they were added up.
    at_least = observed - 1e-9 * float(np.abs(differences).sum())
    if n <= EXACT_UP_TO:
        # The first sign is kept: each combination and its opposite have the same absolute sum.
        sums = differences[:1]
        for value in differences[1:]:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= at_least).mean()), True
    generator = np.random.default_rng(zlib.crc32("\0".join(map(str, ("signs", *about))).encode()))
    sums = np.zeros(FLIPS)
    for value in differences:
        sums += np.where(generator.random(FLIPS) < 0.5, value, -value)
    return (1 + int((np.abs(sums) >= at_least).sum())) / (1 + FLIPS), False


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted for the size of their family, in their order.

    The probability of one or more false positives in the family stays below the level to which the results are
    compared, also for dependent tests (Holm, A simple sequentially rejective multiple test procedure, 1979).
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, p_values[at] * (len(p_values) - place)))
        adjusted[at] = largest
    return adjusted


def fewest_repetitions(comparisons: int) -> int:
    """Return the smallest n at which the exact test can be significant at all after Holm's adjustment.

    The smallest p value of n differences is 2^(1-n).
    """
    return 1 + math.ceil(math.log2(max(comparisons, 1) / SIGNIFICANCE))


def variation(values: Values) -> float | None:
    """Return the coefficient of variation; None below two values, or if their mean is not positive."""
    mean = float(values.mean())
    return float(values.std(ddof=1)) / mean if len(values) > 1 and mean > 0 else None


def smallest_effect(logarithms: Values) -> float | None:
    """Return the smallest relative increase that is found with a probability of `POWER`; None if n is too small.

    The power is that of the t test (noncentral t distribution; Cohen, Statistical Power Analysis, 1988), to which the
    sign-flip test comes close from seven repetitions on.

    Args:
        logarithms: logarithm of the ratio, one per repetition.
    """
    n = len(logarithms)
    if n < fewest_repetitions(1):
        return None
    if 2 ** (2 - n) > SIGNIFICANCE:
        # Only differences that all have the same sign are significant.
        distance = ndtri(POWER ** (1 / n))
    else:
        distance = nctdtrinc(n - 1, 1 - POWER, stdtrit(n - 1, 1 - SIGNIFICANCE / 2)) / math.sqrt(n)
    return math.expm1(float(distance) * float(logarithms.std(ddof=1)))
