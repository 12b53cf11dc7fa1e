"""`PredictedLoads`: observed loads of nodes, updated as executors are moved within one answer.

Er-Stream's L_n, B_n, cap_n and r_n. The load of an executor that moves is rescaled by the nodes' computing power.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace as replaced

from inventory.cluster import Node
from inventory.power_index import LackingNodeError, power_index
from scheduler.online.observation import Observation
from scheduler.problem import Problem, Slot
from scheduler.toolkit.slots import FreeSlots, port_order
from workloads.topology import Executor

TOLERANCE = 1e-9
"""Loads that differ by less are equal: a load that is a bound in decimal figures neither exceeds it nor is below it."""


class PredictedLoads:
    """Loads of nodes as shares of their `cpu`.

    Attributes:
        place: executor -> its node.
        observed: node -> load before any move; nodes whose load was not measured are missing.
        load: node -> load.
        clock: node -> clock as a share of the highest one, which loads are normalised to; 1 where it is missing.
        bound: node -> highest load allowed (B_n): its `max_load`, else the parameter.
    """

    def __init__(
        self, problem: Problem, observation: Observation, bound: float, clock: Mapping[str, float] | None = None
    ) -> None:
        """Take over what was observed.

        Args:
            problem: one topology.
            observation: with every executor of the topology.
            bound: highest load of a node without `max_load`.
            clock: node -> its clock as a share of the highest one, for nodes that will be raised when loads demand it.
        """
        (topology,) = problem.topologies
        self._topology = topology.id
        self._cluster = problem.cluster
        self._heartbeats = {name: node.heartbeats for name, node in observation.nodes.items()}
        clock = self.clock = clock or {}
        places = observation.places
        self.place = {executor: places[executor.name].node for executor in topology.executors}
        self.observed = {
            node.id: observed.load * clock.get(node.id, 1.0)
            for node in problem.cluster.nodes
            if (observed := observation.nodes.get(node.id)) is not None and observed.load is not None
        }
        self.load = dict(self.observed)
        self.bound = {node.id: bound if node.max_load is None else node.max_load for node in problem.cluster.nodes}
        self._available = {
            node.id
            for node in problem.cluster.available
            if node.id in self.load and observation.nodes[node.id].available and node.cpu_points
        }
        speed = _speeds(problem.cluster.nodes, {*self._available, *self.place.values()})
        self._power = {node.id: node.cpu_points * speed.get(node.id, 1.0) for node in problem.cluster.nodes}
        self._work = {
            executor: observation.executors[executor.name].load * speed.get(node, 1.0) * clock.get(node, 1.0)
            for executor, node in self.place.items()
        }
        others = dict.fromkeys(problem.cluster.by_id, 0)
        for worker in problem.existing:
            if worker.topology != topology.id:
                others[worker.node] += len(worker.executors)
        self._places = {
            node.id: (node.slots if node.capacity is None else int(node.capacity)) - others[node.id]
            for node in problem.cluster.nodes
        }
        self._on: dict[str, dict[Executor, None]] = {name: {} for name in problem.cluster.by_id}
        self._workers: dict[str, Slot] = {}
        for executor, node in self.place.items():
            self._on[node][executor] = None
            slot = places[executor.name]
            held = self._workers.setdefault(node, slot)
            if port_order(problem.cluster, slot) < port_order(problem.cluster, held):
                self._workers[node] = slot
        self._free = FreeSlots(problem)

    @property
    def nodes(self) -> Iterator[str]:
        """Nodes to which executors may move, in the order of the cluster: available, with CPU, and a measured load."""
        return (node.id for node in self._cluster.nodes if node.id in self._available)

    def on(self, node: str) -> list[Executor]:
        """Return the executors on `node`: those that were there, in the topology's order, then those that came."""
        return list(self._on[node])

    def places(self, node: str) -> int:
        """Return how many executors of the topology `node` has places for, at least those that it has."""
        return max(self._places[node], len(self._on[node]))

    def share(self, executor: Executor, node: str | None = None) -> float:
        """Return the load of `executor` on `node` (its own without one), as a share of the node's `cpu`."""
        power = self._power[self.place[executor] if node is None else node]
        return self._work[executor] / power if power else 0.0

    def work(self, executor: Executor) -> float:
        """Return the computing power that `executor` uses, in a unit of its own."""
        return self._work[executor]

    def most_work(self) -> float:
        """Return the largest computing power that a node has left below its bound."""
        left = (self._power[node] * (self.bound[node] - self.load[node]) for node in self.nodes)
        return max(left, default=0.0) * (1 + TOLERANCE)

    def is_overloaded(self, node: str) -> bool:
        """Return whether the load of `node` is above its bound."""
        return node in self.load and self.load[node] > self.bound[node] + TOLERANCE

    def is_below(self, node: str, load: float) -> bool:
        """Return whether `load` is below the bound of `node`."""
        return load < self.bound[node] - TOLERANCE

    def refusal(self, executor: Executor, node: str) -> str:
        """Return why `executor` cannot move to `node`, which is one of `nodes`, or an empty text."""
        if not self.is_below(node, self.load[node] + self.share(executor, node)):
            return "its load would reach its bound"
        if len(self._on[node]) >= self._places[node]:
            return "no place left"
        if self.slot(node) is None:
            return "no free slot"
        return ""

    def slot(self, node: str) -> Slot | None:
        """Return the slot that an executor gets on `node`: the topology's worker there, else the lowest free slot."""
        return self._workers.get(node) or self._free.lowest(node)

    def reliability(self, node: str) -> float:
        """Return r_n: the node's `reliability`, else its availability times its headroom."""
        given = self._cluster.by_id[node].reliability
        if given is not None:
            return given
        availability, bound = self._heartbeats.get(node), self.bound[node]
        headroom = max(0.0, 1 - self.load[node] / bound) if bound else 0.0
        return headroom if availability is None else availability * headroom

    def move(self, executor: Executor, node: str) -> None:
        """Move `executor` to `node`."""
        source = self.place[executor]
        if source in self.load:
            self.load[source] -= self.share(executor)
        if node in self.load:
            self.load[node] += self.share(executor, node)
        del self._on[source][executor]
        self._on[node][executor] = None
        self.place[executor] = node
        if node not in self._workers and (slot := self._free.lowest(node)) is not None:
            self._workers[node] = slot


def _speeds(nodes: tuple[Node, ...], wanted: set[str]) -> dict[str, float]:
    """Return node -> GFLOPs of a core, or nothing unless all wanted nodes have what it is made of."""
    chosen = [replaced(node, available=True) for node in nodes if node.id in wanted]
    try:
        ranked = power_index(chosen, alpha=1.0).ranked
    except LackingNodeError:
        return {}
    cores = {node.id: node.sockets * node.cores for node in chosen}
    return {each.node: each.power / cores[each.node] for each in ranked}
