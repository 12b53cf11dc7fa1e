"""`t-storm`: worked examples of its rules, then properties over rounds and sequences of rounds."""

from collections import Counter
from fractions import Fraction
from math import ceil, floor

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
    workers_per_node,
)

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.t_storm import TStorm, TStormParams
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from scheduler.toolkit.cost import Loads
from workloads.topology import Executor

gammas = st.sampled_from([1.0, 1.1, 1.5, 3.0])


def place(problem: Problem, gamma: float = 1.0) -> Plan:
    return Checked(TStorm, TStormParams(gamma)).place(problem)


RATES = traffic_of({"a[0] b[0]": 100, "a[1] b[1]": 80, "a[0] b[1]": 10})


def test_busy_executors_go_first_and_join_their_partners() -> None:
    # Totals: a0 110, b0 100, b1 90, a1 80. gamma 1: two executors per node.
    plan = place(Problem(nodes_of(x=2, y=2), (chain(2, 2),), RATES))
    assert plan.details == {"order": [0, 2, 3, 1], "most_executors": 2, "over_limit": [], "over_capacity": []}
    assert by_slot(plan) == {("x", 0): ["a[0]", "b[0]"], ("y", 0): ["a[1]", "b[1]"]}


def test_a_larger_gamma_uses_fewer_nodes() -> None:
    assert set(node_by_executor(place(Problem(nodes_of(x=2, y=2), (chain(2, 2),), RATES), 2.0)).values()) == {"x"}


def test_gamma_is_an_exact_decimal() -> None:
    # 1.15 of an even share of 20 is 23; the float product is a little less.
    problem = Problem(nodes_of(x=1, y=1, z=1), (chain(60),), traffic_of({"a[0] a[1]": 0}))
    assert place(problem, 1.15).details["most_executors"] == 23


def test_without_rates_nodes_fill_by_load_then_id() -> None:
    plan = place(Problem(nodes_of(y=1, x=1), (chain(3),), traffic_of({}, {"a[0]": 50.0, "a[1]": 20.0})))
    assert node_by_executor(plan) == {"a[0]": "x", "a[1]": "y", "a[2]": "y"}


def test_a_node_takes_no_more_load_than_it_holds() -> None:
    cluster = Cluster((Node(id="x", cpu=100.0), Node(id="y", cpu=100.0)))
    loads = {"a[0]": 60.0, "a[1]": 60.0, "b[0]": 30.0, "b[1]": 30.0}
    plan = place(Problem(cluster, (chain(2, 2),), traffic_of({"a[0] a[1]": 9, "a[0] b[0]": 5}, loads)), 2.0)
    assert node_by_executor(plan) == {"a[0]": "x", "a[1]": "y", "b[0]": "x", "b[1]": "y"}


def test_when_nothing_fits_the_count_is_exceeded_before_the_load() -> None:
    # The third exceeds the count of 2 on x; the fourth fits nowhere and goes to y, which is emptier (0 of 5 points).
    cluster = Cluster((Node(id="x", cpu=100.0), Node(id="y", cpu=5.0)))
    plan = place(Problem(cluster, (chain(4),), traffic_of({}, dict.fromkeys(["a[0]", "a[1]", "a[2]", "a[3]"], 30.0))))
    assert node_by_executor(plan) == {"a[0]": "x", "a[1]": "x", "a[2]": "x", "a[3]": "y"}
    assert plan.details["over_limit"] == [2]
    assert plan.details["over_capacity"] == [3]


def test_topologies_share_nodes_but_no_slots_and_one_without_a_slot_fails() -> None:
    one, other = chain(2, name="u"), chain(2, name="v")
    plan = place(Problem(nodes_of(x=1), (one, other), traffic_of({})))
    assert by_slot(plan, "u") == {("x", 0): ["a[0]", "a[1]"]}
    assert plan.placements["v"].status == "failed"
    assert plan.placements["v"].message == "no free slot: 2 executors wait"


def test_load_of_other_topologies_counts() -> None:
    existing = (ExistingWorker("o", "x", 0, ("q[0]",)),)
    cluster = Cluster((Node(id="x", cpu=100.0), Node(id="y", cpu=100.0)), existing=existing)
    assert node_by_executor(place(Problem(cluster, (chain(1),), traffic_of({}, {"q[0]": 95.0})))) == {"a[0]": "y"}


def test_without_traffic_it_is_even_with_one_worker_per_node() -> None:
    plan = place(Problem(nodes_of(x=4, y=2), (chain(5, workers=4),)))
    assert by_slot(plan) == {("x", 0): ["a[0]", "a[2]", "a[4]"], ("y", 0): ["a[1]", "a[3]"]}


