"""`er-stream`: fewest nodes, most traffic inside them; the optima of the published cases."""

from collections import Counter
from itertools import chain as chained

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import chain, nodes_of, problems, topologies

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms import er_stream
from scheduler.algorithms.er_stream import ErStream, ErStreamParams
from scheduler.problem import Plan, Problem, Slot
from scheduler.registry import Checked
from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.cost import cost
from scheduler.toolkit.local_traffic import ClassTraffic, PairTraffic, inside_of, observed_rates
from workloads.topology import Component, Executor, Input, Topology
from workloads.traffic import Edge, Traffic

WORD_COUNT = chain(6, 18, 8)
TOP_N = Topology(
    id="t",
    components=(
        *chain(4, 8, 6).components,
        Component(id="d", kind="bolt", parallelism=2, inputs=(Input("c", "global"),)),
    ),
)
QUICK = ErStreamParams(population=6, generations=5)


def place(problem: Problem, params: ErStreamParams | None = None) -> Plan:
    return Checked(ErStream, params or ErStreamParams()).place(problem)


def equal_nodes(nodes: int, slots: int) -> Cluster:
    return nodes_of(**{f"n{at}": slots for at in range(nodes)})


@pytest.mark.parametrize(
    ("topology", "nodes", "slots", "cut", "total"),
    [(WORD_COUNT, 4, 8, 190, 252), (WORD_COUNT, 8, 4, 222, 252), (TOP_N, 4, 5, 64, 86), (TOP_N, 7, 3, 74, 86)],
)
def test_the_best_cuts_of_the_published_topologies_are_found(
    topology: Topology, nodes: int, slots: int, cut: int, total: int
) -> None:
    plan = place(Problem(equal_nodes(nodes, slots), (topology,)))
    assert plan.details == {"used_nodes": list(range(nodes)), "fitness": (total - cut) / nodes, "cut": cut}


def test_the_fewest_nodes_are_used_those_with_most_places_first_then_by_id() -> None:
    cluster = nodes_of(c=3, b=3, small=1, a=3, large=4)
    plan = place(Problem(cluster, (chain(4, 4),)), QUICK)
    assert plan.details["used_nodes"] == [1, 3, 4]  # b, a, large
    assert {slot.node for slot in plan.placements["t"].assignments.values()} == {"a", "b", "large"}


def test_capacity_counts_where_it_is_given() -> None:
    cluster = Cluster((Node(id="a", slots=4, capacity=2.9), Node(id="b", slots=1, capacity=5)))
    plan = place(Problem(cluster, (chain(3, 3),)), QUICK)
    on = Counter(slot for slot in plan.placements["t"].assignments.values())
    assert on[Slot("a", 0)] <= 2
    assert on[Slot("b", 0)] <= 5


def test_a_cluster_that_is_too_small_places_nothing() -> None:
    placement = place(Problem(equal_nodes(2, 2), (chain(2, 3),))).placements["t"]
    assert (placement.assignments, placement.status) == ({}, "failed")
    assert placement.message == "5 executors wait, and the cluster has places for 4 of them"


def test_details_without_any_place() -> None:
    assert place(Problem(equal_nodes(1, 0), (chain(2),))).details == {"used_nodes": [], "fitness": None, "cut": 0}


def test_skewed_traffic_is_kept_inside_nodes() -> None:
    topology = chain(4, 4)
    edges = tuple(Edge(f"a[{at}]", f"b[{(at + 1) % 4}]", 0.25) for at in range(4))
    noise = tuple(Edge(f"b[{at}]", f"a[{at}]", 0.01) for at in range(4))
    plan = place(Problem(equal_nodes(4, 2), (topology,), Traffic(edges + noise)))
    slots = plan.placements["t"].assignments
    for at in range(4):
        assert slots[Executor("a", at)] == slots[Executor("b", (at + 1) % 4)]
    assert plan.details["cut"] == pytest.approx(0.04)
    assert plan.details["fitness"] == pytest.approx(0.25)


