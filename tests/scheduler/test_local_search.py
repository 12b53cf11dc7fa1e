"""`local-search` reaches known optima, keeps all limits, and is deterministic."""

from array import array
from collections.abc import Sequence
from itertools import combinations, product
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from msgspec.structs import replace
from partitioning_problems import APPLICATIONS, MICRO, cluster, executors_per_node, minimum, rounds, w

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.local_search import LocalSearch, LocalSearchParams
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning import jit_cache, kernels_refinement, large_neighbourhood
from scheduler.partitioning.counts import Counts
from scheduler.partitioning.instance import Instance, instance_of
from scheduler.partitioning.large_neighbourhood import BEST, FAST, Preset, search_large
from scheduler.partitioning.multilevel import Multilevel
from scheduler.partitioning.rows import Ints
from scheduler.partitioning.tabu import Effort, improve
from scheduler.problem import Plan, Problem, Slot
from scheduler.registry import Checked
from workloads.example_topologies import chain, layered, linear
from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic

SEARCH = Checked(LocalSearch, LocalSearchParams())
OPTIMAL = Checked(Optimal, OptimalParams())
MIXED = [8, 16, 24, 32, 48]


def keeps_capacities(problem: Problem, plan: Plan) -> bool:
    counts = executors_per_node(problem, plan)
    return all(counts[node.id] <= (node.capacity or 0) for node in problem.cluster.nodes)


@pytest.mark.parametrize(
    "problem", [*MICRO, *APPLICATIONS], ids=lambda p: f"{p.topologies[0].id}-{len(p.cluster.nodes)}"
)
def test_published_benchmarks_are_solved_optimally(problem: Problem) -> None:
    plan = SEARCH.place(problem)
    assert keeps_capacities(problem, plan)
    assert w(problem, plan) == w(problem, OPTIMAL.place(problem))


def test_a_search_from_any_placement_finds_the_optimum_of_most_small_rounds() -> None:
    generator, missed = Random(1), 0  # noqa: S311 - no secret
    for _ in range(40):
        sender, receivers = Component("a", "spout", 2), Component("b", "bolt", 3, inputs=(Input("a"),))
        topology = Topology("t", (sender, receivers))
        names = [executor.name for executor in topology.executors]
        edges = tuple(Edge(a, b, generator.choice([0.0, 1.0, 2.0, 5.0, 9.0])) for a, b in combinations(names, 2))
        capacities = generator.choice([(2, 2, 1), (3, 3, 2), (3, 2)])
        problem = Problem(cluster(*capacities), (topology,), Traffic(edges))
        node_weight = generator.choice([0, 3, 20])
        instance = instance_of(problem, [topology])

        def cost(counts: Counts, instance: Instance = instance, node_weight: int = node_weight) -> float:
            return instance.total_rate - counts.kept + node_weight * sum(map(bool, counts.held))

        every = [
            counts
            for nodes in product(range(len(capacities)), repeat=len(instance.class_of))
            if (counts := _counts(instance, nodes)) is not None
        ]
        start = generator.choice(every)
        least, before = min(map(cost, every)), cost(start)
        result = cost(improve(start, Effort(1 << 30, lambda: False), 0, 60, 1, node_weight))
        assert result <= before
        missed += result > least
    assert missed <= 1


def test_a_search_empties_a_node_that_costs_more_than_the_rate() -> None:
    topology = Topology("t", (Component("a", "spout", 3),))
    instance = instance_of(Problem(cluster(3, 3), (topology,), Traffic(())), [topology])
    start = _counts(instance, [0, 1, 1])
    assert start is not None
    improved = improve(start, Effort(1 << 30, lambda: False), 0, 60, 1, node_weight=1)
    assert sorted(improved.held) == [0, 3]


def _counts(instance: Instance, nodes: Sequence[int]) -> Counts | None:
    counts = Counts(instance)
    for kind, node in zip(instance.class_of, nodes, strict=True):
        if not counts.takes(kind, node):
            return None
        counts.put(kind, node)
    return counts


@given(rounds())
def test_small_rounds_are_placed_if_possible_and_never_below_the_optimum(problem: Problem) -> None:
    plan, least = SEARCH.place(problem), minimum(problem)
    assert plan.placements["t"].status == ("failed" if least is None else "placed")
    if least is not None:
        assert keeps_capacities(problem, plan)
        assert w(problem, plan) >= least - 1e-12


