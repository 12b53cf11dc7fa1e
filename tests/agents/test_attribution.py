"""Who used a domain's energy: nothing is lost, nobody gets less than nothing, equal work costs the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.power.attribution import Parts, Work, attribute

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