def test_an_observed_rate_of_0_is_0_and_an_unobserved_topology_counts_pairs() -> None:
    traffic = Traffic((Edge("a[0]", "b[0]", 0.0),))
    assert place(Problem(equal_nodes(2, 1), (chain(1, 1),), traffic)).details["cut"] == 0
    assert place(Problem(equal_nodes(2, 1), (chain(1, 1),), Traffic(load={"a[0]": 1.0}))).details["cut"] == 1


@pytest.mark.parametrize("unit", [1e-300, 1e-9, 1.0, 0.1, 1e15, 1e300])
def test_the_unit_of_rates_does_not_matter(unit: float) -> None:
    edges = (Edge("a[0]", "b[1]", 3 * unit), Edge("a[1]", "b[0]", 2 * unit), Edge("a[0]", "b[0]", 4 * unit))
    plan = place(Problem(equal_nodes(2, 2), (chain(2, 2),), Traffic(edges)))
    assert plan.details["cut"] == pytest.approx(4 * unit)
    slots = plan.placements["t"].assignments
    assert slots[Executor("a", 0)] == slots[Executor("b", 1)]


def test_running_executors_stay_attract_others_and_take_places() -> None:
    existing = (ExistingWorker("t", "small", 0, ("a[0]",)), ExistingWorker("other", "big", 0, ("x[0]", "x[1]")))
    cluster = Cluster(nodes_of(big=5, small=3).nodes, existing=existing)
    edges = (Edge("a[0]", "b[1]", 9.0), Edge("a[0]", "b[2]", 9.0), Edge("a[1]", "b[0]", 1.0))
    plan = place(Problem(cluster, (chain(2, 3),), Traffic(edges)))
    assert plan.placements["t"].assignments == {
        Executor("a", 0): Slot("small", 0),
        Executor("b", 1): Slot("small", 0),
        Executor("b", 2): Slot("small", 0),
        Executor("a", 1): Slot("big", 1),
        Executor("b", 0): Slot("big", 1),
    }
    assert plan.freed == ()


def test_topologies_are_placed_one_after_the_other() -> None:
    plan = place(Problem(equal_nodes(2, 2), (chain(2, name="t"), chain(1, 1, name="u"), chain(1, name="v"))))
    nodes = {name: {slot.node for slot in p.assignments.values()} for name, p in plan.placements.items()}
    assert nodes == {"t": {"n0"}, "u": {"n1"}, "v": set()}
    assert plan.details == {"used_nodes": [0, 1], "fitness": 0.5, "cut": 0}


def test_the_work_of_a_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(er_stream, "MOST_WORK", 100_000)
    plan = place(
        Problem(equal_nodes(2, 9), (chain(9, 9),)), ErStreamParams(population=5, generations=1_000_000, stall=10**6)
    )
    # 5 * (2000 + 15 * 18 + 18 + 2 * 2 + 3 * 2) numbers per generation, the first one included.
    assert plan.placements["t"].message == "too large for the whole search: 7 of 1000000 generations"
    assert plan.placements["t"].status == "placed"


def test_a_problem_too_large_to_search_fills_nodes_in_order() -> None:
    many = Cluster(tuple(Node(id=f"n{at}", capacity=1e12 if at == 9 else 1000) for at in range(10)))
    plan = place(Problem(many, (chain(6000, 6000),)), ErStreamParams(population=10_000))
    assert plan.placements["t"].message == "too large for the search: nodes are filled one after the other"
    assert plan.details == {"used_nodes": [9], "fitness": 36e6, "cut": 0}
    plan = place(Problem(equal_nodes(80, 100), (chain(4000, 4000),)), ErStreamParams(population=10_000))
    assert Counter(slot.node for slot in plan.placements["t"].assignments.values()) == {f"n{a}": 100 for a in range(80)}


def traffic_pair_by_pair(
    topology: Topology, rates: dict[tuple[int, int], float] | None, nodes: list[int]
) -> tuple[float, float]:
    """Return the traffic inside nodes and the total, counted pair by pair."""
    if rates is None:
        number = topology.number_of
        pairs = {frozenset((number[u], number[v])) for u, v in topology.pairs() if u != v}
        rates = {(min(pair), max(pair)): 1 for pair in pairs}
    return sum(r for (u, v), r in rates.items() if nodes[u] == nodes[v]), sum(rates.values())


