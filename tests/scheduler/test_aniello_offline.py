"""`aniello-offline` against the rules of its authors' code: worked examples, then properties."""

from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems
from scheduling_rounds import Rounds, by_slot, place_rounds, round_histories

from inventory.cluster import Cluster, ExistingWorker
from scheduler.algorithms.aniello.packing import interpolate, most_executors, most_workers, nodes_wanted
from scheduler.algorithms.aniello_offline import (
    AnielloOffline,
    AnielloOfflineParams,
    group_by_streams,
    upstream_first,
)
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from workloads.topology import Component, Input, Topology


def place(problem: Problem, params: AnielloOfflineParams | None = None) -> Plan:
    return Checked(AnielloOffline, params or AnielloOfflineParams()).place(problem)


def test_limits_are_those_of_the_formulas() -> None:
    # E = 10, W = 3: lo 4, hi 8.
    assert [most_executors(10, 3, alfa) for alfa in (0, 0.1, 0.5, 1)] == [4, 5, 6, 8]
    # 0.1 of 30 is 3, although the float product is a little more.
    assert most_executors(33, 2, 0.0) == 17
    assert interpolate(0, 30, 0.1) == 3
    assert nodes_wanted(4, 8, 0.0) == 1
    assert nodes_wanted(4, 8, 1.0) == 4
    assert nodes_wanted(10, 2, 0.5) == 2
    assert most_workers(10, 2, 0.0) == 5
    assert most_workers(10, 2, 1.0) == 9


def test_components_join_their_inputs_and_later_ones_prefer_empty_workers() -> None:
    # M = ceil(7/4) + ceil(0.5 * (4 - 2)) = 3. a: workers 0, 1. From component 1 on empty workers come first, the
    # highest ahead: b goes to 3, 2, 0. c follows b: 0, 2.
    plan = place(Problem(nodes_of(n=4), (chain(2, 3, 2, workers=4),)), AnielloOfflineParams(alfa=0.5))
    assert plan.details["topologies"]["t"] == {
        "fallback": "",
        "most_executors": 3,
        "workers": [[0, 4, 5], [1], [3, 6], [2]],
    }
    assert by_slot(plan) == {
        ("n", 0): ["a[0]", "b[2]", "c[0]"],
        ("n", 1): ["a[1]"],
        ("n", 2): ["b[1]", "c[1]"],
        ("n", 3): ["b[0]"],
    }


def test_full_workers_are_skipped() -> None:
    # M = 2, no component prefers empty workers: b's executors fill workers 0 and 1, with one place each, then worker 2.
    params = AnielloOfflineParams(epsilon=1.0)
    plan = place(Problem(nodes_of(n=3), (chain(2, 3, workers=3),)), params)
    assert plan.details["topologies"]["t"]["workers"] == [[0, 2], [1, 3], [4]]


def test_workers_that_stay_empty_are_not_started() -> None:
    params = AnielloOfflineParams(alfa=1.0, epsilon=1.0)
    plan = place(Problem(nodes_of(n=4), (chain(2, 2, workers=4),)), params)
    assert plan.details["topologies"]["t"]["workers"] == [[0], [1], [2], [3]]
    plan = place(Problem(nodes_of(n=4), (chain(2, 4, workers=4),)), params)
    assert plan.details["topologies"]["t"]["workers"] == [[0, 2, 4], [1, 3, 5], [], []]
    assert sorted(by_slot(plan)) == [("n", 0), ("n", 1)]


@pytest.mark.parametrize(
    ("beta", "slots"),
    [
        (0.0, [("s3", 0), ("s3", 1), ("s3", 2), ("s3", 3)]),
        (0.5, [("s3", 0), ("s2", 0), ("s3", 1), ("s2", 1)]),
        (1.0, [("s3", 0), ("s2", 0), ("s1", 0), ("s3", 1)]),
    ],
)
def test_workers_are_dealt_over_the_nodes_with_most_free_slots(beta: float, slots: list[tuple[str, int]]) -> None:
    # nmin 1 (s3 has 4 slots), nmax min(3 nodes, 4 workers) = 3.
    plan = place(Problem(nodes_of(s1=2, s2=3, s3=4), (chain(4, workers=4),)), AnielloOfflineParams(beta=beta))
    assert [tuple(slot) for slot in plan.placements["t"].assignments.values()] == slots


def test_nodes_without_a_slot_left_are_skipped() -> None:
    plan = place(Problem(nodes_of(a=3, b=1), (chain(4, workers=4),)))
    assert [tuple(s) for s in plan.placements["t"].assignments.values()] == [("a", 0), ("b", 0), ("a", 1), ("a", 2)]


def test_too_few_slots_are_left_to_even() -> None:
    plan = place(Problem(nodes_of(n=2), (chain(5, workers=4),)))
    assert plan.details["topologies"]["t"]["fallback"] == "4 workers, 2 free slots"
    assert by_slot(plan) == {("n", 0): ["a[0]", "a[2]", "a[4]"], ("n", 1): ["a[1]", "a[3]"]}


def test_ackers_are_outside_the_plan_and_join_its_workers() -> None:
    problem = Problem(nodes_of(n=2), (chain(2, 2, workers=2, ackers=2),))
    plan = place(problem)
    assert by_slot(plan) == {
        ("n", 0): ["__acker[0]", "a[0]", "b[0]"],
        ("n", 1): ["__acker[1]", "a[1]", "b[1]"],
    }
    published = place(problem, AnielloOfflineParams(as_published=True)).placements["t"]
    assert (published.status, len(published.assignments)) == ("partial", 4)
    assert "all 2 workers run already" in published.message