@pytest.mark.parametrize("size", [129, 400])
def test_large_rounds_keep_capacities_and_beat_first_come_first_served(size: int) -> None:
    topology, traffic = layered(size, 3)
    problem = Problem(cluster(*(MIXED * (size // 100 + 1))), (topology,), traffic)
    plan = SEARCH.place(problem)
    assert plan.placements[topology.id].status == "placed"
    assert keeps_capacities(problem, plan)
    instance = instance_of(problem, [topology])
    filled = [node for node, capacity in enumerate(instance.capacity) for _ in range(capacity)][:size]
    assert w(problem, plan) < 0.6 * instance.cut(filled)
    assert plan == SEARCH.place(problem)


def test_chains_have_the_minimum_number_of_cuts() -> None:
    problem = Problem(cluster(*(MIXED * 10)), (chain(700),))
    # 10 nodes of 48 hold 480, 7 of 32 the other 220: no 16 nodes hold all 700.
    assert w(problem, SEARCH.place(problem)) == 10 + 7 - 1


@pytest.mark.parametrize("capacities", [MIXED * 3, [200, 150]], ids=["many nodes", "two nodes"])
def test_compiled_and_interpreted_searches_agree(capacities: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    topology, traffic = layered(300, 5)
    instance = instance_of(Problem(cluster(*capacities), (topology,), traffic), [topology])
    compiled = search_large(instance, Effort(100_000, lambda: False))
    monkeypatch.setattr(
        large_neighbourhood, "compiled_kernels", lambda: SimpleNamespace(**{k.__name__: k for k in jit_cache.ENTRIES})
    )
    assert search_large(instance, Effort(100_000, lambda: False)) == compiled


@pytest.mark.long
def test_kernels_are_compiled_once_into_the_first_writable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_a_folder = tmp_path / "file"
    not_a_folder.touch()
    # Compiling all of them takes half a minute.
    monkeypatch.setattr(jit_cache, "ENTRIES", (kernels_refinement.cut,))
    monkeypatch.setattr(jit_cache, "INNER", ())
    monkeypatch.setattr(jit_cache, "_folders", lambda: [not_a_folder / "cache", tmp_path / "cache"])
    triangle = [0, 2, 4, 6], [1, 2, 0, 2, 0, 1], [5, 7, 5, 9, 7, 9], [0, 0, 1]

    def cut() -> int:
        return int(jit_cache.load().cut(3, *(array("q", values) for values in triangle)))

    assert cut() == 2 * (7 + 9)
    assert len(list((tmp_path / "cache").iterdir())) == 1
    monkeypatch.setattr(jit_cache, "_translated", None)
    assert cut() == 2 * (7 + 9)


def test_few_large_nodes_are_cut_between_groups_that_communicate() -> None:
    topology, traffic = layered(600, 2)
    problem = Problem(cluster(350, 350), (topology,), traffic)
    plan = SEARCH.place(problem)
    assert keeps_capacities(problem, plan)
    instance = instance_of(problem, [topology])
    assert w(problem, plan) < 0.2 * instance.cut([executor % 2 for executor in range(600)])


def test_only_the_preset_fast_skips_the_cycle_of_large_brief_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    cycled: list[Preset] = []
    topology, traffic = layered(600, 2)
    problem = Problem(cluster(350, 350), (topology,), traffic)
    instance = instance_of(problem, [topology])

    def searched(preset: Preset) -> list[int]:
        def cycle(levels: Multilevel, part: Ints, improve: object) -> Ints:
            cycled.append(preset)
            return part

        monkeypatch.setattr(Multilevel, "cycle", cycle)
        nodes = search_large(instance, Effort(100_000, lambda: False), preset=preset)
        assert nodes is not None
        assert instance.fits(nodes)
        return nodes

    searched(FAST)
    assert cycled == [FAST]
    monkeypatch.setattr(large_neighbourhood, "BRIEF", (500, 100, 3))
    searched(FAST)
    assert cycled == [FAST, FAST]
    monkeypatch.setattr(large_neighbourhood, "UNCYCLED", 500)
    assert searched(FAST) == searched(FAST)
    searched(BEST)
    assert cycled == [FAST, FAST, BEST]


def test_a_large_running_placement_changes_only_for_a_better_one() -> None:
    topology, traffic = layered(200, 3)
    nodes = cluster(*(MIXED * 2))
    # Annealing from scratch would move hundreds of executors to reach the same cost, if it does.
    first = Checked(LocalSearch, LocalSearchParams(seed=1)).place(Problem(nodes, (topology,), traffic))
    slots: dict[Slot, list[str]] = {}
    for executor, slot in first.placements[topology.id].assignments.items():
        slots.setdefault(slot, []).append(executor.name)
    workers = tuple(ExistingWorker(topology.id, slot.node, slot.index, tuple(names)) for slot, names in slots.items())
    running = Problem(Cluster(nodes.nodes, existing=workers), (topology,), traffic)
    again = SEARCH.place(running)
    assert w(running, again) < w(running, first) or not again.migrations


def test_components_with_too_many_pairs_are_placed_by_class() -> None:
    topology = Topology("wide", (Component("a", "spout", 3000), Component("b", "bolt", 3000, inputs=(Input("a"),))))
    problem = Problem(cluster(*[100] * 61), (topology,))
    plan = SEARCH.place(problem)
    assert keeps_capacities(problem, plan)
    assert w(problem, plan) == 3000 * 3000 - 60 * 50 * 50  # every full node keeps 50 x 50


def test_memory_is_a_limit_when_components_declare_it() -> None:
    nodes = Cluster(tuple(Node(id=name, capacity=8, memory_mb=1000) for name in "abc"))

    def nodes_used(memory: float | None) -> int:
        topology = Topology(
            "t",
            (
                Component("s", "spout", 3, memory_mb=memory),
                Component("u", "bolt", 3, memory_mb=memory, inputs=(Input("s"),)),
            ),
        )
        plan = SEARCH.place(Problem(nodes, (topology,)))
        assert plan.placements["t"].status == "placed"
        return len({slot.node for slot in plan.placements["t"].assignments.values()})

    assert nodes_used(None) == 1
    assert nodes_used(500) == 3


@pytest.mark.parametrize("weight", [5.0, 1e15, 1.7e308])
def test_fewer_nodes_are_used_where_a_node_costs_more_than_the_rate(weight: float) -> None:
    pairs = Topology(
        "t",
        (
            Component("a", "spout"),
            Component("b", "bolt", inputs=(Input("a"),)),
            Component("c", "spout"),
            Component("d", "bolt", inputs=(Input("c"),)),
        ),
    )
    scheduler = Checked(
        LocalSearch, LocalSearchParams(node_weight=weight, worker_weight=weight, executors_per_worker=1)
    )
    for rate in (1.0, 5e-324):
        traffic = Traffic((Edge("a[0]", "b[0]", rate), Edge("c[0]", "d[0]", rate)))
        plan = scheduler.place(Problem(cluster(2, 2, 3, 1), (pairs,), traffic))
        assert len({s.node for s in plan.placements["t"].assignments.values()}) == 2


def test_workers_that_lose_no_executor_stay_and_others_are_released() -> None:
    workers = (
        ExistingWorker("linear-4", "n0000", 2, ("op0[0]", "op0[1]")),
        ExistingWorker("linear-4", "n0001", 0, ("op1[0]", "op1[1]")),
    )
    nodes = Cluster(cluster(4, 2).nodes, existing=workers)
    plan = SEARCH.place(Problem(nodes, (linear(4),)))
    assert set(plan.placements["linear-4"].assignments.values()) == {Slot("n0000", 2)}
    assert [worker.node for worker in plan.freed] == ["n0001"]
    assert {move.executor.name for move in plan.migrations} == {"op1[0]", "op1[1]"}


def test_topologies_share_nodes_only_if_there_are_slots() -> None:
    pair = (Component("a", "spout"), Component("b", "bolt", inputs=(Input("a"),)))
    problem = Problem(cluster(4, 4, slots=1), (Topology("one", pair), Topology("two", pair)))
    plan = SEARCH.place(problem)
    assert {p.status for p in plan.placements.values()} == {"placed"}
    assert w(problem, plan) == 0


@pytest.mark.parametrize("sizes", [(130, 130), (110, 30), (360, 30, 20)])
def test_large_topologies_share_no_slot_where_nodes_have_one(sizes: tuple[int, ...]) -> None:
    nodes = cluster(*[50] * sum(-(-size // 50) for size in sizes), slots=1)
    graphs = tuple(replace(linear(size), id=f"t{at}") for at, size in enumerate(sizes))
    plan = SEARCH.place(Problem(nodes, graphs))
    assert [placement.status for placement in plan.placements.values()] == ["placed"] * len(sizes)
    assert keeps_capacities(Problem(nodes, graphs), plan)


def test_nodes_are_split_into_workers_and_traffic_between_them_may_count() -> None:
    problem = Problem(cluster(8, 8), (linear(16),))
    split = Checked(LocalSearch, LocalSearchParams(executors_per_worker=3, worker_weight=0.5)).place(problem)
    slots = list(split.placements["linear-16"].assignments.values())
    assert len(set(slots)) == 6
    assert max(map(slots.count, slots)) <= 3
    assert w(problem, split) == w(problem, SEARCH.place(problem))
