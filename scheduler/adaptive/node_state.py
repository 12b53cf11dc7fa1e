"""Load and free slots of the nodes while executors are placed.

A topology gets one worker per node unless its scheduler decides otherwise. Unavailable nodes and nodes without slots
are left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.adaptive.demand import Demand, KindLocations
from scheduler.problem import Problem
from scheduler.toolkit.slots import running
from workloads.topology import Executor


@dataclass(frozen=True)
class StoppedTopology:
    """Former position of a topology: executor -> node, and node -> number of workers."""

    home: Mapping[int, str]
    workers: Mapping[str, int]


class NodeState:
    """The nodes of a round while its executors are placed.

    Attributes:
        nodes: ids of the nodes that can be used, ascending.
        load: node -> load, topologies outside the round included.
        home: executor -> its node, or None.
        at: nodes of the partners of executors.
        free: node -> slots without a worker.
    """

    def __init__(self, problem: Problem, demand: Demand) -> None:
        """Begin with the running workers in place; see `vacate`."""
        usable = {node.id: node for node in problem.cluster.available if node.slots}
        self._demand = demand
        self.nodes: Sequence[str] = sorted(usable)
        self.load = {node: demand.resident[node] for node in self.nodes}
        self.free = {node: usable[node].slots for node in self.nodes}
        self.at = KindLocations(demand)
        self.home: list[str | None] = [None] * len(demand.executors)
        self._workers: list[dict[str, int]] = [{} for _ in problem.topologies]
        self._settled: list[dict[str, int]] = [{} for _ in problem.topologies]
        number = {topology.id: t for t, topology in enumerate(problem.topologies)}
        first = 0
        start: list[int] = []
        for topology in problem.topologies:
            start.append(first)
            first += len(topology.executors)
        for name, workers in running(problem).items():
            for slot, executors in workers.items():
                self.free[slot.node] -= 1
                t = number.get(name)
                if t is not None:
                    self._workers[t][slot.node] = self._workers[t].get(slot.node, 0) + 1
                    for executor in executors:
                        self._assign(start[t] + self._number(problem, t, executor), slot.node)

    @staticmethod
    def _number(problem: Problem, topology: int, executor: Executor) -> int:
        return problem.topologies[topology].number_of[executor]

    def vacate(self, topology: int) -> "StoppedTopology":
        """Stop all workers of `topology`. Return their former position, which `restore` accepts."""
        mine = [e for e, owner in enumerate(self._demand.owner) if owner == topology]
        stay = StoppedTopology({e: node for e in mine if (node := self.home[e]) is not None}, self._workers[topology])
        for executor in stay.home:
            self._unassign(executor)
        for node, workers in stay.workers.items():
            self.free[node] += workers
        self._workers[topology] = {}
        return stay

    def restore(self, topology: int, stay: "StoppedTopology") -> None:
        """Restore `topology` to the position that `vacate` returned."""
        self.vacate(topology)
        for node, workers in stay.workers.items():
            self.free[node] -= workers
        self._workers[topology] = dict(stay.workers)
        for executor, node in stay.home.items():
            self._assign(executor, node)

    def hosts(self, topology: int, node: str) -> bool:
        """Return whether `node` has a worker of `topology` or a free slot."""
        return node in self._workers[topology] or self.free[node] > 0

    def start(self, topology: int, node: str, workers: int) -> None:
        """Start `workers` workers of `topology` on `node`, which has none yet."""
        self._workers[topology][node] = workers
        self.free[node] -= workers

    def put(self, executor: int, node: str) -> None:
        """Place `executor`, starting a worker if its topology has none on `node`."""
        topology = self._demand.owner[executor]
        if node not in self._workers[topology]:
            self.start(topology, node, 1)
        self._assign(executor, node)

    def move(self, executor: int, node: str) -> None:
        """Move `executor` to another node. A worker that loses its last executor is stopped."""
        t = self._demand.owner[executor]
        source = self.home[executor]
        self._unassign(executor)
        if source is not None and not self._settled[t][source]:
            self.free[source] += self._workers[t].pop(source)
        self.put(executor, node)

    def _assign(self, executor: int, node: str) -> None:
        settled = self._settled[self._demand.owner[executor]]
        settled[node] = settled.get(node, 0) + 1
        self.home[executor] = node
        self.load[node] += self._demand.load[executor]
        self.at.put(executor, node)

    def _unassign(self, executor: int) -> None:
        node = self.home[executor]
        if node is not None:
            self._settled[self._demand.owner[executor]][node] -= 1
            self.home[executor] = None
            self.load[node] -= self._demand.load[executor]
            self.at.take(executor, node)
