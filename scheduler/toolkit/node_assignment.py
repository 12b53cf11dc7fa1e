"""Plans of schedulers that choose nodes only, from executors assigned to nodes.

`NodeAssignment` has one slot per topology and node: new executors join the running worker of their topology on the node
(the lowest port if there are several), else they get the node's lowest free slot. Running executors do not move. A
communication schedule limits the number of nodes.

`assemble` has one worker per node and part (one part per node unless the caller splits nodes). A running worker on the
node that loses no executor stays and receives the other executors of its part. All other running workers of the round's
topologies are released. New workers take the node's free slots, lowest port first.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from itertools import groupby
from typing import Any

from inventory.cluster import ExistingWorker
from inventory.errors import InputError
from scheduler.problem import Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import FreeSlots, Workers, assigned, moves, port_order, running
from workloads.topology import Executor, Topology


class NodeAssignment:
    """Nodes of a round and their executors. Components are numbered over all topologies in order.

    Attributes:
        nodes: ids of available nodes with a free slot or a running worker of this round, in input order; elsewhere
            nodes are positions in this tuple.
        counts: component -> {node: its executors there}, nodes without any left out.
        loads: node -> executors of this round on it.
        usages: one per topology, in order.
    """

    def __init__(self, problem: Problem) -> None:
        workers = running(problem)
        self.free = FreeSlots(problem)
        busy = {slot.node for topology in problem.topologies for slot in workers[topology.id]}
        self.nodes = tuple(n.id for n in problem.cluster.available if n.id in busy or self.free.count(n.id))
        self.counts: list[dict[int, int]] = []
        self.loads = [0] * len(self.nodes)
        self.usages: list[TopologyUsage] = []
        self._number = {node: at for at, node in enumerate(self.nodes)}
        for topology in problem.topologies:
            mine = workers[topology.id]
            joined: dict[int, Slot] = {}
            for slot in sorted(mine, key=lambda slot: port_order(problem.cluster, slot)):
                joined.setdefault(self._number[slot.node], slot)
            self.usages.append(TopologyUsage(self, topology, mine, joined, len(self.counts)))
            self.counts.extend({} for _ in topology.components)
            for executor, slot in self.usages[-1].assignments.items():
                self.count(self.usages[-1].number[executor.component], self._number[slot.node])

    def count(self, component: int, node: int) -> None:
        """Record one more executor of `component` on `node`."""
        self.counts[component][node] = self.counts[component].get(node, 0) + 1
        self.loads[node] += 1


class TopologyUsage:
    """One topology on the nodes of a round.

    Attributes:
        topology: the topology.
        number: component id -> its number in the round.
        assignments: executor -> slot; initially the running executors.
        waiting: executors without a slot when the round starts, in the topology's order.
        dropped: running executors that the topology no longer has.
    """

    def __init__(
        self, assignment: NodeAssignment, topology: Topology, workers: Workers, joined: dict[int, Slot], first: int
    ) -> None:
        self._assignment = assignment
        self._joined = joined
        self.topology = topology
        self.number = {component.id: first + at for at, component in enumerate(topology.components)}
        alive = assigned(workers)
        self.assignments = {e: slot for e, slot in alive.items() if e in topology.number_of}
        self.waiting = [executor for executor in topology.executors if executor not in alive]
        self.dropped = frozenset(alive) - frozenset(self.assignments)

    def has_room(self, node: int) -> bool:
        """Return whether an executor of the topology may go to `node`."""
        return node in self._joined or self._assignment.free.count(self._assignment.nodes[node]) > 0

    def add(self, executor: Executor, node: int) -> None:
        """Put `executor` on `node`, which must have room."""
        slot = self._joined.get(node)
        if slot is None:
            slot = self._assignment.free.lowest(self._assignment.nodes[node])
            if slot is None:
                raise ValueError(f"{self._assignment.nodes[node]} has no room")
            self._assignment.free.take(slot)
            self._joined[node] = slot
        self.assignments[executor] = slot
        self._assignment.count(self.number[executor.component], node)

    def assign_nodes(self, executors: Sequence[Executor]) -> bool:
        """Assign nodes to `executors`, which are ordered by component. Return False when a node is missing."""
        spread = NodeSpread(self._assignment.loads, filter(self.has_room, range(len(self._assignment.nodes))))
        if executors and not spread:
            return False
        for component, group in groupby(executors, key=lambda executor: executor.component):
            mine = list(group)
            nodes = spread.choose(self._assignment.counts[self.number[component]], len(mine))
            for executor, node in zip(mine, nodes, strict=True):
                self.add(executor, node)
        return True


class NodeSpread:
    """Nodes by number of executors."""

    def __init__(self, loads: Sequence[int], nodes: Iterable[int]) -> None:
        """`loads` (node -> executors on it) is read once; only `nodes` are chosen from."""
        self._order = [(loads[node], node) for node in nodes]
        heapify(self._order)

    def __bool__(self) -> bool:
        return bool(self._order)

    def choose(self, counts: Mapping[int, int], executors: int) -> list[int]:
        """Return nodes for `executors` executors of one component, one after the other; there must be a node.

        Args:
            counts: node -> existing executors of the component on it, nodes without any left out.
            executors: number of executors to place.
        """
        if executors + len(counts) < len(self._order):
            return self._on_nodes_without(counts, executors)
        keys = [(counts.get(node, 0), load, node) for load, node in self._order]
        heapify(keys)
        chosen: list[int] = []
        for _ in range(executors):
            own, load, node = keys[0]
            heapreplace(keys, (own + 1, load + 1, node))
            chosen.append(node)
        self._order = [(load, node) for _, load, node in keys]
        heapify(self._order)
        return chosen

    def _on_nodes_without(self, counts: Mapping[int, int], executors: int) -> list[int]:
        """Return nodes for fewer executors than there are nodes without the component.

        Not all nodes need be examined.
        """
        chosen: list[int] = []
        aside: list[tuple[int, int]] = []
        while len(chosen) < executors:
            load, node = heappop(self._order)
            if node not in counts:
                chosen.append(node)
                load += 1
            aside.append((load, node))
        for entry in aside:
            heappush(self._order, entry)
        return chosen


MOST_NODES = 4096
"""A communication schedule has a cell per pair of nodes."""


def check_nodes(nodes: int) -> None:
    """Raise an error for more nodes than a communication schedule can have.

    Raises:
        InputError: there are more than `MOST_NODES`.
    """
    if nodes > MOST_NODES:
        raise InputError(
            f"a communication schedule has a cell per pair of nodes: there are {nodes} nodes, at most "
            f"{MOST_NODES} are possible"
        )


Part = tuple[str, int]
"""Node and number of the part on it, for one topology."""


def assemble(
    problem: Problem,
    parts: Mapping[str, Mapping[Executor, Part]],
    failures: Mapping[str, str],
    details: Mapping[str, Any],
) -> Plan:
    """Return the plan.

    Args:
        problem: the round.
        parts: topology -> executor -> its part; missing executors get no slot.
        failures: topology -> why it is not placed completely; running workers of a topology without parts stay.
        details: the algorithm's own account.
    """
    free = FreeSlots(problem)
    workers = running(problem)
    kept: dict[str, dict[Part, Slot]] = {}
    for topology in problem.topologies:
        if topology.id in parts:
            kept[topology.id] = _kept(workers[topology.id], parts[topology.id])
            for slot in workers[topology.id]:
                if slot not in kept[topology.id].values():
                    free.release(slot)
    placements: dict[str, Placement] = {}
    for topology in problem.topologies:
        message = failures.get(topology.id, "")
        if topology.id not in parts:
            alive = assigned(workers[topology.id])
            placements[topology.id] = concluded(topology, alive, message)
            continue
        homes = dict(kept[topology.id])
        for part in sorted(set(parts[topology.id].values()) - set(homes)):
            fresh = free.lowest(part[0])
            if fresh is None:
                raise ValueError(f"node {part[0]} has no slot for topology {topology.id}")
            free.take(fresh)
            homes[part] = fresh
        assignments = {executor: homes[part] for executor, part in parts[topology.id].items()}
        placements[topology.id] = concluded(topology, assignments, message)
    freed = _freed(problem, kept)
    return Plan(placements, freed=freed, migrations=moves(freed, placements), details=details)


def _kept(workers: Workers, parts: Mapping[Executor, Part]) -> dict[Part, Slot]:
    """Return part -> running worker that stays for it.

    Of the workers that lose no executor the largest stays, then the one in the first slot.
    """
    kept: dict[Part, Slot] = {}
    for slot, executors in sorted(workers.items(), key=lambda item: (-len(item[1]), item[0])):
        homes = {parts.get(executor) for executor in executors}
        home = next(iter(homes)) if len(homes) == 1 else None
        if home is not None and home[0] == slot.node and home not in kept:
            kept[home] = slot
    return kept


def _freed(problem: Problem, kept: Mapping[str, Mapping[Part, Slot]]) -> list[ExistingWorker]:
    return [
        worker
        for worker in problem.existing
        if worker.topology in kept
        and problem.cluster.by_id[worker.node].available
        and Slot(worker.node, worker.slot) not in kept[worker.topology].values()
    ]


def topology_parts(
    problem: Problem, topologies: Sequence[Topology], node_of: Sequence[int], part_of: Sequence[int] | None = None
) -> dict[str, dict[Executor, Part]]:
    """Return topology -> executor -> part, from nodes (and parts on them) by executor number; -1 means no node."""
    nodes = problem.cluster.nodes
    parts: dict[str, dict[Executor, Part]] = {}
    number = 0
    for topology in topologies:
        mine = parts[topology.id] = {}
        for executor in topology.executors:
            if node_of[number] >= 0:
                mine[executor] = (nodes[node_of[number]].id, part_of[number] if part_of is not None else 0)
            number += 1
    return parts
