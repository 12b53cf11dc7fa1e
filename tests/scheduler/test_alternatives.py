"""Alternatives of an executor: the cost on every other node equals that of moving it, and violated limits are named."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from partitioning_problems import cluster, w

from inventory.cluster import Cluster, Node
from inventory.errors import InputError
from scheduler.explain.alternatives import explain_executor, find_executor
from scheduler.problem import Placement, Plan, Problem, Slot
from workloads.example_topologies import layered, linear
from workloads.topology import Component, Input, Topology


@given(st.integers(12, 40), st.integers(0, 50), st.booleans(), st.data())
def test_the_cost_of_an_alternative_is_that_of_the_plan_with_the_executor_moved(
    size: int, seed: int, observed: bool, data: Any
) -> None:
    topology, traffic = layered(size, seed)
    problem = Problem(cluster(*[size] * 4), (topology,), traffic if observed else None)
    executors = topology.executors
    nodes = data.draw(st.lists(st.integers(0, 3), min_size=len(executors), max_size=len(executors)))
    placed = {e: Slot(problem.cluster.nodes[at].id, 0) for e, at in zip(executors, nodes, strict=True)}
    plan = Plan({topology.id: Placement(placed, "placed", "")})
    executor = data.draw(st.sampled_from(executors))
    explanation = explain_executor(problem, plan, topology, executor)
    assert explanation.w == pytest.approx(w(problem, plan))
    assert {each.node for each in explanation.alternatives} == {n.id for n in problem.cluster.nodes} - {
        placed[executor].node
    }
    for each in explanation.alternatives:
        moved = Plan({topology.id: Placement({**placed, executor: Slot(each.node, 0)}, "placed", "")})
        assert each.w == pytest.approx(w(problem, moved))
        assert each.change == pytest.approx(w(problem, moved) - w(problem, plan))
    changes = [each.change for each in explanation.alternatives]
    assert changes == sorted(changes)


def test_nodes_are_forbidden_by_load_memory_slots_and_availability() -> None:
    topology = Topology(
        "t", (Component("a", "spout", 2, memory_mb=300), Component("b", "bolt", 2, memory_mb=300, inputs=(Input("a"),)))
    )
    nodes = (
        Node(id="host", capacity=9, slots=1, memory_mb=9000),
        Node(id="full", capacity=2, slots=1, memory_mb=700),
        Node(id="away", capacity=9, slots=1, memory_mb=9000, available=False),
        Node(id="none", capacity=9, slots=0, memory_mb=9000),
        Node(id="free", capacity=9, slots=1, memory_mb=9000),
    )
    problem = Problem(Cluster(nodes), (topology,))
    places = dict(zip(topology.executors, ("host", "full", "host", "full"), strict=True))
    plan = Plan({"t": Placement({e: Slot(node, 0) for e, node in places.items()}, "placed", "")})
    explanation = explain_executor(problem, plan, *find_executor(problem, "a[0]"))
    assert (explanation.node, explanation.w) == ("host", 2)
    assert {each.node: each.forbidden for each in explanation.alternatives} == {
        "full": ("load 3 of 2", "memory 900 of 700 MB"),
        "away": ("not available",),
        "none": ("no free slot of 0",),
        "free": (),
    }


def test_executors_are_found_by_name_or_by_topology_and_name() -> None:
    one, two = linear(4), replace(linear(4), id="two")
    alone, both = Problem(cluster(9), (one,)), Problem(cluster(9), (one, two))
    assert find_executor(alone, "op1[0]") == (one, one.executor_named["op1[0]"])
    assert find_executor(both, "two/op1[0]")[0] == two
    with pytest.raises(InputError, match=r"--why: got 'op1\[0\]': 2 topologies .* linear-4/op1\[0\] or two/op1\[0\]"):
        find_executor(both, "op1[0]")
    with pytest.raises(InputError, match=r"--why: unknown executor 'op1\[7\]'.*op1\["):
        find_executor(alone, "op1[7]")


def test_alternatives_of_an_unplaced_executor_are_compared_with_the_plan_without_it() -> None:
    topology = linear(4)
    problem = Problem(cluster(2, 9), (topology,))
    first, *others = topology.executors
    placed = {e: Slot("n0001", 0) for e in others}
    plan = Plan({topology.id: Placement(placed, "partial", "too few slots")})
    explanation = explain_executor(problem, plan, topology, first)
    assert explanation.node is None
    assert [(each.node, each.change) for each in explanation.alternatives] == [("n0001", 0), ("n0000", 2)]
