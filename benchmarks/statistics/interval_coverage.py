"""Simulate the coverage and width of 95 % intervals of the ratio of two schedulers.

    .venv/bin/python benchmarks/statistics/interval_coverage.py [--trials 2000] [--resamples 2000] [--seed 1]

Campaigns of 5, 10 and 20 repetitions with a known effect: the scheduler's values are 10 % larger than the baseline's.
Values are normal (coefficient of variation 5 %), lognormal (sigma 0.5), or Student's t with 3 degrees of freedom
(scale 5 %). Each repetition has a factor that both sides share (lognormal, sigma 0.1); it models inputs and the state
of the machine. Prints a Markdown table with the percentage of campaigns whose interval contains the true ratio, and in
parentheses the mean width of the intervals in per cent of the true ratio. An interval that a method cannot compute
counts as not containing it.

Example: .venv/bin/python benchmarks/statistics/interval_coverage.py --trials 200
"""

import argparse
import math
import warnings
from collections.abc import Callable, Iterator
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from analysis.statistics.comparison import hodges_lehmann_interval
from analysis.statistics.intervals import LEVEL

RATIO = 1.1
SHARED_SIGMA = 0.1
SIZES = (5, 10, 20)
TAIL = (1 - LEVEL) / 2

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Values]
Interval = tuple[str, float, float]
"""Method, lower and upper bound."""

DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda generator, n: 1 + 0.05 * generator.standard_normal(n),
    "lognormal": lambda generator, n: np.exp(0.5 * generator.standard_normal(n)),
    # One value in 7,000 would be below 0.
    "t3": lambda generator, n: np.maximum(1 + 0.05 * generator.standard_t(3, n), 0.01),
}


def campaign(draw: Draw, generator: np.random.Generator, n: int) -> tuple[Values, Values]:
    """Draw the values of a scheduler and of its baseline, paired by repetition."""
    shared = np.exp(SHARED_SIGMA * generator.standard_normal(n))
    return RATIO * shared * draw(generator, n), shared * draw(generator, n)


def ratio_of_medians(own: Values, base: Values, axis: int = -1) -> Values:
    """Return the ratio of the two medians."""
    return np.asarray(np.median(own, axis=axis) / np.median(base, axis=axis))


def median_ratio(logarithms: Values, axis: int = -1) -> Values:
    """Return the median of ratios from their logarithms."""
    return np.asarray(np.exp(np.median(logarithms, axis=axis)))


def intervals(own: Values, base: Values, resamples: int, generator: np.random.Generator) -> Iterator[Interval]:
    """Yield the interval of the ratio by each method."""
    logarithms = np.log(own) - np.log(base)
    for name, data, statistic in (
        ("ratio of medians", (own, base), ratio_of_medians),
        ("median of ratios", (logarithms,), median_ratio),
    ):
        result = None
        for method in ("percentile", "basic", "BCa"):
            result = stats.bootstrap(
                data,
                statistic,
                paired=True,
                vectorized=True,
                confidence_level=LEVEL,
                method=method,
                n_resamples=0 if result else resamples,
                bootstrap_result=result,
                rng=generator,
            )
            yield f"{name}, bootstrap, {method}", *result.confidence_interval
    ordered = np.exp(np.sort(logarithms))
    cut = order_statistic(len(ordered))
    yield "median of ratios, order statistics", ordered[cut - 1], ordered[-cut]
    half = stats.t.ppf(1 - TAIL, len(logarithms) - 1) * stats.sem(logarithms)
    yield "mean of logarithms, Student's t", math.exp(logarithms.mean() - half), math.exp(logarithms.mean() + half)
    interval = hodges_lehmann_interval(logarithms)
    assert interval is not None
    yield "Hodges-Lehmann of ratios, signed ranks", math.exp(interval.low), math.exp(interval.high)


def order_statistic(n: int) -> int:
    """Return k, so that the interval of the median is the k-th smallest to the k-th largest value."""
    below, k = 0.0, 0
    while (below := below + comb(n, k) / 2**n) <= TAIL:
        k += 1
    return max(k, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000, help="simulated campaigns per column")
    parser.add_argument("--resamples", type=int, default=2000, help="bootstrap resamples per campaign")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # BCa is undefined where all jackknife values are equal.
    warnings.filterwarnings("ignore")
    cells: dict[str, list[str]] = {}
    for draw in DISTRIBUTIONS.values():
        for n in SIZES:
            generator = np.random.default_rng([options.seed, n])
            hits: dict[str, int] = {}
            widths: dict[str, list[float]] = {}
            for _ in range(options.trials):
                for method, low, high in intervals(*campaign(draw, generator, n), options.resamples, generator):
                    hits[method] = hits.get(method, 0) + bool(low <= RATIO <= high)
                    widths.setdefault(method, []).append((high - low) / RATIO)
            for method, count in hits.items():
                cell = f"{100 * count / options.trials:.1f} ({100 * np.nanmean(widths[method]):.1f})"
                cells.setdefault(method, []).append(cell)
    heads = [f"{name}, {n}" for name in DISTRIBUTIONS for n in SIZES]
    print(f"| method | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    for method, row in cells.items():
        print(f"| {method} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
