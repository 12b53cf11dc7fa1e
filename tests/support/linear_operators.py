"""Operators with constant costs and selectivities, observed as an online scheduler observes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from inventory.cluster import Cluster
from scheduler.online.observation import (
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedSource,
    ObservedTraffic,
    PairRate,
)
from scheduler.online.revision import Revision
from scheduler.problem import Problem, Slot
from workloads.scaling import resized
from workloads.topology import Executor, Topology


@dataclass
class LinearRun:
    """A topology that runs as fast as its busiest executor, worker or node allows.

    Attributes:
        topology: the topology with its current parallelism.
        cluster: its nodes.
        slots: executor -> slot.
        due_per_s: tuples/s that are due at each spout.
        cost_s: component -> CPU seconds per tuple.
        selectivity: component -> tuples sent on each of its links per tuple.
        version: changes so far.
    """

    topology: Topology
    cluster: Cluster
    slots: dict[Executor, Slot]
    due_per_s: float
    cost_s: Mapping[str, float]
    selectivity: Mapping[str, float]
    version: int = field(default=0)

    @property
    def rates(self) -> dict[str, float]:
        """Tuples/s of each component at the due rate."""
        found: dict[str, float] = {}
        for name in self.topology.order:
            component = self.topology.component[name]
            inputs = [
                found[entry.source] * self.selectivity[entry.source] * self._copies(name, entry.grouping)
                for entry in component.inputs
            ]
            found[name] = sum(inputs) if component.kind == "bolt" else self.due_per_s
        return found

    def _copies(self, name: str, grouping: str) -> int:
        return self.topology.component[name].parallelism if grouping == "all" else 1

    @property
    def points(self) -> dict[Executor, float]:
        """CPU points of each executor at the due rate."""
        rates = self.rates
        size = {component.id: component.parallelism for component in self.topology.components}
        return {e: 100 * rates[e.component] * self.cost_s[e.component] / size[e.component] for e in self.slots}

    @property
    def peak_load(self) -> float:
        """Highest load of a worker (share of a core) or of a node, at the due rate."""
        workers: dict[Slot, float] = {}
        nodes: dict[str, float] = {}
        for executor, points in self.points.items():
            slot = self.slots[executor]
            workers[slot] = workers.get(slot, 0.0) + points
            nodes[slot.node] = nodes.get(slot.node, 0.0) + points
        shares = [points / self.cluster.by_id[node].cpu_points for node, points in nodes.items()]
        return max(*(points / 100 for points in workers.values()), *shares)

    @property
    def share(self) -> float:
        """Achieved share of the due rate."""
        return 1 / max(1.0, self.peak_load)

    def observe(self, at_s: float) -> Observation:
        """Return a complete window that ends at `at_s`."""
        share, rates, points = self.share, self.rates, self.points
        executors = {}
        for executor, slot in self.slots.items():
            name = executor.component
            rate = share * rates[name] / self.topology.component[name].parallelism
            load = share * points[executor]
            executors[executor.name] = ObservedExecutor(
                node=slot.node, slot=slot.index, busy=load, load=load, processed_per_s=rate, emitted_per_s=rate
            )
        edges = []
        for source, destination, entry in self.topology.links():
            rate = share * rates[source.id] * self.selectivity[source.id] * self._copies(destination.id, entry.grouping)
            first = entry.grouping == "global"
            receivers = self.topology.executors_of(destination.id)[: 1 if first else None]
            edges += [
                PairRate(one.name, other.name, rate / source.parallelism / len(receivers))
                for one in self.topology.executors_of(source.id)
                for other in receivers
            ]
        due = self.due_per_s * sum(component.kind == "spout" for component in self.topology.components)
        return Observation(
            at_s=at_s,
            since_s=at_s - 10,
            samples=10,
            version=self.version,
            traffic=ObservedTraffic(tuple(edges)),
            executors=executors,
            nodes={node.id: ObservedNode(load=None, base=0.0, available=node.available) for node in self.cluster.nodes},
            source=ObservedSource(due, due * share),
        )

    def problem(self) -> Problem:
        """Return the round without running workers."""
        return Problem(self.cluster, (self.topology,))

    def apply(self, revision: Revision) -> None:
        """Apply a revision."""
        self.topology = resized(self.topology, revision.parallelism)
        for move in revision.moves:
            assert self.slots[move.executor] == move.source
            self.slots[move.executor] = move.target
        assert not revision.added.keys() & self.slots.keys()
        self.slots = {e: self.slots.get(e) or revision.added[e] for e in self.topology.executors}
        self.version += revision.changes

    def remove_node(self, node: str) -> None:
        """Make a node unavailable."""
        nodes = tuple(replace(each, available=each.available and each.id != node) for each in self.cluster.nodes)
        self.cluster = replace(self.cluster, nodes=nodes)
