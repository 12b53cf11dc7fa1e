"""False-positive rate of a testbed, from an A/A campaign: every scheduler runs under two labels.

Nothing differs between the two, so every significant difference is a false positive. The metrics of a run depend on one
another; the interval therefore counts fewer comparisons than there are. Its design effect (Kish, Survey Sampling, 1965,
section 5.4) is the variance of the rate over bootstrap samples of repetitions, with differences that are centred at 0,
relative to that of independent comparisons. The interval is that of Clopper and Pearson for the effective number of
comparisons (Korn and Graubard, Confidence intervals for proportions with small expected number of positive counts
estimated from survey data, 1998).
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from analysis.records.aa_rate import AA_FILE, FalsePositives
from analysis.records.campaign import Campaign
from analysis.records.file_types import Measured
from analysis.statistics.comparison import SIGNIFICANCE, sign_flip
from analysis.statistics.intervals import without_rounding
from inventory.atomic_files import replace_file
from inventory.documents import dump_json

SAMPLES = 2000
SIGNS = 1000

Values = NDArray[np.float64]


def write_false_positives(campaign: Campaign, pairs: Sequence[tuple[str, str]]) -> FalsePositives:
    """Write `aa.json` of an A/A campaign into its folder.

    Args:
        campaign: the campaign.
        pairs: the two labels of every scheduler.
    """
    differences = differences_of(campaign, pairs)
    rate, low, high = significant_share(differences)
    false_positives = FalsePositives(
        rate=rate,
        low=low,
        high=high,
        comparisons=differences.shape[1],
        repetitions=differences.shape[0],
        date=(campaign.file.started_utc or "")[:10],
    )
    replace_file(campaign.folder / AA_FILE, dump_json(false_positives).encode())
    return false_positives


def differences_of(campaign: Campaign, pairs: Sequence[tuple[str, str]]) -> Values:
    """Return the differences between two labels: a row per repetition, a column per comparison; NaN if unknown."""
    values: dict[tuple[str, str, str], dict[int, float]] = {}
    for run in campaign.counted:
        if run.file is not None and run.file.measured is not None:
            for metric, value in _metrics(run.file.measured):
                values.setdefault((run.workload, run.scheduler, metric), {})[run.file.repetition] = value
    rows = sorted({repetition for each in values.values() for repetition in each})
    columns = []
    for workload, scheduler, metric in sorted(values):
        for one, other in pairs:
            if scheduler == one:
                left, right = values[workload, one, metric], values.get((workload, other, metric), {})
                columns.append([_difference(left, right, k) for k in rows])
    differences = np.array(columns, dtype=float).reshape(len(columns), len(rows)).T
    return differences[:, (np.nan_to_num(differences) != 0).any(axis=0)]


def _difference(left: Mapping[int, float], right: Mapping[int, float], repetition: int) -> float:
    if repetition not in left or repetition not in right:
        return float("nan")
    return without_rounding(left[repetition], right[repetition])


def _metrics(measured: Measured) -> Iterator[tuple[str, float]]:
    """Yield the metrics that a run has; what the agenda determines is none."""
    latency, energy = measured.latency_ms, measured.energy
    values = {
        "throughput": measured.throughput_tuples_per_s,
        "p50": latency.p50,
        "p95": latency.p95,
        "p99": latency.p99,
        "max": latency.max,
        "joules": energy.joules if energy is not None else None,
    }
    yield from ((name, value) for name, value in values.items() if value is not None)


def significant_share(differences: Values) -> tuple[float | None, float | None, float | None]:
    """Return the share of columns that differ significantly, with its interval; None without columns.

    Args:
        differences: a row per repetition, a column per comparison; NaN if unknown.
    """
    count = differences.shape[1]
    if count == 0:
        return None, None, None
    known = [column[~np.isnan(column)] for column in differences.T]
    rate = float(np.mean([sign_flip(column, at)[0] <= SIGNIFICANCE for at, column in enumerate(known)]))
    effective = count / max(1.0, _design_effect(differences))
    tail = SIGNIFICANCE / 2
    hits = rate * effective
    low = float(betaincinv(hits, effective - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, effective - hits, 1 - tail)) if hits < effective else 1.0
    return rate, low, high


def _design_effect(differences: Values) -> float:
    """Return the variance of the rate over samples of repetitions, relative to that of independent comparisons."""
    n, count = differences.shape
    generator = np.random.default_rng(n * 1000 + count)
    # Without a difference between the labels; an unknown difference has no weight.
    centred = np.nan_to_num(differences - np.nanmean(differences, axis=0))
    signs = generator.choice([-1.0, 1.0], size=(SIGNS, n))
    rates = np.empty(SAMPLES)
    for at in range(SAMPLES):
        sample = centred[generator.integers(0, n, n)]
        larger = np.abs(signs @ sample) >= np.abs(sample.sum(axis=0)) * (1 - 1e-9)
        rates[at] = (larger.mean(axis=0) <= SIGNIFICANCE).mean()
    mean = float(rates.mean())
    independent = mean * (1 - mean) / count
    return float(rates.var()) / independent if independent > 0 else 1.0
