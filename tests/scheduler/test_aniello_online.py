"""`aniello-online` against the rules of its authors' code: worked examples, then properties."""

from collections import Counter
from fractions import Fraction
from math import floor
from random import Random

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
    shuffled,
    traffic_of,
    workers_per_node,
)

from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.errors import InputError
from inventory.plugins import given as given_params
from scheduler.algorithms.aniello.packing import Bins, NoRoomError, most_executors, most_workers, nodes_wanted
from scheduler.algorithms.aniello.planning import Knobs, executors_to_workers, stats_of
from scheduler.algorithms.aniello_online import AnielloOnline, AnielloOnlineParams
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked, make_scheduler
from workloads.topology import Component, Input, Topology
from workloads.traffic import Traffic

RATES = {"a[0] b[1]": 90, "a[1] b[0]": 80, "a[0] b[0]": 10}


def place(problem: Problem, params: AnielloOnlineParams | None = None) -> Plan:
    return Checked(AnielloOnline, params or AnielloOnlineParams()).place(problem)


def phase_one(problem: Problem, workers: int, **options: float) -> list[list[str]]:
    knobs = Knobs(options.get("alfa", 0.0), 1.0, options.get("gamma"), 0.0, bool(options.get("as_published")))
    (stats,) = stats_of(problem, knobs.as_published)
    return [[stats.executors[e].name for e in sorted(group)] for group in executors_to_workers(stats, workers, knobs)]


def test_busy_pairs_share_workers() -> None:
    problem = Problem(nodes_of(x=4), (chain(2, 2),), traffic_of(RATES))
    # M = 2: the third pair finds both workers full and is not joined.
    assert phase_one(problem, 2) == [["a[0]", "b[1]"], ["a[1]", "b[0]"]]


def test_both_executors_of_a_pair_may_change_their_worker() -> None:
    # M = 3. a[0]-b[0] and a[1]-b[1] are opened apart; then a[0]-b[1] pulls b[1] over, which costs 4 and saves 4 + 3.
    problem = Problem(
        nodes_of(x=4), (chain(2, 3),), traffic_of({"a[0] b[0]": 9, "a[1] b[1]": 4, "a[0] b[1]": 3, "b[1] a[0]": 2})
    )
    assert phase_one(problem, 2) == [["a[0]", "b[0]", "b[1]"], ["a[1]"]]


def test_the_load_of_a_worker_is_limited_by_gamma() -> None:
    loads = {"a[0]": 30.0, "b[1]": 30.0, "a[1]": 10.0, "b[0]": 10.0}
    problem = Problem(nodes_of(x=4), (chain(2, 2),), traffic_of(RATES, loads))
    # 80 points, two workers, gamma 1: at most 40 each.
    assert phase_one(problem, 2, gamma=1.0) == [["a[0]", "a[1]"], ["b[0]", "b[1]"]]
    assert phase_one(problem, 2, gamma=1.5) == [["a[0]", "b[1]"], ["a[1]", "b[0]"]]


def test_the_load_limit_is_exceeded_before_an_executor_is_left_out() -> None:
    loads = {"a[0]": 50.0, "b[0]": 1.0, "b[1]": 1.0}
    problem = Problem(nodes_of(x=4), (chain(1, 2),), traffic_of({"a[0] b[0]": 9, "a[0] b[1]": 1}, loads))
    # 52 points, two workers: 26 each, and a[0] has 50.
    assert phase_one(problem, 2, gamma=1.0) == [["a[0]", "b[0]"], ["b[1]"]]
    published = AnielloOnlineParams(gamma=1.0, as_published=True)
    plan = place(Problem(problem.cluster, (chain(1, 2, workers=2),), problem.traffic), published)
    assert plan.details == {"applied": False, "reason": "the plan found no room"}
    assert plan.placements["t"].status == "placed"


def test_empty_workers_get_the_executor_with_the_least_traffic() -> None:
    problem = Problem(nodes_of(x=4), (chain(2, 2),), traffic_of({"a[0] b[0]": 5, "a[1] b[1]": 4}))
    assert phase_one(problem, 3, alfa=1.0) == [["a[0]", "b[0]"], ["b[1]"], ["a[1]"]]


def test_loads_and_rates_are_whole_numbers() -> None:
    problem = Problem(nodes_of(x=4), (chain(1, 1),), traffic_of({"a[0] b[0]": 5.9}, {"a[0]": 3.7}))
    (stats,) = stats_of(problem, False)
    assert (stats.load, stats.pairs) == ((3, 10), ((0, 1, 5),))


