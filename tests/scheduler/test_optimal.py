"""`optimal` finds the minimum rate between nodes and marks it as proven only then."""

import pytest
from hypothesis import given
from partitioning_problems import APPLICATIONS, MICRO, cluster, executors_per_node, minimum, rounds, w

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning.bounds import Density
from scheduler.partitioning.exact import search
from scheduler.partitioning.exact_by_node import few_fillings, search_by_node
from scheduler.partitioning.instance import instance_of
from scheduler.problem import Problem
from scheduler.registry import Checked
from workloads.example_topologies import layered, linear
from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic

OPTIMAL = Checked(Optimal, OptimalParams())


@pytest.mark.parametrize(
    "problem", [*MICRO, *APPLICATIONS], ids=lambda p: f"{p.topologies[0].id}-{len(p.cluster.nodes)}"
)
def test_published_benchmarks_are_proven(problem: Problem) -> None:
    plan = OPTIMAL.place(problem)
    assert plan.details["proven"]
    assert plan.details["lower_bound"] == w(problem, plan)
    assert all(
        count <= (node.capacity or 0)
        for node, count in zip(problem.cluster.nodes, executors_per_node(problem, plan).values(), strict=True)
    )


@given(rounds())
def test_it_equals_exhaustive_search(problem: Problem) -> None:
    plan = OPTIMAL.place(problem)
    least = minimum(problem)
    if least is None:
        assert plan.placements["t"].status == "failed"
        return
    assert plan.placements["t"].status == "placed"
    assert w(problem, plan) == pytest.approx(least, abs=1e-12)
    assert plan.details["proven"]
    assert plan.details["lower_bound"] == w(problem, plan)


@given(rounds(most=9, nodes=4))
def test_both_exact_searches_agree(problem: Problem) -> None:
    instance = instance_of(problem, problem.topologies)
    by_executor = search(instance, Density(instance), -1, lambda: False)
    assert by_executor.complete
    if by_executor.node_of is not None:
        assert instance.fits(by_executor.node_of)
        assert instance.cut(by_executor.node_of) == instance.total_rate - by_executor.most
    fillings = few_fillings(instance)
    if fillings is not None:
        by_node = search_by_node(instance, fillings, -1, lambda: False)
        assert by_node.most == by_executor.most
        if by_node.node_of is not None:
            assert instance.fits(by_node.node_of)
            assert instance.cut(by_node.node_of) == instance.total_rate - by_node.most


@given(rounds(most=9, nodes=4))
def test_no_bound_is_above_the_optimum(problem: Problem) -> None:
    instance = instance_of(problem, problem.topologies)
    best = search(instance, Density(instance), -1, lambda: False)
    if best.node_of is not None:
        for sets in (0, 4000):
            assert Density(instance, sets).least_cut(instance) <= instance.total_rate - best.most


def test_the_rate_that_a_hub_must_cut_is_a_bound() -> None:
    # The hub and eleven leaves on nodes of 4: three leaves stay with it, at best those with rates 9, 10 and 11.
    topology = Topology("t", (Component("hub", "spout"), Component("leaf", "bolt", 11, inputs=(Input("hub"),))))
    edges = tuple(Edge("hub[0]", f"leaf[{at}]", float(at + 1)) for at in range(11))
    instance = instance_of(Problem(cluster(4, 4, 4), (topology,), Traffic(edges)), (topology,))
    assert Density(instance, 0).least_cut(instance) == sum(range(1, 9)) * instance.rate_scale


def test_a_search_that_is_cut_short_is_not_proven_and_has_a_bound() -> None:
    topology, traffic = layered(60, 1)
    problem = Problem(cluster(*[8] * 9), (topology,), traffic)
    plan = Checked(Optimal, OptimalParams(time_limit_s=0.2)).place(problem)
    assert plan.placements[topology.id].status == "placed"
    assert not plan.details["proven"]
    assert plan.details["limit_hit"]
    assert 0 <= plan.details["lower_bound"] < w(problem, plan)
    assert 0 < plan.details["gap"] <= 1


def test_loads_are_packed_even_if_only_one_packing_fits() -> None:
    nodes = Cluster((Node(id="a", cpu=10), Node(id="b", cpu=10)))
    loads = {"s[0]": 6.0, "s[1]": 5.0, "s[2]": 5.0, "s[3]": 4.0}
    topology = Topology("t", (Component("s", "spout", 4),))
    plan = OPTIMAL.place(Problem(nodes, (topology,), Traffic(load=loads)))
    where = {e.name: slot.node for e, slot in plan.placements["t"].assignments.items()}
    assert where["s[0]"] == where["s[3]"] != where["s[1]"] == where["s[2]"]


def test_running_executors_stay_when_no_placement_is_better() -> None:
    nodes = cluster(3, 3, 2)
    workers = (
        ExistingWorker("linear-4", "n0001", 3, ("op0[0]", "op0[1]", "op1[0]")),
        ExistingWorker("linear-4", "n0002", 1, ("op1[1]",)),
    )
    plan = OPTIMAL.place(Problem(Cluster(nodes.nodes, existing=workers), (linear(4),)))
    assert not plan.freed
    assert not plan.migrations


def test_other_topologies_keep_their_capacity_and_slots() -> None:
    nodes = cluster(2, 2, slots=1)
    other = ExistingWorker("other", "n0000", 0, ("x[0]",))
    pair = Topology("t", (Component("a", "spout"), Component("b", "bolt", inputs=(Input("a"),))))
    plan = OPTIMAL.place(Problem(Cluster(nodes.nodes, existing=(other,)), (pair,)))
    assert {slot.node for slot in plan.placements["t"].assignments.values()} == {"n0001"}


def test_a_topology_that_does_not_fit_beside_the_others_fails_alone() -> None:
    first, second, third = (
        Topology(name, (Component("s", "spout", size),)) for name, size in zip("abc", (3, 4, 2), strict=True)
    )
    plan = OPTIMAL.place(Problem(cluster(3, 2), (first, second, third)))
    assert [plan.placements[name].status for name in "abc"] == ["placed", "failed", "placed"]
    assert "weigh 7 in all" in plan.placements["b"].message


def test_an_executor_that_no_node_holds_is_named() -> None:
    big = Topology("t", (Component("small", "spout", cpu=1), Component("big", "spout", cpu=500)))
    nodes = Cluster((Node(id="a", cpu=400), Node(id="b", cpu=400)))
    message = OPTIMAL.place(Problem(nodes, (big,))).placements["t"].message
    assert "big[0]" in message