def test_fewer_executors_than_workers_break_the_published_code_only() -> None:
    problem = Problem(nodes_of(n=4), (chain(2, workers=4),))
    assert place(problem).details["topologies"]["t"]["workers"] == [[1], [0]]
    # lo 1, hi -1: M becomes -1 and no worker has room.
    published = place(problem, AnielloOfflineParams(alfa=1.0, as_published=True))
    assert published.details["topologies"]["t"]["fallback"] == "a worker takes at most -1 executors: no room"
    assert published.placements["t"].status == "placed"


def test_the_order_is_topological_with_the_smallest_id_first_and_cycles_do_not_matter() -> None:
    def bolt(name: str, *sources: str) -> Component:
        return Component(name, "bolt", inputs=tuple(Input(source) for source in sources))

    components = (bolt("c", "y"), bolt("y", "x"), bolt("x", "s", "y"), Component("s", "spout"), Component("r", "spout"))
    assert upstream_first(Topology("t", components)) == ["r", "s", "x", "y", "c"]
    assert upstream_first(Topology("t", (bolt("b", "a"), bolt("a", "b", "a")))) == ["a", "b"]


def test_waiting_executors_are_planned_for_the_remaining_workers() -> None:
    existing = (ExistingWorker("t", "n", 1, ("a[0]", "b[0]")),)
    problem = Problem(Cluster(nodes_of(n=4).nodes, existing=existing), (chain(2, 3, workers=3),))
    plan = place(problem)
    assert by_slot(plan) == {
        ("n", 0): ["a[1]", "b[2]"],
        ("n", 1): ["a[0]", "b[0]"],
        ("n", 2): ["b[1]"],
    }
    assert not plan.freed


shares = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
params = st.builds(AnielloOfflineParams, shares, shares, shares, st.booleans())


@given(problems(cycles=True), params)
def test_limits_hold_and_running_executors_stay(problem: Problem, given_params: AnielloOfflineParams) -> None:
    plan = place(problem, given_params)
    assert not plan.freed
    live_nodes = {w.node for w in problem.existing} & {node.id for node in problem.cluster.available}
    for topology in problem.topologies:
        account = plan.details["topologies"][topology.id]
        placement = plan.placements[topology.id]
        running = [w for w in problem.existing if w.topology == topology.id and w.node in live_nodes]
        assert len(set(placement.assignments.values())) <= max(topology.workers, len(running))
        if account["workers"] and not given_params.as_published:
            assert placement.status == "placed"
            running_names = {name for worker in running for name in worker.executors}
            new = [e for e in topology.executors if e.name not in running_names]
            workers = min(topology.workers - len(running), len(new))
            low = ceil(len(new) / workers)
            assert low <= account["most_executors"] <= len(new) - workers + 1
            in_plan = {placement.assignments[topology.executors[e]] for group in account["workers"] for e in group}
            sizes = [sum(placement.assignments[e] == slot for e in new) for slot in in_plan]
            assert max(sizes, default=0) <= account["most_executors"]


def reference_groups(topology: Topology, workers: int, most: int, epsilon: float) -> list[list[str]] | None:
    """Group by a simple second implementation that examines all groups for every component."""
    order = upstream_first(topology)
    groups: list[list[str]] = [[] for _ in range(workers)]
    components_of: list[set[str]] = [set() for _ in range(workers)]
    for number, component in enumerate(order):
        inputs = {entry.source for entry in topology.component[component].inputs}
        with_room = [at for at in range(workers) if len(groups[at]) < most]
        first = [at for at in with_room if components_of[at] & inputs]
        second = [at for at in with_room if not components_of[at] & inputs]
        if number >= floor(epsilon * len(order)):
            first = [*(at for at in reversed(second) if not groups[at]), *first]
            second = [at for at in second if groups[at]]
        cursor = 0
        for executor in topology.executors_of(component):
            candidates = first or second
            if not candidates:
                return None
            at = candidates[cursor]
            groups[at].append(executor.name)
            components_of[at].add(component)
            if len(groups[at]) == most:
                del candidates[cursor]
            else:
                cursor += 1
            cursor = cursor if cursor < len(candidates) else 0
    return groups


@given(problems(cycles=True), st.integers(1, 12), st.integers(1, 6), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_groups_are_those_of_the_reference_implementation(
    problem: Problem, workers: int, most: int, epsilon: float
) -> None:
    for topology in problem.topologies:
        waiting = [executor for executor in topology.executors if executor.component in upstream_first(topology)]
        groups = group_by_streams(topology, upstream_first(topology), waiting, workers, most, epsilon)
        named = None if groups is None else [[executor.name for executor in group] for group in groups]
        assert named == reference_groups(topology, workers, most, epsilon)


@given(round_histories(), params)
def test_nothing_is_released_or_moved_in_any_round_sequence(rounds: Rounds, given_params: AnielloOfflineParams) -> None:
    for problem, plan in place_rounds(rounds, lambda problem: place(problem, given_params)):
        assert not plan.freed
        assert not plan.migrations
        assert len(plan.placements) == len(problem.topologies)
