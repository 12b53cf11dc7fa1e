"""Agreement of two engines about schedulers: Kendall's tau-b of their rankings, and what a wrong choice costs.

Two schedulers differ on an engine if the interval of their Hodges-Lehmann difference (`comparison`) excludes 0; else
they are tied. tau-b is then Kendall's coefficient in Daniels' form (The relation between measures of correlation in the
universe of sample permutations, 1944), with the sign of each pair as its score: it is the usual one with ties where
equality is transitive, and it is defined where it is not, as with intervals.

Its interval is a percentile bootstrap: on each engine the repetitions are drawn anew, all schedulers of a repetition
together, and pairs are compared anew. A coefficient without any difference on an engine is not defined; such resamples
count as -1 at the lower end and as 1 at the upper one, so that too few differences widen the interval.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from analysis.statistics.comparison import compare, cut_averages
from analysis.statistics.intervals import ENOUGH, LEVEL, SAME, ConfidenceInterval

RESAMPLES = 2_000
"""Number of resamples; each compares every pair of schedulers on both engines."""

_MOST_VALUES = 4_000_000
"""Values in memory at once."""

Values = NDArray[np.float64]
Signs = NDArray[np.int8]
ByRepetition = Mapping[str, Mapping[int, float]]
"""Scheduler -> repetition -> value of a metric."""


@dataclass(frozen=True)
class Discordant:
    """Two schedulers that the engines order differently: `better` is so on the first engine, `worse` on the other."""

    better: str
    worse: str


@dataclass(frozen=True)
class Factor:
    """By how much one scheduler is better than another; `low` and `high` are None below `ENOUGH` repetitions."""

    estimate: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class OnEngine:
    """One engine's side of an agreement.

    Attributes:
        n: number of repetitions that all schedulers have.
        order: schedulers from best to worst, by their medians.
        ties: number of pairs of schedulers that do not differ; None below `ENOUGH` repetitions.
        effect: by how much the best scheduler is better than the worst one; None if values are not positive.
        regret: by how much the best scheduler is better than the best one of the other engine; 1 if it is the same.
    """

    n: int
    order: Sequence[str]
    ties: int | None
    effect: Factor | None
    regret: Factor | None


@dataclass(frozen=True)
class Agreement:
    """Agreement of two engines in one metric.

    Attributes:
        schedulers: those that both engines have.
        tau: tau-b with its interval; None if an engine has no difference, below two schedulers, or below `ENOUGH`
            repetitions.
        discordant: pairs in the opposite order.
        engine, other: the two sides.
    """

    schedulers: Sequence[str]
    tau: ConfidenceInterval | None
    discordant: Sequence[Discordant]
    engine: OnEngine
    other: OnEngine


def agreement(engine: ByRepetition, other: ByRepetition, is_higher_better: bool, *about: object) -> Agreement | None:
    """Return the agreement of two engines; None without two schedulers in common that have repetitions in common.

    Args:
        engine, other: values of the schedulers on each engine; repetitions of different engines are not paired.
        is_higher_better: whether the metric is better if higher.
        about: what the values are; seeds the interval.
    """
    schedulers = [name for name in engine if engine[name] and other.get(name)]
    sides = [_common(each, schedulers) for each in (engine, other)]
    if len(schedulers) < 2 or not all(side.size for side in sides):
        return None
    direction = 1 if is_higher_better else -1
    enough = all(side.shape[1] >= ENOUGH for side in sides)
    signs = [direction * pair_signs(side[:, np.newaxis])[0] if enough else None for side in sides]
    orders = [_order(side, schedulers, direction) for side in sides]
    on_engines = [
        OnEngine(
            n=side.shape[1],
            order=order,
            ties=None if sign is None else int((sign == 0).sum()),
            effect=_factor(values, order[0], order[-1], direction),
            regret=_factor(values, order[0], others[0], direction),
        )
        for side, sign, order, others, values in zip(
            sides, signs, orders, reversed(orders), (engine, other), strict=True
        )
    ]
    first, second = signs
    if first is None or second is None:
        return Agreement(schedulers, None, (), *on_engines)
    pairs = zip(combinations(schedulers, 2), first, second, strict=True)
    discordant = [Discordant(*(pair if sign > 0 else pair[::-1])) for pair, sign, its in pairs if sign * its < 0]
    return Agreement(schedulers, tau_interval(sides[0], sides[1], *about), discordant, *on_engines)


def tau_b(first: Signs, second: Signs) -> Values:
    """Return the coefficient of two rows of signs of pairs, or of each two rows; nan if a row has no difference.

    Args:
        first, second: (..., pairs), 1, 0 or -1 for each pair.
    """
    one, two = first.astype(float), second.astype(float)
    product = (one**2).sum(axis=-1) * (two**2).sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations: Values = np.where(product > 0, (one * two).sum(axis=-1) / np.sqrt(product), np.nan)
    return correlations


def pair_signs(values: Values) -> Signs:
    """Return the signs of the differences of all pairs of schedulers, 0 for ties.

    Args:
        values: (schedulers, resamples, repetitions).

    Returns:
        (resamples, pairs), pairs in the order of `itertools.combinations`.
    """
    count, resamples, n = values.shape
    i, j = np.triu_indices(n)
    cut = max(cut_averages(n), 1)
    signs = np.zeros((resamples, count * (count - 1) // 2), dtype=np.int8)
    for at, (one, other) in enumerate(combinations(range(count), 2)):
        differences = values[one] - values[other]
        differences[np.isclose(values[one], values[other], rtol=SAME, atol=0.0)] = 0.0
        averages = np.partition((differences[:, i] + differences[:, j]) / 2, (cut - 1, len(i) - cut), axis=1)
        signs[:, at] = (averages[:, cut - 1] > 0).astype(np.int8) - (averages[:, -cut] < 0).astype(np.int8)
    return signs


def tau_interval(engine: Values, other: Values, *about: object) -> ConfidenceInterval | None:
    """Return tau-b of two engines with its interval; None if it is not defined.

    Args:
        engine, other: (schedulers, repetitions); the numbers of repetitions may differ.
        about: what the values are; seeds the interval.
    """
    estimate = float(tau_b(pair_signs(engine[:, np.newaxis]), pair_signs(other[:, np.newaxis]))[0])
    if np.isnan(estimate):
        return None
    generator = np.random.default_rng(zlib.crc32("\0".join(map(str, ("agreement", *about))).encode()))
    drawn = tau_b(*(_resampled_signs(side, generator) for side in (engine, other)))
    low = np.quantile(np.where(np.isnan(drawn), -1.0, drawn), (1 - LEVEL) / 2)
    high = np.quantile(np.where(np.isnan(drawn), 1.0, drawn), (1 + LEVEL) / 2)
    return ConfidenceInterval(min(engine.shape[1], other.shape[1]), estimate, float(low), float(high))


def _resampled_signs(side: Values, generator: np.random.Generator) -> Signs:
    """Return the signs of all pairs for every resample, as (resamples, pairs)."""
    n = side.shape[1]
    at_once = max(1, _MOST_VALUES // (n * (n + 1) // 2))
    drawn = generator.integers(0, n, size=(RESAMPLES, n))
    parts = [pair_signs(side[:, drawn[begin : begin + at_once]]) for begin in range(0, RESAMPLES, at_once)]
    return np.concatenate(parts)


def _common(values: ByRepetition, schedulers: Sequence[str]) -> Values:
    """Return (schedulers, repetitions) of the repetitions that all of the schedulers have."""
    if not schedulers:
        return np.empty((0, 0))
    both = sorted(set.intersection(*(set(values[name]) for name in schedulers)))
    return np.array([[values[name][k] for k in both] for name in schedulers], dtype=float)


def _order(side: Values, schedulers: Sequence[str], direction: int) -> list[str]:
    medians = dict(zip(schedulers, np.median(side, axis=1), strict=True))
    return sorted(schedulers, key=lambda name: -direction * medians[name])


def _factor(values: ByRepetition, better: str, worse: str, direction: int) -> Factor | None:
    """Return by how much one scheduler is better than another, within repetitions; None if values are not positive."""
    if better == worse:
        return Factor(1.0, 1.0, 1.0)
    mine, its = (values[better], values[worse]) if direction > 0 else (values[worse], values[better])
    seen = compare(mine, its, better, worse)
    if seen is None or seen.ratio_estimate is None:
        return None
    if seen.n >= ENOUGH and seen.ratio is not None:
        return Factor(seen.ratio.estimate, seen.ratio.low, seen.ratio.high)
    return Factor(seen.ratio_estimate, None, None)
