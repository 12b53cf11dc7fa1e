"""Random scheduling rounds for property tests, and short constructors of clusters and topologies."""

import string
from collections.abc import Sequence

from hypothesis import strategies as st

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.problem import Problem
from workloads.topology import Component, Executor, GroupingKind, Input, Topology
from workloads.traffic import Edge, Traffic

GROUPINGS = ("shuffle", "fields", "global", "all", "direct", "local-or-shuffle")


def nodes_of(**slots: int) -> Cluster:
    """Return nodes with numbers of slots and equal hardware, as in `nodes_of(a=2, b=4)`."""
    return Cluster(tuple(Node(id=name, slots=count, ghz=1.0, flops_per_cycle=4) for name, count in slots.items()))


def chain(
    *parallelism: int,
    names: Sequence[str] = string.ascii_lowercase,
    grouping: GroupingKind = "shuffle",
    workers: int = 1,
    name: str = "t",
    ackers: int = 0,
) -> Topology:
    """Return a linear topology, a -> b -> ... unless `names` differ, and ackers at the end."""
    components = [
        Component(
            id=names[at],
            kind="bolt" if at else "spout",
            parallelism=size,
            inputs=(Input(names[at - 1], grouping),) if at else (),
        )
        for at, size in enumerate(parallelism)
    ]
    if ackers:
        components.append(Component(id="__acker", kind="bolt", parallelism=ackers))
    return Topology(id=name, components=tuple(components), workers=workers)


@st.composite
def topologies(draw: st.DrawFn, name: str = "t", most_components: int = 5, cycles: bool = False) -> Topology:
    """Draw a topology; components are neither in alphabetical nor in topological order, ids start with the name."""
    size = draw(st.integers(1, most_components))
    ids = [f"{name}{letter}" for letter in draw(st.permutations("abcdeXY_"))[:size]]
    upstream = {own: ids[: at if not cycles else size] for at, own in enumerate(ids)}
    components: list[Component] = []
    for own in draw(st.permutations(ids)):
        sources = draw(st.lists(st.sampled_from(upstream[own]), max_size=3)) if upstream[own] else []
        inputs = []
        for source in sources:
            grouping = draw(st.sampled_from(GROUPINGS))
            inputs.append(Input(source, grouping, ("key",) if grouping == "fields" else ()))
        components.append(
            Component(
                id=own,
                kind="bolt" if inputs else "spout",
                parallelism=draw(st.integers(1, 5)),
                cpu=draw(st.none() | st.integers(0, 100).map(float)),
                inputs=tuple(inputs),
            )
        )
    return Topology(id=name, components=tuple(components), workers=draw(st.integers(1, 8)))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Draw nodes in any order, with unequal hardware, sometimes with named ports, sometimes unavailable."""
    nodes: list[Node] = []
    for name in draw(st.lists(st.sampled_from(["n1", "n10", "n2", "a", "Z", "m"]), min_size=1, unique=True)):
        slots = draw(st.integers(0, 4))
        ports = draw(st.none() | st.lists(st.integers(6700, 6710), min_size=slots, max_size=slots, unique=True))
        nodes.append(
            Node(
                id=name,
                slots=slots,
                ports=None if ports is None else tuple(ports),
                available=draw(st.integers(0, 5)) > 0,
                cores=draw(st.sampled_from([1, 2, 4])),
                ghz=draw(st.sampled_from([1.0, 2.0, 2.5])),
                flops_per_cycle=draw(st.sampled_from([4.0, 8.0])),
                ram_gb=draw(st.sampled_from([4.0, 8.0])),
                uptime_s=draw(st.sampled_from([None, 0.0, 8.9, 9.0])),
            )
        )
    return Cluster(tuple(nodes))


@st.composite
def problems(draw: st.DrawFn, cycles: bool = False, observed: bool = False) -> Problem:
    """Draw one to three topologies, some of whose workers run already, beside workers of another round."""
    cluster = draw(clusters())
    count = draw(st.integers(1, 3))
    graphs = [draw(topologies(name, cycles=cycles)) for name in draw(st.permutations("tuv"))[:count]]
    places = [(node.id, index) for node in cluster.nodes for index in range(node.slots)]
    existing: list[ExistingWorker] = []
    todo = {graph.id: list(graph.executors) for graph in graphs}
    for node, index in draw(st.permutations(places))[: draw(st.integers(0, 4))]:
        owner = draw(st.sampled_from(["other", *todo]))
        mine: list[Executor] = []
        if todo.get(owner):
            mine = draw(st.lists(st.sampled_from(todo[owner]), min_size=1, max_size=3, unique=True))
            todo[owner] = [executor for executor in todo[owner] if executor not in mine]
        elif owner in todo:
            continue
        existing.append(ExistingWorker(owner, node, index, tuple(executor.name for executor in mine)))
    running = Cluster(cluster.nodes, cluster.network, tuple(existing))
    return Problem(running, tuple(graphs), draw(traffic(graphs)) if observed else None)


@st.composite
def traffic(draw: st.DrawFn, graphs: Sequence[Topology]) -> Traffic:
    """Draw rates between executors of one topology, linked or not; integers, so that sums are exact."""
    edges: list[Edge] = []
    load: dict[str, float] = {}
    for graph in graphs:
        names = st.sampled_from([executor.name for executor in graph.executors])
        rates = st.integers(0, 9).map(float)
        edges.extend(draw(st.lists(st.builds(Edge, names, names, rates), max_size=8)))
        for name in draw(st.lists(names, max_size=3)):
            load[name] = float(draw(st.integers(0, 50)))
    return Traffic(tuple(edges), load)