@given(topologies(cycles=True), st.randoms(use_true_random=False), st.integers(1, 4))
def test_all_traffic_models_count_the_pairs_inside_nodes(topology: Topology, random: object, nodes: int) -> None:
    placed = [random.randrange(nodes) for _ in topology.executors]  # type: ignore[attr-defined]
    number = topology.number_of
    pairs = {tuple(sorted((number[u], number[v]))) for u, v in topology.pairs() if u != v}
    models = [ClassTraffic(topology, nodes), PairTraffic(dict.fromkeys(pairs, 1)), inside_of(topology, None, nodes)]  # type: ignore[arg-type]
    assert {(model.of(np.array(placed)), model.total) for model in models} == {
        traffic_pair_by_pair(topology, None, placed)
    }


def test_long_chains_on_many_nodes_are_counted_pair_by_pair() -> None:
    topology = chain(*[1] * 20)
    assert isinstance(inside_of(topology, None, 20), PairTraffic)
    assert isinstance(inside_of(chain(9, 9), None, 2), ClassTraffic)
    assert inside_of(topology, None, 20).of(np.array([0] * 10 + [1] * 10)) == 18


@settings(deadline=None)
@given(problems(cycles=True, observed=True), st.integers(0, 3))
def test_details_have_the_traffic_of_the_placement(problem: Problem, seed: int) -> None:
    plan = place(problem, ErStreamParams(population=4, generations=4, seed=seed))
    inside = total = 0.0
    for topology in problem.topologies:
        placed = plan.placements[topology.id].assignments
        nodes = [placed[e].node if e in placed else None for e in topology.executors]
        rates = observed_rates(topology, problem.traffic)
        if rates is None:
            number = topology.number_of
            rates = {(min(p), max(p)): 1.0 for u, v in topology.pairs() if len(p := {number[u], number[v]}) == 2}
        both = {pair: rate for pair, rate in rates.items() if all(nodes[end] is not None for end in pair)}
        inside += sum(rate for (u, v), rate in both.items() if nodes[u] == nodes[v])
        total += sum(both.values())
    used = plan.details["used_nodes"]
    assert plan.details["cut"] == total - inside
    assert plan.details["fitness"] == (inside / len(used) if used else None)
    slots = chained.from_iterable(p.assignments.values() for p in plan.placements.values())
    assert {problem.cluster.nodes[at].id for at in used} == {slot.node for slot in slots}
    if all(observed_rates(topology, problem.traffic) is None for topology in problem.topologies):
        assert plan.details["cut"] == cost(problem, plan.placements).inter_node_edges


@settings(deadline=None)
@given(problems(cycles=True))
def test_no_node_gets_more_than_its_places_and_no_topology_more_nodes_than_it_needs(problem: Problem) -> None:
    plan = place(problem, QUICK)
    before = Counter(
        {
            node.id: sum(len(w.executors) for w in problem.existing if w.node == node.id)
            for node in problem.cluster.nodes
        }
    )
    now = before.copy()
    running = {(w.topology, name) for w in problem.existing for name in w.executors}
    for name, placement in plan.placements.items():
        now.update(s.node for e, s in placement.assignments.items() if (name, e.name) not in running)
    for node in problem.cluster.available:
        assert now[node.id] <= max(node.slots, before[node.id])
    if len(problem.topologies) == 1 and not problem.existing and plan.details["used_nodes"]:
        needed, unplaced = 0, len(problem.topologies[0].executors)
        for places in sorted((node.slots for node in problem.cluster.available), reverse=True):
            needed, unplaced = needed + (unplaced > 0), unplaced - places
        assert len(plan.details["used_nodes"]) == needed


def test_a_global_grouping_splits_classes() -> None:
    assert len(classes_of(TOP_N).members) == 5
    assert ClassTraffic(TOP_N, 1).total == 86
