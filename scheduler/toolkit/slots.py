"""Running workers and free slots of a round, shared by all schedulers that assign slots.

Unavailable nodes have no free slots, and their workers count as dead: the executors wait to be placed again. The slots
of a node are ordered by port, lowest first, or by index if ports are not named. `RunningWorkers` is for schedulers that
also release running workers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.problem import Move, Placement, Plan, Problem, Slot
from workloads.topology import Executor, Topology

Workers = dict[Slot, tuple[Executor, ...]]
"""Slot -> executors of the worker in it."""


def running(problem: Problem) -> dict[str, Workers]:
    """Return the workers on available nodes, by topology; every topology of the problem has an entry."""
    workers: dict[str, Workers] = {topology.id: {} for topology in problem.topologies}
    for worker in problem.existing:
        if problem.cluster.by_id[worker.node].available:
            executors = tuple(Executor.named(name) for name in worker.executors)
            workers.setdefault(worker.topology, {})[Slot(worker.node, worker.slot)] = executors
    return workers


def assigned(workers: Workers) -> dict[Executor, Slot]:
    """Return executor -> slot."""
    return {executor: slot for slot, executors in workers.items() for executor in executors}


def waiting(topology: Topology, workers: Workers) -> list[Executor]:
    """Return the executors of `topology` without a worker, in the topology's order."""
    alive = assigned(workers)
    return [executor for executor in topology.executors if executor not in alive]


def why_waiting(topology: Topology, workers: Workers, executors: int) -> str:
    """Return why `executors` of a topology got no slot, for schedulers that never extend running workers."""
    if len(workers) >= topology.workers:
        return f"all {topology.workers} workers run already and take no more: {executors} executors wait"
    return f"no free slot: {executors} executors wait"


def fewer_workers(topology: Topology, possible: int) -> str:
    """Return a message if a topology gets fewer workers than requested, or an empty text."""
    if possible >= topology.workers:
        return ""
    return f"{topology.workers} workers were asked for, there are slots for {possible}"


def port_order(cluster: Cluster, slot: Slot) -> int:
    """Return the sort key of slots of one node: the port, or the index if ports are not named."""
    ports = cluster.by_id[slot.node].ports
    return slot.index if ports is None else ports[slot.index]


class FreeSlots:
    """Free slots of a cluster during a round; they are taken and may be released again.

    A node's slots are listed only on demand, so that nodes with very many slots cost nothing.
    """

    def __init__(self, problem: Problem) -> None:
        self._nodes = {node.id: _NodeSlots(node) for node in problem.cluster.nodes if node.available}
        self._total = sum(node.count for node in self._nodes.values())
        for workers in running(problem).values():
            for slot in workers:
                self.take(slot)

    @property
    def total(self) -> int:
        """Number of free slots of the whole cluster."""
        return self._total

    def count(self, node: str) -> int:
        """Return the number of free slots of `node`; 0 if it is not available."""
        return self._nodes[node].count if node in self._nodes else 0

    def nodes(self) -> list[str]:
        """Return ids of the nodes with a free slot, ascending."""
        return sorted(node for node, slots in self._nodes.items() if slots.count)

    def of(self, node: str) -> Iterator[Slot]:
        """Yield free slots of `node`, lowest port first; do not take or release while iterating."""
        return (Slot(node, index) for index in self._nodes[node]) if node in self._nodes else iter(())

    def lowest(self, node: str) -> Slot | None:
        """Return the free slot of `node` with the lowest port, or None."""
        index = self._nodes[node].lowest() if node in self._nodes else None
        return None if index is None else Slot(node, index)

    def is_free(self, slot: Slot) -> bool:
        """Return whether `slot` exists, is available and is empty."""
        return slot.node in self._nodes and self._nodes[slot.node].is_free(slot.index)

    def take(self, slot: Slot) -> None:
        """Put a worker into `slot`.

        Raises:
            ValueError: it is not free.
        """
        if not self.is_free(slot):
            raise ValueError(f"slot {slot.index} of {slot.node} is not free")
        self._nodes[slot.node].take(slot.index)
        self._total -= 1

    def release(self, slot: Slot) -> None:
        """Empty `slot`.

        Raises:
            ValueError: it is free, or does not exist.
        """
        self._nodes[slot.node].release(slot.index)
        self._total += 1


