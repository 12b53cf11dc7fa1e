"""`d-storm`: worked examples of its rules, then properties over rounds and sequences of rounds."""

from collections import Counter
from fractions import Fraction

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
from scheduler.algorithms.d_storm import DStorm, DStormParams
from scheduler.problem import Placement, Plan, Problem
from scheduler.registry import Checked
from scheduler.toolkit.cost import Loads
from workloads.topology import Component, Executor, Input, Topology

weights = st.builds(DStormParams, *[st.sampled_from([0.0, 0.1, 1.0, 2.5])] * 3)


def place(problem: Problem, params: DStormParams | None = None) -> Plan:
    return Checked(DStorm, params or DStormParams()).place(problem)


PAIR = Cluster((Node(id="x", cpu=100.0, memory_mb=1000.0), Node(id="y", cpu=200.0, memory_mb=1000.0)))
GRAPH = Topology(
    "t",
    (
        Component("a", "spout", cpu=100.0, memory_mb=100.0),
        Component("b", "bolt", 2, cpu=60.0, memory_mb=100.0, inputs=(Input("a"),)),
        Component("c", "bolt", cpu=40.0, memory_mb=100.0, inputs=(Input("b"),)),
    ),
)
RATES = traffic_of({"a[0] b[0]": 10, "b[1] c[0]": 30})


def test_the_best_node_is_filled_by_size_and_traffic() -> None:
    # y has 2/3 of the CPU and half of the memory, x the rest. On y: a .3, b .2, c .15; then b[0] + 10/40. b[1] does
    # not fit beside them (60 of 40 left), c[0] does.
    plan = place(Problem(PAIR, (GRAPH,), RATES))
    assert node_by_executor(plan) == {"a[0]": "y", "b[0]": "y", "c[0]": "y", "b[1]": "x"}
    assert plan.details == {"topologies": {"t": {"opened": [1, 0], "order": [0, 1, 3, 2]}}}


def test_the_weights_change_the_order() -> None:
    # Without size all priorities are equal at first: start tasks decide, then traffic.
    plan = place(Problem(PAIR, (GRAPH,), RATES), DStormParams(a1=0.0))
    assert plan.details["topologies"]["t"]["order"] == [0, 1, 3, 2]
    # With size alone c[0] is last, and only fits because b[1] does not.
    plan = place(Problem(PAIR, (GRAPH,), traffic_of({"a[0] b[1]": 10})), DStormParams(a2=0.0, a3=0.0))
    assert plan.details["topologies"]["t"]["order"] == [0, 1, 3, 2]
    plan = place(Problem(PAIR, (GRAPH,), traffic_of({"a[0] b[1]": 10})))
    assert plan.details["topologies"]["t"]["order"] == [0, 2, 3, 1]


def test_traffic_to_filled_nodes_lowers_the_priority_of_an_executor() -> None:
    # x and y hold two executors each. b[0] sends to x, so b[1] is preferred on y although its start task is later.
    cluster = Cluster(tuple(Node(id=name, cpu=20.0) for name in "xyz"))
    rates = traffic_of({"a[0] a[1]": 9, "a[0] b[0]": 5})
    assert place(Problem(cluster, (chain(2, 3),), rates)).details["topologies"]["t"]["order"] == [0, 1, 3, 4, 2]
    without = place(Problem(cluster, (chain(2, 3),), rates), DStormParams(a3=0.0))
    assert without.details["topologies"]["t"]["order"] == [0, 1, 2, 3, 4]


def test_traffic_to_all_filled_nodes_counts() -> None:
    # Of the last three executors, b[0] sends 5 to x and 1 to y, b[2] 3 to x: z takes b[3] and b[2].
    cluster = Cluster(tuple(Node(id=name, cpu=20.0) for name in "vxyz"))
    rates = traffic_of({"a[0] a[1]": 9, "a[0] b[0]": 5, "b[0] b[1]": 1, "a[0] b[3]": 3})
    plan = place(Problem(cluster, (chain(2, 5),), rates))
    assert plan.details["topologies"]["t"]["order"] == [0, 1, 3, 4, 6, 5, 2]


def test_memory_is_a_hard_limit_like_cpu() -> None:
    cluster = Cluster((Node(id="x", memory_mb=300.0), Node(id="y", memory_mb=256.0)))
    assert Counter(node_by_executor(place(Problem(cluster, (chain(4),)))).values()) == {"x": 2, "y": 2}


def test_a_topology_that_does_not_fit_fails_as_a_whole_and_the_others_do_not() -> None:
    cluster = Cluster((Node(id="x", cpu=25.0),))
    plan = place(Problem(cluster, (chain(3, name="u"), chain(2, name="v"))))
    assert plan.placements["u"] == Placement(
        {}, "failed", "no node is left: 1 executors do not fit, the first is a[2] with load 10 and 128 MB"
    )
    assert node_by_executor(plan) == {"a[0]": "x", "a[1]": "x"}


