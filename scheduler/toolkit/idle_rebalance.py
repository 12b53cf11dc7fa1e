"""Storm's idle-node redistribution: running workers are moved onto idle nodes.

In Apache Storm's master since 2026-06, off by default and in no 2.8.x release. It runs once per round, over all
topologies, before anything is placed.
"""

from collections import deque
from collections.abc import Mapping
from heapq import heapify, heappop, heappush

from inventory.cluster import Cluster
from scheduler.problem import Slot
from scheduler.toolkit.slots import FreeSlots, Workers, port_order
from workloads.topology import Topology

MONITOR_PERIOD_S = 3.0
"""Seconds between two rounds of the cluster's monitor, Storm's default."""


def redistribute(
    cluster: Cluster,
    topologies: Mapping[str, Topology],
    workers: Mapping[str, Workers],
    free: FreeSlots,
    max_moves: int,
    stable_rounds: int,
) -> dict[str, dict[Slot, Slot]]:
    """Move whole running workers onto idle nodes; update `workers` and `free`.

    Args:
        cluster: the cluster.
        topologies: id -> topology of this round.
        workers: topology id -> its running workers.
        free: the free slots.
        max_moves: maximum number of moves per topology, 0 = no cap.
        stable_rounds: monitor periods that an idle node must have been up.

    Returns:
        Topology id -> old slot -> new slot, for the workers that moved.
    """
    live = [node for node in cluster.available if node.slots]
    idle = sorted(
        node.id
        for node in live
        if free.count(node.id) == node.slots
        and (node.uptime_s is None or node.uptime_s >= stable_rounds * MONITOR_PERIOD_S)
    )
    budgets: dict[str, int] = {}
    for name in sorted(topologies):
        budget = topologies[name].workers // len(live) * len(idle) if live else 0
        budgets[name] = min(budget, max_moves) if max_moves else budget
    targets = deque(slot for node in idle for slot in free.of(node))
    spread = {name: _Spread(cluster, workers[name]) for name in budgets}
    while targets:
        before = len(targets)
        for name, budget in budgets.items():
            source = spread[name].next_source() if budget and targets else None
            if source is not None:
                target = targets.popleft()
                spread[name].move(source, target)
                free.take(target)
                free.release(source)
                budgets[name] -= 1
        if len(targets) == before:
            break
    return {name: spread[name].moved for name in budgets if spread[name].moved}


class _Spread:
    """Distribution of one topology's workers over nodes."""

    def __init__(self, cluster: Cluster, workers: Workers) -> None:
        self._cluster = cluster
        self._workers = workers
        self._on: dict[str, list[tuple[int, Slot]]] = {}
        self._origin: dict[Slot, Slot] = {}
        for slot in workers:
            self._origin[slot] = slot
            heappush(self._on.setdefault(slot.node, []), (-port_order(cluster, slot), slot))
        self._fullest = [(-len(slots), node) for node, slots in self._on.items()]
        heapify(self._fullest)

    def next_source(self) -> Slot | None:
        """Return the highest port of the node with most workers, if it has at least two."""
        while self._fullest:
            count, node = self._fullest[0]
            if -count == len(self._on[node]):
                return self._on[node][0][1] if -count >= 2 else None
            heappop(self._fullest)
        return None

    def move(self, source: Slot, target: Slot) -> None:
        """Move the worker in `source`, returned by `next_source`, to `target`."""
        self._workers[target] = self._workers.pop(source)
        self._origin[target] = self._origin.pop(source)
        heappop(self._on[source.node])
        heappush(self._on.setdefault(target.node, []), (-port_order(self._cluster, target), target))
        for node in (source.node, target.node):
            heappush(self._fullest, (-len(self._on[node]), node))

    @property
    def moved(self) -> dict[Slot, Slot]:
        return {origin: slot for slot, origin in self._origin.items() if slot != origin}
