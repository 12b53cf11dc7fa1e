"""No worker gets more work than its one thread can do, wherever a placement with that limit exists."""

from collections import Counter
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from partitioning_problems import rounds, w

from inventory.cluster import Cluster, Node
from scheduler.algorithms.i_scheduler import IScheduler, ISchedulerParams
from scheduler.algorithms.local_search import LocalSearch, LocalSearchParams
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.explain.explanation import compute_lower_bound
from scheduler.partitioning.worker_limit import divided_works
from scheduler.problem import Placement, Plan, Problem, Slot
from scheduler.registry import Checked
from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic

OPTIMAL = Checked(Optimal, OptimalParams())
LOCAL = Checked(LocalSearch, LocalSearchParams())
ITERATIVE = Checked(IScheduler, ISchedulerParams())


def fits(items: list[float], workers: int, most: float = 100.0) -> bool:
    """Try every division."""
    return any(
        all(sum(item for item, at in zip(items, chosen, strict=True) if at == each) <= most for each in range(workers))
        for chosen in product(range(workers), repeat=len(items))
    )


def points(problem: Problem, name: str) -> float:
    (topology,) = problem.topologies
    observed = problem.traffic.load if problem.traffic is not None else {}
    return observed.get(name, topology.component[name.partition("[")[0]].cpu or 0.0)


def minimum(problem: Problem) -> float | None:
    """Return the lowest W of all placements within capacities and workers; None if there is none."""
    (topology,) = problem.topologies
    nodes = problem.cluster.nodes
    names = [executor.name for executor in topology.executors]
    loads = [1.0 if nodes[0].capacity is not None else points(problem, name) for name in names]
    works = [points(problem, name) for name in names]
    best: float | None = None
    for chosen in product(range(len(nodes)), repeat=len(names)):
        here = [[at for at, node in enumerate(chosen) if node == number] for number in range(len(nodes))]
        if any(
            mine
            and (
                sum(loads[at] for at in mine) > (node.cpu_points if node.capacity is None else node.capacity)
                or not fits([works[at] for at in mine], node.slots)
            )
            for node, mine in zip(nodes, here, strict=True)
        ):
            continue
        slots = {e: Slot(nodes[at].id, 0) for e, at in zip(topology.executors, chosen, strict=True)}
        found = w(problem, Plan({topology.id: Placement(slots)}))
        best = found if best is None else min(best, found)
    return best


def work_of_workers(problem: Problem, plan: Plan) -> Counter[Slot]:
    work: Counter[Slot] = Counter()
    for executor, slot in plan.placements[problem.topologies[0].id].assignments.items():
        work[slot] += points(problem, executor.name)
    return work


@st.composite
def loaded(draw: st.DrawFn) -> Problem:
    """Draw a round with loads, observed or declared, on nodes of a few slots; not all fit."""
    problem = draw(rounds(most=6))
    (topology,) = problem.topologies
    sizes = st.sampled_from([5.0, 20.0, 33.3, 34.0, 50.0, 51.0, 60.0, 90.0, 100.0])
    slots = st.integers(1, 3)
    if draw(st.booleans()):
        topology = Topology("t", tuple(replace_cpu(component, draw(sizes)) for component in topology.components))
        problem = replace(problem, topologies=(topology,))
    else:
        load = {executor.name: draw(sizes) for executor in topology.executors}
        edges = problem.traffic.edges if problem.traffic is not None else ()
        problem = replace(problem, traffic=Traffic(edges, load))
    counts = draw(st.booleans())
    nodes = tuple(
        Node(id=node.id, slots=draw(slots), capacity=node.capacity)
        if counts
        else Node(id=node.id, slots=draw(slots), cpu=draw(st.sampled_from([50.0, 100.0, 150.0, 400.0])))
        for node in problem.cluster.nodes
    )
    return replace(problem, cluster=Cluster(nodes))


def replace_cpu(component: Component, cpu: float) -> Component:
    return Component(component.id, component.kind, component.parallelism, cpu=cpu, inputs=component.inputs)


@given(loaded())
def test_the_optimum_is_that_of_exhaustive_search(problem: Problem) -> None:
    plan, least = OPTIMAL.place(problem), minimum(problem)
    if least is None:
        assert plan.placements["t"].status == "failed"
        assert plan.placements["t"].message
        return
    assert plan.placements["t"].status == "placed"
    assert max(work_of_workers(problem, plan).values()) <= 100 + 1e-9
    assert w(problem, plan) == pytest.approx(least, abs=1e-9)
    assert plan.details["proven"]
    assert compute_lower_bound(problem).lower_bound <= least + 1e-9  # type: ignore[operator]