def test_a_running_topology_that_fits_no_longer_keeps_what_it_runs() -> None:
    existing = (ExistingWorker("t", "x", 1, ("a[0]", "a[1]")),)
    cluster = Cluster((Node(id="x", cpu=100.0),), existing=existing)
    plan = place(Problem(cluster, (chain(2),), traffic_of({}, {"a[0]": 60.0, "a[1]": 60.0})))
    assert by_slot(plan) == {("x", 1): ["a[0]", "a[1]"]}
    assert plan.placements["t"].status == "placed"
    assert "the first is a[1] with load 60" in plan.placements["t"].message
    assert not plan.freed


def test_scattered_executors_are_consolidated() -> None:
    existing = (ExistingWorker("t", "x", 0, ("a[0]",)), ExistingWorker("t", "y", 0, ("b[0]",)))
    cluster = Cluster(nodes_of(x=1, y=1).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(1, 1, workers=2),), traffic_of({"a[0] b[0]": 5})))
    assert by_slot(plan) == {("x", 0): ["a[0]", "b[0]"]}
    assert [worker.node for worker in plan.freed] == ["y"]


def test_without_traffic_every_communicating_pair_counts_one_and_pairs_are_not_listed() -> None:
    cluster = Cluster(tuple(Node(id=name, cpu=20_000.0, memory_mb=1e6) for name in "xyz"))
    plan = place(Problem(cluster, (chain(2000, 2000),)))
    assert Counter(node_by_executor(plan).values()) == {"x": 2000, "y": 2000}
    # Half of both sides goes to each node: a source is preferred only until its partners pull more.
    sources = Counter(slot.node for e, slot in plan.placements["t"].assignments.items() if e.component == "a")
    assert sources == {"x": 1000, "y": 1000}


def reference_placement(problem: Problem, params: DStormParams) -> dict[str, str]:
    """Return executor -> node by the rules for one topology on an empty cluster; computes every priority anew."""
    topology, loads = problem.topologies[0], Loads(problem)
    rates: Counter[frozenset[Executor]] = Counter()
    if problem.traffic is None:
        rates.update({frozenset(pair): 1 for pair in topology.pairs() if len(set(pair)) == 2})
    else:
        for (one, other), rate in problem.traffic.rate.items():
            if one != other:
                rates[frozenset((Executor.named(one), Executor.named(other)))] += int(rate)
    total = rates.total()
    nodes = [node for node in problem.cluster.available if node.slots]
    cpu = Fraction(sum(loads.capacity[n.id] for n in nodes)) or 1
    a1, a2, a3 = (Fraction(str(a)) for a in (params.a1, params.a2, params.a3))
    node_of: dict[Executor, str] = {}
    for node in sorted(nodes, key=lambda n: (-(Fraction(loads.capacity[n.id]) / cpu + Fraction(1, len(nodes))), n.id)):
        while True:
            used = [e for e, n in node_of.items() if n == node.id]
            best: tuple[Fraction, Executor] | None = None
            for e in sorted(topology.executors):
                load = Fraction(loads.of(topology, e))
                room = loads.capacity[node.id] - sum(loads.of(topology, other) for other in used)
                if e in node_of or load > room or 128 * (len(used) + 1) > node.memory_mb:
                    continue
                size = (load / Fraction(loads.capacity[node.id]) + Fraction(128) / Fraction(node.memory_mb)) / 2
                pull = sum(rates[frozenset((e, o))] for o, n in node_of.items() if n == node.id)
                push = sum(rates[frozenset((e, o))] for o, n in node_of.items() if n != node.id)
                rho = a1 * size + (a2 * Fraction(pull, total) - a3 * Fraction(push, total) if total else 0)
                if best is None or rho > best[0]:
                    best = rho, e
            if best is None:
                break
            node_of[best[1]] = node.id
    return {e.name: n for e, n in node_of.items()}


@given(problems(cycles=True, observed=True), weights, st.booleans())
def test_agrees_with_the_reference_implementation(problem: Problem, params: DStormParams, is_observed: bool) -> None:
    cluster = Cluster(problem.cluster.nodes)
    alone = Problem(cluster, problem.topologies[:1], problem.traffic if is_observed else None)
    if is_observed and problem.traffic is not None:
        names = alone.topologies[0].executor_named
        edges = tuple(edge for edge in problem.traffic.edges if edge.source in names)
        alone = Problem(cluster, alone.topologies, type(problem.traffic)(edges, problem.traffic.load))
    plan = place(alone, params)
    if plan.placements[alone.topologies[0].id].status == "placed":
        assert node_by_executor(plan) == reference_placement(alone, params)


@given(round_sequences(), weights)
def test_limits_hold_in_any_round_sequence(sequence: RoundSequence, params: DStormParams) -> None:
    for problem, plan in place_sequence(sequence, lambda problem: place(problem, params)):
        loads, node_load = Loads(problem), Counter[str]()
        for topology in problem.topologies:
            placement = plan.placements[topology.id]
            if placement.message:
                assert topology.id not in {worker.topology for worker in plan.freed}
                continue
            assert placement.status == "placed"
            assert set(workers_per_node(placement).values()) <= {1}
            for executor, slot in placement.assignments.items():
                node_load[slot.node] += int(loads.of(topology, executor))
        assert all(load <= loads.capacity[node] for node, load in node_load.items())
