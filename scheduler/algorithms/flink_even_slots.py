"""`flink-even-slots`: Flink's default groups, in slots of the TaskManagers with the least part of their slots in use.

After Apache Flink 2.3, `taskmanager.load-balance.mode: SLOTS` (before 2.0 `cluster.evenly-spread-out-slots`):
`flink-runtime/src/main/java/org/apache/flink/runtime/resourcemanager/slotmanager/DefaultResourceAllocationStrategy.java`
(least utilization).
"""

from heapq import heapify, heapreplace
from typing import ClassVar

from inventory.cluster import Cluster
from scheduler.algorithms.flink_default import FLINK_NEEDS, place_jobs, with_local_inputs
from scheduler.problem import Needs, NoParams, Plan, Problem, Slot
from scheduler.toolkit.slots import FreeSlots


def least_used(cluster: Cluster, free: FreeSlots, count: int) -> list[Slot]:
    """Return `count` free slots, each on the node with the least part of its slots in use, ties by id."""
    slots = {node: free.of(node) for node in free.nodes()}
    size = {node: cluster.by_id[node].slots for node in slots}
    used = [((size[node] - free.count(node)) / size[node], node) for node in slots]
    heapify(used)
    taken = dict.fromkeys(slots, 0)
    chosen: list[Slot] = []
    while len(chosen) < count:
        _, node = used[0]
        chosen.append(next(slots[node]))
        taken[node] += 1
        left = free.count(node) - taken[node]
        heapreplace(used, ((size[node] - left) / size[node] if left else float("inf"), node))
    return chosen


class FlinkEvenSlots:
    """Local inputs in shared slots, spread over nodes."""

    name: ClassVar[str] = "flink-even-slots"
    paper: ClassVar[str] = "Apache Flink 2.3, taskmanager.load-balance.mode: SLOTS"
    needs: ClassVar[Needs] = FLINK_NEEDS
    Params: ClassVar[type] = NoParams

    def __init__(self, params: NoParams) -> None:
        pass

    def place(self, problem: Problem) -> Plan:
        """Place topologies one after the other; each sees the slots that earlier ones took and released."""
        return place_jobs(problem, with_local_inputs, least_used)
