"""State of a round while its executors are placed: their loads and rates as integers, and the load and slots of nodes.

Executors are numbered over all topologies, in order. Without observed traffic every communicating pair
counts 1, and pairs are never listed: executors with the same partners are one kind, and two kinds communicate
completely or not at all. With observed traffic every executor is a kind of its own.

A topology gets one worker per node unless its scheduler decides otherwise. Unavailable nodes and nodes without slots
are left out. An executor that stays on its node stays in its worker. An executor that is new on a node joins its
topology's worker there, the one with the lowest port, or a new worker in the lowest free slot. Only workers that lose
an executor are released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import Any

from inventory.cluster import ExistingWorker
from scheduler.problem import Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.cost import Loads
from scheduler.toolkit.exact import scaled
from scheduler.toolkit.slots import FreeSlots, Workers, moves, port_order, running
from workloads.topology import Executor, Topology
from workloads.traffic import Traffic


class ObservedDemand:
    """Loads, memory and rates of executors.

    Attributes:
        executors: all executors.
        owner: executor -> number of its topology.
        rank: executor -> position by topology in the order given, then start task (component id, index).
        load: executor -> load, `load_scale` units per CPU point (or per executor).
        memory: executor -> memory, `memory_scale` units per MB.
        kind: executor -> its kind.
        members: kind -> its executors by rank.
        near: kind -> {kind: rate between a member of each, both directions}, `rate_scale` units per tuple/s (or pair).
        capacity: node id -> capacity, in the unit of loads.
        memory_of: node id -> memory, in the unit of `memory`.
        resident: node id -> load of running executors of topologies outside this round.
    """

    def __init__(self, problem: Problem) -> None:
        loads = Loads(problem)
        topologies = problem.topologies
        self.executors: list[Executor] = [executor for t in topologies for executor in t.executors]
        self.owner = [number for number, t in enumerate(topologies) for _ in t.executors]
        order = sorted(range(len(self.executors)), key=lambda e: (self.owner[e], self.executors[e]))
        self.rank = [0] * len(order)
        for place, executor in enumerate(order):
            self.rank[executor] = place
        nodes = problem.cluster.nodes
        load = [loads.of(topologies[t], e) for t, e in zip(self.owner, self.executors, strict=True)]
        capacity = [loads.capacity[node.id] for node in nodes]
        resident = _resident(problem, loads)
        self.load_scale, (self.load, limits, elsewhere) = scaled(load, capacity, resident)
        self.capacity = {node.id: value for node, value in zip(nodes, limits, strict=True)}
        self.resident = {node.id: value for node, value in zip(nodes, elsewhere, strict=True)}
        memory = [topologies[t].component[e.component].memory for t, e in zip(self.owner, self.executors, strict=True)]
        self.memory_scale, (self.memory, room) = scaled(memory, [node.memory_mb for node in nodes])
        self.memory_of = {node.id: value for node, value in zip(nodes, room, strict=True)}
        if problem.traffic is None:
            self.rate_scale = 1
            self.kind, self.members, self.near = self._declared(problem)
        else:
            self.kind = list(range(len(self.executors)))
            self.members = [[executor] for executor in self.kind]
            self.rate_scale, self.near = self._observed(problem, problem.traffic)

    def _declared(self, problem: Problem) -> tuple[list[int], list[list[int]], list[dict[int, int]]]:
        kind: list[int] = []
        members: list[list[int]] = []
        near: list[dict[int, int]] = []
        for topology in problem.topologies:
            classes = classes_of(topology)
            first, base = len(kind), len(members)
            kind.extend(base + number for number in classes.of)
            members.extend([first + number for number in numbers] for numbers in classes.members)
            near.extend({base + other: 1 for other in linked} for linked in classes.linked)
        return kind, members, near

    def _observed(self, problem: Problem, traffic: Traffic) -> tuple[int, list[dict[int, int]]]:
        number_of: dict[str, int] = {}
        for executor, observed in enumerate(self.executors):
            number_of.setdefault(observed.name, executor)
        pairs = [
            (number_of[edge.source], number_of[edge.destination], edge.tuples_per_s)
            for edge in traffic.edges
            if edge.source in number_of and edge.destination in number_of and edge.source != edge.destination
        ]
        scale, (rates,) = scaled([rate for _, _, rate in pairs])
        near: list[dict[int, int]] = [{} for _ in self.executors]
        for (one, other, _), rate in zip(pairs, rates, strict=True):
            if rate and self.owner[one] == self.owner[other]:
                near[one][other] = near[other][one] = near[one].get(other, 0) + rate
        return scale, near

    @cached_property
    def total_of_kind(self) -> list[int]:
        """Rates between one member of each kind and all its partners, by kind."""
        return [
            sum(rate * (len(self.members[other]) - (other == own)) for other, rate in partners.items())
            for own, partners in enumerate(self.near)
        ]

    def total(self, executor: int) -> int:
        """Return the rate between `executor` and all its partners."""
        return self.total_of_kind[self.kind[executor]]


class KindLocations:
    """Number of executors of each kind on each node, updated by the caller."""

    def __init__(self, demand: ObservedDemand) -> None:
        self._demand = demand
        self._count: list[dict[str, int]] = [{} for _ in demand.members]

    def put(self, executor: int, node: str) -> None:
        """Record that `executor` is on `node`."""
        count = self._count[self._demand.kind[executor]]
        count[node] = count.get(node, 0) + 1

    def take(self, executor: int, node: str) -> None:
        """Record that `executor` has left `node`."""
        count = self._count[self._demand.kind[executor]]
        count[node] -= 1
        if not count[node]:
            del count[node]

    def rate_by_node(self, executor: int) -> dict[str, int]:
        """Return node -> rate between `executor`, which must not be on any node, and the executors there."""
        rates: dict[str, int] = {}
        for other, rate in self._demand.near[self._demand.kind[executor]].items():
            for node, count in self._count[other].items():
                rates[node] = rates.get(node, 0) + rate * count
        return rates


def _resident(problem: Problem, loads: Loads) -> list[float]:
    """Return the load per node of topologies outside this round."""
    ours = {topology.id for topology in problem.topologies}
    loads_on: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    for worker in problem.existing:
        if worker.topology not in ours:
            loads_on[worker.node].extend(loads.of_outside_executor(name) for name in worker.executors)
    return [fsum(values) for values in loads_on.values()]


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

    def __init__(self, problem: Problem, demand: ObservedDemand) -> None:
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


def assign_slots(problem: Problem, demand: ObservedDemand, node_state: NodeState, details: Mapping[str, Any]) -> Plan:
    """Return the plan for executors on the nodes chosen in `node_state`."""
    free = FreeSlots(problem)
    ran = running(problem)
    nodes: list[dict[Executor, str]] = [{} for _ in problem.topologies]
    for executor, node in enumerate(node_state.home):
        if node is not None:
            nodes[demand.owner[executor]][demand.executors[executor]] = node
    staying = {
        topology.id: _staying(ran[topology.id], home) for topology, home in zip(problem.topologies, nodes, strict=True)
    }
    for name, workers in staying.items():
        for slot in ran[name]:
            if slot not in workers:
                free.release(slot)
    placements = {
        topology.id: _assign_topology(problem, topology, home, staying[topology.id], free)
        for topology, home in zip(problem.topologies, nodes, strict=True)
    }
    freed = [worker for worker in problem.existing if _loses(problem, worker, staying)]
    return Plan(placements, freed=freed, migrations=moves(freed, placements), details=details)


def _staying(workers: Workers, home: Mapping[Executor, str]) -> Workers:
    """Return the running workers with the executors that stay; workers that lose all executors are left out."""
    kept = {slot: tuple(e for e in executors if home.get(e) == slot.node) for slot, executors in workers.items()}
    return {slot: executors for slot, executors in kept.items() if executors or not workers[slot]}


def _assign_topology(
    problem: Problem, topology: Topology, home: Mapping[Executor, str], staying: Workers, free: FreeSlots
) -> Placement:
    assignments = {executor: slot for slot, executors in staying.items() for executor in executors}
    door: dict[str, Slot] = {}
    for slot in sorted(staying, key=lambda slot: port_order(problem.cluster, slot)):
        door.setdefault(slot.node, slot)
    for executor in topology.executors:
        if executor in assignments or executor not in home:
            continue
        node = home[executor]
        if node not in door:
            fresh = next(free.of(node))
            free.take(fresh)
            door[node] = fresh
        assignments[executor] = door[node]
    waits = len(topology.executors) - len(assignments)
    return concluded(topology, assignments, f"no free slot: {waits} executors wait" if waits else "")


def _loses(problem: Problem, worker: ExistingWorker, staying: Mapping[str, Workers]) -> bool:
    if worker.topology not in staying or not problem.cluster.by_id[worker.node].available:
        return False
    return len(staying[worker.topology].get(Slot(worker.node, worker.slot), ())) < len(worker.executors)