def test_beta_decides_the_number_of_nodes() -> None:
    problem = Problem(nodes_of(x=2, y=2), (chain(2, 2, workers=2),), traffic_of(RATES))
    plan = place(problem)
    assert by_slot(plan) == {("x", 0): ["a[0]", "b[1]"], ("y", 0): ["a[1]", "b[0]"]}
    assert plan.details["inter_node"] == {"now": 90 + 80, "plan": 10}
    packed = place(problem, AnielloOnlineParams(beta=0.0))
    assert set(node_by_executor(packed).values()) == {"x"}
    assert packed.details["inter_node"]["plan"] == 0


def test_beta_halfway_uses_half_of_the_nodes() -> None:
    # Three workers, three nodes. beta 1: u = 3, k = 1. beta 0.5: u = 1 + ceil(0.5 * 2) = 2, k = 2.
    rates = traffic_of({"a[0] b[0]": 9, "b[0] c[0]": 8})
    problem = Problem(nodes_of(x=4, y=4, z=4), (chain(1, 1, 1, workers=3),), rates)
    assert len(set(node_by_executor(place(problem)).values())) == 3
    assert node_by_executor(place(problem, AnielloOnlineParams(beta=0.5))) == {"a[0]": "x", "b[0]": "x", "c[0]": "y"}


def test_workers_on_too_few_nodes_are_spread_at_least_cost() -> None:
    # Four workers on three nodes: u = 3, k = 2. a-b and c-d each fill a node; z is empty; moving c costs 8, a or b 9.
    rates = traffic_of({"a[0] b[0]": 9, "b[0] c[0]": 1, "c[0] d[0]": 8})
    plan = place(Problem(nodes_of(x=4, y=4, z=4), (chain(1, 1, 1, 1, workers=4),), rates))
    assert node_by_executor(plan) == {"a[0]": "x", "b[0]": "x", "c[0]": "z", "d[0]": "y"}
    assert plan.details["inter_node"]["plan"] == 9


def test_a_node_takes_no_more_load_than_it_holds() -> None:
    cluster = Cluster((Node(id="x", cpu=15.0), Node(id="y", cpu=100.0)))
    plan = place(Problem(cluster, (chain(2, 2, workers=2),), traffic_of(RATES)), AnielloOnlineParams(beta=0.0))
    assert set(node_by_executor(plan).values()) == {"y"}
    params = AnielloOnlineParams(beta=0.0, gamma=9.0, as_published=True)
    assert set(
        node_by_executor(
            place(Problem(cluster, (chain(1, 1, workers=2),), traffic_of({"a[0] b[0]": 1})), params)
        ).values()
    ) == {"y"}
    # One worker at a time fits into x, and the published code ignores the load that is already there.
    cluster = Cluster((Node(id="x", cpu=25.0), Node(id="y", cpu=25.0)))
    params = AnielloOnlineParams(beta=0.0, delta=1.0, gamma=9.0, as_published=True)
    apart = Problem(cluster, (chain(2, 2, workers=2),), traffic_of({"a[0] b[1]": 90, "a[1] b[0]": 80}))
    assert set(node_by_executor(place(apart, params)).values()) == {"x"}
    assert set(node_by_executor(place(apart, AnielloOnlineParams(beta=0.0, delta=1.0))).values()) == {"x", "y"}


def running() -> Cluster:
    existing = (ExistingWorker("t", "x", 0, ("a[0]", "b[0]")), ExistingWorker("t", "y", 0, ("a[1]", "b[1]")))
    return Cluster(nodes_of(x=2, y=2).nodes, existing=existing)


def test_a_plan_is_applied_when_it_saves_enough() -> None:
    plan = place(Problem(running(), (chain(2, 2, workers=2),), traffic_of(RATES)))
    assert (plan.details["applied"], plan.details["reason"]) == (True, "less traffic between nodes")
    assert by_slot(plan) == {("x", 0): ["a[0]", "b[1]"], ("y", 0): ["a[1]", "b[0]"]}
    assert {(move.executor.name, move.target.node) for move in plan.migrations} == {("b[0]", "y"), ("b[1]", "x")}


@pytest.mark.parametrize(("improvement", "applied"), [(94.0, True), (94.1, True), (94.2, False), (100.0, False)])
def test_the_gain_is_compared_in_whole_tuples(improvement: float, applied: bool) -> None:
    # 170 now, 10 in the plan: floor(170 * 5.9 %) = 10, floor(170 * 5.8 %) = 9.
    plan = place(
        Problem(running(), (chain(2, 2, workers=2),), traffic_of(RATES)),
        AnielloOnlineParams(traffic_improvement=improvement),
    )
    assert plan.details["applied"] == applied
    assert bool(plan.freed) == applied


