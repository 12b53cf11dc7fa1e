"""`matrix`: worked examples of its rules, then properties over rounds and sequences of rounds."""

from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems
from scheduling_rounds import (
    RoundSequence,
    by_slot,
    node_by_executor,
    place_sequence,
    repeated_round,
    round_sequences,
    traffic_of,
)

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.matrix import Matrix, MatrixParams
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from scheduler.toolkit.cost import Loads

tolerances = st.sampled_from([None, 0.0, 5.5, 20.0, 500.0])


def place(problem: Problem, tolerance: float | None = None) -> Plan:
    return Checked(Matrix, MatrixParams(tolerance)).place(problem)


def in_racks(**racks: str) -> Cluster:
    return Cluster(tuple(Node(id=name, rack=rack) for name, rack in racks.items()))


def test_tasks_join_their_partners_until_the_tolerance_is_reached() -> None:
    # Mean 20, tolerance 10: three tasks of 10 fit on the first node, the one with the smallest rate remains.
    rates = traffic_of({"a[0] b[0]": 50, "a[1] b[1]": 20, "a[0] b[1]": 30})
    plan = place(Problem(nodes_of(x=2, y=2), (chain(2, 2),), rates))
    assert node_by_executor(plan) == {"a[0]": "x", "b[0]": "x", "b[1]": "x", "a[1]": "y"}
    assert plan.details == {"cost": 20.0, "mean_load": 20.0, "tolerance": 10.0, "moved": []}


def test_the_same_rack_is_nearer_than_another() -> None:
    # One task per node: a[0] opens m; b[0] goes into its rack although the other node comes first by id.
    cluster = in_racks(b="far", m="near", z="near")
    existing = (ExistingWorker("t", "m", 0, ("a[0]",)),)
    problem = Problem(
        Cluster(cluster.nodes, existing=existing), (chain(1, 1, 1),), traffic_of({"a[0] b[0]": 9, "a[0] c[0]": 5})
    )
    plan = place(problem, 0.0)
    assert node_by_executor(plan) == {"a[0]": "m", "b[0]": "z", "c[0]": "b"}
    assert plan.details["cost"] == 9 * 1 + 5 * 2


def test_nodes_far_below_the_mean_are_filled_up() -> None:
    # Greedy filling leaves 30, 30, 0; the last node is 20 below the mean of 20, more than the tolerance of 10.
    rates = traffic_of({"a[0] a[1]": 7, "a[0] a[2]": 6, "a[3] a[4]": 2, "a[3] a[5]": 2})
    plan = place(Problem(nodes_of(x=1, y=1, z=1), (chain(6),), rates))
    assert Counter(node_by_executor(plan).values()) == {"x": 2, "y": 3, "z": 1}
    assert plan.details["moved"] == [2]


def test_running_tasks_stay_and_waiting_ones_are_placed_by_the_same_rule() -> None:
    existing = (ExistingWorker("t", "y", 1, ("a[0]",)), ExistingWorker("t", "y", 0, ("b[1]",)))
    cluster = Cluster(nodes_of(x=2, y=2).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(1, 2),), traffic_of({"a[0] b[0]": 5})), 100.0)
    assert by_slot(plan) == {("y", 0): ["b[0]", "b[1]"], ("y", 1): ["a[0]"]}
    assert not plan.freed


def test_a_node_that_joins_takes_over_the_cheapest_tasks() -> None:
    existing = (ExistingWorker("t", "x", 0, ("a[0]", "a[1]", "a[2]", "a[3]")),)
    cluster = Cluster(nodes_of(x=1, y=1).nodes, existing=existing)
    rates = traffic_of({"a[0] a[1]": 9, "a[1] a[2]": 9, "a[2] a[3]": 4})
    plan = place(Problem(cluster, (chain(4),), rates))
    assert node_by_executor(plan) == {"a[0]": "x", "a[1]": "x", "a[2]": "x", "a[3]": "y"}
    assert [(move.executor.name, move.target.node) for move in plan.migrations] == [("a[3]", "y")]
    assert [worker.node for worker in plan.freed] == ["x"]
    assert plan.details["moved"] == [3]


def test_only_tasks_of_a_dead_node_move() -> None:
    nodes = (Node(id="x"), Node(id="y", available=False), Node(id="z"))
    existing = (ExistingWorker("t", "x", 0, ("a[0]",)), ExistingWorker("t", "y", 0, ("b[0]",)))
    plan = place(Problem(Cluster(nodes, existing=existing), (chain(1, 1),), traffic_of({"a[0] b[0]": 5})), 0.0)
    assert node_by_executor(plan) == {"a[0]": "x", "b[0]": "z"}
    assert not plan.migrations


