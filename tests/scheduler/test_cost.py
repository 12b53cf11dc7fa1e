"""Cost of a placement: worked examples, then against counting pair by pair."""

import math
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, Node
from inventory.values import MOST
from scheduler.problem import Placement, Problem, Slot, concluded
from scheduler.toolkit.cost import Cost, Loads, cost
from workloads.topology import Component, Executor, Input, Topology
from workloads.traffic import Edge, Traffic


def placement_at(topology: Topology, **slots: tuple[str, int]) -> dict[str, Placement]:
    """`placement_at(t, a0=("n", 1))`: executor a[0] in slot 1 of n."""
    assignments = {Executor(name[0], int(name[1:])): Slot(*slot) for name, slot in slots.items()}
    return {topology.id: concluded(topology, assignments, "as given")}


TWO_BY_TWO = chain(2, 2)
SPREAD = placement_at(TWO_BY_TWO, a0=("n", 0), a1=("n", 1), b0=("m", 0), b1=("n", 0))


def test_a_worked_example_at_rate_1() -> None:
    # Pairs: a0-b0 and a1-b0 between nodes, a0-b1 in one worker, a1-b1 between workers of n.
    problem = Problem(nodes_of(n=2, m=2), (TWO_BY_TWO,))
    assert cost(problem, SPREAD) == Cost(
        inter_node_edges=2,
        inter_node_tuples_per_s=None,
        inter_worker_edges=1,
        nodes_used=2,
        slots_used=3,
        load_stddev=pytest.approx((30 - 10) / 400 / 2),
    )


def test_with_traffic_w_is_the_observed_rate_and_a_listed_0_is_0() -> None:
    edges = (Edge("a[0]", "b[0]", 2.5), Edge("b[0]", "a[0]", 1.0), Edge("a[1]", "b[0]", 0), Edge("a[0]", "b[1]", 9))
    result = cost(Problem(nodes_of(n=2, m=2), (TWO_BY_TWO,), Traffic(edges)), SPREAD)
    assert result.inter_node_tuples_per_s == 3.5
    assert result.inter_node_edges == 2


def test_traffic_between_pairs_that_no_grouping_links_counts_too() -> None:
    traffic = Traffic((Edge("a[0]", "a[1]", 4), Edge("b[0]", "b[1]", 8)))
    assert cost(Problem(nodes_of(n=2, m=2), (TWO_BY_TWO,), traffic), SPREAD).inter_node_tuples_per_s == 8


def test_a_pair_that_sends_both_ways_counts_once_and_self_loops_do_not_count() -> None:
    ring = Topology(
        id="t",
        components=(
            Component(id="a", kind="bolt", inputs=(Input("b"), Input("a"))),
            Component(id="b", kind="bolt", parallelism=2, inputs=(Input("a"), Input("b", "global"))),
        ),
    )
    problem = Problem(nodes_of(n=1, m=1, o=1), (ring,))
    result = cost(problem, placement_at(ring, a0=("n", 0), b0=("m", 0), b1=("o", 0)))
    assert result.inter_node_edges == 3  # a0-b0, a0-b1, b0-b1


def test_executors_without_a_slot_do_not_count() -> None:
    result = cost(Problem(nodes_of(n=2, m=2), (TWO_BY_TWO,)), placement_at(TWO_BY_TWO, a0=("n", 0), b0=("m", 0)))
    assert (result.inter_node_edges, result.slots_used) == (1, 2)
    empty = cost(Problem(nodes_of(n=2, m=2), (TWO_BY_TWO,)), placement_at(TWO_BY_TWO))
    assert empty == Cost(0, None, 0, 0, 0, 0.0)


def test_load_is_observed_or_else_declared() -> None:
    topology = Topology(id="t", components=(Component(id="a", kind="spout", parallelism=2, cpu=50),))
    cluster = Cluster((Node(id="n", cpu=200), Node(id="m", cpu=100)))
    traffic = Traffic(load={"a[1]": 80.0})
    placed = placement_at(topology, a0=("n", 0), a1=("m", 0))
    assert cost(Problem(cluster, (topology,)), placed).load_stddev == pytest.approx((0.5 - 0.25) / 2)
    assert cost(Problem(cluster, (topology,), traffic), placed).load_stddev == pytest.approx((0.8 - 0.25) / 2)


