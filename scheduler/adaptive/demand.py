"""Loads and rates of the executors of a round as integers, and the nodes of their communication partners.

Executors are numbered over all topologies, in order. Without observed traffic every communicating pair
counts 1, and pairs are never listed: executors with the same partners are one kind, and two kinds communicate
completely or not at all. With observed traffic every executor is a kind of its own.
"""

from functools import cached_property
from math import fsum

from scheduler.problem import Problem
from scheduler.toolkit.equivalence_classes import classes_of
from scheduler.toolkit.loads import Loads
from scheduler.toolkit.scaling import scaled
from workloads.topology import Executor
from workloads.traffic import Traffic


class Demand:
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
        for executor, found in enumerate(self.executors):
            number_of.setdefault(found.name, executor)
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

    def __init__(self, demand: Demand) -> None:
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
        found: dict[str, int] = {}
        for other, rate in self._demand.near[self._demand.kind[executor]].items():
            for node, count in self._count[other].items():
                found[node] = found.get(node, 0) + rate * count
        return found


def _resident(problem: Problem, loads: Loads) -> list[float]:
    """Return the load per node of topologies outside this round."""
    ours = {topology.id for topology in problem.topologies}
    found: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    for worker in problem.existing:
        if worker.topology not in ours:
            found[worker.node].extend(loads.of_outside_executor(name) for name in worker.executors)
    return [fsum(values) for values in found.values()]
