"""Averages over windows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.online.revision import average

RATES = st.lists(st.tuples(st.floats(0, 1e9), st.integers(1, 4)), min_size=1, max_size=9)


def test_the_increase_after_a_lost_report_is_split_into_equal_samples() -> None:
    """Totals 0 100 - 300 700 800 at 0..5 s: 100, 100 twice because of the lost report, 400, 100."""
    samples = [(100.0, 1), (100.0, 2), (400.0, 1), (100.0, 1)]
    assert average(samples, "trimmed") == 100
    assert average(samples, "mean") == 160


def test_two_samples_are_not_trimmed() -> None:
    assert average([(100.0, 1), (300.0, 1)], "trimmed") == 200


def test_the_newest_sample_has_its_weight() -> None:
    assert average([(100.0, 1), (200.0, 1)], "ewma", 0.5) == 150
    assert average([(100.0, 1), (200.0, 2)], "ewma", 0.5) == 175


def test_no_samples_have_no_average() -> None:
    with pytest.raises(ValueError, match="no samples"):
        average([], "mean")


@given(RATES, st.sampled_from(["mean", "trimmed", "ewma"]))
def test_an_average_lies_between_its_samples(samples: list[tuple[float, int]], kind: str) -> None:
    values = [value for value, _ in samples]
    found = average(samples, kind)  # type: ignore[arg-type]
    assert min(values) * (1 - 1e-9) - 1e-6 <= found <= max(values) * (1 + 1e-9) + 1e-6
