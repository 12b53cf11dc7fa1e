"""Problems for partitioning schedulers, and the optimum of small ones by exhaustive search."""

from collections.abc import Callable
from itertools import product

from hypothesis import strategies as st

from inventory.cluster import Cluster, Node
from scheduler.problem import Placement, Plan, Problem, Slot
from scheduler.toolkit.cost import cost
from workloads.example_topologies import MICRO_SIZES, diamond, linear, smart_home, star, taxi
from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic


def cluster(*capacities: float, slots: int = 16) -> Cluster:
    return Cluster(tuple(Node(id=f"n{at:04d}", capacity=c, slots=slots) for at, c in enumerate(capacities)))


HOMOGENEOUS = cluster(*[4] * 10)
HETEROGENEOUS = cluster(*[6] * 3, *[4] * 3, *[2] * 4)
MICRO = [
    Problem(nodes, (shape(size),))
    for shape in (linear, diamond, star)
    for size in MICRO_SIZES
    for nodes in (HOMOGENEOUS, HETEROGENEOUS)
]
APPLICATIONS = [
    Problem(cluster(*[10] * 8), (smart_home(),)),
    Problem(cluster(10, 10, 5, 5, 5, 5), (smart_home(),)),
    Problem(cluster(*[15] * 8), (taxi(),)),
    Problem(cluster(15, 15, 8, 8), (taxi(),)),
]


def w(problem: Problem, plan: Plan) -> float:
    """Return the rate between nodes."""
    judged = cost(problem, plan.placements)
    return judged.inter_node_edges if judged.inter_node_tuples_per_s is None else judged.inter_node_tuples_per_s


def minimum(problem: Problem, value: Callable[[Problem, Plan], float] = w) -> float | None:
    """Return the lowest value of all placements within capacities (each executor counts 1); None if there is none."""
    (topology,) = problem.topologies
    nodes = problem.cluster.nodes
    best: float | None = None
    for chosen in product(range(len(nodes)), repeat=len(topology.executors)):
        if any(chosen.count(at) > (node.capacity or 0) for at, node in enumerate(nodes)):
            continue
        slots = {e: Slot(nodes[at].id, 0) for e, at in zip(topology.executors, chosen, strict=True)}
        found = value(problem, Plan({topology.id: Placement(slots)}))
        best = found if best is None else min(best, found)
    return best


def executors_per_node(problem: Problem, plan: Plan) -> dict[str, int]:
    """Return node -> number of executors."""
    counts = {node.id: 0 for node in problem.cluster.nodes}
    for placement in plan.placements.values():
        for slot in placement.assignments.values():
            counts[slot.node] += 1
    return counts


@st.composite
def rounds(draw: st.DrawFn, most: int = 7, nodes: int = 3, traffic: bool | None = None) -> Problem:
    """Draw a topology of at most `most` executors on at most `nodes` nodes; not all fit."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= most))
    components: list[Component] = []
    for at, size in enumerate(sizes):
        sources = draw(st.sets(st.integers(0, at - 1), max_size=2)) if at else set()
        grouping = draw(st.sampled_from(["shuffle", "global"]))
        inputs = tuple(Input(f"c{source}", grouping) for source in sorted(sources))
        components.append(Component(f"c{at}", "bolt" if inputs else "spout", size, inputs=inputs))
    topology = Topology("t", tuple(components))
    capacities = draw(st.lists(st.integers(0, 5), min_size=1, max_size=nodes))
    if not (draw(st.booleans()) if traffic is None else traffic):
        return Problem(cluster(*capacities), (topology,))
    rates = st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 7.0, 100.0])
    edges = tuple(Edge(a.name, b.name, draw(rates)) for a, b in topology.pairs())
    return Problem(cluster(*capacities), (topology,), Traffic(edges))
