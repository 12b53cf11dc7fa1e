"""Alternatives to an executor's node: the cost on every other node, and what forbids it there."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import fsum, isfinite
from typing import NamedTuple

from msgspec import Struct

from inventory.errors import InputError, nearest
from inventory.power_index import LackingNodeError
from scheduler.explain.explanation import NodeLoad, loads_by_node
from scheduler.explain.worker_loads import loads_by_worker
from scheduler.problem import Aim, Placement, Plan, Problem, Slot
from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.cost import Loads, cost
from scheduler.toolkit.objective import objective_value
from workloads.topology import Component, Executor, Topology


class Alternative(Struct, frozen=True, forbid_unknown_fields=True):
    """A node for an executor, with all others where they are.

    Attributes:
        node: the node.
        w: rate between nodes, or value of the objective that was asked for, with the executor there; None if infinite,
            or if no link there was measured.
        change: by how much that differs from the plan; below 0: less; None with `w`.
        forbidden: the limits that the executor would exceed there; empty if there are none.
    """

    node: str
    w: int | float | None
    change: int | float | None
    forbidden: tuple[str, ...]


class Why(Struct, frozen=True, forbid_unknown_fields=True):
    """The alternatives of one executor.

    Attributes:
        topology: its topology.
        executor: its name.
        node: its node under the plan; None without one.
        w: rate between nodes under the plan: observed tuples/s, or communicating pairs without observed traffic; or
            value of the objective that was asked for, None if infinite.
        alternatives: every other node of the cluster, the lowest W first, ties in cluster order.
    """

    topology: str
    executor: str
    node: str | None
    w: int | float | None
    alternatives: tuple[Alternative, ...]


def find_executor(problem: Problem, text: str) -> tuple[Topology, Executor]:
    """Return the executor named `NAME` or `TOPOLOGY/NAME`, and its topology.

    Raises:
        InputError: there is none, or several topologies have one.
    """
    owner, _, name = text.rpartition("/")
    named = [t for t in problem.topologies if owner in ("", t.id)]
    matching = [t for t in named if name in t.executor_named]
    if not matching:
        several = len(problem.topologies) > 1
        choices = [f"{t.id}/{e}" if several else e for t in problem.topologies for e in t.executor_named]
        raise InputError(f"--why: unknown executor {text!r}{nearest(text, choices)}")
    if len(matching) > 1:
        choice = " or ".join(f"{t.id}/{name}" for t in matching)
        raise InputError(f"--why: got {text!r}: {len(matching)} topologies have such an executor; expected {choice}")
    return matching[0], matching[0].executor_named[name]


class MemoryRules(NamedTuple):
    """Limits of memory that a scheduler keeps to.

    Attributes:
        counts_defaults: `Needs.memory`.
        heap: component -> MB that an executor uses of the heap of its worker; None: the heap is no limit.
    """

    counts_defaults: bool = False
    heap: Callable[[Component], float] | None = None


def explain_executor(
    problem: Problem,
    plan: Plan,
    topology: Topology,
    executor: Executor,
    aim: Aim | None = None,
    memory: MemoryRules = MemoryRules(),  # noqa: B008 - immutable
) -> Why:
    """Return the cost of moving one executor of a checked plan to each other node, and the limits in its way.

    Costs are W, or values of the objective `aim`.
    """
    limits = _Limits(problem, plan, topology, executor, memory)
    if aim is not None and aim.objective != "cut":
        return _by_objective(problem, plan, topology, executor, aim, limits)
    judged = cost(problem, plan.placements)
    observed = judged.inter_node_tuples_per_s
    w = judged.inter_node_edges if observed is None else observed
    slot = plan.placements[topology.id].assignments.get(executor)
    here = None if slot is None else slot.node
    rates: dict[str, list[float]] = {}
    for node, rate in _rates(problem, plan, topology, executor):
        rates.setdefault(node, []).append(rate)
    near = {node: fsum(values) for node, values in rates.items()}
    kept = fsum(near.values()) if here is None else near.get(here, 0.0)
    alternatives: list[Alternative] = []
    for host in limits.hosts:
        if host.id == here:
            continue
        change: int | float = kept - near.get(host.id, 0.0)
        if observed is None:
            change = round(change)
        forbidden = tuple(limits.forbidding(host))
        alternatives.append(Alternative(host.id, w + change, change, forbidden))
    alternatives.sort(key=lambda each: each.change or 0)
    return Why(topology.id, executor.name, here, w, tuple(alternatives))


def _by_objective(
    problem: Problem, plan: Plan, topology: Topology, executor: Executor, aim: Aim, limits: "_Limits"
) -> Why:
    """Return the same for another objective than W; on another node the executor joins its topology's first worker."""
    placement = plan.placements[topology.id]
    slot = placement.assignments.get(executor)
    here = None if slot is None else slot.node
    value = _finite(problem, plan.placements, aim)
    joined: dict[str, Slot] = {}
    for each in sorted(set(placement.assignments.values())):
        joined.setdefault(each.node, each)
    alternatives: list[Alternative] = []
    for host in limits.hosts:
        if host.id == here:
            continue
        moved = {**placement.assignments, executor: joined.get(host.id, Slot(host.id, -1))}
        there = _finite(problem, {**plan.placements, topology.id: replace(placement, assignments=moved)}, aim)
        change = None if there is None or value is None else there - value
        forbidden = tuple(limits.forbidding(host))
        alternatives.append(Alternative(host.id, there, change, forbidden))
    alternatives.sort(key=lambda each: (each.w is None, each.w or 0.0))
    return Why(topology.id, executor.name, here, value, tuple(alternatives))


