"""Load of every node under a plan, and its capacity."""

from collections import Counter
from math import fsum

from msgspec import Struct

from scheduler.problem import Plan, Problem, Slot
from scheduler.toolkit.loads import Loads


class NodeLoad(Struct, frozen=True, forbid_unknown_fields=True):
    """A node under a plan. Workers of topologies outside the round count as `others`.

    Attributes:
        id: the node.
        available: whether it may be used.
        executors: executors of the round's topologies on the node.
        load: load of these executors, in the unit of the explanation.
        others_load: load of workers outside the round.
        capacity: capacity in the same unit.
        slots: number of slots.
        slots_used: slots used by the round's topologies.
        slots_others: slots used by workers outside the round.
        memory_mb: memory of the round's executors; None if no component declares memory.
        memory_limit_mb: memory of the node.
    """

    id: str
    available: bool
    executors: int
    load: float
    others_load: float
    capacity: float
    slots: int
    slots_used: int
    slots_others: int
    memory_mb: float | None
    memory_limit_mb: float

    @property
    def overloaded(self) -> bool:
        """Whether the node exceeds its capacity."""
        return self.executors > 0 and self.load + self.others_load > self.capacity


def loads_by_node(problem: Problem, plan: Plan) -> tuple[NodeLoad, ...]:
    """Return the load of every node of the cluster, in cluster order."""
    loads = Loads(problem)
    mine = {topology.id for topology in problem.topologies}
    carried: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    memory: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    used: set[Slot] = set()
    for topology in problem.topologies:
        for executor, slot in plan.placements[topology.id].assignments.items():
            carried[slot.node].append(loads.of(topology, executor))
            memory[slot.node].append(topology.component[executor.component].memory)
            used.add(slot)
    others: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    strangers: Counter[str] = Counter()
    for worker in problem.existing:
        if worker.topology not in mine:
            others[worker.node].extend(loads.of_outside_executor(name) for name in worker.executors)
            strangers[worker.node] += 1
    slots = Counter(slot.node for slot in used)
    said = any(
        value is not None
        for topology in problem.topologies
        for component in topology.components
        for value in (component.memory_mb, component.onheap_mb, component.offheap_mb)
    )
    return tuple(
        NodeLoad(
            id=node.id,
            available=node.available,
            executors=len(carried[node.id]),
            load=fsum(carried[node.id]),
            others_load=fsum(others[node.id]),
            capacity=loads.capacity[node.id],
            slots=node.slots,
            slots_used=slots[node.id],
            slots_others=strangers[node.id],
            memory_mb=fsum(memory[node.id]) if said else None,
            memory_limit_mb=node.memory_mb,
        )
        for node in problem.cluster.nodes
    )
