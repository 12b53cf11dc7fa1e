"""Partitioning problems from five families of graphs, with fixed seeds, on nodes of unequal capacity.

An executor has weight 1. Nodes have five sizes, drawn at random, and a total capacity of 1.15 times the executors.
"""

from collections.abc import Callable
from random import Random

from scheduler.partitioning.instance import Instance
from workloads.example_topologies import layered, smart_home, taxi

NODE_SIZES = {"small": (8, 16, 24, 32, 48), "large": (80, 160, 240, 320, 480)}

Pairs = dict[tuple[int, int], int]


def layered_pairs(n: int) -> tuple[int, Pairs]:
    """Random layered graph with skewed rates."""
    topology, traffic = layered(n, 1)
    number = {executor.name: at for at, executor in enumerate(topology.executors)}
    pairs: Pairs = {}
    for edge in traffic.edges:
        a, b = sorted((number[edge.source], number[edge.destination]))
        pairs[a, b] = pairs.get((a, b), 0) + int(edge.tuples_per_s)
    return len(number), pairs


def grid_pairs(n: int) -> tuple[int, Pairs]:
    """Square grid."""
    side = round(n**0.5)
    right = {(i * side + j, i * side + j + 1): 1 for i in range(side) for j in range(side - 1)}
    down = {(i * side + j, (i + 1) * side + j): 1 for i in range(side - 1) for j in range(side)}
    return side * side, right | down


def geometric_pairs(n: int) -> tuple[int, Pairs]:
    """Random geometric graph: near points of a square, eight neighbours on average."""
    random = Random(1)  # noqa: S311 - no secret
    points = [(random.random(), random.random()) for _ in range(n)]
    radius = (8 / (3.14159 * n)) ** 0.5
    cells: dict[tuple[int, int], list[int]] = {}
    for at, (x, y) in enumerate(points):
        cells.setdefault((int(x / radius), int(y / radius)), []).append(at)
    pairs: Pairs = {}
    for at, (x, y) in enumerate(points):
        for dx in (-1, 0, 1):
            for dy in (-1, 0, 1):
                for other in cells.get((int(x / radius) + dx, int(y / radius) + dy), ()):
                    u, v = points[other]
                    if other > at and (u - x) ** 2 + (v - y) ** 2 < radius**2:
                        pairs[at, other] = 1
    return n, pairs


def power_law_pairs(n: int) -> tuple[int, Pairs]:
    """Preferential attachment, four neighbours per new vertex, skewed rates."""
    random, endpoints = Random(1), list(range(4))  # noqa: S311 - no secret
    pairs: Pairs = {}
    for v in range(4, n):
        chosen: set[int] = set()
        while len(chosen) < 4:
            chosen.add(random.choice(endpoints))
        for u in sorted(chosen):
            pairs[u, v] = max(1, int(10 * random.paretovariate(1.2)))
            endpoints += [u, v]
    return n, pairs


def replicated_pairs(n: int) -> tuple[int, Pairs]:
    """Alternating copies of the smart-home (40 executors) and taxi (45) topologies."""
    pairs: Pairs = {}
    at = 0
    while at < n:
        for topology in (smart_home(), taxi()):
            numbers: dict[str, list[int]] = {}
            for number, executor in enumerate(topology.executors):
                numbers.setdefault(executor.component, []).append(at + number)
            for component in topology.components:
                for link in component.inputs:
                    pairs |= {(a, b): 1 for a in numbers[link.source] for b in numbers[component.id]}
            at += len(topology.executors)
    return at, {(min(pair), max(pair)): rate for pair, rate in pairs.items()}


FAMILIES: dict[str, Callable[[int], tuple[int, Pairs]]] = {
    "layered": layered_pairs,
    "grid": grid_pairs,
    "geometric": geometric_pairs,
    "power-law": power_law_pairs,
    "replicated": replicated_pairs,
}


def make_instance(family: str, executors: int, nodes: str) -> Instance:
    """Return the problem of placing about `executors` on nodes of `NODE_SIZES[nodes]`."""
    n, pairs = FAMILIES[family](executors)
    random = Random(5)  # noqa: S311 - no secret
    capacity: list[int] = []
    while sum(capacity) < 1.15 * n:
        capacity.append(random.choice(NODE_SIZES[nodes]))
    neighbours: list[dict[int, int]] = [{} for _ in range(n)]
    for (a, b), rate in pairs.items():
        neighbours[a][b] = neighbours[b][a] = rate
    k = len(capacity)
    return Instance(
        members=tuple([v] for v in range(n)),
        load=(1,) * n,
        memory=(0,) * n,
        topology=(0,) * n,
        near=tuple(neighbours),
        capacity=tuple(sorted(capacity, reverse=True)),
        room=(0,) * k,
        slots=(1,) * k,
        rate_scale=1,
        load_unit=1.0,
        home=(-1,) * n,
    )
