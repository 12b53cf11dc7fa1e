"""Comparisons of two schedulers against answers computed by hand, SciPy's tests, and simulated effects."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from analysis.statistics.comparison import (
    EXACT_UP_TO,
    FEWEST_PAIRS,
    FLIPS,
    compare,
    fewest_repetitions,
    hodges_lehmann_interval,
    holm,
    sign_flip,
    smallest_effect,
    walsh_averages,
)
from analysis.statistics.intervals import ConfidenceInterval

VALUES = st.lists(st.integers(-1000, 1000), min_size=FEWEST_PAIRS, max_size=12, unique=True)


def numbered(values: list[float] | np.ndarray) -> dict[int, float | None]:
    return {k: float(value) for k, value in enumerate(values, 1)}


@pytest.mark.parametrize(
    ("differences", "p_value"),
    [
        ([1, 2, 3], 2 / 8),
        ([1, 2, -3], 1.0),
        # Ten in total: only flipping nothing, or the 1 back, leaves 8 or more; twice, for both directions.
        ([3, -1, 2, 4], 4 / 16),
        ([0.1] * 6, 2 / 64),
        # 1.2 in total: flipping nothing, 0.1, 0.2, 0.3, or 0.1 with 0.2 leaves 0.6 or more, rounding errors aside.
        ([0.1, 0.2, -0.3, 0.6], 10 / 16),
        ([0, 0, 0], 1.0),
        ([5], 1.0),
    ],
)
def test_sign_flips_agree_with_worked_examples(differences: list[float], p_value: float) -> None:
    assert sign_flip(np.array(differences, dtype=float)) == (p_value, True)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=10))
def test_the_sign_flip_test_is_that_of_scipy(differences: list[int]) -> None:
    values = np.array(differences, dtype=float)
    expected = stats.permutation_test(
        (values,), lambda x, axis: x.sum(axis=axis), permutation_type="samples", vectorized=True, n_resamples=np.inf
    )
    # SciPy doubles the smaller side; of sums that are symmetric around 0 that is the same.
    assert sign_flip(values)[0] == pytest.approx(float(expected.pvalue))


def test_many_differences_are_sampled_with_a_seed_and_are_never_impossible() -> None:
    generator = np.random.default_rng(3)
    differences = generator.normal(0.3, 1, EXACT_UP_TO + 1)
    p_value, exact = sign_flip(differences, "wordcount", "even")
    assert not exact
    assert sign_flip(differences, "wordcount", "even") == (p_value, False)
    assert sign_flip(differences, "wordcount", "other") != (p_value, False)
    sums = differences[:1]
    for value in differences[1:]:
        sums = np.concatenate([sums + value, sums - value])
    full = float((np.abs(sums) >= abs(differences.sum())).mean())
    assert p_value == pytest.approx(full, abs=5 * math.sqrt(full * (1 - full) / FLIPS))
    assert sign_flip(np.ones(40))[0] == 1 / (1 + FLIPS)


def test_holm_agrees_with_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_keeps_the_order_and_lies_between_no_adjustment_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p, q in zip(p_values, adjusted, strict=True):
        assert p <= q <= min(1, p * len(p_values))
    by_p = [q for _, q in sorted(zip(p_values, adjusted, strict=True))]
    assert by_p == sorted(by_p)


@pytest.mark.parametrize(("comparisons", "n"), [(1, 6), (2, 7), (10, 9), (60, 12), (100, 12)])
def test_fewest_repetitions_are_the_first_at_which_the_smallest_p_value_is_significant(
    comparisons: int, n: int
) -> None:
    assert fewest_repetitions(comparisons) == n
    smallest = [sign_flip(np.ones(k))[0] for k in (n, n - 1)]
    others = [1.0] * (comparisons - 1)
    assert holm([smallest[0], *others])[0] <= 0.05 < holm([smallest[1], *others])[0]


def test_hodges_lehmann_agrees_with_a_worked_example() -> None:
    assert list(walsh_averages(np.array([6.0, 1.0, 2.0]))) == [1, 1.5, 2, 3.5, 4, 6]
    found = compare(numbered([7, 3, 4]), numbered([1, 2, 2]))
    assert found is not None
    assert found.hodges_lehmann == 2.75
    assert found.difference is None


@pytest.mark.parametrize(("n", "cut"), [(5, 1), (6, 1), (7, 3), (8, 4), (9, 6), (10, 9), (15, 26), (20, 53)])
def test_intervals_leave_out_as_many_averages_as_tables_say(n: int, cut: int) -> None:
    # One more than the critical values of the signed-rank sum at 2.5 % on each side: 0, 2, 3, 5, 8, 25, 52.
    values = np.array([2.0**k for k in range(n)])
    averages = walsh_averages(values)
    assert hodges_lehmann_interval(values) == ConfidenceInterval(
        n, np.median(averages), averages[cut - 1], averages[-cut]
    )


@given(VALUES.filter(lambda values: len(values) >= 6), st.data())
def test_the_interval_holds_what_the_signed_rank_test_does_not_reject(values: list[int], data: st.DataObject) -> None:
    found = hodges_lehmann_interval(np.array(values, dtype=float))
    assert found is not None
    # The differences have no ties and no zeros, since Walsh averages are multiples of a half.
    shift = data.draw(st.integers(-1001, 1001)) + 0.25
    differences = np.array(values) - shift
    rejected = stats.wilcoxon(differences, method="exact").pvalue <= 0.05
    assert rejected == (not found.low <= shift <= found.high)


def test_a_comparison_agrees_with_a_worked_example() -> None:
    found = compare(numbered([2, 4, 6, 8, 10, 12]), numbered([1, 2, 3, 4, 5, 6]))
    assert found is not None
    assert (found.n, found.median, found.baseline_median) == (6, 7.0, 3.5)
    assert (found.median_difference, found.ratio_estimate) == (3.5, pytest.approx(2.0))
    assert found.difference == ConfidenceInterval(6, 3.5, 1.0, 6.0)
    assert found.ratio is not None
    assert (found.ratio.estimate, found.ratio.low, found.ratio.high) == pytest.approx((2, 2, 2))
    assert (found.p_value, found.exact) == (2 / 64, True)
    # Standard deviation of 1..6: sqrt(3.5); mean 3.5.
    assert found.variation == found.baseline_variation == pytest.approx(math.sqrt(3.5) / 3.5)
    assert found.smallest_effect == pytest.approx(0, abs=1e-9)


@given(VALUES, VALUES)
def test_swapping_the_schedulers_inverts_the_comparison(a: list[int], b: list[int]) -> None:
    left, right = numbered([1001 + x for x in a]), numbered([1001 + x for x in b])
    one, other = compare(left, right), compare(right, left)
    assert one is not None
    assert other is not None
    assert one.difference is not None
    assert other.difference is not None
    assert one.difference.low == -other.difference.high
    assert one.ratio is not None
    assert other.ratio is not None
    assert one.ratio.low * other.ratio.high == pytest.approx(1)
    assert one.p_value == other.p_value
    assert one.ratio.low <= one.ratio.estimate <= one.ratio.high


def test_a_drift_common_to_both_does_not_widen_the_interval() -> None:
    drift = np.array([10.0 * 2**k for k in range(10)])
    found = compare(numbered(drift * 1.1), numbered(drift))
    assert found is not None
    assert found.ratio is not None
    assert found.ratio.low == pytest.approx(1.1)
    assert found.ratio.high == pytest.approx(1.1)
    assert found.p_value == 2 / 2**10


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_a_repetition_with_an_unknown_value_is_left_out(value: float | None) -> None:
    values, base = numbered([3, 4, 5, 6, 7, 8]), numbered([1, 1, 1, 1, 1, 1])
    found = compare({**values, 2: value, 7: 1.0}, base)
    assert found is not None
    assert found == compare({k: v for k, v in values.items() if k != 2}, base)
    assert found.n == 5
    assert compare({1: value}, base) is None
    assert compare({}, base) is None


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_value_that_is_not_positive_has_no_ratio(value: float) -> None:
    found = compare(numbered([value, 1, 2, 3, 4, 5]), numbered([1, 2, 3, 4, 5, 6]))
    assert found is not None
    assert (found.ratio, found.ratio_estimate, found.smallest_effect) == (None, None, None)
    assert found.difference is not None
    reverse = compare(numbered([1, 2, 3, 4, 5, 6]), numbered([value, 1, 2, 3, 4, 5]))
    assert reverse is not None
    assert reverse.ratio is None


def test_values_that_agree_to_nine_digits_do_not_differ() -> None:
    found = compare(numbered([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), numbered([x * (1 + 1e-12) for x in (1, 2, 3, 4, 5, 6)]))
    assert found is not None
    assert found.difference == ConfidenceInterval(6, 0, 0, 0)
    assert found.ratio == ConfidenceInterval(6, 1, 1, 1)
    assert found.p_value == 1
    assert found.smallest_effect == 0


def test_a_single_repetition_has_no_variation_and_no_interval() -> None:
    found = compare({4: 3.0}, {4: 2.0})
    assert found is not None
    assert (found.n, found.ratio_estimate, found.hodges_lehmann) == (1, pytest.approx(1.5), 1.0)
    assert (found.variation, found.difference, found.ratio, found.smallest_effect) == (None, None, None, None)
    assert found.p_value == 1


@pytest.mark.parametrize("n", [6, 7, 10, 16])
def test_an_effect_of_the_smallest_size_is_found_in_eight_of_ten_campaigns(n: int) -> None:
    generator = np.random.default_rng(n)
    # Logarithms of ratios with a spread of exactly 1 give the effect in standard deviations.
    scaled = generator.normal(size=n)
    effect = smallest_effect((scaled - scaled.mean()) / scaled.std(ddof=1))
    assert effect is not None
    trials = 1000
    found = sum(sign_flip(generator.normal(math.log1p(effect), 1, n))[0] <= 0.05 for _ in range(trials))
    # Binomial bounds of 99.9 % around 80 %, and 2 % for the t test in place of the exact one.
    assert 0.74 * trials <= found <= 0.85 * trials


def test_five_repetitions_find_no_effect_of_any_size() -> None:
    assert smallest_effect(np.arange(5.0)) is None
    assert sign_flip(np.full(5, 1e9))[0] > 0.05


@pytest.mark.parametrize("kind", ["normal", "t3"])
def test_three_to_seven_of_a_hundred_null_campaigns_are_false_positives(kind: str) -> None:
    generator = np.random.default_rng(11)
    draw = generator.standard_normal if kind == "normal" else lambda size: generator.standard_t(3, size)
    false = sum(sign_flip(draw(10) - draw(10))[0] <= 0.05 for _ in range(2000))
    assert 60 <= false <= 140
