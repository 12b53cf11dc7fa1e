"""The three policies of Flink: figures of its documentation, rules of its source, and invariants."""

from collections import Counter, defaultdict
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems, topologies
from scheduling_rounds import by_slot

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.flink_balanced_tasks import FlinkBalancedTasks, in_turn
from scheduler.algorithms.flink_default import FlinkDefault, SharedSlot, job_order, with_local_inputs
from scheduler.algorithms.flink_even_slots import FlinkEvenSlots
from scheduler.problem import NoParams, Plan, Problem
from scheduler.registry import Checked
from scheduler.toolkit.slots import running
from workloads.topology import Component, Executor, Input, Topology

POLICIES = (FlinkDefault, FlinkEvenSlots, FlinkBalancedTasks)
Policy = type[FlinkDefault | FlinkEvenSlots | FlinkBalancedTasks]


def place(policy: Policy, problem: Problem) -> Plan:
    return Checked(policy, NoParams()).place(problem)


def executors_on(policy: Policy, problem: Problem, topology: str = "t") -> dict[str, int]:
    counts = Counter(slot.node for slot in place(policy, problem).placements[topology].assignments.values())
    return {node.id: counts[node.id] for node in problem.cluster.nodes}


def names(shared: list[SharedSlot]) -> list[str]:
    return [" ".join(f"{executor.component}{executor.index}" for executor in slot) for slot in shared]


def graph(**components: tuple[int, str]) -> Topology:
    """`graph(a=(2, ""), b=(3, "a"))`: parallelism, and components whose streams it receives."""
    return Topology(
        id="t",
        components=tuple(
            Component(name, "bolt" if sources else "spout", size, inputs=tuple(map(Input, sources.split())))
            for name, (size, sources) in components.items()
        ),
    )


# Figures of Flink's page on balanced tasks scheduling: the job of (c), (d) and (e), and the one of (f) to (i).
FIVE = chain(1, 4, 4, 2, 3)
TWO_ON_THREE = Problem(nodes_of(n1=2, n2=2, n3=2), (chain(6, 3),))


def test_the_job_of_the_documentation_has_a_range_of_three_by_default_and_of_one_if_balanced() -> None:
    assert [len(slot) for slot in with_local_inputs(FIVE)] == [5, 4, 3, 2]
    assert names(in_turn(FIVE)) == ["a0 b0 c0 e1", "b1 c1 d0 e2", "b2 c2 d1", "b3 c3 e0"]


def test_six_and_three_subtasks_on_three_nodes_of_two_slots_are_four_three_two_or_three_each() -> None:
    assert executors_on(FlinkDefault, TWO_ON_THREE) == {"n1": 4, "n2": 3, "n3": 2}
    assert executors_on(FlinkBalancedTasks, TWO_ON_THREE) == {"n1": 3, "n2": 3, "n3": 3}


def test_slots_are_spread_by_utilisation_not_by_number() -> None:
    problem = Problem(nodes_of(big=4, small=2), (chain(3, name="t"),))
    assert by_slot(place(FlinkDefault, problem)) == {("big", 0): ["a[0]"], ("big", 1): ["a[1]"], ("big", 2): ["a[2]"]}
    assert by_slot(place(FlinkEvenSlots, problem)) == {
        ("big", 0): ["a[0]"],
        ("big", 1): ["a[2]"],
        ("small", 0): ["a[1]"],
    }


def test_spreading_counts_the_slots_of_other_topologies() -> None:
    cluster = Cluster(nodes_of(a=2, b=2).nodes, existing=(ExistingWorker("other", "a", 0, ("x[0]",)),))
    assert by_slot(place(FlinkEvenSlots, Problem(cluster, (chain(1),)))) == {("b", 0): ["a[0]"]}
    assert by_slot(place(FlinkDefault, Problem(cluster, (chain(1),)))) == {("a", 1): ["a[0]"]}


def test_the_order_of_a_job_is_depth_first_from_each_source() -> None:
    topology = graph(
        far=(1, "near"), s=(1, ""), near=(1, "s"), late=(1, "s u"), u=(1, ""), second=(1, "s"), end=(1, "late far")
    )
    assert job_order(topology) == ["s", "u", "near", "far", "late", "end", "second"]