class _NodeSlots:
    """Free slots of one node, as ranks in port order."""

    def __init__(self, node: Node) -> None:
        self._order: Sequence[int] = node.slot_order
        named = node.ports is not None
        self._rank = {index: rank for rank, index in enumerate(self._order)} if named else None
        self._taken: set[int] = set()
        self._fresh = 0  # lower ranks have been taken at least once, or were found taken
        self._returned: list[int] = []  # heap of ranks below `_fresh` that were released; some are taken again

    @property
    def count(self) -> int:
        return len(self._order) - len(self._taken)

    def __iter__(self) -> Iterator[int]:
        return (index for rank, index in enumerate(self._order) if rank not in self._taken)

    def is_free(self, index: int) -> bool:
        return 0 <= index < len(self._order) and self._at(index) not in self._taken

    def lowest(self) -> int | None:
        while self._returned and self._returned[0] in self._taken:
            heappop(self._returned)
        if self._returned:
            return self._order[self._returned[0]]
        while self._fresh < len(self._order) and self._fresh in self._taken:
            self._fresh += 1
        return self._order[self._fresh] if self._fresh < len(self._order) else None

    def take(self, index: int) -> None:
        self._taken.add(self._at(index))

    def release(self, index: int) -> None:
        rank = self._at(index)
        if rank not in self._taken:
            raise ValueError(f"slot {index} is free already")
        self._taken.remove(rank)
        if rank < self._fresh:
            heappush(self._returned, rank)

    def _at(self, index: int) -> int:
        return index if self._rank is None else self._rank[index]


def interleaved(free: FreeSlots) -> Iterator[Slot]:
    """Yield slots in Storm's order: one slot of every node, then a second one, and so on.

    Nodes with more free slots come first, equal ones by id (`storm-server/.../utils/ServerUtils.java`). Do not
    take or release slots while iterating.
    """
    order = sorted(free.nodes(), key=lambda node: -free.count(node))
    columns = [free.of(node) for node in order]
    while columns:
        remaining: list[Iterator[Slot]] = []
        for column in columns:
            slot = next(column, None)
            if slot is not None:
                yield slot
                remaining.append(column)
        columns = remaining


class RunningWorkers:
    """Running workers and free slots, updated as the scheduler releases and starts workers.

    Attributes:
        workers: topology id -> its workers, topologies outside the round included.
        owner: slot in use -> topology.
        free: the free slots.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.workers = running(problem)
        self.owner = {slot: topology for topology, workers in self.workers.items() for slot in workers}
        self.free = FreeSlots(problem)

    def release(self, slots: Iterable[Slot]) -> None:
        """Stop the workers in `slots`."""
        for slot in slots:
            del self.workers[self.owner.pop(slot)][slot]
            self.free.release(slot)

    def start(self, topology: str, slot: Slot, executors: Iterable[Executor]) -> None:
        """Start a worker of `topology` in a free slot."""
        self.free.take(slot)
        self.note(topology, slot, executors)

    def note(self, topology: str, slot: Slot, executors: Iterable[Executor]) -> None:
        """Record a new worker whose slot is already taken."""
        self.owner[slot] = topology
        self.workers[topology][slot] = tuple(executors)

    def plan(self, placements: Mapping[str, Placement], details: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan with released workers and moves. The default `details` list the workers started."""
        freed = released(self._problem, self.workers)
        details = new_workers(self._problem, placements, freed) if details is None else details
        return Plan(placements, freed=freed, migrations=moves(freed, placements), details=details)


def released(problem: Problem, workers: Mapping[str, Workers]) -> list[ExistingWorker]:
    """Return the workers on available nodes that no longer run unchanged.

    A worker stopped and restarted in its slot with the same executors does not count as released.
    """
    return [
        worker
        for worker in problem.existing
        if problem.cluster.by_id[worker.node].available
        and _as_set(workers.get(worker.topology, {}).get(Slot(worker.node, worker.slot)))
        != frozenset(map(Executor.named, worker.executors))
    ]


def _as_set(executors: Iterable[Executor] | None) -> frozenset[Executor] | None:
    return None if executors is None else frozenset(executors)


def moves(freed: Iterable[ExistingWorker], placements: Mapping[str, Placement]) -> list[Move]:
    """Return the executors of released workers that received another slot."""
    changed: list[Move] = []
    for worker in freed:
        placement = placements.get(worker.topology)
        source = Slot(worker.node, worker.slot)
        for executor in map(Executor.named, worker.executors):
            target = placement.assignments.get(executor) if placement is not None else None
            if target is not None and target != source:
                changed.append(Move(worker.topology, executor, source, target))
    return changed


def new_workers(
    problem: Problem, placements: Mapping[str, Placement], freed: Iterable[ExistingWorker]
) -> dict[str, list[dict[str, Any]]]:
    """Return the new workers, topology by topology, in the order in which slots were taken.

    Args:
        problem: the round.
        placements: with executors in the order in which they were placed.
        freed: running workers that were released.
    """
    stopped = {Slot(worker.node, worker.slot) for worker in freed}
    running = {
        Slot(worker.node, worker.slot) for worker in problem.existing if problem.cluster.by_id[worker.node].available
    }
    node_of = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    started: list[dict[str, Any]] = []
    for number, topology in enumerate(problem.topologies):
        workers: dict[Slot, list[int]] = {}
        for executor, slot in placements[topology.id].assignments.items():
            if slot not in running or slot in stopped:
                workers.setdefault(slot, []).append(topology.number_of[executor])
        started += [
            {"topology": number, "node": node_of[slot.node], "slot": slot.index, "executors": executors}
            for slot, executors in workers.items()
        ]
    return {"started": started}
