"""Energy of an interval, and its attribution to workers and executors.

The energy is within its bound for any power between samples. Attributed parts add up to the total, are never negative,
and are equal for equal work.
"""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorded_host import square_wave

from agents.power.energy import Parts, WorkerCpu, attribute, energy, split_by_package
from agents.power.meter import Deadlines
from agents.power.reader import Domain, Reading
from agents.power.series import Sample, Series

PACKAGE = Domain("package-0", "package", "rapl", "x", True, 1e-6, 262143328850, 61.035, 400.0)

amounts = st.floats(0, 1e12)
works = st.builds(WorkerCpu, amounts, st.dictionaries(st.sampled_from(["a[0]", "a[1]", "b[0]"]), amounts))


def samples(joules, times_s, lost=()) -> list[Sample]:
    series = Series(PACKAGE)
    steps = []
    for at, t_s in enumerate(times_s):
        value = int(joules(t_s) * 1e6) + (10**10 if at in lost else 0)
        if at in lost:
            steps.append(series.add(Reading(PACKAGE, round(t_s * 1e9), 1000, value), 0, False))
            value = int(joules(t_s) * 1e6)
        steps.append(series.add(Reading(PACKAGE, round(t_s * 1e9) + (at in lost), 1000, value), 0, False))
    return steps


@given(
    low=st.floats(1, 100),
    high=st.floats(100, 380),
    half_s=st.floats(0.03, 3),
    begin=st.floats(0.1, 4),
    length=st.floats(0.3, 5),
)
def test_energy_of_a_square_wave_is_within_the_bound_for_ends_between_samples(low, high, half_s, begin, length) -> None:
    joules = square_wave(low, high, half_s)
    steps = samples(joules, [n / 10 for n in range(101)])
    found = energy(steps, round(begin * 1e9), round((begin + length) * 1e9))
    truth = joules(begin + length) - joules(begin)
    assert abs(found.joules - truth) <= found.bound_joules
    # Two ends, each within one step of a tenth of a second and its millisecond.
    assert found.bound_joules <= 2 * high * 0.102 + 0.01


def test_with_a_sample_at_either_end_the_bound_is_a_millisecond_of_power_and_a_unit() -> None:
    found = energy(samples(square_wave(100, 100, 1), [0, 1, 2]), 0, 2_000_000_000)
    assert found.joules == pytest.approx(200, abs=1e-3)
    assert found.bound_joules == pytest.approx(2 * (0.001001 * 100 + 61e-6), rel=0.01)


def test_an_interval_with_a_missing_step_is_missing() -> None:
    steps = samples(square_wave(50, 50, 1), [0, 1, 2, 3, 4], lost=[2])
    found = energy(steps, 0, 4_000_000_000)
    assert found.joules is None
    assert "reset" in found.flags
    assert "a step is missing" in found.reason
    # A missing step outside the interval has no effect.
    assert energy(steps, 2_100_000_000, 4_000_000_000).joules == pytest.approx(95, abs=0.01)


def test_energy_outside_the_sampled_interval_is_unknown() -> None:
    steps = samples(square_wave(50, 50, 1), [1, 2, 3])
    assert energy(steps, 0, 2_000_000_000).reason == "no reading before its start"
    assert energy(steps, 1_000_000_000, 4_000_000_000).reason == "no reading after its end"
    assert energy([], 0, 1).reason == "it has not been read"


def test_deadlines_do_not_drift_in_an_hour_and_late_ones_are_counted() -> None:
    for rate_hz in (10.0, 3.0, 49.7):
        deadlines = Deadlines(0, rate_hz)
        now, met = 0, 0
        while now < 3600 * 10**9:
            met += 1
            # Every thousandth sample takes three periods and a half; the others take long enough for a drift.
            now = deadlines.due_ns + (round(3.5e9 / rate_hz) if met % 1000 == 0 else 3_141_592)
            deadlines.advance(now)
        number = deadlines.due_ns * rate_hz / 1e9
        assert number == pytest.approx(round(number), abs=1e-6)
        assert met + deadlines.skipped == round(number)
        assert deadlines.skipped == 3 * math.floor(met / 1000)


def all_parts(parts: Parts) -> list[float]:
    used = [joules for share in parts.workers for joules in (*share.executors.values(), share.transport)]
    return [parts.idle, *used, parts.rest]


