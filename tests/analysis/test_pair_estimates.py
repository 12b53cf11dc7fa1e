"""Difference and ratio of a pair of schedulers, which are the same estimate in two units."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.statistics.comparison import compare
from analysis.statistics.intervals import ENOUGH
from analysis.statistics.pairs import estimates

POSITIVE = st.lists(st.tuples(st.floats(0.01, 1e4), st.floats(0.01, 1e4)), min_size=1, max_size=14)


def of(pairs: list[tuple[float, float]]) -> dict[str, float | None]:
    mine, its = ({k: pair[side] for k, pair in enumerate(pairs)} for side in (0, 1))
    seen = compare(mine, its)
    assert seen is not None
    return estimates(seen)


def test_ratio_and_difference_point_in_one_direction_where_repetitions_do_not() -> None:
    """The ratio of the medians is 0.88, and the estimate of differences 37."""
    found = of([(88, 100), (10, 5), (300, 150)])
    assert found["ratio"] is not None
    assert found["difference"] is not None
    assert (found["ratio"] > 1) == (found["difference"] > 0)


@given(POSITIVE)
def test_difference_and_ratio_are_one_estimate_with_one_interval(pairs: list[tuple[float, float]]) -> None:
    found = of(pairs)
    base = sorted(its for _, its in pairs)
    middle = (base[(len(base) - 1) // 2] + base[len(base) // 2]) / 2
    ends = ("", "_low", "_high") if len(pairs) >= ENOUGH else ("",)
    for end in ends:
        ratio, difference = found[f"ratio{end}"], found[f"difference{end}"]
        assert ratio is not None
        assert difference == pytest.approx(middle * (ratio - 1), abs=1e-9 * middle)
        assert (difference == 0) or (difference > 0) == (ratio > 1)
    if len(pairs) < ENOUGH:
        assert found["ratio_low"] is found["difference_low"] is None


def test_few_repetitions_have_the_estimate_of_many() -> None:
    found = of([(2, 1), (8, 2)])
    assert found["ratio"] == pytest.approx(math.sqrt(8))  # of ratios 2 and 4


def test_without_a_ratio_the_difference_is_that_within_repetitions() -> None:
    found = of([(0, 1), (2, 5), (4, 6)])
    assert (found["ratio"], found["difference"]) == (None, -2.0)
