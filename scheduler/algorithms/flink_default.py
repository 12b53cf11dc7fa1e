"""`flink-default`: Flink's default scheduler, local inputs in a shared slot and one node filled after the other.

After Apache Flink 2.3, `flink-runtime/src/main/java/org/apache/flink/runtime`: the order of `jobgraph/JobGraph.java`
(`getVerticesSortedTopologicallyFromSources`), the groups of `scheduler/LocalInputPreferredSlotSharingStrategy.java`,
and the slots of `resourcemanager/slotmanager/DefaultResourceAllocationStrategy.java` (any matching TaskManager). A
component is a job vertex, an executor a subtask, a node a TaskManager, and a slot a task slot.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import ClassVar

from inventory.cluster import Cluster
from scheduler.problem import Needs, NoParams, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import FreeSlots, RunningWorkers, assigned, port_order, waiting
from workloads.topology import Executor, Topology

SharedSlot = list[Executor]
"""Executors that share a slot, at most one of each component (Flink's execution slot sharing group)."""

FLINK_NEEDS = Needs(ignores="workers, groupings, load, traffic, CPU, memory, hardware")


def job_order(topology: Topology) -> list[str]:
    """Return component ids in the order of Flink's job graph: spouts as listed, then depth first along their streams.

    A component follows as soon as the last of its inputs is there.
    """
    receivers: dict[str, list[str]] = {component.id: [] for component in topology.components}
    for source, destination, _ in topology.links():
        receivers[source.id].append(destination.id)
    order = [component.id for component in topology.components if not component.inputs]
    ordered = set(order)
    begin = 0
    while begin < len(order):
        path: list[Iterator[str]] = [iter(receivers[order[begin]])]
        begin += 1
        while path:
            name = next(path[-1], None)
            if name is None:
                path.pop()
            elif name not in ordered and all(entry.source in ordered for entry in topology.component[name].inputs):
                order.append(name)
                ordered.add(name)
                path.append(iter(receivers[name]))
    return order


def with_local_inputs(topology: Topology) -> list[SharedSlot]:
    """Distribute executors over as many shared slots as the largest component has executors.

    An executor shares the slot of the first executor of its inputs whose slot has none of its component yet; of those
    that find none, each takes the first slot without its component, or a new one.
    """
    shared: list[SharedSlot] = []
    slots_of: dict[str, list[int]] = {}
    for name in job_order(topology):
        without = set(range(len(shared)))
        local = (at for entry in topology.component[name].inputs for at in slots_of[entry.source] if at in without)
        mine: dict[Executor, int] = {}
        for executor in topology.executors_of(name):
            at = next(local, None)
            if at is not None:
                without.remove(at)
                mine[executor] = at
        others = iter(sorted(without))
        for executor in topology.executors_of(name):
            if executor not in mine:
                mine[executor] = next(others, len(shared))
                if mine[executor] == len(shared):
                    shared.append([])
        for executor, at in mine.items():
            shared[at].append(executor)
        slots_of[name] = [mine[executor] for executor in topology.executors_of(name)]
    return shared


def node_by_node(_: Cluster, free: FreeSlots, count: int) -> list[Slot]:
    """Return the first `count` free slots, all of one node before those of the next."""
    return list(islice((slot for node in free.nodes() for slot in free.of(node)), count))


def slots_in_order(slots: list[Slot], _: list[SharedSlot]) -> list[Slot]:
    """Return the slots as they are: the first one for the first shared slot, and so on."""
    return slots


def place_jobs(
    problem: Problem,
    share: Callable[[Topology], list[SharedSlot]],
    allocate: Callable[[Cluster, FreeSlots, int], list[Slot]],
    match: Callable[[list[Slot], list[SharedSlot]], list[Slot]] = slots_in_order,
) -> Plan:
    """Place every topology of which an executor waits, as a whole or not at all; its running workers stop first.

    Slots of its running workers are used again, as by Flink's slot pool after a failure.

    Args:
        problem: the round.
        share: topology -> its executors by shared slot.
        allocate: free slots, and a number that is not larger than theirs -> so many of them.
        match: slots of the topology, and its shared slots -> the slots in the order of the shared ones.
    """
    state = RunningWorkers(problem)
    messages: dict[str, str] = {}
    for topology in problem.topologies:
        workers = state.workers[topology.id]
        if not waiting(topology, workers):
            continue
        shared = share(topology)
        running = sorted(workers, key=lambda slot: (slot.node, port_order(problem.cluster, slot)))
        slots = running[: len(shared)]
        free = len(slots) + state.free.total
        if free < len(shared):
            messages[topology.id] = f"slots needed: {len(shared)}, free: {free}"
            state.release(running)
            continue
        slots += allocate(problem.cluster, state.free, len(shared) - len(slots))
        state.release(running)
        for slot, executors in zip(match(slots, shared), shared, strict=True):
            state.start(topology.id, slot, executors)
    return state.plan(
        {t.id: concluded(t, assigned(state.workers[t.id]), messages.get(t.id, "")) for t in problem.topologies}
    )


class FlinkDefault:
    """Local inputs in shared slots, node by node."""

    name: ClassVar[str] = "flink-default"
    paper: ClassVar[str] = "Apache Flink 2.3, taskmanager.load-balance.mode: NONE"
    needs: ClassVar[Needs] = FLINK_NEEDS
    Params: ClassVar[type] = NoParams

    def __init__(self, params: NoParams) -> None:
        pass

    def place(self, problem: Problem) -> Plan:
        """Place topologies one after the other; each sees the slots that earlier ones took and released."""
        return place_jobs(problem, with_local_inputs, node_by_node)