@pytest.mark.parametrize("scheduler", [LOCAL, ITERATIVE], ids=lambda each: each.name)
@given(problem=loaded())
def test_searches_keep_the_limit_whenever_a_placement_does(scheduler: Checked, problem: Problem) -> None:
    plan, least = scheduler.place(problem), minimum(problem)
    assert plan.placements["t"].status == ("failed" if least is None else "placed")
    if least is not None:
        assert max(work_of_workers(problem, plan).values()) <= 100 + 1e-9


@pytest.mark.parametrize("objective", ["cost", "busiest-link", "busiest-node"])
@given(problem=loaded())
def test_other_objectives_keep_the_limit(objective: str, problem: Problem) -> None:
    for scheduler in (
        Checked(Optimal, OptimalParams(objective=objective)),  # type: ignore[arg-type]
        Checked(LocalSearch, LocalSearchParams(objective=objective)),  # type: ignore[arg-type]
    ):
        plan = scheduler.place(problem)
        assert plan.placements["t"].status == ("failed" if minimum(problem) is None else "placed")
        assert max(work_of_workers(problem, plan).values(), default=0) <= 100 + 1e-9


@given(st.lists(st.integers(0, 10), max_size=7), st.integers(1, 4), st.integers(1, 10))
def test_a_division_is_found_whenever_there_is_one(works: list[int], workers: int, most: int) -> None:
    works.sort(reverse=True)
    found = divided_works(works, most, workers)
    assert (found is not None) == fits([float(each) for each in works], workers, most)
    if found is not None:
        assert all(sum(x for x, at in zip(works, found, strict=True) if at == each) <= most for each in range(workers))


def wide(executors: int, load: float, slots: int, nodes: int) -> Problem:
    """Return a chain of pairs, each executor with this load."""
    half = executors // 2
    parts = (Component("a", "spout", half), Component("b", "bolt", half, inputs=(Input("a"),)))
    topology = Topology("t", parts)
    random = Random(1)  # noqa: S311 - no secret
    edges = tuple(Edge(f"a[{at}]", f"b[{at}]", 1.0 + random.random()) for at in range(half))
    loads = {executor.name: load * (0.5 + random.random()) for executor in topology.executors}
    cluster = Cluster(tuple(Node(id=f"n{at:03d}", slots=slots, cpu=100.0 * slots) for at in range(nodes)))
    return Problem(cluster, (topology,), Traffic(edges, loads))


@pytest.mark.parametrize("executors", [100, 400])
def test_no_worker_of_a_large_round_is_overloaded(executors: int) -> None:
    # A mean of 30 points: three or four executors in a worker, 85 % of all slots' work.
    problem = wide(executors, 30.0, 8, -(-executors * 30 // 680))
    without = LOCAL.place(replace(problem, worker_points=None))
    assert max(work_of_workers(problem, without).values()) > 600  # one worker per node
    plan = LOCAL.place(problem)
    assert plan.placements["t"].status == "placed"
    work = work_of_workers(problem, plan)
    assert max(work.values()) <= 100 + 1e-9
    assert len(work) > len(problem.cluster.nodes)


def test_an_engine_whose_workers_have_threads_has_no_limit() -> None:
    problem = wide(8, 40.0, 4, 2)
    plan = OPTIMAL.place(replace(problem, worker_points=None))
    assert max(work_of_workers(problem, plan).values()) > 100
    assert max(work_of_workers(problem, OPTIMAL.place(problem)).values()) <= 100


def test_unknown_loads_limit_nothing() -> None:
    topology = Topology("t", (Component("a", "spout", 30), Component("b", "bolt", 30, inputs=(Input("a"),))))
    problem = Problem(Cluster((Node(id="n", slots=1, cpu=1000.0),)), (topology,))
    assert OPTIMAL.place(problem).placements["t"].status == "placed"


def test_a_message_says_what_workers_cannot_do() -> None:
    big = Topology("t", (Component("small", "spout", cpu=1), Component("big", "spout", cpu=150)))
    cluster = Cluster((Node(id="a", cpu=400),))
    message = OPTIMAL.place(Problem(cluster, (big,))).placements["t"].message
    assert message == "big[0] of 't' uses 150 CPU points, and a worker, which is one thread, can compute 100"
    many = Topology("t", (Component("a", "spout", 5, cpu=90),))
    message = LOCAL.place(Problem(Cluster((Node(id="a", cpu=800),)), (many,))).placements["t"].message
    assert message == (
        "the executors use 450 CPU points in all, the usable slots hold 4 workers, which can compute 100 each"
    )
    odd = Topology("t", (Component("a", "spout", 5, cpu=60),))
    message = ITERATIVE.place(Problem(Cluster((Node(id="a", cpu=800),)), (odd,))).placements["t"].message
    assert message == "no placement was found that keeps to all capacities and to 100 CPU points per worker"
