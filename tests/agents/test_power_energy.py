"""An interval's energy lies within its bound, whatever the power does between samples."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_host import square

from agents.power.domain import Domain, Reading
from agents.power.energy import energy
from agents.power.sampler import Deadlines
from agents.power.series import Sample, Series

PACKAGE = Domain("package-0", "package", "rapl", "x", True, 1e-6, 262143328850, 61.035, 400.0)


def samples(joules, times_s, lost=()) -> list[Sample]:
    series = Series(PACKAGE)
    made = []
    for at, t_s in enumerate(times_s):
        value = int(joules(t_s) * 1e6) + (10**10 if at in lost else 0)
        if at in lost:
            made.append(series.add(Reading(PACKAGE, round(t_s * 1e9), 1000, value), 0, False))
            value = int(joules(t_s) * 1e6)
        made.append(series.add(Reading(PACKAGE, round(t_s * 1e9) + (at in lost), 1000, value), 0, False))
    return made


@given(
    low=st.floats(1, 100),
    high=st.floats(100, 380),
    half_s=st.floats(0.03, 3),
    begin=st.floats(0.1, 4),
    length=st.floats(0.3, 5),
)
def test_a_square_wave_comes_back_within_the_bound_also_when_ends_lie_between_samples(
    low, high, half_s, begin, length
) -> None:
    joules = square(low, high, half_s)
    made = samples(joules, [n / 10 for n in range(101)])
    found = energy(made, round(begin * 1e9), round((begin + length) * 1e9))
    truth = joules(begin + length) - joules(begin)
    assert abs(found.joules - truth) <= found.bound_joules
    # Two ends, each within one step of a tenth of a second and its millisecond.
    assert found.bound_joules <= 2 * high * 0.102 + 0.01


def test_with_a_sample_at_either_end_the_bound_is_a_millisecond_of_power_and_a_unit() -> None:
    found = energy(samples(square(100, 100, 1), [0, 1, 2]), 0, 2_000_000_000)
    assert found.joules == pytest.approx(200, abs=1e-3)
    assert found.bound_joules == pytest.approx(2 * (0.001001 * 100 + 61e-6), rel=0.01)


def test_an_interval_with_a_missing_step_is_missing_unless_asked_otherwise_and_then_says_so() -> None:
    made = samples(square(50, 50, 1), [0, 1, 2, 3, 4], lost=[2])
    found = energy(made, 0, 4_000_000_000)
    assert found.joules is None
    assert "reset" in found.flags
    assert "a step is missing" in found.reason
    filled = energy(made, 0, 4_000_000_000, interpolate=True)
    assert filled.joules == pytest.approx(200, abs=0.01)
    assert "interpolated" in filled.flags
    assert filled.bound_joules > 50
    # A step that lies outside does no harm.
    assert energy(made, 2_100_000_000, 4_000_000_000).joules == pytest.approx(95, abs=0.01)


def test_outside_of_what_was_sampled_nothing_is_known() -> None:
    made = samples(square(50, 50, 1), [1, 2, 3])
    assert energy(made, 0, 2_000_000_000).reason == "no reading before its start"
    assert energy(made, 1_000_000_000, 4_000_000_000).reason == "no reading after its end"
    assert energy([], 0, 1).reason == "it has not been read"


def test_deadlines_do_not_drift_in_an_hour_and_late_ones_are_counted() -> None:
    for rate_hz in (10.0, 3.0, 49.7):
        deadlines = Deadlines(0, rate_hz)
        now, met = 0, 0
        while now < 3600 * 10**9:
            met += 1
            # Every thousandth sample takes three periods and a half; the others take long enough for a drift.
            now = deadlines.due_ns + (round(3.5e9 / rate_hz) if met % 1000 == 0 else 3_141_592)
            deadlines.go_on(now)
        number = deadlines.due_ns * rate_hz / 1e9
        assert number == pytest.approx(round(number), abs=1e-6)
        assert met + deadlines.skipped == round(number)
        assert deadlines.skipped == 3 * math.floor(met / 1000)
