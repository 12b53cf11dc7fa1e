"""Account of a plan: all views add up to the cost, and bounds hold for placements within capacities."""

from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.explain.explanation import (
    MOST_SEARCHED,
    between_nodes,
    compute_lower_bound,
    cut_links,
    explain_plan,
    heaviest_pairs,
    loads_by_node,
)
from scheduler.problem import Placement, Plan, Problem, Slot
from scheduler.registry import make_scheduler
from scheduler.toolkit.cost import cost
from workloads.example_topologies import diamond, layered, linear, star
from workloads.topology import Executor, Topology
from workloads.traffic import Edge, Traffic

NO_LIMIT = 10**9


def _on(problem: Problem, *nodes: str) -> Plan:
    """Return the plan that places the executors of the only topology in slot 0 of these nodes, in order."""
    (topology,) = problem.topologies
    slots = {executor: Slot(node, 0) for executor, node in zip(topology.executors, nodes, strict=True)}
    return Plan({topology.id: Placement(slots)})


@settings(deadline=None)
@given(problems(cycles=True))
def test_cut_links_and_lines_between_nodes_add_up_to_the_pairs_between_nodes(problem: Problem) -> None:
    plan = make_scheduler("even").place(problem)
    result = cost(problem, plan.placements)
    links = cut_links(problem, plan.placements, NO_LIMIT)
    assert sum(link.cut for link in links) == result.inter_node_edges
    assert all(0 < link.cut <= link.total for link in links)
    nodes = {node.id for node in problem.cluster.nodes}
    lines = between_nodes(problem, plan.placements, nodes)
    assert sum(lines.values()) == result.inter_node_edges
    assert all(one != other and (other, one) not in lines for one, other in lines)


@settings(deadline=None)
@given(problems(cycles=True, observed=True))
def test_with_traffic_all_views_add_up_to_the_observed_rate(problem: Problem) -> None:
    plan = make_scheduler("even").place(problem)
    w = cost(problem, plan.placements).inter_node_tuples_per_s
    assert problem.traffic is not None
    assert sum(link.cut for link in cut_links(problem, plan.placements, NO_LIMIT)) == w
    pairs = heaviest_pairs(problem.traffic, plan.placements, NO_LIMIT)
    assert sum(pair.tuples_per_s for pair in pairs) == w
    assert [pair.tuples_per_s for pair in pairs] == sorted((pair.tuples_per_s for pair in pairs), reverse=True)
    assert all(pair.source_node != pair.destination_node for pair in pairs)
    assert sum(between_nodes(problem, plan.placements, {node.id for node in problem.cluster.nodes}).values()) == w


@settings(deadline=None)
@given(problems())
def test_hosts_hold_every_executor_and_slot_once(problem: Problem) -> None:
    plan = make_scheduler("even").place(problem)
    hosts = loads_by_node(problem, plan)
    placed = [slot for placement in plan.placements.values() for slot in placement.assignments.values()]
    assert [host.id for host in hosts] == [node.id for node in problem.cluster.nodes]
    assert sum(host.executors for host in hosts) == len(placed)
    assert sum(host.slots_used for host in hosts) == len(set(placed))
    assert all(host.slots_used + host.slots_others <= host.slots for host in hosts if host.available)


def test_a_link_names_its_source_first_and_how_much_of_it_is_cut() -> None:
    problem = Problem(nodes_of(m=2, n=2), (chain(2, 3),))
    plan = _on(problem, "m", "m", "m", "n", "n")
    (link,) = cut_links(problem, plan.placements)
    assert (link.source, link.destination, link.cut, link.total) == ("a", "b", 4, 6)
    assert between_nodes(problem, plan.placements, {"m", "n"}) == {("m", "n"): 4}
    assert between_nodes(problem, plan.placements, {"m"}) == {}


def test_rates_of_both_directions_are_one_pair() -> None:
    traffic = Traffic((Edge("a[0]", "b[0]", 3), Edge("b[0]", "a[0]", 4), Edge("a[0]", "b[1]", 5)))
    problem = Problem(nodes_of(m=2, n=2), (chain(1, 2),), traffic)
    plan = _on(problem, "m", "n", "n")
    assert [(p.source, p.destination, p.tuples_per_s) for p in heaviest_pairs(traffic, plan.placements)] == [
        ("a[0]", "b[0]", 7),
        ("a[0]", "b[1]", 5),
    ]