def test_without_traffic_linked_tasks_count_one_and_pairs_are_not_listed() -> None:
    cluster = in_racks(x="r", y="r", z="s")
    plan = place(Problem(cluster, (chain(1500, 1500),)))
    node_of = node_by_executor(plan)
    assert max(Counter(node_of.values()).values()) - min(Counter(node_of.values()).values()) <= 2
    small = Problem(cluster, (chain(2, 2),))
    node_of = node_by_executor(place(small))
    hops = {pair: 0 if pair[0] == pair[1] else 1 if "z" not in pair else 2 for pair in product("xyz", repeat=2)}
    pairs = [(f"a[{i}]", f"b[{j}]") for i, j in product(range(2), repeat=2)]
    assert place(small).details["cost"] == sum(hops[node_of[one], node_of[other]] for one, other in pairs)


def test_a_topology_without_a_slot_fails_with_a_message() -> None:
    plan = place(Problem(nodes_of(x=1), (chain(1, name="u"), chain(1, name="v"))))
    assert plan.placements["u"].status == "placed"
    assert (plan.placements["v"].status, plan.placements["v"].message) == ("failed", "no free slot: 1 executors wait")


def _loads_of(problem: Problem, plan: Plan) -> dict[str, int]:
    loads = Loads(problem)
    node_load = {node.id: 0 for node in problem.cluster.available if node.slots}
    for topology in problem.topologies:
        for executor, slot in plan.placements[topology.id].assignments.items():
            node_load[slot.node] += int(loads.of(topology, executor))
    topology_ids = {topology.id for topology in problem.topologies}
    for worker in problem.existing:
        if worker.topology not in topology_ids and worker.node in node_load:
            observed = problem.traffic.load if problem.traffic is not None else {}
            node_load[worker.node] += sum(int(observed.get(name, 10.0)) for name in worker.executors)
    return node_load


@given(round_sequences(), tolerances)
def test_only_waiting_or_rebalanced_executors_change_their_slot(
    sequence: RoundSequence, tolerance: float | None
) -> None:
    for problem, plan in place_sequence(sequence, lambda problem: place(problem, tolerance)):
        executors = [(t.id, e) for t in problem.topologies for e in t.executors]
        moved = {executors[number] for number in plan.details["moved"]}
        assert len(moved) == len(plan.details["moved"])
        assert {(move.topology, move.executor) for move in plan.migrations} <= moved
        loads = _loads_of(problem, plan)
        if all(p.status == "placed" for p in plan.placements.values()) and loads:
            mean = sum(loads.values()) / len(loads)
            assert plan.details["mean_load"] == pytest.approx(mean)
            if not moved and len(problem.topologies) == 1 and not problem.existing:
                largest_load = max(int(Loads(problem).of(problem.topologies[0], e)) for _, e in executors)
                assert max(loads.values()) <= mean + max(plan.details["tolerance"], largest_load) + 1e-9


@given(problems(cycles=True, observed=True))
def test_loads_are_within_the_tolerance_where_every_node_has_room_for_every_topology(problem: Problem) -> None:
    nodes = tuple(Node(id=node.id, slots=3) for node in problem.cluster.nodes)
    plan = place(Problem(Cluster(nodes), problem.topologies, problem.traffic))
    loads = _loads_of(Problem(Cluster(nodes), problem.topologies, problem.traffic), plan)
    mean = sum(loads.values()) / len(loads)
    largest = plan.details["tolerance"]
    assert max(loads.values()) <= mean + largest + 1e-9
    if min(loads.values()) < mean - largest - 1e-9:  # only after every possible task has moved
        assert plan.details["moved"]


@given(problems(cycles=True, observed=True), st.booleans())
def test_the_cost_is_that_of_the_matrices(problem: Problem, is_observed: bool) -> None:
    alone = Problem(problem.cluster, problem.topologies, problem.traffic if is_observed else None)
    plan = place(alone)
    node_of, racks = node_by_executor(plan), {node.id: node.rack for node in problem.cluster.nodes}
    rates: Counter[tuple[str, str]] = Counter()
    if is_observed and problem.traffic is not None:
        for pair, rate in problem.traffic.rate.items():
            rates[tuple(sorted(pair))] += int(rate)
    else:
        rates.update({tuple(sorted((a.name, b.name))): 1 for t in problem.topologies for a, b in t.pairs()})
    cost = 0
    for one, other in combinations(sorted(node_of), 2):
        if node_of[one] != node_of[other]:
            cost += rates[one, other] * (1 if racks[node_of[one]] == racks[node_of[other]] else 2)
    assert plan.details["cost"] == cost


@given(problems(cycles=True, observed=True))
def test_nothing_moves_when_loads_are_balanced(problem: Problem) -> None:
    plan = place(problem, 1000.0)
    following = place(repeated_round(problem, plan), 1000.0)
    assert following.placements == plan.placements
    assert not following.freed
