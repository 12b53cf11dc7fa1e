"""The false-positive rate of A/A campaigns: which metrics are compared, and the interval of the rate."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.records.aa_rate import AA_FILE, FalsePositives, read_false_positives
from analysis.records.accounts import Energy
from analysis.records.campaign import Campaign, ResolvedAgenda, Run
from analysis.records.file_types import CampaignRecord, Measured, RunRecord
from analysis.records.interval_metrics import Latency
from analysis.statistics.false_positives import differences_of, significant_share, write_false_positives

PAIRS = [("even", "even-again")]


def measured_run(scheduler: str, repetition: int, p50: float | None, throughput: float = 100.0) -> Run:
    measured = Measured(throughput_tuples_per_s=throughput, latency_ms=Latency(p50=p50), energy=Energy())
    record = RunRecord(status="ok", workload="w", scheduler=scheduler, repetition=repetition, measured=measured)
    return Run(f"{scheduler}-{repetition}", Path(), record, {})


def campaign_of(folder: Path, runs: list[Run]) -> Campaign:
    return Campaign(
        folder, CampaignRecord(agenda={}, started_utc="2026-11-23T12:00:00Z"), ResolvedAgenda(), tuple(runs)
    )


def test_metrics_that_have_values_and_differ_are_compared(tmp_path: Path) -> None:
    runs = [
        *(measured_run("even", k, 1.0 + k) for k in (1, 2, 3)),
        *(measured_run("even-again", k, p50) for k, p50 in ((1, 3.0), (2, None), (3, 4.0))),
        measured_run("top", 1, 9.0),
    ]
    found = differences_of(campaign_of(tmp_path, runs), PAIRS)
    # Throughput is the same in all runs, and energy was not measured.
    assert found.shape == (3, 1)
    assert list(found[[0, 2], 0]) == [-1.0, 0.0]
    assert np.isnan(found[1, 0])


def test_the_rate_is_the_share_of_comparisons_that_differ() -> None:
    generator = np.random.default_rng(1)
    differences = generator.normal(size=(12, 8))
    differences[:, :2] += 5
    expected = (stats.ttest_1samp(differences, 0).pvalue < 0.05).mean()
    rate, low, high = significant_share(differences)
    assert rate == expected == 0.25
    assert low is not None
    assert high is not None
    assert 0 < low < 0.25 < high < 1


def test_perfectly_correlated_metrics_count_as_one() -> None:
    column = np.random.default_rng(2).normal(size=(20, 1))
    single, copies = significant_share(column), significant_share(np.repeat(column, 12, axis=1))
    assert copies == pytest.approx(single)
    # Without a false positive in one comparison, the interval is wide.
    assert copies == pytest.approx((0.0, 0.0, 0.975))


def test_more_comparisons_narrow_the_interval() -> None:
    generator = np.random.default_rng(3)
    differences = generator.normal(size=(12, 80))
    few, many = significant_share(differences[:, :8]), significant_share(differences)
    assert None not in (*few, *many)
    assert many[2] - many[1] < few[2] - few[1]  # type: ignore[operator]
    assert many[1] <= 0.05 <= many[2]  # type: ignore[operator]


def test_without_comparisons_there_is_no_rate(tmp_path: Path) -> None:
    assert significant_share(np.empty((20, 0))) == (None, None, None)
    found = write_false_positives(campaign_of(tmp_path, []), PAIRS)
    assert (found.rate, found.comparisons, found.repetitions) == (None, 0, 0)
    assert found.in_words == "unknown, 0 comparisons over 0 repetitions, 2026-11-23"


def test_the_rate_is_written_and_read_back(tmp_path: Path) -> None:
    generator = np.random.default_rng(4)
    runs = [
        measured_run(scheduler, k, generator.normal(10, 1), generator.normal(1000, 10))
        for k in range(1, 21)
        for scheduler in PAIRS[0]
    ]
    found = write_false_positives(campaign_of(tmp_path, runs), PAIRS)
    assert (found.comparisons, found.repetitions, found.date) == (2, 20, "2026-11-23")
    assert read_false_positives(tmp_path) == found
    assert set(json.loads((tmp_path / AA_FILE).read_text())) == set(FalsePositives.__struct_fields__)
    assert read_false_positives(tmp_path / "elsewhere") is None


def test_the_rate_in_words_has_its_interval_and_date() -> None:
    found = FalsePositives(rate=0.042, low=0.01, high=0.096, comparisons=48, repetitions=20, date="2026-11-23")
    assert found.in_words == "4.2 % [1.0, 9.6] of 48 comparisons over 20 repetitions, 2026-11-23"
