"""`p-scheduler`: worked examples of its rules, then properties over rounds and sequences of rounds."""

from collections import Counter
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems
from scheduling_rounds import (
    RoundSequence,
    by_slot,
    node_by_executor,
    place_sequence,
    round_sequences,
    traffic_of,
    workers_per_node,
)

from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.errors import InputError
from scheduler.algorithms.p_scheduler import PScheduler, PSchedulerParams
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from scheduler.toolkit.cost import Loads

targets = st.sampled_from([0.1, 0.5, 0.8, 1.0])


def place(problem: Problem, target: float = 0.8) -> Plan:
    return Checked(PScheduler, PSchedulerParams(target)).place(problem)


FOUR = traffic_of(
    {"a[0] b[1]": 90, "a[1] b[0]": 80, "a[0] a[1]": 5}, dict.fromkeys(["a[0]", "a[1]", "b[0]", "b[1]"], 40.0)
)


def test_the_number_of_nodes_follows_from_the_load() -> None:
    # 160 points at 0.8 of 100 per node: two nodes. At 0.5: four, the whole cluster.
    cluster = Cluster(tuple(Node(id=name, cpu=100.0) for name in "wxyz"))
    plan = place(Problem(cluster, (chain(2, 2),), FOUR))
    assert plan.details == {"topologies": {"t": {"nodes": [0, 1], "cut": 5.0}}}
    assert node_by_executor(plan) == {"a[0]": "w", "b[1]": "w", "a[1]": "x", "b[0]": "x"}
    assert len(set(node_by_executor(place(Problem(cluster, (chain(2, 2),), FOUR), 0.5)).values())) == 4
    assert len(set(node_by_executor(place(Problem(cluster, (chain(2, 2),), FOUR), 0.1)).values())) == 4


def test_workers_are_shared_by_the_nodes_and_split_by_traffic() -> None:
    cluster = Cluster((Node(id="x", cpu=400.0),))
    plan = place(Problem(cluster, (chain(2, 2, workers=2),), FOUR))
    assert by_slot(plan) == {("x", 0): ["a[0]", "b[1]"], ("x", 1): ["a[1]", "b[0]"]}
    cluster = Cluster(tuple(Node(id=name, cpu=100.0) for name in "xy"))
    plan = place(Problem(cluster, (chain(2, 2, workers=3),), FOUR))
    assert workers_per_node(plan.placements["t"]) == {"x": 2, "y": 2}


def test_the_largest_part_goes_to_the_node_with_most_free_capacity() -> None:
    cluster = Cluster((Node(id="x", cpu=100.0), Node(id="y", cpu=150.0)))
    loads = {"a[0]": 90.0, "a[1]": 20.0, "b[0]": 20.0}
    plan = place(Problem(cluster, (chain(2, 1),), traffic_of({"a[1] b[0]": 9}, loads)), 0.8)
    assert node_by_executor(plan) == {"a[0]": "y", "a[1]": "x", "b[0]": "x"}


def test_capacity_used_by_other_topologies_is_not_free() -> None:
    existing = (ExistingWorker("o", "x", 0, ("q[0]",)),)
    cluster = Cluster((Node(id="x", cpu=100.0), Node(id="y", cpu=100.0)), existing=existing)
    assert node_by_executor(place(Problem(cluster, (chain(1),), traffic_of({"a[0] a[0]": 1})))) == {"a[0]": "y"}


def test_other_topologies_count_towards_the_target() -> None:
    # Of 80 points per node, 40 are used by another topology: 85 points need three nodes.
    existing = tuple(ExistingWorker("o", name, 0, tuple(f"q[{at}]" for at in range(4))) for name in "wxyz")
    cluster = Cluster(tuple(Node(id=name, cpu=100.0) for name in "wxyz"), existing=existing)
    loads = {"a[0]": 30.0, "a[1]": 30.0, "b[0]": 25.0}
    plan = place(Problem(cluster, (chain(2, 1),), traffic_of({"a[0] b[0]": 1}, loads)))
    assert len(set(node_by_executor(plan).values())) == 3


def test_without_observed_traffic_it_is_refused() -> None:
    with pytest.raises(InputError, match="'p-scheduler' needs observed traffic; give a traffic file"):
        place(Problem(nodes_of(x=1), (chain(1),)))


def test_a_topology_without_a_slot_fails_with_a_message() -> None:
    plan = place(Problem(nodes_of(x=1), (chain(1, name="u"), chain(1, name="v")), traffic_of({})))
    assert plan.placements["u"].status == "placed"
    assert (plan.placements["v"].status, plan.placements["v"].message) == ("failed", "no free slot: 1 executors wait")


@given(problems(cycles=True, observed=True), targets)
def test_a_single_topology_on_equal_nodes_uses_the_number_of_the_formula(problem: Problem, target: float) -> None:
    topology = problem.topologies[0]
    nodes = tuple(Node(id=node.id, slots=9, cpu=100.0) for node in problem.cluster.nodes)
    alone = Problem(Cluster(nodes), (topology,), problem.traffic)
    plan = place(alone, target)
    total = sum(int(Loads(alone).of(topology, e)) for e in topology.executors)
    number = min(max(ceil(total / (100 * Fraction(str(target)))), 1), len(nodes), len(topology.executors))
    assert len(set(node_by_executor(plan).values())) == number
    share = ceil(topology.workers / number)
    assert max(workers_per_node(plan.placements[topology.id]).values()) <= share


@given(round_sequences(unobserved=False), targets)
def test_every_topology_with_a_slot_is_placed_whole_in_any_round_sequence(
    sequence: RoundSequence, target: float
) -> None:
    for problem, plan in place_sequence(sequence, lambda problem: place(problem, target)):
        for topology in problem.topologies:
            placement = plan.placements[topology.id]
            assert placement.status in ("placed", "failed")
            if placement.status == "failed":
                running = [w for w in problem.existing if w.topology == topology.id]
                assert not [w for w in running if problem.cluster.by_id[w.node].available]
        topologies_per_slot = Counter(slot for p in plan.placements.values() for slot in set(p.assignments.values()))
        assert set(topologies_per_slot.values()) <= {1}