@given(st.floats(0, 1e9), st.floats(0, 1e9), amounts, st.lists(works, max_size=6))
def test_parts_add_up_to_the_measured_energy(
    joules: float, idle: float, cpu_ns: float, workers: list[WorkerCpu]
) -> None:
    parts = attribute(joules, idle, cpu_ns, workers)
    assert sum(all_parts(parts)) == pytest.approx(joules, rel=1e-9, abs=1e-12)
    assert min(all_parts(parts)) >= 0
    for share in parts.workers:
        assert share.joules == pytest.approx(sum(share.executors.values()) + share.transport, rel=1e-9, abs=1e-12)


def test_energy_above_idle_follows_cpu_time_and_the_rest_is_separate() -> None:
    parts = attribute(100.0, 20.0, 8e9, [WorkerCpu(4e9, {"a[0]": 1e9, "a[1]": 2e9}), WorkerCpu(2e9, {})])
    assert parts.idle == 20.0
    assert [share.joules for share in parts.workers] == pytest.approx([40.0, 20.0])
    assert parts.workers[0].executors == pytest.approx({"a[0]": 10.0, "a[1]": 20.0})
    assert [share.transport for share in parts.workers] == pytest.approx([10.0, 20.0])
    assert parts.rest == pytest.approx(20.0)
    assert not parts.clamped


@given(st.floats(1, 1e6), st.floats(1, 1e10), st.floats(1, 1e10))
def test_two_equal_workers_get_equal_energy_whatever_else_runs(joules: float, cpu_ns: float, others_ns: float) -> None:
    first, second = attribute(joules, joules / 3, 2 * cpu_ns + others_ns, [WorkerCpu(cpu_ns, {})] * 2).workers
    assert first == second


@given(st.floats(30, 1e6), st.floats(0, 1e10))
def test_idle_energy_does_not_shrink_with_load(joules: float, cpu_ns: float) -> None:
    assert attribute(joules, 30.0, 1e10, [WorkerCpu(cpu_ns, {})]).idle == 30.0


@pytest.mark.parametrize(
    ("joules", "cpu_ns", "work"),
    [(10.0, 1e9, WorkerCpu(1e9, {})), (30.0, 1e9, WorkerCpu(2e9, {})), (30.0, 1e9, WorkerCpu(5e8, {"a[0]": 6e8}))],
    ids=["less than idle", "more than all CPU time", "executors above their worker"],
)
def test_clamped_parts_are_flagged(joules: float, cpu_ns: float, work: WorkerCpu) -> None:
    parts = attribute(joules, 20.0, cpu_ns, [work])
    assert parts.clamped
    assert sum(all_parts(parts)) == pytest.approx(joules)


places = st.lists(st.dictionaries(st.sampled_from([0, 1, 2, None]), st.floats(0, 1e10)), max_size=5)


@given(places, st.dictionaries(st.sampled_from([0, 1, 2]), st.floats(0, 1e10), min_size=3, max_size=3))
def test_all_cpu_time_of_a_worker_has_a_package_and_known_packages_keep_theirs(
    workers: list[dict[int | None, float]], packages: dict[int, float]
) -> None:
    for given_ns, found in zip(workers, split_by_package(workers, packages), strict=True):
        assert sum(found.values()) == pytest.approx(sum(given_ns.values()), rel=1e-9, abs=1e-6)
        assert all(found[package] >= given_ns.get(package, 0.0) for package in packages)


@given(
    places.filter(bool),
    st.lists(st.floats(0, 1e5), min_size=3, max_size=3),
    st.lists(st.floats(0, 1e10), min_size=3, max_size=3),
)
@example([{0: 0.0, None: 1.0}], [0.0, 0.0, 31.0], [0.0, 1.0, 2.225073858507203e-309])
def test_energy_of_every_package_is_divided_without_loss(
    workers: list[dict[int | None, float]], joules: list[float], cpu_ns: list[float]
) -> None:
    works = [WorkerCpu(sum(where.values()), {"a[0]": sum(where.values()) / 2}) for where in workers]
    spreads = split_by_package(workers, dict(enumerate(cpu_ns)))
    for package in range(3):
        here = [work.part(where[package]) for work, where in zip(works, spreads, strict=True)]
        parts = attribute(joules[package], 30.0, cpu_ns[package], here)
        assert sum(all_parts(parts)) == pytest.approx(joules[package], rel=1e-9, abs=1e-9)
        assert min(all_parts(parts)) >= 0


def test_cpu_time_without_a_package_follows_the_unassigned_time_of_packages() -> None:
    # Package 0 was busy for 6 s, 4 of them with a worker that is known to be there; package 1 for 2 s.
    bound, free = split_by_package([{0: 4.0}, {None: 2.0}], {0: 6.0, 1: 2.0})
    assert bound == {0: 4.0, 1: 0.0}
    assert free == pytest.approx({0: 1.0, 1: 1.0})