def test_a_plan_is_applied_when_it_relieves_an_overloaded_node() -> None:
    loads = {"a[0]": 90.0, "b[0]": 90.0, "a[1]": 10.0, "b[1]": 10.0}
    nodes = (Node(id="x", cpu=100.0), Node(id="y", cpu=200.0))
    cluster = Cluster(nodes, existing=running().existing)
    plan = place(
        Problem(cluster, (chain(2, 2, workers=2),), traffic_of(RATES, loads)),
        AnielloOnlineParams(traffic_improvement=100.0),
    )
    assert plan.details["reason"] == "an overloaded node is relieved"


def test_topologies_whose_workers_fill_the_cluster_are_planned_together() -> None:
    existing = tuple(
        ExistingWorker(name, node, slot, (f"{one}[{at}]", f"{other}[{at}]"))
        for slot, (name, one, other) in enumerate((("t", "a", "b"), ("u", "c", "d")))
        for at, node in enumerate("xy")
    )
    rates = {**RATES, "c[0] d[1]": 90, "c[1] d[0]": 80}
    topologies = (chain(2, 2, workers=2), chain(2, 2, names="cd", workers=2, name="u"))
    plan = place(Problem(Cluster(nodes_of(x=2, y=2).nodes, existing=existing), topologies, traffic_of(rates)))
    assert {worker["topology"] for worker in plan.details["workers"]} == {0, 1}
    assert plan.details["inter_node"] == {"now": 340, "plan": 10}


def test_topologies_that_were_not_observed_stay_and_wait_for_even() -> None:
    existing = (*running().existing, ExistingWorker("u", "x", 1, ("q[0]",)))
    cluster = Cluster(nodes_of(x=2, y=2).nodes, existing=existing)
    other = Topology("u", (Component("q", "spout", 3),), workers=2)
    plan = place(Problem(cluster, (chain(2, 2, workers=2), other), traffic_of(RATES)))
    assert [worker.topology for worker in plan.freed] == ["t", "t"]
    assert by_slot(plan, "u") == {("x", 1): ["q[0]"], ("y", 1): ["q[1]", "q[2]"]}


def test_without_observations_it_is_even() -> None:
    plan = place(Problem(nodes_of(x=2), (chain(2, workers=2),), Traffic()))
    assert plan.details == {"applied": False, "reason": "no topology was observed that finds a slot"}
    assert by_slot(plan) == {("x", 0): ["a[0]"], ("x", 1): ["a[1]"]}


def test_executors_without_traffic_join_workers_with_room() -> None:
    problem = Problem(nodes_of(x=2), (chain(1, 1, workers=2, ackers=2),), traffic_of({"a[0] b[0]": 5}))
    assert by_slot(place(problem)) == {
        ("x", 0): ["__acker[0]", "b[0]"],
        ("x", 1): ["__acker[1]", "a[0]"],
    }
    published = place(problem, AnielloOnlineParams(gamma=5.0, as_published=True)).placements["t"]
    assert (published.status, len(published.assignments)) == ("partial", 2)


def test_as_published_task_numbers_of_topologies_are_mixed_up() -> None:
    other = Topology("u", (Component("c", "spout", 2), Component("d", "bolt", inputs=(Input("c"),))), workers=2)
    both = Problem(nodes_of(x=9), (chain(1, 1, workers=2), other), traffic_of({"a[0] b[0]": 5, "c[0] d[0]": 7}))
    assert [stats.pairs for stats in stats_of(both, False)] == [((0, 1, 5),), ((0, 2, 7),)]
    # Task 2 does not exist in t: incomplete stats. In u the rates of t count as its own.
    assert [(s.topology.id, s.pairs) for s in stats_of(both, True)] == [("u", ((0, 1, 5), (0, 2, 7)))]


def test_parameters_have_the_published_names_and_as_published_requires_gamma() -> None:
    given = given_params(["traffic.improvement=20", "reschedule.timeout=60", "alfa=0.5"])
    scheduler = make_scheduler("aniello-online", given)
    assert (scheduler.params["traffic_improvement"], scheduler.params["reschedule_timeout"]) == (20.0, 60.0)
    with pytest.raises(InputError, match="gamma must be given together with as_published"):
        make_scheduler("aniello-online", given_params(["as_published=true"]))
    with pytest.raises(InputError, match="'aniello-online' needs observed traffic"):
        place(Problem(nodes_of(x=1), (chain(1),)))


@given(st.data())
def test_the_least_loaded_bin_is_found_after_any_puts_and_takes(data: st.DataObject) -> None:
    load = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    group = data.draw(st.lists(st.integers(0, 1), min_size=len(load), max_size=len(load)))
    limits = data.draw(st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=6))
    places = data.draw(st.none() | st.lists(st.integers(0, 5), min_size=len(limits), max_size=len(limits)))
    bins = Bins(load, group, [2, 3], limits, places)
    steps = st.tuples(st.integers(0, len(load) - 1), st.integers(0, 2), st.booleans())
    for item, count, any_load in data.draw(st.lists(steps, max_size=40)):
        if bins.home[item] is not None:
            bins.take(item)
            continue
        wanted = group[item], count + 1, load[item]
        accepting = [at for at in range(len(limits)) if bins.accepts(at, *wanted, any_load=any_load)]
        found = bins.least(*wanted, any_load=any_load)
        assert found == min(accepting, key=lambda at: (bins.load[at], at), default=None)
        if found is not None:
            bins.put(item, found)


