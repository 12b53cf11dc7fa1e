"""Random topologies of forwarding bolts, from a seeded generator."""

from random import Random
from typing import Any

from delivery_oracle import SCHEMA, SIDE

from workloads.topology import Component, Input, Topology

GROUPINGS = ("shuffle", "fields", "global", "all", "direct", "local-or-shuffle")


def random_topology(random: Random) -> Topology:
    """Return one or two spouts and up to four bolts, each of up to three executors, with any groupings."""
    components = [
        Component(f"s{at}", "spout", random.randint(1, 3), outputs={"default": SCHEMA})
        for at in range(random.randint(1, 2))
    ]
    sources = [(spout.id, "default") for spout in components]
    for at in range(random.randint(1, 4)):
        chosen = random.sample(sources, random.randint(1, min(3, len(sources))))
        entries = tuple(_input(random, component, stream) for component, stream in chosen)
        outputs = {"default": SCHEMA, SIDE: SCHEMA}
        components.append(Component(f"b{at}", "bolt", random.randint(1, 3), outputs=outputs, inputs=entries))
        sources += [(f"b{at}", "default"), (f"b{at}", SIDE)]
    return Topology("drawn", tuple(components))


def _input(random: Random, component: str, stream: str) -> Input:
    grouping = random.choice(GROUPINGS)
    fields: tuple[str, ...] = ()
    if grouping == "fields":
        fields = tuple(random.sample(sorted(SCHEMA), random.randint(1, 5)))
    if grouping == "direct":
        fields = ("to",)
    return Input(component, grouping, fields, stream)


def describe_run(run: Any, *names: str) -> str:
    """Describe a run for a failure message: its `oracle`, `places` and `seed`, and the named attributes."""
    topology = run.oracle.topology
    parts = [f"seed={run.seed}", f"records={run.oracle.records}", f"tick_every={run.oracle.tick_every}"]
    parts += [f"{name}={getattr(run, name)}" for name in names]
    for component in topology.components:
        inputs = [(entry.source, entry.stream, entry.grouping, entry.fields) for entry in component.inputs]
        parts.append(f"{component.id}*{component.parallelism}{inputs}")
    where = zip(topology.executors, run.places, strict=True)
    parts.append(", ".join(f"{executor.name}@{place.node}/{place.index}" for executor, place in where))
    return f"{type(run).__name__}(" + "; ".join(parts) + ")"
