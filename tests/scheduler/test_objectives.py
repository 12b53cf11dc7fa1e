"""Objectives `cost`, `busiest-link` and `busiest-node`: against exhaustive search and recomputed values."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replaced
from partitioning_problems import APPLICATIONS, MICRO, cluster, minimum, rounds
from problems import chain

from inventory.cluster import Cluster, ExistingWorker, Network, NetworkLink
from inventory.power_index import LackingNodeError
from scheduler.algorithms.i_scheduler import IScheduler, ISchedulerParams
from scheduler.algorithms.local_search import LocalSearch, LocalSearchParams
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning.exact_by_hops import search_by_hops as search_exactly
from scheduler.partitioning.exact_by_rack import rack_cost
from scheduler.partitioning.hops import hop_table, levels_of
from scheduler.partitioning.instance import instance_of
from scheduler.placement_file import make_placement_file
from scheduler.problem import Aim, Hops, Objective, Plan, Problem
from scheduler.registry import Checked, make_scheduler
from workloads.topology import Component, Executor, Topology

OBJECTIVES: tuple[Objective, ...] = ("cost", "busiest-link", "busiest-node")


def _in_racks(problem: Problem) -> Problem:
    """Return the problem with the first half of its nodes in one rack, and the rest in another."""
    nodes = problem.cluster.nodes
    split = tuple(replaced(n, rack="a" if at < len(nodes) // 2 else "b") for at, n in enumerate(nodes))
    return replace(problem, cluster=replaced(problem.cluster, nodes=split))


@st.composite
def _rounds(draw: st.DrawFn) -> tuple[Problem, Hops]:
    """Small rounds with racks and links."""
    problem = draw(rounds(most=6, nodes=4))
    names = [node.id for node in problem.cluster.nodes]
    racks = draw(st.lists(st.sampled_from("ab"), min_size=len(names), max_size=len(names)))
    nodes = tuple(replaced(n, rack=rack) for n, rack in zip(problem.cluster.nodes, racks, strict=True))
    numbers = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.0])
    pairs = [(a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    links = [NetworkLink(a, b, draw(numbers), draw(st.sampled_from([1.0, 10.0, 100.0]))) for a, b in pairs]
    links += [NetworkLink(b, a, draw(numbers)) for a, b in pairs if draw(st.booleans())]
    network = Network(draw(numbers), draw(numbers), tuple(links))
    with_links = replace(problem, cluster=replaced(problem.cluster, nodes=nodes, network=network))
    return with_links, draw(st.sampled_from(["racks", "links"]))


def _rates(problem: Problem) -> dict[tuple[str, str], float]:
    """Return pair of executors -> rate, without code of the scheduler."""
    (topology,) = problem.topologies
    found: dict[tuple[str, str], float] = {}
    if problem.traffic is None:
        for one, other in topology.pairs():
            found[min(one.name, other.name), max(one.name, other.name)] = 1.0
        return found
    for edge in problem.traffic.edges:
        pair = (min(edge.source, edge.destination), max(edge.source, edge.destination))
        found[pair] = found.get(pair, 0.0) + edge.tuples_per_s
    return found


def _link(problem: Problem, one: str, other: str, hops: Hops, key: str) -> float:
    """Return the delay or rate of a link: the mean of the directions that have one."""
    network, by_id = problem.cluster.network, problem.cluster.by_id
    if hops == "racks":
        is_same_rack = by_id[one].rack == by_id[other].rack
        return 1.0 if key == "rate_mbit" else network.same_rack if is_same_rack else network.other_rack
    ends = [(link, getattr(link, key)) for link in network.links if {link.sender, link.receiver} == {one, other}]
    values = [value for _, value in ends if value is not None]
    return float(sum(values)) / len(values)


def _value(
    problem: Problem, where: Mapping[str, str], workers: Mapping[str, object], objective: Objective, hops: Hops
) -> float:
    rates = _rates(problem)
    if objective == "busiest-node":
        executors_per_node = set(where.values())
        full = {node.id: node.capacity or 0.0 for node in problem.cluster.nodes}
        return max(list(where.values()).count(node) / full[node] if full[node] else inf for node in executors_per_node)
    total, links = 0.0, dict[frozenset[str], float]()
    for (a, b), rate in rates.items():
        if where[a] != where[b]:
            total += rate * _link(problem, where[a], where[b], hops, "delay_ms")
            ends = frozenset((where[a], where[b]))
            links[ends] = links.get(ends, 0.0) + rate / _link(problem, where[a], where[b], hops, "rate_mbit")
        elif workers[a] != workers[b] and hops == "racks":
            total += rate / 2
    return total if objective == "cost" else max(links.values(), default=0.0)


def _reported(scheduler: Checked, problem: Problem, plan: Plan) -> float:
    cost = make_placement_file(scheduler.name, scheduler.params, problem, plan, 0.0).cost
    assert isinstance(cost.objective, float)
    assert cost.lower_bound is None or (isinstance(cost.lower_bound, float) and cost.lower_bound <= cost.objective)
    return cost.objective


def _recomputed(problem: Problem, plan: Plan, objective: Objective, hops: Hops) -> float:
    slots = plan.placements["t"].assignments
    where = {executor.name: slot.node for executor, slot in slots.items()}
    return _value(problem, where, {executor.name: slot for executor, slot in slots.items()}, objective, hops)


def _minimum(problem: Problem, objective: Objective, hops: Hops) -> float | None:
    return minimum(problem, lambda problem, plan: _recomputed(problem, plan, objective, hops))


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(deadline=None, max_examples=25)
@given(_rounds())
def test_optimal_equals_exhaustive_search(objective: Objective, given: tuple[Problem, Hops]) -> None:
    problem, hops = given
    scheduler = Checked(Optimal, OptimalParams(objective=objective, hops=hops))
    plan = scheduler.place(problem)
    least = _minimum(problem, objective, hops)
    if least is None:
        assert plan.placements["t"].status == "failed"
        return
    assert plan.details["proven"]
    assert _reported(scheduler, problem, plan) == pytest.approx(least, abs=1e-9)
    assert plan.details["lower_bound"] == _reported(scheduler, problem, plan)


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(deadline=None, max_examples=8)
@given(_rounds())
def test_reported_values_are_those_of_the_placement_and_no_bound_is_above_the_optimum(
    objective: Objective, given: tuple[Problem, Hops]
) -> None:
    problem, hops = given
    least = _minimum(problem, objective, hops)
    for scheduler in (
        Checked(LocalSearch, LocalSearchParams(objective=objective, hops=hops)),
        Checked(LocalSearch, LocalSearchParams(objective=objective, hops=hops, executors_per_worker=2)),
        Checked(IScheduler, ISchedulerParams(objective=objective, hops=hops, T=2)),
        Checked(IScheduler, ISchedulerParams(objective=objective, hops=hops, theta=0)),
        Checked(Optimal, OptimalParams(objective=objective, hops=hops)),
    ):
        plan = scheduler.place(problem)
        if plan.placements["t"].status == "placed":
            reported = _reported(scheduler, problem, plan)
            assert least is not None
            assert reported == pytest.approx(_recomputed(problem, plan, objective, hops), abs=1e-9)
            assert reported >= least - 1e-9
            assert plan.lower_bound is None or plan.lower_bound <= least + 1e-9


@settings(deadline=None, max_examples=25)
@given(_rounds(), st.sampled_from(OBJECTIVES), st.integers(1, 5))
def test_objectives_are_reported_for_schedulers_without_objectives(
    given: tuple[Problem, Hops], objective: Objective, workers: int
) -> None:
    problem, hops = given
    topology = replaced(problem.topologies[0], workers=workers)
    problem = replace(problem, topologies=(topology,))
    for name in ("even", "r-storm", "t-storm", "d-storm", "matrix"):
        scheduler = make_scheduler(name)
        plan = scheduler.place(problem)
        if plan.placements["t"].status == "placed":
            aim = Aim(objective, hops)
            reported = make_placement_file(name, scheduler.params, problem, plan, 0.0, aim=aim).cost.objective
            expected = _recomputed(problem, plan, objective, hops)
            assert reported is None if expected == inf else reported == pytest.approx(expected, abs=1e-9)


@given(_rounds())
def test_exact_searches_by_hops_agree(given: tuple[Problem, Hops]) -> None:
    problem, hops = given
    instance, table = instance_of(problem, problem.topologies), hop_table(problem, hops)
    above = 1 + instance.total_rate * max(map(max, table.between))
    proof = search_exactly(instance, table, levels_of(instance, table), above, lambda: False)
    least = _minimum(problem, "cost", hops)
    assert proof.complete
    assert (proof.node_of is None) == (least is None)
    if proof.node_of is not None and least is not None:
        assert instance.fits(proof.node_of)
        assert table.cost(instance, proof.node_of) == proof.least
        assert proof.least / instance.rate_scale / table.scale == pytest.approx(least, abs=1e-9)
    by_rack = rack_cost(instance, table, lambda: False)
    if by_rack is not None:
        assert by_rack[1] == proof.least == table.cost(instance, by_rack[0])


@pytest.mark.parametrize(
    "problem", [*MICRO[5::11], *APPLICATIONS], ids=lambda p: f"{p.topologies[0].id}-{len(p.cluster.nodes)}"
)
def test_published_benchmarks_in_two_racks_are_proven(problem: Problem) -> None:
    halves = _in_racks(problem)
    scheduler = Checked(Optimal, OptimalParams(objective="cost"))
    plan = scheduler.place(halves)
    assert plan.details["proven"]
    assert _reported(scheduler, halves, plan) == plan.details["lower_bound"]


def test_a_chain_crosses_racks_once() -> None:
    racks = tuple(replaced(node, rack=rack) for node, rack in zip(cluster(1, 1, 1, 1).nodes, "abab", strict=True))
    problem = Problem(Cluster(racks, Network(1.0, 5.0)), (chain(1, 1, 1, 1),))
    for scheduler in (
        Checked(Optimal, OptimalParams(objective="cost")),
        Checked(LocalSearch, LocalSearchParams(objective="cost")),
    ):
        assert _reported(scheduler, problem, scheduler.place(problem)) == 1 + 5 + 1


def test_a_missing_delay_or_rate_is_refused_with_both_ends() -> None:
    problem = replace(MICRO[0], cluster=cluster(5, 5, 5))
    network = Network(links=(NetworkLink("n0000", "n0001", 1.0, 10.0), NetworkLink("n0000", "n0002", 1.0)))
    problem = replace(problem, cluster=replaced(problem.cluster, network=network))
    missing: dict[Objective, str] = {"cost": "'n0001' and 'n0002'", "busiest-link": "'n0000' and 'n0002'"}
    for objective, ends in missing.items():
        for scheduler in (
            Checked(Optimal, OptimalParams(objective=objective, hops="links")),
            Checked(LocalSearch, LocalSearchParams(objective=objective, hops="links")),
            Checked(IScheduler, ISchedulerParams(objective=objective, hops="links")),
        ):
            with pytest.raises(LackingNodeError, match=ends):
                scheduler.place(problem)


def test_the_load_of_a_node_includes_other_topologies() -> None:
    nodes = cluster(4, 4)
    other = ExistingWorker("other", "n0000", 0, ("x[0]", "x[1]"))
    topology = Topology("t", (Component("a", "spout", 4),))
    problem = Problem(replaced(nodes, existing=(other,)), (topology,))
    plan = Checked(Optimal, OptimalParams(objective="busiest-node")).place(problem)
    where = [plan.placements["t"].assignments[Executor("a", at)].node for at in range(4)]
    assert where.count("n0000") == 1
    assert plan.details["lower_bound"] == 0.75
