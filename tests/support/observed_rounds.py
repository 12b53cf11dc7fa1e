"""Observations of running topologies, as online schedulers get them."""

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

SKEWED_RATES = {
    ("s[0]", "b[0]"): 10.0,
    ("s[0]", "b[1]"): 90.0,
    ("s[1]", "b[0]"): 80.0,
    ("s[1]", "b[1]"): 20.0,
    ("b[0]", "k[0]"): 70.0,
    ("b[0]", "k[1]"): 20.0,
    ("b[1]", "k[0]"): 40.0,
    ("b[1]", "k[1]"): 70.0,
}
"""Rates of a chain s, b, k with two executors each, in tuples/s."""

SPREAD_PLACEMENT = {"s[0]": "n1/0", "b[0]": "n1/0", "k[1]": "n1/0", "s[1]": "n2/0", "b[1]": "n2/0", "k[0]": "n2/0"}
"""Placement of the chain with 310 of 400 tuples/s between nodes; the optimum is 90."""


def chain(workers: int = 2, sizes: Sequence[int] = (2, 2, 2)) -> Topology:
    """Return a chain s -> b -> k."""
    spout = Component("s", "spout", sizes[0])
    b = Component("b", "bolt", sizes[1], inputs=(Input("s", "shuffle"),))
    k = Component("k", "bolt", sizes[2], inputs=(Input("b", "shuffle"),))
    return Topology("t", (spout, b, k), workers=workers)


def nodes(count: int = 3, **changes: Any) -> Cluster:
    """Return equal nodes n1, n2, ... for three executors each."""
    return Cluster(tuple(Node(id=f"n{at + 1}", **{"slots": 2, "capacity": 3.0, **changes}) for at in range(count)))


def observed(
    at_s: float,
    places: Mapping[str, str] = SPREAD_PLACEMENT,
    rates: Mapping[tuple[str, str], float] = SKEWED_RATES,
    *,
    load: Mapping[str, float] = {},
    base: float = 0.0,
    cluster: Cluster | None = None,
    changes: Sequence[Change] = (),
    history: Sequence[PastRevision] = (),
    state: Mapping[str, int] = {},
) -> Observation:
    """Return a complete window that ends at `at_s`; executors have 10 CPU points unless `load` differs."""
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
    """Return the round that a scheduler gets with `observation`."""
    return problem_at(Problem(cluster or nodes(), (topology or chain(),)), observation)


def past_revision(at_s: float, outcome: str = "done") -> PastRevision:
    """Return a past revision."""
    return PastRevision(at_s=at_s, reason="cut", outcome=outcome)  # type: ignore[arg-type]