def test_with_capacity_on_every_node_executors_are_counted() -> None:
    topology = chain(3)
    placed = placement_at(topology, a0=("n", 0), a1=("n", 0), a2=("m", 0))
    both = Problem(Cluster((Node(id="n", capacity=4), Node(id="m", capacity=1))), (topology,))
    assert Loads(both).unit == "executors"
    assert cost(both, placed).load_stddev == pytest.approx((1.0 - 0.5) / 2)
    one = Problem(Cluster((Node(id="n", capacity=4), Node(id="m"))), (topology,))
    assert Loads(one).unit == "points"
    assert Loads(one).capacity == {"n": 400, "m": 400}


def test_balance_counts_available_nodes_only_and_is_none_without_capacity() -> None:
    topology = chain(1)
    placed = placement_at(topology, a0=("n", 0))
    assert cost(Problem(Cluster((Node(id="n"), Node(id="off", available=False))), (topology,)), placed).load_stddev == 0
    assert cost(Problem(Cluster((Node(id="n", cpu=0), Node(id="m"))), (topology,)), placed).load_stddev is None
    unavailable = Problem(Cluster((Node(id="off", available=False),)), (topology,))
    assert cost(unavailable, placement_at(topology)).load_stddev is None


@given(st.lists(st.floats(0, MOST), min_size=2, max_size=4))
@example([1e-200, 1.0])  # the share is finite, its square is not
@example([1e-306, 1e-306])  # the shares are finite, their sum is not
def test_balance_is_finite_or_unknown_even_with_tiny_capacities(capacities: list[float]) -> None:
    names = "nmop"[: len(capacities)]
    cluster = Cluster(tuple(Node(id=name, cpu=cpu) for name, cpu in zip(names, capacities, strict=True)))
    placed = placement_at(TWO_BY_TWO, a0=("n", 0), a1=("n", 0), b0=("m", 0), b1=("m", 0))
    spread = cost(Problem(cluster, (TWO_BY_TWO,)), placed).load_stddev
    assert spread is None or 0 <= spread < math.inf


@given(problems(cycles=True, observed=True), st.data())
def test_agrees_with_counting_pair_by_pair(problem: Problem, data: st.DataObject) -> None:
    places = [Slot(node.id, index) for node in problem.cluster.available for index in range(node.slots)]
    placements: dict[str, Placement] = {}
    slot_of: dict[str, Slot] = {}
    for topology in problem.topologies:
        assignments = {}
        for executor in topology.executors:
            slot = data.draw(st.sampled_from([None, *places]))
            if slot is not None:
                assignments[executor] = slot_of[executor.name] = slot
        placements[topology.id] = concluded(topology, assignments, "random")
    between = within = 0
    for topology in problem.topologies:
        linked = {frozenset(pair) for pair in topology.pairs()}
        for one, other in combinations(placements[topology.id].assignments.items(), 2):
            if frozenset((one[0], other[0])) in linked:
                between += one[1].node != other[1].node
                within += one[1].node == other[1].node and one[1] != other[1]
    rate = math.fsum(
        edge.tuples_per_s
        for edge in problem.traffic.edges
        if edge.source in slot_of
        and edge.destination in slot_of
        and slot_of[edge.source].node != slot_of[edge.destination].node
    )
    result = cost(problem, placements)
    assert (result.inter_node_edges, result.inter_worker_edges) == (between, within)
    assert result.inter_node_tuples_per_s == rate
    assert result.slots_used == len(set(slot_of.values()))
    assert result.nodes_used == len({slot.node for slot in slot_of.values()})


@given(problems(cycles=True), st.permutations(["n1", "n10", "n2", "a", "Z", "m"]), st.data())
def test_renaming_nodes_changes_no_cost(problem: Problem, names: list[str], data: st.DataObject) -> None:
    places = [Slot(node.id, index) for node in problem.cluster.available for index in range(node.slots)]
    placements = {
        topology.id: concluded(
            topology, {e: data.draw(st.sampled_from(places)) for e in topology.executors if places}, "random"
        )
        for topology in problem.topologies
    }
    new = dict(zip(["n1", "n10", "n2", "a", "Z", "m"], names, strict=True))
    renamed = {
        topology.id: concluded(
            topology,
            {e: Slot(new[slot.node], slot.index) for e, slot in placements[topology.id].assignments.items()},
            "renamed",
        )
        for topology in problem.topologies
    }
    nodes = tuple(replace(node, id=new[node.id]) for node in problem.cluster.nodes)
    assert cost(Problem(Cluster(nodes), problem.topologies), renamed) == cost(problem, placements)
