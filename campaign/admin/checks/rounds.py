"""Small and varied scheduling rounds that every scheduler must solve."""

from collections.abc import Callable, Mapping

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.problem import Needs, Problem
from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic

Round = Callable[[], Problem]
"""Function that makes a new problem, which shares no object with others."""


def rounds_for(needs: Needs) -> Mapping[str, Round]:
    """Return rounds by description, for a scheduler with these needs: with traffic and, unless required, without."""
    plain: dict[str, Round] = {
        "a chain on five equal nodes": lambda: Problem(_equal(5), (_chain("chain", 2, 4, 3),)),
        "a diamond on unequal nodes, one of them not available": lambda: Problem(_unequal(), (_diamond(),)),
        "two topologies on few slots": lambda: Problem(_equal(2), (_chain("one", 2, 3), _chain("two", 1, 4, 2))),
        "nodes on which workers run already": lambda: Problem(_running(), (_chain("chain", 2, 4, 3),)),
        "a cluster without a free slot": lambda: Problem(_full(), (_chain("chain", 1, 2),)),
        "twenty executors on six nodes": lambda: Problem(_equal(6), (_chain("wide", 4, 8, 6, 2),)),
    }
    if needs.cycles:
        plain["a topology with a cycle"] = lambda: Problem(_equal(3), (_cycle(),))
    found = {} if needs.traffic == "required" else plain
    return {**found, **{f"{what}, with traffic": _with_traffic(made) for what, made in plain.items()}}


def _with_traffic(made: Round) -> Round:
    def observed() -> Problem:
        problem = made()
        return Problem(problem.cluster, problem.topologies, _observed(problem))

    return observed


def _observed(problem: Problem) -> Traffic:
    """Return different rates and loads for all executors whose names are unique."""
    names = [executor.name for topology in problem.topologies for executor in topology.executors]
    pairs = [
        (source.name, target.name)
        for topology in problem.topologies
        for source, target in topology.pairs()
        if names.count(source.name) == names.count(target.name) == 1
    ]
    edges = tuple(Edge(*pair, float(1 + at * 37 % 100), float(64 * (1 + at % 5))) for at, pair in enumerate(pairs))
    load = {name: float(2 + at * 7 % 19) for at, name in enumerate(names) if names.count(name) == 1}
    return Traffic(edges, load, {node.id: 0.25 for node in problem.cluster.nodes})


def _node(number: int, slots: int = 4, cores: int = 4, ghz: float = 2.4, available: bool = True) -> Node:
    return Node(
        id=f"n{number}",
        address=f"127.0.0.{number + 1}",
        rack=f"r{number % 2}",
        slots=slots,
        cores=cores,
        ghz=ghz,
        flops_per_cycle=8,
        ram_gb=4.0 + number,
        memory_mb=8192.0,
        available=available,
    )


def _equal(count: int) -> Cluster:
    return Cluster(tuple(_node(number) for number in range(1, count + 1)))


def _unequal() -> Cluster:
    return Cluster(
        (_node(10, 2, 2, 1.8), _node(2, 4, 8, 3.4), _node(3, 1, 4, 2.0, available=False), _node(1, 3, 4, 2.8))
    )


def _running() -> Cluster:
    existing = (
        ExistingWorker("other", "n1", 0, ("x[0]", "x[1]")),
        ExistingWorker("chain", "n2", 1, ("a[0]", "b[0]", "b[1]")),
    )
    return Cluster(_equal(4).nodes, existing=existing)


def _full() -> Cluster:
    return Cluster((_node(1, 1),), existing=(ExistingWorker("other", "n1", 0, ("x[0]",)),))


def _chain(name: str, *parallelism: int) -> Topology:
    ids = [f"{name[0]}{at}" if name != "chain" else "abcdef"[at] for at in range(len(parallelism))]
    components = [
        Component(ids[at], "bolt" if at else "spout", size, inputs=(Input(ids[at - 1]),) if at else ())
        for at, size in enumerate(parallelism)
    ]
    return Topology(name, tuple(components), workers=3)


def _diamond() -> Topology:
    components = (
        Component("source", "spout", 2, cpu=20.0),
        Component("left", "bolt", 3, cpu=30.0, memory_mb=256.0, inputs=(Input("source", "fields", ("key",)),)),
        Component("right", "bolt", 2, inputs=(Input("source", "all"),)),
        Component("sink", "bolt", 1, inputs=(Input("left", "global"), Input("right"))),
        Component("__acker", "bolt", 1),
    )
    return Topology("diamond", components, workers=4)


def _cycle() -> Topology:
    components = (
        Component("source", "spout", 2),
        Component("ahead", "bolt", 2, inputs=(Input("source"), Input("back"))),
        Component("back", "bolt", 2, inputs=(Input("ahead"),)),
    )
    return Topology("cycle", components, workers=2)