def _finite(problem: Problem, placements: Mapping[str, Placement], aim: Aim) -> float | None:
    try:
        value = objective_value(problem, placements, aim)
    except LackingNodeError:  # a node that cannot be used
        return None
    return value if isfinite(value) else None


def _rates(problem: Problem, plan: Plan, topology: Topology, executor: Executor) -> Iterator[tuple[str, float]]:
    """Yield the nodes of the executor's partners, with the rate of each."""
    if problem.traffic is None:
        assignments = plan.placements[topology.id].assignments
        classes = classes_of(topology)
        number = topology.number_of[executor]
        (mine,) = (kind for kind, members in enumerate(classes.members) if number in members)
        for other in classes.linked[mine]:
            for partner in classes.members[other]:
                slot = assignments.get(topology.executors[partner])
                if partner != number and slot is not None:
                    yield slot.node, 1.0
        return
    node_of = {e.name: slot.node for placement in plan.placements.values() for e, slot in placement.assignments.items()}
    for edge in problem.traffic.edges:
        if edge.source == edge.destination or executor.name not in (edge.source, edge.destination):
            continue
        partner_name = edge.destination if edge.source == executor.name else edge.source
        if partner_name in node_of:
            yield node_of[partner_name], edge.tuples_per_s


class _Limits:
    """Constraints that forbid an executor on other nodes than its own."""

    def __init__(
        self, problem: Problem, plan: Plan, topology: Topology, executor: Executor, rules: MemoryRules
    ) -> None:
        self.hosts = loads_by_node(problem, plan, rules.counts_defaults)
        component = topology.component[executor.component]
        loads = Loads(problem)
        self._load = loads.of(topology, executor)
        self._worker_points = problem.worker_points
        self._points = loads.known_points(topology, executor) or 0.0
        self._works = {(w.node, w.slot): w.load or 0.0 for w in loads_by_worker(problem, plan.placements)}
        self._memory = component.memory
        self._heap_limit = None if rules.heap is None else topology.worker_max_heap_mb
        self._heap = 0.0 if rules.heap is None else rules.heap(component)
        self._heaps: dict[str, dict[int, float]] = {}  # node -> slot of a worker of the topology -> its heap
        for other, slot in plan.placements[topology.id].assignments.items():
            heaps = self._heaps.setdefault(slot.node, {})
            more = 0.0 if rules.heap is None else rules.heap(topology.component[other.component])
            heaps[slot.index] = heaps.get(slot.index, 0.0) + more

    def forbidding(self, host: NodeLoad) -> Iterator[str]:
        """Yield what forbids the executor on a node that does not have it."""
        if not host.available:
            yield "not available"
        has_slot = host.slots_used + host.slots_others < host.slots
        if not has_slot and host.id not in self._heaps:
            yield f"no free slot of {host.slots}"
        load = host.load + host.others_load + self._load
        if load > host.capacity:
            yield f"load {load:g} of {host.capacity:g}"
        if host.memory_mb is not None:
            memory = host.memory_mb + self._memory
            if memory > host.memory_limit_mb:
                yield f"memory {memory:g} of {host.memory_limit_mb:g} MB"
        if self._worker_points is not None:
            # In its own worker, or in the one that has least to do.
            own = (self._works[host.id, slot] for slot in self._heaps.get(host.id, ()))
            points = min([*own, *([0.0] if has_slot else [])], default=0.0) + self._points
            if points > self._worker_points:
                yield f"{points:g} of {self._worker_points:g} CPU points of a worker"
        if self._heap_limit is not None:
            # In its own worker, or in the one that has most room.
            heap = min([*self._heaps.get(host.id, {}).values(), *([0.0] if has_slot else [])], default=0.0) + self._heap
            if heap > self._heap_limit:
                yield f"heap {heap:g} of {self._heap_limit:g} MB of a worker"
