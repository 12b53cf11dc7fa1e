"""Topologies that schedulers are measured on: published shapes, and random ones from a seed.

`linear`, `diamond` and `star` are the micro-benchmarks of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020), 10 to
32 executors in steps of 2; `smart_home` and `taxi` are the shapes of its applications. `layered`, `products` and
`chain` are ours, for scale.
"""

from collections.abc import Sequence
from itertools import pairwise
from random import Random

from workloads.topology import Component, Input, Topology
from workloads.traffic import Edge, Traffic

MICRO_SIZES = range(10, 33, 2)
"""Numbers of executors of the published micro-benchmarks."""


def _bolt(name: str, parallelism: int, *sources: str) -> Component:
    return Component(name, "bolt", parallelism, inputs=tuple(Input(source) for source in sources))


def linear(executors: int, each: int = 2) -> Topology:
    """Return a chain of components with `each` executors: `executors / each` of them."""
    names = [f"op{at}" for at in range(executors // each)]
    bolts = [_bolt(name, each, before) for before, name in pairwise(names)]
    return Topology(f"linear-{executors}", (Component(names[0], "spout", each), *bolts))


def diamond(executors: int) -> Topology:
    """Return a source of 4, `(executors - 8) / 2` components of 2 side by side, a sink of 4."""
    middle = [f"middle{at}" for at in range((executors - 8) // 2)]
    return Topology(
        f"diamond-{executors}",
        (Component("source", "spout", 4), *(_bolt(name, 2, "source") for name in middle), _bolt("sink", 4, *middle)),
    )


def star(executors: int) -> Topology:
    """Return `(executors - 4) / 2` ends of 2, alternately sources and sinks, around one component of 4."""
    ends = (executors - 4) // 2
    sources = [f"source{at}" for at in range((ends + 1) // 2)]
    sinks = [f"sink{at}" for at in range(ends // 2)]
    return Topology(
        f"star-{executors}",
        (
            *(Component(name, "spout", 2) for name in sources),
            _bolt("middle", 4, *sources),
            *(_bolt(name, 2, "middle") for name in sinks),
        ),
    )


def smart_home() -> Topology:
    """Load prediction in smart homes (DEBS 2014, query 1), 40 executors."""
    return Topology(
        "smart-home",
        (
            Component("source", "spout", 10),
            _bolt("house", 10, "source"),
            _bolt("plug", 10, "source"),
            _bolt("sink", 10, "house", "plug"),
        ),
    )


def taxi() -> Topology:
    """Return frequent routes of taxis (DEBS 2015, query 1), 45 executors."""
    return Topology(
        "taxi",
        (
            Component("source", "spout", 16),
            _bolt("pre-process", 16, "source"),
            _bolt("rolling-count", 8, "pre-process"),
            _bolt("intermediate-rank", 4, "rolling-count"),
            _bolt("final-rank", 1, "intermediate-rank"),
        ),
    )


def chain(executors: int) -> Topology:
    """Return one executor after the other."""
    return linear(executors, each=1)


def layered(
    executors: int, seed: int, widest: int = 8, layers: int = 0, fan_in: int = 3, skew: float = 1.2
) -> tuple[Topology, Traffic]:
    """Return a random layered graph of components, and traffic that is skewed over its executor pairs.

    Components of 1 to `widest` executors stand in `layers` layers (0: about the cube root of `executors`); each
    reads from 1 to `fan_in` components of the layer before, mostly from neighbours. Every component
    emits a rate drawn from a Pareto distribution with exponent `skew`, dealt to the executor pairs of a
    link unevenly (weights 1/rank, in shuffled order). Rates are whole tuples/s.

    Args:
        executors: how many in all.
        seed: of all random choices.
        widest: largest parallelism; it is smaller where some layer would have no executor else.
        layers: number of layers.
        fan_in: most inputs of a bolt.
        skew: smaller is more skewed.
    """
    random = Random(seed)  # noqa: S311 - no secret
    layers = layers or max(3, round(executors ** (1 / 3)))
    # Wider ones could leave nothing for the last layers.
    widest = min(widest, max(1, executors // layers))
    rows: list[list[Component]] = [[] for _ in range(layers)]
    left, row = executors, 0
    while left:
        parallelism = min(random.randint(1, widest), left)
        rows[row].append(Component(f"c{row}-{len(rows[row])}", "spout" if row == 0 else "bolt", parallelism))
        left -= parallelism
        row = (row + 1) % layers
    edges: list[Edge] = []
    components: list[Component] = list(rows[0])
    for before, mine in pairwise(rows):
        for at, component in enumerate(mine):
            sources = _sources(random, before, at * len(before) // len(mine), fan_in)
            components.append(_bolt(component.id, component.parallelism, *(source.id for source in sources)))
            for source in sources:
                edges.extend(_uneven(random, source, component, 10 * random.paretovariate(skew)))
    return Topology(f"layered-{executors}-{seed}", tuple(components)), Traffic(tuple(edges))


def products(components: int, each: int, seed: int, fan_in: int = 3) -> Topology:
    """Return a random layered graph of `components` components with `each` executors, for rounds without traffic.

    A link is the product of its ends' executors, `each` times `each` pairs. There are about as many layers as
    components in a layer; each component reads from 1 to `fan_in` components of the layer before, mostly neighbours.
    """
    random = Random(seed)  # noqa: S311 - no secret
    layers = max(1, round(components**0.5))
    rows = [range(components * row // layers, components * (row + 1) // layers) for row in range(layers)]
    built = [[Component(f"c{at}", "spout", each) for at in rows[0]]]
    for row in rows[1:]:
        before = built[-1]
        bolts = [_sources(random, before, at * len(before) // len(row), fan_in) for at in range(len(row))]
        built.append([_bolt(f"c{at}", each, *(c.id for c in from_)) for at, from_ in zip(row, bolts, strict=True)])
    return Topology(f"products-{components}-{each}-{seed}", tuple(c for layer in built for c in layer))


def _sources(random: Random, before: Sequence[Component], near: int, fan_in: int) -> list[Component]:
    """Return distinct components of the layer before; most of them near the place `near`."""
    wanted = random.randint(1, min(fan_in, len(before)))
    chosen: dict[int, None] = {}
    while len(chosen) < wanted:
        far = random.random() < 0.2
        at = random.randrange(len(before)) if far else near + random.randint(-fan_in, fan_in)
        chosen[at % len(before)] = None
    return [before[at] for at in chosen]


def _uneven(random: Random, source: Component, destination: Component, rate: float) -> list[Edge]:
    """Return one edge per pair of a link; rates fall like 1/rank over the pairs, of which the order is random."""
    names = [[f"{component.id}[{i}]" for i in range(component.parallelism)] for component in (source, destination)]
    pairs = [(one, other) for one in names[0] for other in names[1]]
    random.shuffle(pairs)
    total = sum(1 / rank for rank in range(1, len(pairs) + 1))
    return [
        Edge(one, other, float(max(1, round(rate * len(pairs) / rank / total))))
        for rank, (one, other) in enumerate(pairs, start=1)
    ]
