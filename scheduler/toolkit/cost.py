"""Cost of a placement: traffic between nodes and workers, nodes and slots used, balance of loads.

An edge is a pair of executors that communicate, in either direction, counted once. With observed traffic the rate W
between nodes is the sum of the observed rates; a listed 0 is 0 and an unlisted pair adds nothing. Without observed
traffic no rate is known and `inter_node_edges` is W at rate 1. Executors without a slot are ignored.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType

from scheduler.problem import Placement, Problem, Slot
from scheduler.toolkit.communication import Classes, classes_of
from workloads.topology import DEFAULT_CPU_POINTS, Executor, Topology

K = TypeVar("K")


class Loads:
    """Loads of executors and capacities of nodes of one problem, in one unit for the whole cluster.

    With `capacity` on every node, capacities count executors and each executor has load 1. Otherwise both are CPU
    points: a node's capacity is its `cpu`, an executor's load is its observed load, else the `cpu` of its component.
    Without any observed load, all loads are demands, and a node's capacity is its `supervisor_cpu`.
    """

    def __init__(self, problem: Problem) -> None:
        self._nodes = problem.cluster.nodes
        self._observed = problem.traffic.load if problem.traffic is not None else {}

    @cached_property
    def unit(self) -> Literal["executors", "points"]:
        """Unit of loads and capacities."""
        return "executors" if all(node.capacity is not None for node in self._nodes) else "points"

    @cached_property
    def capacity(self) -> dict[str, float]:
        """Capacity by node id."""
        if self.unit == "executors":
            return {node.id: node.capacity or 0.0 for node in self._nodes}
        return {node.id: node.cpu_points if self._observed else node.demand_points for node in self._nodes}

    def of(self, topology: Topology, executor: Executor) -> float:
        """Return the load of `executor`."""
        if self.unit == "executors":
            return 1.0
        if self._observed and (load := self._observed.get(executor.name)) is not None:
            return load
        return topology.component[executor.component].cpu_points

    def known_points(self, topology: Topology, executor: Executor) -> float | None:
        """Return the CPU points of `executor`, in any unit of capacities: observed, else declared; None: not known."""
        observed = self._observed.get(executor.name)
        return topology.component[executor.component].cpu if observed is None else observed

    def of_outside_executor(self, executor: str) -> float:
        """Return the load of a running executor of a topology outside the round, by its name."""
        if self.unit == "executors":
            return 1.0
        return self._observed.get(executor, DEFAULT_CPU_POINTS)


class Cost(Struct, frozen=True, forbid_unknown_fields=True):
    """Cost of one round's placements, over all topologies.

    Attributes:
        inter_node_edges: communicating pairs on different nodes.
        inter_node_tuples_per_s: tuples/s between nodes, observed or derived; None when neither is known.
        inter_worker_edges: communicating pairs on one node, in different workers.
        nodes_used: nodes that hold at least one executor.
        slots_used: slots that hold at least one executor.
        load_stddev: standard deviation over available nodes of load / capacity (`Loads`); None
            if a loaded node has no capacity, or nearly none, or no node is available.
        overloaded_nodes: nodes that are to carry more than their capacity; absent if it was not examined.
        overloaded_workers: workers that are to do more than they can compute, by the loads that are known; None if no
            load is known.
        undetermined_workers: other workers that may be overloaded, too, because not all of their loads are known.
        objective: value of the objective that was asked for (`scheduler.toolkit.objective`); None if it is infinite.
        lower_bound: lower bound on it over all placements; None if not computed. Both are absent without an objective.
    """

    inter_node_edges: int
    inter_node_tuples_per_s: float | None
    inter_worker_edges: int
    nodes_used: int
    slots_used: int
    load_stddev: float | None
    overloaded_nodes: int | UnsetType = UNSET
    overloaded_workers: int | UnsetType | None = UNSET
    undetermined_workers: int | UnsetType = UNSET
    objective: float | UnsetType | None = UNSET
    lower_bound: float | UnsetType | None = UNSET


def cost(problem: Problem, placements: Mapping[str, Placement]) -> Cost:
    """Return the cost of `placements` (topology id -> placement), in time linear in executors and links, not pairs."""
    inter_node = inter_worker = 0
    used: set[Slot] = set()
    for topology in problem.topologies:
        placement = placements[topology.id]
        used.update(placement.assignments.values())
        between, within = _edges(topology, placement)
        inter_node += between
        inter_worker += within
    return Cost(
        inter_node_edges=inter_node,
        inter_node_tuples_per_s=_observed_rate(problem, placements),
        inter_worker_edges=inter_worker,
        nodes_used=len({slot.node for slot in used}),
        slots_used=len(used),
        load_stddev=_load_stddev(problem, placements),
    )


def _edges(topology: Topology, placement: Placement) -> tuple[int, int]:
    """Return the numbers of pairs between nodes, and between workers of one node."""
    classes = classes_of(topology)
    slots: list[Slot | None] = [placement.assignments.get(executor) for executor in topology.executors]
    by_slot = [Counter(slot for e in members if (slot := slots[e]) is not None) for members in classes.members]
    by_node = [Counter(slot.node for e in members if (slot := slots[e]) is not None) for members in classes.members]
    total = pairs_together(classes, [Counter({None: counter.total()}) for counter in by_slot])
    on_node, in_slot = pairs_together(classes, by_node), pairs_together(classes, by_slot)
    return total - on_node, on_node - in_slot


def pairs_together(classes: Classes, where: Sequence[Counter[K]]) -> int:
    """Return the number of communicating pairs at the same place; `where` counts each class's executors."""
    pairs = 0
    for one, others in enumerate(classes.linked):
        for other in others:
            if other == one:
                pairs += sum(count * (count - 1) // 2 for count in where[one].values())
            elif other > one:
                fewer, more = sorted((where[one], where[other]), key=len)
                pairs += sum(count * more[place] for place, count in fewer.items() if place in more)
    return pairs


def _observed_rate(problem: Problem, placements: Mapping[str, Placement]) -> float | None:
    if problem.traffic is None:
        return None
    node_of = {
        executor.name: slot.node
        for topology in problem.topologies
        for executor, slot in placements[topology.id].assignments.items()
    }
    return math.fsum(
        edge.tuples_per_s
        for edge in problem.traffic.edges
        if edge.source in node_of and edge.destination in node_of and node_of[edge.source] != node_of[edge.destination]
    )


def _load_stddev(problem: Problem, placements: Mapping[str, Placement]) -> float | None:
    loads = Loads(problem)
    carried: dict[str, list[float]] = {node.id: [] for node in problem.cluster.available}
    for topology in problem.topologies:
        for executor, slot in placements[topology.id].assignments.items():
            carried[slot.node].append(loads.of(topology, executor))
    shares: list[float] = []
    for node, weights in carried.items():
        load = math.fsum(weights)
        if load > 0 and loads.capacity[node] == 0:
            return None
        shares.append(load / loads.capacity[node] if load else 0.0)
    if not shares:
        return None
    try:
        mean = math.fsum(shares) / len(shares)
        variance = math.fsum((share - mean) ** 2 for share in shares) / len(shares)
    except OverflowError:
        return None
    return math.sqrt(variance) if math.isfinite(variance) else None