def test_without_traffic_waiting_executors_open_further_nodes_only() -> None:
    existing = (ExistingWorker("t", "x", 0, ("a[0]",)),)
    plan = place(Problem(Cluster(nodes_of(x=4, y=2).nodes, existing=existing), (chain(3, workers=3),)))
    assert by_slot(plan) == {("x", 0): ["a[0]"], ("y", 0): ["a[1]", "a[2]"]}
    plan = place(Problem(Cluster(nodes_of(x=4).nodes, existing=existing), (chain(3, workers=3),)))
    assert plan.placements["t"].message == "no free slot on a node without a worker of it: 2 executors wait"


@given(round_sequences(), gammas)
def test_limits_hold_in_any_round_sequence(sequence: RoundSequence, gamma: float) -> None:
    for problem, plan in place_sequence(sequence, lambda problem: place(problem, gamma)):
        for topology in problem.topologies:
            placement = plan.placements[topology.id]
            if problem.traffic is not None:
                assert set(workers_per_node(placement).values()) <= {1}
        if problem.traffic is None:
            assert not plan.freed
            continue
        nodes = sum(bool(node.slots) for node in problem.cluster.available)
        executors = [(t, e) for t in problem.topologies for e in t.executors]
        beyond = {*plan.details["over_limit"], *plan.details["over_capacity"]}
        loads, carried, hosted = Loads(problem), Counter[str](), Counter[str]()
        for number, (topology, executor) in enumerate(executors):
            slot = plan.placements[topology.id].assignments.get(executor)
            if slot is not None and number not in beyond:
                carried[slot.node] += int(loads.of(topology, executor))
                hosted[slot.node] += 1
        assert all(load <= loads.capacity[node] for node, load in carried.items())
        if nodes:
            assert max(hosted.values(), default=0) <= gamma * ceil(len(executors) / nodes) + 1e-9


def reference_placement(problem: Problem, gamma: float) -> dict[str, str]:
    """Return executor -> node by a reference that examines all nodes; nothing runs, and rates are whole numbers."""
    assert problem.traffic is not None
    loads, rate, topologies = Loads(problem), Counter[tuple[str, str]](), problem.topologies
    names = [executor.name for topology in topologies for executor in topology.executors]
    owner = {e.name: topology for topology in topologies for e in topology.executors}
    for (one, other), tuples in problem.traffic.rate.items():
        if one != other and one in owner and owner[one] is owner.get(other):
            rate[one, other] += int(tuples)
            rate[other, one] += int(tuples)
    nodes = {node.id: node for node in problem.cluster.available if node.slots}
    limit = floor(Fraction(str(gamma)) * ceil(len(names) / len(nodes))) if nodes else 0
    load, node_of = dict.fromkeys(nodes, 0.0), dict[str, str]()
    numbered = {name: Executor.named(name) for name in names}
    total = {name: sum(tuples for (one, _), tuples in rate.items() if one == name) for name in names}
    for name in sorted(names, key=lambda name: (-total[name], owner[name].id, numbered[name])):
        executor_load = loads.of(owner[name], numbered[name])
        topologies_on = {node: {owner[other].id for other in node_of if node_of[other] == node} for node in nodes}
        possible = [n for n in nodes if owner[name].id in topologies_on[n] or len(topologies_on[n]) < nodes[n].slots]
        with_capacity = [node for node in possible if load[node] + executor_load <= loads.capacity[node]]
        below_limit = [node for node in with_capacity if Counter(node_of.values())[node] < limit]
        local_rate = {node: sum(rate[name, other] for other in node_of if node_of[other] == node) for node in nodes}
        chosen = min(below_limit or with_capacity, key=lambda node: (-local_rate[node], load[node], node), default=None)
        if chosen is None and possible:
            chosen = min(possible, key=lambda node: (load[node] / loads.capacity[node], node))
        if chosen is not None:
            node_of[name] = chosen
            load[chosen] += executor_load
    return node_of


@given(problems(cycles=True, observed=True), gammas)
def test_agrees_with_the_reference_implementation(problem: Problem, gamma: float) -> None:
    fresh = Problem(Cluster(problem.cluster.nodes), problem.topologies, problem.traffic)
    assert node_by_executor(place(fresh, gamma)) == reference_placement(fresh, gamma)


@given(problems(cycles=True, observed=True), gammas)
def test_the_plan_stays_in_the_next_round(problem: Problem, gamma: float) -> None:
    plan = place(problem, gamma)
    following = place(repeated_round(problem, plan), gamma)
    assert not following.freed
    assert following.placements == plan.placements
