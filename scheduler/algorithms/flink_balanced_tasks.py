"""`flink-balanced-tasks`: Flink's balanced scheduling, equal numbers of executors per slot and per node.

After Apache Flink 2.3, `taskmanager.load-balance.mode: TASKS` (FLIP-370), in
`flink-runtime/src/main/java/org/apache/flink/runtime`: the groups of
`scheduler/TaskBalancedExecutionSlotSharingGroupBuilder.java`, and their slots by
`jobmaster/slotpool/TasksBalancedRequestSlotMatchingStrategy.java`.
"""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import ClassVar

from scheduler.algorithms.flink_default import FLINK_NEEDS, SharedSlot, job_order, node_by_node, place_jobs
from scheduler.problem import Needs, NoParams, Plan, Problem, Slot
from workloads.topology import Topology


def in_turn(topology: Topology) -> list[SharedSlot]:
    """Distribute executors over as many shared slots as the largest component has executors, round robin.

    Components of that size begin at the first slot; every other one begins where the one before it, of these, ended.
    """
    shared: list[SharedSlot] = [[] for _ in range(max(component.parallelism for component in topology.components))]
    begin = 0
    for name in job_order(topology):
        executors = topology.executors_of(name)
        first = 0 if len(executors) == len(shared) else begin
        for at, executor in enumerate(executors, first):
            shared[at % len(shared)].append(executor)
        if len(executors) < len(shared):
            begin = (first + len(executors)) % len(shared)
    return shared


def matched(slots: list[Slot], shared: list[SharedSlot]) -> list[Slot]:
    """Return a slot for each of `shared`: the fullest first, each on the node that has got the fewest executors.

    Args:
        slots: slots of the topology, as many as there are groups; nodes that come first win ties.
        shared: its executors by shared slot.
    """
    left: dict[str, deque[Slot]] = {}
    for slot in slots:
        left.setdefault(slot.node, deque()).append(slot)
    loads = [(0, rank, node) for rank, node in enumerate(left)]
    heapify(loads)
    slot_of: dict[int, Slot] = {}
    for at in sorted(range(len(shared)), key=lambda at: -len(shared[at])):
        load, rank, node = heappop(loads)
        slot_of[at] = left[node].popleft()
        if left[node]:
            heappush(loads, (load + len(shared[at]), rank, node))
    return [slot_of[at] for at in range(len(shared))]


class FlinkBalancedTasks:
    """Round robin over shared slots, and these by their size over nodes."""

    name: ClassVar[str] = "flink-balanced-tasks"
    paper: ClassVar[str] = "Apache Flink 2.3, taskmanager.load-balance.mode: TASKS (FLIP-370)"
    needs: ClassVar[Needs] = FLINK_NEEDS
    Params: ClassVar[type] = NoParams

    def __init__(self, params: NoParams) -> None:
        pass

    def place(self, problem: Problem) -> Plan:
        """Place topologies one after the other; each sees the slots that earlier ones took and released."""
        return place_jobs(problem, in_turn, node_by_node, matched)