def test_a_receiver_shares_the_slots_of_its_first_input_and_then_of_the_next() -> None:
    # `b` finds its own slots behind those of `a`, and `join` reads from `b` first.
    topology = graph(wide=(4, ""), a=(1, "wide"), b=(2, ""), join=(3, "b a"))
    assert names(with_local_inputs(topology)) == ["wide0 b0 a0 join0", "wide1 b1 join1", "wide2 join2", "wide3"]
    swapped = graph(wide=(4, ""), low=(2, "wide"), other=(2, ""), sink=(2, "other"))
    assert names(with_local_inputs(swapped)) == ["wide0 other0 low0 sink0", "wide1 other1 low1 sink1", "wide2", "wide3"]


def test_executors_beyond_the_first_input_share_slots_of_the_second() -> None:
    # `c` reads from `d`, which has two slots, and then from `b`, which also has a third.
    topology = graph(a=(1, ""), b=(3, "a"), d=(2, ""), c=(3, "d b"))
    assert names(with_local_inputs(topology)) == ["a0 d0 b0 c0", "d1 b1 c1", "b2 c2"]


def test_components_below_the_largest_take_turns_and_the_largest_begin_at_the_first_slot() -> None:
    assert names(in_turn(chain(2, 3, 2, 1, 3))) == ["a0 b0 c1 e0", "a1 b1 d0 e1", "b2 c0 e2"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topology_that_does_not_fit_is_not_placed_and_the_next_one_is(policy: Policy) -> None:
    plan = place(policy, Problem(nodes_of(a=2, b=1), (chain(4), chain(2, 3, name="u"))))
    assert (plan.placements["t"].status, plan.placements["t"].assignments) == ("failed", {})
    assert plan.placements["t"].message == "slots needed: 4, free: 3"
    assert plan.placements["u"].status == "placed"


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topology_that_lost_a_node_restarts_as_a_whole_in_its_slots(policy: Policy) -> None:
    nodes = (Node(id="a", slots=1, available=False), Node(id="b", slots=1), Node(id="c", slots=2))
    existing = (ExistingWorker("t", "a", 0, ("a[0]", "b[0]")), ExistingWorker("t", "c", 1, ("a[1]", "b[1]")))
    plan = place(policy, Problem(Cluster(nodes, existing=existing), (chain(2, 2),)))
    assert by_slot(plan) == {("b", 0): ["a[1]", "b[1]"], ("c", 1): ["a[0]", "b[0]"]}
    assert [worker.node for worker in plan.freed] == ["c"]
    assert {(move.executor.name, move.target.node) for move in plan.migrations} == {("a[1]", "b"), ("b[1]", "b")}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_topology_that_no_longer_fits_stops(policy: Policy) -> None:
    nodes = (Node(id="a", slots=1, available=False), Node(id="b", slots=1))
    existing = (ExistingWorker("t", "a", 0, ("a[0]",)), ExistingWorker("t", "b", 0, ("a[1]",)))
    plan = place(policy, Problem(Cluster(nodes, existing=existing), (chain(2),)))
    assert plan.placements["t"].message == "slots needed: 2, free: 1"
    assert plan.placements["t"].assignments == {}
    assert [worker.node for worker in plan.freed] == ["b"]


@pytest.mark.parametrize("policy", POLICIES)
def test_workers_beyond_the_shared_slots_are_released(policy: Policy) -> None:
    existing = tuple(ExistingWorker("t", "a", slot, (f"{name}[0]",)) for slot, name in enumerate("ab"))
    plan = place(policy, Problem(Cluster(nodes_of(a=3).nodes, existing=existing), (chain(1, 1, 1),)))
    assert by_slot(plan) == {("a", 0): ["a[0]", "b[0]", "c[0]"]}
    assert [(worker.node, worker.slot) for worker in plan.freed] == [("a", 0), ("a", 1)]


@pytest.mark.parametrize("share", [with_local_inputs, in_turn])
@given(topology=topologies(most_components=8))
def test_shared_slots_are_as_many_as_the_largest_component_has_executors(
    share: Callable[[Topology], list[SharedSlot]], topology: Topology
) -> None:
    shared = share(topology)
    assert len(shared) == max(component.parallelism for component in topology.components)
    assert sorted(executor for slot in shared for executor in slot) == sorted(topology.executors)
    for slot in shared:
        assert slot
        assert len({executor.component for executor in slot}) == len(slot)


@given(topologies(most_components=8))
def test_balanced_slots_differ_by_one_executor_at_most(topology: Topology) -> None:
    sizes = [len(slot) for slot in in_turn(topology)]
    assert max(sizes) - min(sizes) <= 1


@given(topologies(most_components=8))
def test_by_default_as_many_executors_as_possible_share_a_slot_with_an_input(topology: Topology) -> None:
    shared = with_local_inputs(topology)
    where = {executor: at for at, slot in enumerate(shared) for executor in slot}
    for component in topology.components:
        senders = {where[e] for entry in component.inputs for e in topology.executors_of(entry.source)}
        local = sum(where[executor] in senders for executor in topology.executors_of(component.id))
        assert local == min(component.parallelism, len(senders))


@given(topologies(most_components=8))
def test_the_order_of_a_job_is_topological(topology: Topology) -> None:
    order = job_order(topology)
    assert sorted(order) == sorted(component.id for component in topology.components)
    for source, destination, _ in topology.links():
        assert order.index(source.id) < order.index(destination.id)


@pytest.mark.parametrize("policy", POLICIES)
@given(problem=problems())
def test_topologies_are_placed_as_a_whole_or_not_at_all_and_complete_ones_stay(
    policy: Policy, problem: Problem
) -> None:
    plan = place(policy, problem)
    before = running(problem)
    for topology in problem.topologies:
        placement = plan.placements[topology.id]
        if sum(map(len, before[topology.id].values())) == len(topology.executors):
            assert not [worker for worker in plan.freed if worker.topology == topology.id]
            continue
        slots = defaultdict(list)
        for executor, slot in placement.assignments.items():
            slots[slot].append(executor.component)
        assert placement.status == ("placed" if slots else "failed")
        assert len(slots) == (max(c.parallelism for c in topology.components) if slots else 0)
        assert all(len(set(components)) == len(components) for components in slots.values())


SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 5), min_size=1)
TOTALS = st.lists(st.integers(1, 8), min_size=1, max_size=6)


