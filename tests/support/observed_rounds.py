"""Observations of running topologies, as online schedulers get them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import problems

from inventory.cluster import Cluster, ExistingWorker, Node
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
from scheduler.online.predicted_loads import PredictedLoads
from scheduler.online.revision import Revision
from scheduler.problem import Problem, Slot
from workloads.topology import Executor, Topology

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
    return problems.chain(*sizes, names="sbk", workers=workers)


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


@dataclass
class ObservedCluster:
    """A topology with known loads, rates and delays, observed window by window; nodes have one speed per CPU point.

    Attributes:
        nodes: the cluster; `existing` follows from `places`.
        topology: the running topology.
        places: executor's name -> node; all executors of a node are in its slot 0.
        points: executor's name -> CPU points at the highest clock.
        rates: (sender, receiver) -> tuples/s.
        base: load of every node without the topology, at the highest clock.
        delays: executor's name -> CPU seconds per tuple, at the highest clock.
        requested_hz: node -> requested clock.
        at_s: end of the last window.
    """

    nodes: Cluster
    topology: Topology
    places: dict[str, str]
    points: dict[str, float]
    rates: Mapping[tuple[str, str], float] = field(default_factory=dict)
    base: float = 0.02
    delays: Mapping[str, float] = field(default_factory=dict)
    requested_hz: dict[str, int] = field(default_factory=dict)
    moved_s: dict[str, float] = field(default_factory=dict)
    heartbeats: dict[str, float] = field(default_factory=dict)
    at_s: float = 25.0
    window_s: float = 5.0

    @property
    def problem(self) -> Problem:
        """The scheduler's round."""
        names = {node: tuple(e for e, place in self.places.items() if place == node) for node in self.nodes.by_id}
        existing = tuple(ExistingWorker(self.topology.id, node, 0, mine) for node, mine in names.items() if mine)
        return Problem(Cluster(self.nodes.nodes, self.nodes.network, existing), (self.topology,))

    def ratio(self, node: str) -> float:
        """Return the clock of `node` as a share of its highest one."""
        offered = self.nodes.by_id[node].frequencies_hz
        return self.requested_hz.get(node, max(offered)) / max(offered) if offered else 1.0

    def load(self, node: str) -> float:
        """Return the load of `node` at its clock."""
        mine = sum(self.points[name] for name, place in self.places.items() if place == node)
        return (self.base + mine / self.nodes.by_id[node].cpu_points) / self.ratio(node)

    def observed(self) -> Observation:
        """Return the observation of the last window."""
        executors = {
            name: ObservedExecutor(
                node=node,
                slot=0,
                busy=self.points[name] / self.ratio(node),
                load=self.points[name] / self.ratio(node),
                delay_s=self.delays[name] / self.ratio(node) if name in self.delays else None,
                moved_s=self.moved_s.get(name),
            )
            for name, node in self.places.items()
        }
        nodes = {
            node.id: ObservedNode(
                load=self.load(node.id),
                base=self.base / self.ratio(node.id),
                hz=max(node.frequencies_hz) * self.ratio(node.id) if node.frequencies_hz else None,
                asked_hz=self.requested_hz.get(node.id),
                heartbeats=self.heartbeats.get(node.id),
            )
            for node in self.nodes.nodes
        }
        return Observation(
            at_s=self.at_s,
            since_s=self.at_s - self.window_s,
            samples=5,
            traffic=ObservedTraffic(tuple(PairRate(*pair, rate) for pair, rate in self.rates.items())),
            executors=executors,
            nodes=nodes,
        )

    def window(self) -> Observation:
        """Advance to the next window; return its observation."""
        self.at_s += self.window_s
        return self.observed()

    def apply_revision(self, revision: Revision | None) -> None:
        """Move executors and set clocks."""
        if revision is None:
            return
        for move in revision.moves:
            name = move.executor.name
            assert move.source == Slot(self.places[name], 0)
            assert move.target.index == 0
            self.places[name] = move.target.node
            self.moved_s[name] = self.at_s + 0.5
        self.requested_hz |= {node: hz for node, hz in revision.frequencies.items() if hz is not None}

    @property
    def cut(self) -> float:
        """Tuples/s between nodes."""
        return sum(rate for (one, other), rate in self.rates.items() if self.places[one] != self.places[other])

    def predicted(self, bound: float = 0.85) -> PredictedLoads:
        """Return loads as the last window shows them."""
        return PredictedLoads(self.problem, self.observed(), bound)

    @property
    def by_number(self) -> dict[tuple[int, int], float]:
        """Rates by numbers of executors."""
        number = {executor.name: at for at, executor in enumerate(self.topology.executors)}
        found: dict[tuple[int, int], float] = {}
        for (one, other), rate in self.rates.items():
            pair = min(number[one], number[other]), max(number[one], number[other])
            found[pair] = found.get(pair, 0.0) + rate
        return found


def rates_of(rates: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Return rates of executors: `{"s0-b1": 3.0}` is from `s[0]` to `b[1]`; `e-f` are components of one executor."""

    def executor(text: str) -> str:
        name = text.rstrip("0123456789")
        return Executor(name, int(text[len(name) :] or 0)).name

    return {
        (executor(one), executor(other)): rate for (one, other), rate in ((k.split("-"), r) for k, r in rates.items())
    }