def test_workers_of_other_topologies_add_load_to_their_node() -> None:
    existing = (ExistingWorker("other", "m", 0, ("x[0]", "x[1]")),)
    cluster = Cluster((Node(id="m", cpu=35.0), Node(id="n", cpu=35.0)), existing=existing)
    traffic = Traffic((), {"x[0]": 7.0, "a[1]": 21.0})
    problem = Problem(cluster, (chain(2),), traffic)
    plan = Plan({"t": Placement({Executor("a", 0): Slot("m", 1), Executor("a", 1): Slot("n", 0)})})
    m, n = loads_by_node(problem, plan)
    assert (m.load, m.others_load, m.slots_used, m.slots_others, m.overloaded) == (10.0, 17.0, 1, 1, False)
    assert (n.load, n.others_load, n.slots_used, n.slots_others, n.overloaded) == (21.0, 0.0, 1, 0, False)
    assert m.memory_mb is None
    both = Plan({"t": Placement({Executor("a", 0): Slot("m", 1), Executor("a", 1): Slot("m", 1)})})
    account = explain_plan(problem, both, compute_lower_bound(problem))
    assert account.nodes[0].overloaded
    assert (account.all_placed, account.capacities_kept) == (True, False)


@given(
    st.lists(st.integers(1, 2), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.lists(st.integers(0, 9), min_size=8, max_size=8) | st.none(),
)
def test_the_optimum_is_the_smallest_w_of_all_placements(
    sizes: list[int], capacities: list[int], rates: list[int] | None
) -> None:
    topology = chain(*sizes)
    traffic = None
    if rates is not None:
        pairs = zip(topology.pairs(), rates, strict=False)
        traffic = Traffic(tuple(Edge(one.name, other.name, float(rate)) for (one, other), rate in pairs))
    nodes = tuple(Node(id=f"n{at}", capacity=float(size)) for at, size in enumerate(capacities))
    problem = Problem(Cluster(nodes), (topology,), traffic)
    smallest = inf
    for choice in product(nodes, repeat=len(topology.executors)):
        if all(choice.count(node) <= (node.capacity or 0) for node in nodes):
            result = cost(problem, _on(problem, *(node.id for node in choice)).placements)
            w = result.inter_node_edges if traffic is None else result.inter_node_tuples_per_s
            assert w is not None
            smallest = min(smallest, w)
    bound = compute_lower_bound(problem)
    if smallest == inf:
        assert (bound.lower_bound, bound.optimum) == (None, None)
        assert bound.note.startswith("no placement")
    else:
        assert (bound.lower_bound, bound.optimum, bound.best_found, bound.note) == (smallest, smallest, smallest, "")


@pytest.mark.parametrize("topology", [linear(20), diamond(26), star(32)], ids=lambda topology: topology.id)
def test_it_agrees_with_the_scheduler_optimal(topology: Topology) -> None:
    cluster = Cluster(tuple(Node(id=f"n{at}", capacity=4.0) for at in range(10)))
    problem = Problem(cluster, (topology,))
    plan = make_scheduler("optimal").place(problem)
    bound = compute_lower_bound(problem)
    assert plan.details["proven"]
    assert bound.optimum == cost(problem, plan.placements).inter_node_edges == bound.lower_bound


def test_a_search_without_a_proof_is_marked_and_deterministic() -> None:
    topology, traffic = layered(64, seed=3)
    problem = Problem(Cluster(tuple(Node(id=f"n{at}", capacity=9.0) for at in range(9))), (topology,), traffic)
    bound = compute_lower_bound(problem)
    assert bound.optimum is None
    assert bound.note == "the search ended without a proof"
    assert bound.lower_bound is not None
    assert bound.best_found is not None
    assert bound.lower_bound < bound.best_found
    assert compute_lower_bound(problem) == bound


def test_a_problem_too_large_to_search_has_a_bound_only() -> None:
    topology = chain(2 * MOST_SEARCHED, 2)
    bound = compute_lower_bound(
        Problem(Cluster((Node(id="m", capacity=150.0), Node(id="n", capacity=150.0))), (topology,))
    )
    assert (bound.optimum, bound.best_found) == (None, None)
    # A node holds 150 of the 202 executors: at least 52 are on the smaller side, each with a cut to at least one bolt.
    assert bound.lower_bound is not None
    assert 0 < bound.lower_bound <= 104
    assert f"{2 * MOST_SEARCHED + 2} executors are more than the {MOST_SEARCHED}" in bound.note


def test_for_the_bound_running_executors_may_move_and_other_topologies_stay() -> None:
    existing = (
        ExistingWorker("t", "m", 0, ("a[0]",)),
        ExistingWorker("t", "n", 0, ("b[0]",)),
        ExistingWorker("other", "m", 1, ("x[0]",)),
    )
    nodes = (Node(id="m", capacity=2.0), Node(id="n", capacity=2.0))
    assert compute_lower_bound(Problem(Cluster(nodes, existing=existing), (chain(1, 1),))).optimum == 0
    smaller = (Node(id="m", capacity=2.0), Node(id="n", capacity=1.0))
    assert compute_lower_bound(Problem(Cluster(smaller, existing=existing), (chain(1, 1),))).optimum == 1


def test_a_partial_placement_is_not_all_placed() -> None:
    problem = Problem(nodes_of(m=2), (chain(2),))
    plan = Plan({"t": Placement({Executor("a", 0): Slot("m", 0)}, "partial")})
    assert not explain_plan(problem, plan, compute_lower_bound(problem)).all_placed
