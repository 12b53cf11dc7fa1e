"""Running topologies as online schedulers see them, for tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from inventory.cluster import Cluster, Node
from scheduler.online.observation import (
    Change,
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedTraffic,
    PairRate,
    PastRevision,
    problem_at,
)
from scheduler.problem import Problem
from workloads.topology import Component, Input, Topology

SKEWED = {
    ("s[0]", "b[0]"): 10.0,
    ("s[0]", "b[1]"): 90.0,
    ("s[1]", "b[0]"): 80.0,
    ("s[1]", "b[1]"): 20.0,
    ("b[0]", "k[0]"): 70.0,
    ("b[0]", "k[1]"): 20.0,
    ("b[1]", "k[0]"): 40.0,
    ("b[1]", "k[1]"): 70.0,
}
"""Rates of a chain s, b, k with two executors each."""

APART = {"s[0]": "n1/0", "b[0]": "n1/0", "k[1]": "n1/0", "s[1]": "n2/0", "b[1]": "n2/0", "k[0]": "n2/0"}
"""Its placement: 310 of 400 tuples/s between nodes, where 90 are possible."""


def chain(workers: int = 2, sizes: Sequence[int] = (2, 2, 2)) -> Topology:
    """A chain s -> b -> k."""
    spout = Component("s", "spout", sizes[0])
    b = Component("b", "bolt", sizes[1], inputs=(Input("s", "shuffle"),))
    k = Component("k", "bolt", sizes[2], inputs=(Input("b", "shuffle"),))
    return Topology("t", (spout, b, k), workers=workers)


def nodes(count: int = 3, **changes: Any) -> Cluster:
    """Equal nodes n1, n2, ... for three executors each."""
    return Cluster(tuple(Node(id=f"n{at + 1}", **{"slots": 2, "capacity": 3.0, **changes}) for at in range(count)))


def observed(
    at_s: float,
    places: Mapping[str, str] = APART,
    rates: Mapping[tuple[str, str], float] = SKEWED,
    *,
    load: Mapping[str, float] = {},
    base: float = 0.0,
    cluster: Cluster | None = None,
    changes: Sequence[Change] = (),
    history: Sequence[PastRevision] = (),
    state: Mapping[str, int] = {},
) -> Observation:
    """A complete window that ends at `at_s`; executors have 10 points unless `load` says otherwise."""
    cluster = nodes() if cluster is None else cluster
    executors = {
        name: ObservedExecutor(
            node=place.partition("/")[0],
            slot=int(place.partition("/")[2]),
            busy=load.get(name, 10.0),
            load=load.get(name, 10.0),
            state_bytes=state.get(name),
        )
        for name, place in places.items()
    }
    on_node = {
        node.id: base + sum(e.load for e in executors.values() if e.node == node.id) / node.cpu_points
        for node in cluster.nodes
    }
    return Observation(
        at_s=at_s,
        since_s=at_s - 50,
        samples=50,
        traffic=ObservedTraffic(tuple(PairRate(*pair, rate) for pair, rate in rates.items())),
        executors=executors,
        nodes={
            node.id: ObservedNode(load=min(on_node[node.id], 2.0), base=base, available=node.available)
            for node in cluster.nodes
        },
        changes=tuple(changes),
        history=tuple(history),
    )


def round_at(observation: Observation, topology: Topology | None = None, cluster: Cluster | None = None) -> Problem:
    """The round of a scheduler that is asked about `observation`."""
    return problem_at(Problem(cluster or nodes(), (topology or chain(),)), observation)


def applied(at_s: float, outcome: str = "done") -> PastRevision:
    """A revision that took effect."""
    return PastRevision(at_s=at_s, reason="cut", outcome=outcome)  # type: ignore[arg-type]