shares = st.sampled_from([0.0, 0.1, 0.5, 1.0])
params = st.builds(
    AnielloOnlineParams,
    shares,
    shares,
    st.sampled_from([None, 1.0, 1.5, 4.0]),
    shares,
    st.sampled_from([1.0, 10.0, 100.0]),
)
published = st.builds(
    AnielloOnlineParams, shares, shares, st.sampled_from([1.0, 4.0]), shares, as_published=st.just(True)
)


@given(problems(cycles=True, observed=True), params)
def test_on_roomy_nodes_all_limits_hold(problem: Problem, chosen: AnielloOnlineParams) -> None:
    nodes = tuple(Node(id=node.id, slots=24, cpu=1e6) for node in problem.cluster.nodes)
    fresh = Problem(Cluster(nodes), problem.topologies, problem.traffic)
    plan = place(fresh, chosen)
    stats = {s.topology.id: s for s in stats_of(fresh, False)}
    assert plan.details["applied"] == bool(stats)
    for topology in fresh.topologies:
        placement = plan.placements[topology.id]
        assert placement.status == "placed"
        if topology.id not in stats:
            continue
        size = len(topology.executors)
        workers = min(topology.workers, size)
        topology_stats = stats[topology.id]
        busy = {
            slot
            for e, slot in placement.assignments.items()
            if topology_stats.executors.index(e) in topology_stats.busy
        }
        nodes_used = nodes_wanted(len(busy), len(nodes), chosen.beta)
        most = most_executors(size, workers, chosen.alfa)
        assert (
            max(Counter(placement.assignments[topology_stats.executors[e]] for e in topology_stats.busy).values())
            <= most
        )
        per_node = Counter(slot.node for slot in busy)
        assert max(per_node.values()) <= most_workers(len(busy), nodes_used, chosen.delta)
        assert len(per_node) >= nodes_used
        assert len(busy) == min(workers, len(topology_stats.busy))


@given(problems(cycles=True, observed=True), shares, st.sampled_from([1.0, 1.5, 4.0]))
def test_workers_keep_to_gamma_unless_an_executor_finds_no_room(problem: Problem, alfa: float, gamma: float) -> None:
    for stats in stats_of(problem, False):
        workers, total = min(stats.topology.workers, len(stats.executors)), sum(stats.load)
        most = most_executors(len(stats.executors), workers, alfa)
        groups = executors_to_workers(stats, workers, Knobs(alfa, 1.0, gamma, 0.0, False))
        assert sorted(e for group in groups for e in group) == stats.busy
        assert max(map(len, groups)) <= most
        try:
            strict = executors_to_workers(stats, workers, Knobs(alfa, 1.0, gamma, 0.0, True))
        except NoRoomError:
            continue
        limit = floor(Fraction(str(gamma)) * (total // workers))
        assert max(sum(stats.load[e] for e in group) for group in strict) <= limit
        if total % workers == 0:
            assert strict == groups


@given(round_sequences(unobserved=False), params | published)
def test_a_rejected_plan_changes_nothing_in_any_round_sequence(
    sequence: RoundSequence, chosen: AnielloOnlineParams
) -> None:
    for problem, plan in place_sequence(sequence, lambda problem: place(problem, chosen)):
        live = {node.id for node in problem.cluster.available}
        running_in = {
            (w.topology, name): (w.node, w.slot) for w in problem.existing for name in w.executors if w.node in live
        }
        if not plan.details["applied"]:
            assert not plan.freed
            for (name, executor), slot in running_in.items():
                if name in plan.placements:
                    slots = {e.name: tuple(s) for e, s in plan.placements[name].assignments.items()}
                    assert slots[executor] == slot
        elif plan.details["reason"] == "less traffic between nodes":
            assert plan.details["inter_node"]["plan"] <= plan.details["inter_node"]["now"]
        for topology in problem.topologies:
            workers = sum(workers_per_node(plan.placements[topology.id]).values())
            held = sum(w.topology == topology.id and w.node in live for w in problem.existing)
            assert workers <= max(topology.workers, held)


@given(problems(cycles=True, observed=True), params, st.builds(Random, st.integers(0, 999)))
def test_the_order_of_the_input_does_not_matter(problem: Problem, chosen: AnielloOnlineParams, random: Random) -> None:
    assert place(shuffled(problem, random), chosen).placements == place(problem, chosen).placements
