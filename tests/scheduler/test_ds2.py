"""`ds2`: initial placement, with workers that use one core each."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.ds2 import Ds2, Ds2Params
from scheduler.problem import Plan, Problem, Slot
from scheduler.registry import Checked
from workloads.topology import Component, Executor, Input, Topology
from workloads.traffic import Traffic


def place(problem: Problem, **params: float) -> Plan:
    return Checked(Ds2, Ds2Params(**params)).place(problem)  # type: ignore[arg-type]


def workers(plan: Plan, topology: str = "t") -> dict[str, str]:
    """Return slot -> executors."""
    found: dict[str, list[str]] = {}
    for executor, slot in sorted(plan.placements[topology].assignments.items()):
        found.setdefault(f"{slot.node}/{slot.index}", []).append(executor.name)
    return {slot: " ".join(names) for slot, names in sorted(found.items())}


def chain_with_cpu(*cpu: float) -> Topology:
    """A chain of single executors with these CPU points."""
    spout = Component("c0", "spout", cpu=cpu[0])
    bolts = [Component(f"c{at}", "bolt", cpu=points, inputs=(Input(f"c{at - 1}"),)) for at, points in enumerate(cpu)]
    return Topology("t", (spout, *bolts[1:]))


def test_a_worker_gets_executors_up_to_the_target() -> None:
    plan = place(Problem(nodes_of(a=4, b=4), (chain(5, 5),)))  # 10 points each
    assert [len(names.split()) for names in workers(plan).values()] == [8, 2]
    assert set(workers(plan)) == {"a/0", "a/1"}
    half = place(Problem(nodes_of(a=4, b=4), (chain(5, 5),)), target=0.5)
    assert [len(names.split()) for names in workers(half).values()] == [5, 5]


def test_slots_of_a_node_come_before_other_nodes_and_the_largest_executors_first() -> None:
    cluster = Cluster(tuple(Node(id=name, slots=3, cpu=200.0) for name in "ab"))
    plan = place(Problem(cluster, (chain_with_cpu(50, 70, 30, 70),)))
    assert workers(plan) == {"a/0": "c1[0]", "a/1": "c3[0]", "b/0": "c0[0] c2[0]"}  # 160 of 200 points of a node
    assert plan.details["over_capacity"] == []


def test_an_executor_larger_than_the_target_has_a_separate_worker() -> None:
    cluster = Cluster((Node(id="a", slots=3, cpu=300.0),))
    plan = place(Problem(cluster, (chain_with_cpu(95, 10, 10),)))
    assert workers(plan) == {"a/0": "c0[0]", "a/1": "c1[0] c2[0]"}
    assert plan.details["over_capacity"] == []


def test_at_most_max_nodes_are_used_and_executors_over_capacity_are_named() -> None:
    cluster = Cluster(tuple(Node(id=name, slots=2, cpu=100.0) for name in "abc"))
    topology = chain_with_cpu(60, 60, 60, 20)
    assert set(workers(place(Problem(cluster, (topology,))))) == {"a/0", "b/0", "c/0"}
    plan = place(Problem(cluster, (topology,)), max_nodes=2)
    assert plan.placements["t"].status == "placed"
    assert {slot.node for slot in plan.placements["t"].assignments.values()} == {"a", "b"}
    assert plan.details["over_capacity"] == [2]


def test_observed_loads_count_also_those_of_other_topologies() -> None:
    nodes = tuple(Node(id=name, slots=2, cpu=100.0) for name in "ab")
    cluster = Cluster(nodes, existing=(ExistingWorker("other", "a", 0, ("x[0]", "y[0]")),))
    declared = place(Problem(cluster, (chain(1, 1),)))
    assert workers(declared) == {"b/0": "a[0] b[0]"}  # a has 20 points in use
    plan = place(Problem(cluster, (chain(1, 1),), Traffic((), {"x[0]": 0.0, "y[0]": 0.0, "a[0]": 70.0})))
    assert workers(plan) == {"a/1": "a[0] b[0]"}
    assert place(Problem(cluster, (chain(1, 1),), Traffic((), {"x[0]": 65.0}))).details["over_capacity"] == []


def test_capacities_of_nodes_count_executors() -> None:
    cluster = Cluster(tuple(Node(id=name, capacity=3.0) for name in "ab"))
    plan = place(Problem(cluster, (chain(3, 2),)))
    assert Counter(slot.node for slot in plan.placements["t"].assignments.values()) == {"a": 3, "b": 2}


def test_without_a_slot_executors_wait() -> None:
    plan = place(Problem(nodes_of(full=0), (chain(2, 1),)))
    assert (plan.placements["t"].status, plan.placements["t"].message) == ("failed", "no free slot: 3 executors wait")


def test_two_topologies_share_nodes_and_no_slot() -> None:
    plan = place(Problem(nodes_of(a=2), (chain(2, name="t"), chain(2, name="u"))))
    assert (workers(plan, "t"), workers(plan, "u")) == ({"a/0": "a[0] a[1]"}, {"a/1": "a[0] a[1]"})


@given(problems(observed=True), st.none() | st.integers(1, 4), st.sampled_from([0.3, 0.8, 1.0]))
def test_running_executors_stay_and_others_are_placed_on_allowed_nodes(
    problem: Problem, max_nodes: int | None, target: float
) -> None:
    plan = place(problem, target=target, **({} if max_nodes is None else {"max_nodes": max_nodes}))
    live = {node.id for node in problem.cluster.available}
    running_nodes: set[str] = set()
    for worker in problem.existing:
        if worker.topology in plan.placements and worker.node in live:
            running_nodes.add(worker.node)
            for name in worker.executors:
                slot = plan.placements[worker.topology].assignments[Executor.named(name)]
                assert slot == Slot(worker.node, worker.slot)
    used = {slot.node for placement in plan.placements.values() for slot in placement.assignments.values()}
    assert max_nodes is None or len(used) <= max(max_nodes, len(running_nodes))
    if plan.details["over_capacity"] or running_nodes:
        return
    for topology in problem.topologies:
        load = problem.traffic.load if problem.traffic else {}
        sums: dict[Slot, list[float]] = {}
        for executor, slot in plan.placements[topology.id].assignments.items():
            points = load.get(executor.name, topology.component[executor.component].cpu_points)
            sums.setdefault(slot, []).append(points)
        assert all(len(each) == 1 or sum(each) <= 100 * target + 1e-6 for each in sums.values())


@pytest.mark.parametrize("cpu", [400.0, 40.0])
def test_ten_thousand_executors_are_placed_even_over_capacity(cpu: float) -> None:
    cluster = Cluster(tuple(Node(id=f"n{at}", slots=4, cpu=cpu) for at in range(1000)))
    plan = place(Problem(cluster, (chain(5000, 5000),)))
    assert plan.placements["t"].status == "placed"
    assert len(plan.details["over_capacity"]) == (0 if cpu == 400 else 7000)
