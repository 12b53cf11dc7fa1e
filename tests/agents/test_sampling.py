"""Samples are unbiased and repeatable, and a histogram's values are at most one percent off."""

import math
from bisect import bisect_left
from collections import Counter
from itertools import pairwise

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in

from agents.worker.executors.executor import (
    FIRST_STRIDE,
    SAMPLES_PER_S,
    Histogram,
    LatencySampler,
    bucket,
    mix,
    percentile,
)

NS = st.one_of(
    st.integers(0, 2**62), st.integers(0, 5_000), st.sampled_from([2**k + d for k in range(62) for d in (-1, 0)])
)


def chi_square(counts: list[int]) -> float:
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


def bound(freedom: int) -> float:
    """Return the chi-square value that chance exceeds about once in a million (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom)
    return freedom * (1 - spread + 4.75 * math.sqrt(spread)) ** 3


@pytest.mark.parametrize("seed", [0, 1, 7, 2**63, mix(3)])
def test_every_place_in_a_block_is_equally_likely(seed: int) -> None:
    blocks = 20_000
    chosen = LatencySampler(seed).sampled(0, blocks * FIRST_STRIDE)
    places = Counter(record % FIRST_STRIDE for record in chosen)
    assert chi_square([places[at] for at in range(FIRST_STRIDE)]) < bound(FIRST_STRIDE - 1)
    assert len(chosen) == blocks


@pytest.mark.parametrize("period", [2, 3, 5, 10, 64, 100, 128, 256])
def test_a_pattern_in_the_input_is_neither_preferred_nor_missed(period: int) -> None:
    # Round-robin keys, batches of 256 rows, a file read in a loop: none may correlate with the choice.
    chosen = LatencySampler(11).sampled(0, 20_000 * FIRST_STRIDE)
    residues = Counter(record % period for record in chosen)
    assert chi_square([residues[at] for at in range(period)]) < bound(max(1, period - 1))


def test_neighbouring_blocks_and_executors_choose_independently() -> None:
    ours, theirs = (LatencySampler(mix(5 ^ mix(number))).sampled(0, 20_000 * FIRST_STRIDE) for number in (0, 1))
    pairs = Counter((a % 8, b % 8) for a, b in zip(ours, theirs, strict=True))
    assert chi_square([pairs[a, b] for a in range(8) for b in range(8)]) < bound(63)
    pairs = Counter((a % 8, b % 8) for a, b in pairwise(ours))
    assert chi_square([pairs[a, b] for a in range(8) for b in range(8)]) < bound(63)


@given(st.integers(0, 2**64 - 1), st.integers(0, 10**12), st.lists(st.integers(0, 400), max_size=5))
def test_after_a_recovery_every_block_has_one_sample_whatever_was_before(
    seed: int, first: int, sizes: list[int]
) -> None:
    samplers = [LatencySampler(seed), LatencySampler(seed)]
    position = 0
    for size in sizes:
        samplers[0].sampled(position, size)
        position += size
    for sampler in samplers:
        sampler.skip(first)
    chosen = samplers[0].sampled(first, 50 * FIRST_STRIDE)
    assert [(record - first) // FIRST_STRIDE for record in chosen] == list(range(50))
    assert samplers[1].sampled(first, 50 * FIRST_STRIDE) == chosen


def test_wherever_a_recovery_begins_every_place_of_its_first_block_is_equally_likely() -> None:
    sampler, places = LatencySampler(9), Counter[int]()
    for first in range(20_000):
        sampler.skip(first)
        places[sampler.sampled(first, FIRST_STRIDE)[0] - first] += 1
    assert chi_square([places[at] for at in range(FIRST_STRIDE)]) < bound(FIRST_STRIDE - 1)


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 400), max_size=20))
def test_the_choice_depends_on_the_seed_and_the_record_and_not_on_the_batches(seed: int, sizes: list[int]) -> None:
    sampler, first, in_batches = LatencySampler(seed), 0, []
    for size in sizes:
        in_batches += sampler.sampled(first, size)
        first += size
    assert in_batches == LatencySampler(seed).sampled(0, first)
    assert all(at * FIRST_STRIDE <= record < (at + 1) * FIRST_STRIDE for at, record in enumerate(in_batches))


@settings(deadline=None, max_examples=one_in(2))
@given(st.integers(0, 2**32), st.lists(st.floats(0, 3e6), min_size=1, max_size=6))
def test_samples_keep_to_their_limit_per_second_at_any_rate(seed: int, rates: list[float]) -> None:
    sampler, first = LatencySampler(seed), 0
    for rate in rates:
        sampler.adapt(rate)
        # The current block keeps its size.
        first += 10 * max(FIRST_STRIDE, *(int(each) for each in rates)) // SAMPLES_PER_S + FIRST_STRIDE
        sampler.sampled(0, first)
        chosen = sampler.sampled(first, int(rate))
        first += int(rate)
        assert len(chosen) <= SAMPLES_PER_S + 2
        assert len(chosen) >= min(int(rate), SAMPLES_PER_S // 2) - 2


def test_at_low_rates_every_record_is_sampled() -> None:
    sampler = LatencySampler(1)
    sampler.adapt(10.0)
    sampler.sampled(0, FIRST_STRIDE)
    assert sampler.sampled(FIRST_STRIDE, 50) == list(range(FIRST_STRIDE, FIRST_STRIDE + 50))


@given(NS)
def test_a_bucket_holds_its_value_within_one_percent(value: int) -> None:
    highest = bucket(value)
    assert value <= highest <= value * 1.01
    assert bucket(highest) == highest
    assert bucket(highest + 1) > highest


@given(NS, NS)
def test_buckets_are_in_the_order_of_their_values(a: int, b: int) -> None:
    assert (bucket(a) <= bucket(b)) == (a <= b or bucket(a) == bucket(b))


@given(st.integers(1, 3_600 * 10**9))
def test_buckets_are_those_of_hdrhistogram_with_two_digits(value: int) -> None:
    assert bucket(value) == HDR.get_highest_equivalent_value(value)


HDR = HdrHistogram(1, 3_600 * 10**9, 2)


def test_a_negative_latency_counts_as_zero() -> None:
    assert bucket(-5) == bucket(0) == 0


VALUES = st.lists(st.integers(0, 10**6) | NS, min_size=1, max_size=60)


@given(VALUES, st.sampled_from([0.0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 1.0]) | st.floats(0, 1))
def test_a_percentile_is_the_bucket_of_the_sorted_lists(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    ordered = sorted(values)
    at = next(at for at in range(len(values)) if at + 1 >= share * len(values))
    assert percentile(histogram.take(), share) == bucket(ordered[at])


@given(VALUES, VALUES)
def test_histograms_of_two_sinks_merge_to_the_one_of_both(ours: list[int], theirs: list[int]) -> None:
    first, second, both = Histogram(), Histogram(), Histogram()
    for values, histogram in ((ours, first), (theirs, second), (ours + theirs, both)):
        for value in values:
            histogram.record(value)
    merged = Counter(dict(first.take()))
    merged.update(dict(second.take()))
    assert sorted(merged.items()) == both.take()
    assert both.take() == []


def test_several_rows_of_a_sampled_record_count_as_many() -> None:
    histogram = Histogram()
    histogram.record(1_000, 7)
    assert histogram.take() == [(bucket(1_000), 7)]


def test_an_empty_histogram_has_no_percentile() -> None:
    assert percentile([], 0.5) is None


def test_the_number_of_buckets_is_bounded() -> None:
    # Memory of a sink, whatever its latencies: 128 per power of two.
    buckets = sorted({bucket((1 << k) + (at << max(0, k - 8))) for k in range(63) for at in range(256)})
    hours = bisect_left(buckets, 3_600 * 10**9)
    assert hours <= 256 + 128 * 34


def test_with_a_known_peak_rate_slow_times_have_no_more_than_their_share_of_samples() -> None:
    sampler = LatencySampler(3, peak_per_s=2_000.0)
    first, chosen = 0, []
    for second in range(40):
        rate = 100 if second < 20 else 2_000
        sampler.adapt(rate)
        chosen += sampler.sampled(first, rate)
        first += rate
    slow = sum(record < 20 * 100 for record in chosen)
    assert abs(slow / len(chosen) - 100 / 2_100) < 0.002
    assert len(chosen) <= 20 * (SAMPLES_PER_S + 13) + 1
