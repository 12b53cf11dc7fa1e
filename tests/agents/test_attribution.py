"""Who used a domain's energy: nothing is lost, nobody gets less than nothing, equal work costs the same."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agents.power.attribution import Parts, Work, attribute, spread

amounts = st.floats(0, 1e12)
works = st.builds(Work, amounts, st.dictionaries(st.sampled_from(["a[0]", "a[1]", "b[0]"]), amounts))


def everything(parts: Parts) -> list[float]:
    used = [joules for share in parts.workers for joules in (*share.executors.values(), share.transport)]
    return [parts.idle, *used, parts.rest]


@given(st.floats(0, 1e9), st.floats(0, 1e9), amounts, st.lists(works, max_size=6))
def test_all_parts_are_what_was_measured(joules: float, idle: float, cpu_ns: float, workers: list[Work]) -> None:
    parts = attribute(joules, idle, cpu_ns, workers)
    assert sum(everything(parts)) == pytest.approx(joules, rel=1e-9, abs=1e-12)
    assert min(everything(parts)) >= 0
    for share in parts.workers:
        assert share.joules == pytest.approx(sum(share.executors.values()) + share.transport, rel=1e-9, abs=1e-12)


def test_energy_above_idle_follows_cpu_time_and_what_nobody_claims_is_a_line_of_its_own() -> None:
    parts = attribute(100.0, 20.0, 8e9, [Work(4e9, {"a[0]": 1e9, "a[1]": 2e9}), Work(2e9, {})])
    assert parts.idle == 20.0
    assert [share.joules for share in parts.workers] == pytest.approx([40.0, 20.0])
    assert parts.workers[0].executors == pytest.approx({"a[0]": 10.0, "a[1]": 20.0})
    assert [share.transport for share in parts.workers] == pytest.approx([10.0, 20.0])
    assert parts.rest == pytest.approx(20.0)
    assert not parts.clamped


@given(st.floats(1, 1e6), st.floats(1, 1e10), st.floats(1, 1e10))
def test_two_equal_workers_get_equal_energy_whatever_else_runs(joules: float, cpu_ns: float, others_ns: float) -> None:
    first, second = attribute(joules, joules / 3, 2 * cpu_ns + others_ns, [Work(cpu_ns, {})] * 2).workers
    assert first == second


@given(st.floats(30, 1e6), st.floats(0, 1e10))
def test_idle_energy_does_not_shrink_with_load(joules: float, cpu_ns: float) -> None:
    assert attribute(joules, 30.0, 1e10, [Work(cpu_ns, {})]).idle == 30.0


@pytest.mark.parametrize(
    ("joules", "cpu_ns", "work"),
    [(10.0, 1e9, Work(1e9, {})), (30.0, 1e9, Work(2e9, {})), (30.0, 1e9, Work(5e8, {"a[0]": 6e8}))],
    ids=["less than idle", "more than all CPU time", "executors above their worker"],
)
def test_what_had_to_be_clamped_is_flagged(joules: float, cpu_ns: float, work: Work) -> None:
    parts = attribute(joules, 20.0, cpu_ns, [work])
    assert parts.clamped
    assert sum(everything(parts)) == pytest.approx(joules)


places = st.lists(st.dictionaries(st.sampled_from([0, 1, 2, None]), st.floats(0, 1e10)), max_size=5)


@given(places, st.dictionaries(st.sampled_from([0, 1, 2]), st.floats(0, 1e10), min_size=3, max_size=3))
def test_all_cpu_time_of_a_worker_is_on_some_package_and_what_is_known_stays_where_it_was(
    workers: list[dict[int | None, float]], packages: dict[int, float]
) -> None:
    for given_ns, found in zip(workers, spread(workers, packages), strict=True):
        assert sum(found.values()) == pytest.approx(sum(given_ns.values()), rel=1e-9, abs=1e-6)
        assert all(found[package] >= given_ns.get(package, 0.0) for package in packages)


@given(
    places.filter(bool),
    st.lists(st.floats(0, 1e5), min_size=3, max_size=3),
    st.lists(st.floats(0, 1e10), min_size=3, max_size=3),
)
@example([{0: 0.0, None: 1.0}], [0.0, 0.0, 31.0], [0.0, 1.0, 2.225073858507203e-309])
def test_every_package_is_divided_without_loss(
    workers: list[dict[int | None, float]], joules: list[float], cpu_ns: list[float]
) -> None:
    works = [Work(sum(where.values()), {"a[0]": sum(where.values()) / 2}) for where in workers]
    spreads = spread(workers, dict(enumerate(cpu_ns)))
    for package in range(3):
        here = [work.part(where[package]) for work, where in zip(works, spreads, strict=True)]
        parts = attribute(joules[package], 30.0, cpu_ns[package], here)
        assert sum(everything(parts)) == pytest.approx(joules[package], rel=1e-9, abs=1e-9)
        assert min(everything(parts)) >= 0


def test_what_is_not_known_follows_those_of_whom_it_is_not_known_either() -> None:
    # Package 0 was busy for 6 s, 4 of them with a worker that is known to be there; package 1 for 2 s.
    bound, free = spread([{0: 4.0}, {None: 2.0}], {0: 6.0, 1: 2.0})
    assert bound == {0: 4.0, 1: 0.0}
    assert free == pytest.approx({0: 1.0, 1: 1.0})
