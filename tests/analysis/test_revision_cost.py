"""Cost and gain of changes: arithmetic on bins."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.measure.revision_cost import (
    dip_and_surplus,
    expected_tuples,
    latency_excess,
    pay_back,
    pay_backs,
    recovery,
    spans_of,
    sum_error,
)
from analysis.measure.run_series import SecondBins
from analysis.records.accounts import PayBack
from analysis.records.file_types import ExecutorMove, RevisionRecord


def bins(
    tuples: Sequence[float], latency_s: Sequence[float] | float = 0.02, due: float | None = 1000, watts: float = 0
) -> SecondBins:
    count = len(tuples)
    return SecondBins(
        tuples=np.array(tuples, float),
        due=None if due is None else np.full(count, float(due)),
        latency_s=np.array(latency_s, float) if isinstance(latency_s, Sequence) else np.full(count, latency_s),
        watts=np.full(count, float(watts)) if watts else None,
    )


NONE = float("nan")
BEFORE = bins([1000.0] * 20)
RESTART = bins([0.0] * 9 + [4000.0] * 3 + [1000.0] * 20, [NONE] * 9 + [7.52, 4.52, 1.52] + [0.015] * 20)
"""No tuples for 9 s, the missed tuples within 3 s, and then a latency of 15 ms instead of 20."""


def test_a_restart_costs_latency_of_waiting_tuples_and_lower_latency_pays_it_back() -> None:
    recovered = recovery(RESTART, BEFORE, first=9)
    assert recovered == 12
    during, after = RESTART.part(0, 12), RESTART.part(12, 32)
    assert dip_and_surplus(during, BEFORE) == (9000, 9000)
    assert latency_excess(during, BEFORE) == pytest.approx(54_000)
    found = pay_backs(BEFORE, after, 0, 54_000, None)
    # 5 ms of 1000 tuples every second.
    assert found.latency == pytest.approx(10_800)
    assert (found.throughput, found.energy) == ("never", None)


def test_a_higher_limit_pays_back_lost_tuples() -> None:
    before, later = bins([900.0] * 20), bins([0.0] * 9 + [1000.0] * 20)
    assert recovery(later, before, first=9) == 9
    dip, surplus = dip_and_surplus(later.part(0, 9), before)
    assert (dip, surplus) == (8100, 0)
    assert pay_backs(before, later.part(9, 29), dip - surplus, 0, None).throughput == 81


def test_lower_power_pays_back_the_energy_of_the_change() -> None:
    before, after = bins([1000.0] * 20, watts=109), bins([1000.0] * 20, watts=85)
    assert pay_backs(before, after, 0, 0, 270).energy == 11.25
    assert pay_backs(after, before, 0, 0, 270).energy == "never"
    assert pay_backs(before, after, 0, 0, -5).energy == 0
    assert pay_backs(before, after, 0, 0, None).energy is None
    assert pay_backs(before, bins([1000.0] * 20), 0, 0, 270).energy == "unknown"


def test_windows_that_cannot_be_compared_give_no_pay_back() -> None:
    after = bins([1000.0] * 20, 0.015)
    for before, later in (
        (BEFORE.part(0, 9), after),
        (BEFORE, after.part(0, 9)),
        (BEFORE, bins([1060.0] * 20, 0.015, due=1060)),
    ):
        found = pay_backs(before, later, 100, 100, 100)
        assert (found.latency, found.throughput, found.energy) == ("unknown", "unknown", "unknown")
    assert pay_backs(BEFORE, bins([1040.0] * 20, 0.015, due=1040), 100, 104, None).latency == 20
    assert pay_backs(bins([900.0] * 20, due=None), bins([1000.0] * 20, due=None), 100, 0, None).throughput == 1


@pytest.mark.parametrize(
    ("gain", "error", "shown"),
    [(10, 4.9, 10.0), (10, 5.1, "unknown"), (-10, 5.1, "unknown"), (-10, 4.9, "never"), (0, 0, "never")],
)
def test_a_gain_within_two_standard_errors_is_unknown(gain: float, error: float, shown: PayBack) -> None:
    assert pay_back(100, gain, error) == shown


def test_a_topology_has_recovered_when_throughput_and_latency_stay_good_for_five_bins() -> None:
    good = [950.0] * 5
    assert recovery(bins([940.0, *good]), BEFORE) == 1
    assert recovery(bins([1000.0, 1000.0, 949.0, *good]), BEFORE) == 3
    assert recovery(bins([1000.0] * 8, [0.02, 0.023] + [0.022] * 6), BEFORE) == 2
    assert recovery(bins([1000.0] * 6, [NONE] * 6), BEFORE) == 0
    assert recovery(bins([1000.0] * 4), BEFORE) is None
    assert recovery(bins([500.0] * 9), BEFORE) is None
    # Recovery is never before the bin `first`.
    assert recovery(bins([1000.0] * 9), BEFORE, first=3) == 3


def test_bins_within_the_variation_before_the_change_have_recovered() -> None:
    # A standard deviation of 100 tuples and 5 ms.
    uneven = bins([900.0, 1100.0] * 51, [0.015, 0.025] * 51)
    assert recovery(bins([810.0] * 5), uneven) == 0
    assert recovery(bins([790.0] * 5), uneven) is None
    assert recovery(bins([1000.0] * 5, 0.0296), uneven) == 0
    assert recovery(bins([1000.0] * 5, 0.031), uneven) is None


def test_the_error_of_a_cost_is_that_of_its_bins_and_of_the_mean_before() -> None:
    assert sum_error(np.array([3.0, -3.0, NONE]), 2) == pytest.approx(18**0.5 * (2 + 4 / 2) ** 0.5)
    assert sum_error(np.array([3.0, NONE]), 2) is None
    assert sum_error(np.zeros(20), 12) == 0


def test_expected_tuples_follow_tuples_due() -> None:
    assert expected_tuples(bins([0.0] * 2, due=2000), bins([3000.0] * 5)).tolist() == [6000, 6000]
    assert expected_tuples(bins([0.0] * 2, due=None), bins([3000.0, 5000.0], due=None)).tolist() == [4000, 4000]


def test_tuples_of_bins_without_samples_count_as_late_as_the_others() -> None:
    assert latency_excess(bins([1000.0] * 2, [0.03, NONE]), BEFORE) == pytest.approx(20)
    assert latency_excess(bins([0.0] * 2, [NONE] * 2), BEFORE) == 0
    assert latency_excess(bins([1000.0] * 2, [NONE] * 2), BEFORE) is None
    assert latency_excess(bins([1000.0] * 2), bins([1000.0] * 2, [NONE] * 2)) is None


rates = st.lists(st.integers(0, 10_000), min_size=1, max_size=40)


@given(rates, rates, st.integers(1, 5000))
def test_dip_and_surplus_add_up_to_missing_tuples(before: list[int], during: list[int], due: int) -> None:
    old, new = bins(before, due=due), bins(during, due=due)
    dip, surplus = dip_and_surplus(new, old)
    assert min(dip, surplus) >= 0
    assert dip - surplus == pytest.approx(len(during) * float(np.mean(before)) - sum(during), abs=1e-6)
    # The cost of two parts is that of the whole.
    at = len(during) // 2
    parts = [dip_and_surplus(part, old) for part in (new.part(0, at), new.part(at, len(during)))]
    assert tuple(map(sum, zip(*parts, strict=True))) == pytest.approx((dip, surplus), abs=1e-6)


latencies = st.floats(0.001, 10)


@given(st.lists(st.tuples(st.integers(1, 10_000), latencies), min_size=1, max_size=30), latencies, st.integers(2, 9))
def test_costs_grow_with_the_rate_and_pay_backs_do_not(
    during: list[tuple[int, float]], latency_s: float, times: int
) -> None:
    tuples, values_s = zip(*during, strict=True)
    before, later = bins([1000.0] * 20, latency_s), bins(tuples, list(values_s))
    larger_before = bins([1000.0 * times] * 20, latency_s, due=1000 * times)
    larger = bins([times * each for each in tuples], list(values_s), due=1000 * times)
    assert recovery(larger, larger_before) == recovery(later, before)
    dip, surplus = dip_and_surplus(later, before)
    assert dip_and_surplus(larger, larger_before) == pytest.approx((times * dip, times * surplus), abs=1e-6)
    excess, larger_excess = latency_excess(later, before), latency_excess(larger, larger_before)
    assert excess is not None
    assert larger_excess == pytest.approx(times * excess, abs=1e-6)
    after, larger_after = (
        bins([1100.0] * 20, latency_s / 2),
        bins([1100.0 * times] * 20, latency_s / 2, due=1000 * times),
    )
    found, same = (
        pay_backs(before, after, 500, 70, None),
        pay_backs(larger_before, larger_after, 500 * times, 70 * times, None),
    )
    assert (found.throughput, found.latency) == (pytest.approx(same.throughput), pytest.approx(same.latency))


@given(st.integers(1, 10_000), latencies, st.integers(5, 30))
def test_a_change_without_effect_costs_nothing(rate: int, latency_s: float, count: int) -> None:
    before, later = bins([rate] * 20, latency_s), bins([rate] * count, latency_s)
    assert recovery(later, before, first=1 if count > 5 else 0) == (1 if count > 5 else 0)
    assert dip_and_surplus(later, before) == (0, 0)
    assert latency_excess(later, before) == pytest.approx(0, abs=1e-6)


def move(
    executor: str, at_s: float, pause_s: float | None = 0.01, why: str | None = None, revision: int | None = None
) -> ExecutorMove:
    return ExecutorMove(executor=executor, target="n2/0", at_s=at_s, pause_s=pause_s, abandoned=why, revision=revision)


def test_moves_less_than_a_second_apart_are_one_change() -> None:
    moves = [
        move("a[0]", 5.2, 0.1),
        move("b[0]", 5.0, 1.5),
        move("c[0]", 7.4, 0.25),
        move("d[0]", 8.7),
        move("e[0]", 6.9, None, "node n2 is lost"),
    ]
    first, second = spans_of(moves, [])
    assert [m.executor for m in first.moves] == ["b[0]", "a[0]", "c[0]"]
    assert (first.number, first.scripted, first.begun_s, first.ended_s) == (1, True, 5.0, 7.65)
    assert (second.number, second.begun_s, second.ended_s) == (2, 8.7, pytest.approx(8.71))
    assert spans_of([], []) == []


def test_a_revision_is_a_change_with_its_own_moves() -> None:
    def record(number: int, begun_s: float | None, ended_s: float | None, outcome: Any = "done") -> RevisionRecord:
        times = {"at_s": 1.0, "decided_s": 0.1, "begun_s": begun_s, "ended_s": ended_s}
        return RevisionRecord(number=number, outcome=outcome, **times)

    revisions = [
        record(1, None, None, "no"),
        record(2, 5.0, 5.5),
        record(3, None, None, "shadow"),
        record(4, 9.0, 12.0),
    ]
    spans = spans_of(
        [move("a[0]", 3.0), move("b[0]", 5.2, revision=2), move("c[0]", 5.3), move("d[0]", 11.9, revision=4)], revisions
    )
    shown = [(span.number, span.scripted, span.begun_s, [m.executor for m in span.moves]) for span in spans]
    assert shown == [
        (1, True, 3.0, ["a[0]"]),
        (2, False, 5.0, ["b[0]"]),
        (2, True, 5.3, ["c[0]"]),
        (4, False, 9.0, ["d[0]"]),
    ]
