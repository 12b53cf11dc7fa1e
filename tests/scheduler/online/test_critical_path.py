"""Critical path over executors, and the slack of each executor."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, topologies

from scheduler.online.critical_path import critical_path
from workloads.topology import Component, Executor, Input, Topology


def test_the_slowest_executor_of_each_component_is_on_the_path() -> None:
    topology = chain(2, 2, 1, names="sbk")
    delay = {"s[0]": 1.0, "s[1]": 3.0, "b[0]": 5.0, "b[1]": 4.5, "k[0]": 2.0}
    found = critical_path(topology, {topology.executor_named[name]: d for name, d in delay.items()})
    assert found.seconds == 10
    assert {executor.name: slack for executor, slack in found.slack.items()} == {
        "s[0]": 2,
        "s[1]": 0,
        "b[0]": 0,
        "b[1]": 0.5,
        "k[0]": 0,
    }
    assert [executor.name for executor in found.critical(0.0)] == ["s[1]", "b[0]", "k[0]"]
    assert [executor.name for executor in found.critical(0.05)] == ["s[1]", "b[0]", "b[1]", "k[0]"]
    assert found.performance([Executor("s", 0)]) == pytest.approx(1 / 3)  # from 1 s to 3 s
    assert found.performance([Executor("s", 0), Executor("b", 1)]) == pytest.approx(5.5 / 6)
    assert found.performance([Executor("b", 0), Executor("s", 0)]) == 1
    assert found.performance([]) == 1


def test_a_global_grouping_leads_to_the_first_executor_only() -> None:
    topology = chain(2, 2, names="sk", grouping="global")
    delay = {Executor("s", 0): 1.0, Executor("s", 1): 2.0, Executor("k", 0): 1.0, Executor("k", 1): 1.5}
    found = critical_path(topology, delay)
    assert found.seconds == 3
    assert found.slack[Executor("k", 1)] == 1.5  # it has no predecessor
    assert found.slack[Executor("s", 0)] == 1


def test_branches_of_different_length() -> None:
    topology = Topology(
        id="t",
        components=(
            Component(id="s", kind="spout"),
            Component(id="x", kind="bolt", inputs=(Input("s"),)),
            Component(id="y", kind="bolt", inputs=(Input("s"),)),
            Component(id="k", kind="bolt", inputs=(Input("x"), Input("y"))),
        ),
    )
    delay = dict(zip(topology.executors, (1.0, 4.0, 2.0, 1.0), strict=True))
    found = critical_path(topology, delay)
    assert (found.seconds, found.slack[Executor("y", 0)]) == (6, 2)


def test_without_delays_everything_is_critical() -> None:
    topology = chain(1, 2, names="sb")
    assert len(critical_path(topology, {}).critical(0.05)) == 3


@given(
    topologies(most_components=4), st.lists(st.integers(0, 9), min_size=20, max_size=20), st.sampled_from([0.0, 0.2])
)
def test_slacks_are_those_of_all_paths(topology: Topology, delays: list[int], tolerance: float) -> None:
    delay = {executor: float(value) for executor, value in zip(topology.executors, delays, strict=False)}
    found = critical_path(topology, delay)
    pairs = set(topology.pairs())
    by_component = [topology.executors_of(component) for component in topology.order]
    longest = dict.fromkeys(topology.executors, 0.0)
    for path in product(*([None, *executors] for executors in by_component)):
        chosen = [executor for executor in path if executor is not None]
        if all(pair in pairs for pair in pairwise(chosen)):
            for executor in chosen:
                longest[executor] = max(longest[executor], sum(delay[each] for each in chosen))
    assert found.seconds == max(longest.values())
    assert found.slack == {executor: found.seconds - length for executor, length in longest.items()}
    critical = [e for e, length in longest.items() if found.seconds - length <= tolerance * found.seconds + 1e-9]
    assert found.critical(tolerance) == critical


@given(st.lists(st.integers(1, 9), min_size=6, max_size=6))
def test_a_node_slowed_to_its_performance_becomes_critical(delays: list[int]) -> None:
    topology = chain(2, 2, 2, names="sbk")
    delay = {executor: float(value) for executor, value in zip(topology.executors, delays, strict=True)}
    found = critical_path(topology, delay)
    for executor in topology.executors:
        slowed = delay | {executor: delay[executor] / found.performance([executor])}
        assert critical_path(topology, slowed).slack[executor] == pytest.approx(0, abs=1e-9)
        assert critical_path(topology, slowed).seconds == pytest.approx(found.seconds)
