"""`i-scheduler` fusing as in the paper, never worse than the fallback, and splitting of nodes into workers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitioning_problems import APPLICATIONS, MICRO, cluster, executors_per_node, rounds, w

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.i_scheduler import IScheduler, ISchedulerParams, find_threshold
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning import fusing
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from workloads.example_topologies import linear, star
from workloads.topology import Component, Topology


def place(problem: Problem, **params: object) -> Plan:
    return Checked(IScheduler, ISchedulerParams(**params)).place(problem)  # type: ignore[arg-type]


@pytest.mark.parametrize("partitioner", ["recursive", "kway"])
def test_the_papers_worked_example(partitioner: str) -> None:
    plan = place(Problem(cluster(4, 3, 3, 2), (linear(12),)), phi=8, partitioner=partitioner)
    first, second = plan.details["passes"]
    assert first == {"t": 12, "f": 0, "capacity": 4, "quantity": 1, "k": 3, "beta": 2, "alpha": 1}
    assert second == {"t": 8, "f": 1, "capacity": 3, "quantity": 2, "k": 3, "beta": 1, "alpha": 1}


def test_the_papers_remark_on_28_star_executors() -> None:
    plan = place(Problem(cluster(*[6] * 3, *[4] * 3, *[2] * 4), (star(28),)), phi=16, theta=600)
    (only,) = plan.details["passes"]
    assert (only["alpha"], only["t"] - 3 * 6) == (3, 10)


@pytest.mark.parametrize("partitioner", ["recursive", "kway"])
@pytest.mark.parametrize("phi", [None, 8, 16])
def test_it_is_never_worse_than_its_fallback(phi: int | None, partitioner: str) -> None:
    for problem in [*MICRO[::5], *APPLICATIONS[:2]]:
        fallback = place(problem, theta=0, partitioner=partitioner)
        assert fallback.details["fallback"]
        assert w(problem, place(problem, phi=phi, partitioner=partitioner)) <= w(problem, fallback)


def test_it_is_optimal_on_micro_benchmarks_small_enough_for_the_optimiser() -> None:
    optimal = Checked(Optimal, OptimalParams())
    assert all(w(problem, place(problem)) == w(problem, optimal.place(problem)) for problem in MICRO[::7])


@given(
    rounds(most=9, nodes=4), st.sampled_from([0, 2, 4, 8]), st.integers(1, 4), st.sampled_from(["recursive", "kway"])
)
def test_capacities_and_worker_sizes_hold_and_plans_repeat(
    problem: Problem, phi: int, tasks: int, partitioner: str
) -> None:
    plan = place(problem, phi=phi, T=tasks, partitioner=partitioner)
    placement = plan.placements["t"]
    fits = sum(int(node.capacity or 0) for node in problem.cluster.nodes) >= len(problem.topologies[0].executors)
    assert placement.status == ("placed" if fits else "failed")
    if not fits:
        return
    for node in problem.cluster.nodes:
        here = [slot for slot in placement.assignments.values() if slot.node == node.id]
        assert len(here) <= (node.capacity or 0)
        assert len(set(here)) == -(-len(here) // tasks)
        assert all(here.count(slot) <= tasks for slot in here)
    assert sorted(plan.details["workers"]) == sorted(
        list(placement.assignments.values()).count(slot) for slot in set(placement.assignments.values())
    )
    assert plan == place(problem, phi=phi, T=tasks, partitioner=partitioner)


def test_a_node_with_few_slots_raises_the_limit_of_its_workers() -> None:
    plan = place(Problem(cluster(12, slots=2), (linear(12),)), T=3)
    assert plan.details["workers"] == [6, 6]


def test_everything_on_one_node_costs_nothing() -> None:
    problem = Problem(cluster(2, 40, 2), (linear(20),))
    for params in ({}, {"theta": 0.0}, {"phi": 5}):
        assert w(problem, place(problem, **params)) == 0


def test_capacities_hold_for_different_loads() -> None:
    topology = Topology("t", (*linear(8, each=1).components[:4], Component("big", "spout", 2, cpu=25)))
    nodes = Cluster((Node(id="a", cpu=40), Node(id="b", cpu=30), Node(id="c", cpu=30)))
    for phi in (0, 4, 20):
        plan = place(Problem(nodes, (topology,)), phi=phi)
        assert plan.placements["t"].status == "placed"
        for node, limit in (("a", 40), ("b", 30), ("c", 30)):
            here = [e for e, slot in plan.placements["t"].assignments.items() if slot.node == node]
            assert sum(25 if e.component == "big" else 10 for e in here) <= limit


def test_loads_that_are_hard_to_pack_are_partitioned_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = fusing.partition

    def partition(*arguments: Any) -> Any:
        sizes.append(len(arguments[3]))
        return original(*arguments)

    monkeypatch.setattr(fusing, "partition", partition)
    loads = [(51, 100), (34, 60), (26, 60)]
    parts = tuple(Component(f"c{load}", "spout", count, cpu=load) for load, count in loads)
    # 87 parts hold the load, but no two of the heaviest fit into one.
    nodes = Cluster(tuple(Node(id=f"n{at:03d}", cpu=100) for at in range(125)))
    plan = place(Problem(nodes, (Topology("t", parts),)), theta=0)
    assert plan.placements["t"].status == "placed"
    assert sizes == [107]


def test_an_executor_too_large_for_the_remaining_nodes_ends_the_fusing() -> None:
    parts = (Component("small", "spout", 200, cpu=10), Component("big", "spout", 3, cpu=90))
    nodes = Cluster((Node(id="a", cpu=100), *(Node(id=f"n{at}", cpu=80) for at in range(40))))
    plan = place(Problem(nodes, (Topology("t", parts),)), theta=0)
    assert plan.placements["t"].status == "failed"


def test_later_topologies_get_what_earlier_ones_leave() -> None:
    problem = Problem(cluster(6, 6, slots=2), (linear(6), star(10)))
    plan = place(problem)
    assert plan.placements["linear-6"].status == "placed"
    assert plan.placements["star-10"].status == "failed"
    assert max(executors_per_node(problem, plan).values()) == 6


def test_later_topologies_get_what_earlier_ones_give_up() -> None:
    workers = tuple(ExistingWorker("linear-4", f"n000{at}", 0, (f"op{at}[0]", f"op{at}[1]")) for at in (0, 1))
    problem = Problem(Cluster(cluster(4, 4).nodes, existing=workers), (linear(4), star(4)))
    plan = place(problem)
    assert {placement.status for placement in plan.placements.values()} == {"placed"}
    assert w(problem, plan) == 0


def test_a_second_round_releases_workers_that_change() -> None:
    worker = ExistingWorker("linear-4", "n0000", 0, ("op0[0]", "op1[1]"))
    plan = place(Problem(Cluster(cluster(4, 4).nodes, existing=(worker,)), (linear(4),)), T=2)
    assert plan.placements["linear-4"].status == "placed"
    assert list(plan.freed) == [worker]


def test_thresholds_never_fall_with_the_time_allowed() -> None:
    values = [find_threshold(theta) for theta in (0.0, 0.01, 0.05, 0.3, 1.0, 60.0)]
    assert values[0] == 0
    assert values == sorted(values)