@given(SIZES, TOTALS)
def test_slots_are_taken_node_by_node_or_evenly_and_balanced_ones_are_those_of_the_default(
    sizes: dict[str, int], parallelism: list[int]
) -> None:
    problem = Problem(nodes_of(**sizes), (chain(*parallelism),))
    plans = {policy: place(policy, problem).placements["t"] for policy in POLICIES}
    if max(parallelism) > sum(sizes.values()):
        assert {placement.status for placement in plans.values()} == {"failed"}
        return
    used = {policy: set(placement.assignments.values()) for policy, placement in plans.items()}
    assert used[FlinkBalancedTasks] == used[FlinkDefault]
    count = {policy: Counter(slot.node for slot in slots) for policy, slots in used.items()}
    partly = [node for node in sorted(sizes) if count[FlinkDefault][node] < sizes[node]]
    assert not any(count[FlinkDefault][node] for node in partly[1:])
    spread = count[FlinkEvenSlots]
    for one in spread:
        for other in sizes:
            assert spread[other] == sizes[other] or (spread[one] - 1) / sizes[one] <= spread[other] / sizes[other]


@given(SIZES, TOTALS)
def test_nodes_of_equally_many_balanced_slots_differ_by_one_executor_at_most(
    sizes: dict[str, int], parallelism: list[int]
) -> None:
    assignments = place(FlinkBalancedTasks, Problem(nodes_of(**sizes), (chain(*parallelism),))).placements["t"]
    slots = Counter(slot.node for slot in set(assignments.assignments.values()))
    loads = Counter(slot.node for slot in assignments.assignments.values())
    for number in set(slots.values()):
        loads_of_equal_nodes = [loads[node] for node in slots if slots[node] == number]
        assert max(loads_of_equal_nodes) - min(loads_of_equal_nodes) <= 1


def test_long_chains_and_large_components_are_shared() -> None:
    deep = graph(c0=(1, ""), **{f"c{at}": (1, f"c{at - 1}") for at in range(1, 5000)})
    assert job_order(deep) == [f"c{at}" for at in range(5000)]
    assert with_local_inputs(chain(10_000))[9_999] == [Executor("a", 9_999)]
