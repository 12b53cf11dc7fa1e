"""`even`: Storm's EvenScheduler, round robin of executors over slots and of slots over nodes.

After Apache Storm 2.x, `storm-server/src/main/java/org/apache/storm/scheduler/EvenScheduler.java`. It uses only
numbers of executors and slots, not components, load, traffic or memory.

Storm's idle-node redistribution (`idle_rebalance`) moves running workers onto idle nodes, once per round, over all
topologies, before anything is placed. In Apache Storm's master since 2026-06, off by default and in no 2.8.x release.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from random import Random
from typing import Annotated, ClassVar

from msgspec import Meta

from inventory.cluster import Cluster, ExistingWorker
from scheduler.problem import Move, Needs, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import (
    FreeSlots,
    Workers,
    assigned,
    fewer_workers,
    interleaved,
    new_workers,
    port_order,
    running,
    waiting,
    why_waiting,
)
from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class EvenParams:
    """Parameters of `even`.

    Attributes:
        idle_rebalance: first move running workers onto idle nodes.
        idle_max_moves: maximum number of such moves per topology, 0 = no cap.
        idle_stable_rounds: rounds (of 3 s) that an idle node must have been up.
        shuffle: seed of a random order in which executors are dealt; None: that of Storm. A random placement in the
            slots of `even`, to tell the choice of executors from that of slots. Ours.
    """

    idle_rebalance: bool = False
    idle_max_moves: Annotated[int, Meta(ge=0)] = 0
    idle_stable_rounds: Annotated[int, Meta(ge=0)] = 3
    shuffle: int | None = None


class Even:
    """Round robin, Storm's EvenScheduler."""

    name: ClassVar[str] = "even"
    paper: ClassVar[str] = "Apache Storm 2.x, EvenScheduler"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="components, load, traffic, CPU, memory, hardware")
    Params: ClassVar[type] = EvenParams

    def __init__(self, params: EvenParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place topologies one after the other; each sees the slots that earlier ones took."""
        free = FreeSlots(problem)
        workers = running(problem)
        moved: dict[str, dict[Slot, Slot]] = {}
        if self._params.idle_rebalance:
            moved = redistribute(
                problem.cluster,
                {topology.id: topology for topology in problem.topologies},
                workers,
                free,
                self._params.idle_max_moves,
                self._params.idle_stable_rounds,
            )
        placements = {t.id: place_evenly(t, workers[t.id], free, self._params.shuffle) for t in problem.topologies}
        freed = [worker for worker in problem.existing if _slot(worker) in moved.get(worker.topology, {})]
        migrations = [
            Move(worker.topology, Executor.named(name), _slot(worker), moved[worker.topology][_slot(worker)])
            for worker in freed
            for name in worker.executors
        ]
        return Plan(placements, freed=freed, migrations=migrations, details=new_workers(problem, placements, freed))


def _slot(worker: ExistingWorker) -> Slot:
    return Slot(worker.node, worker.slot)


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


def storm_order(executors: Sequence[Executor]) -> list[Executor]:
    """Return executors in Storm's order: by component id, then index (`StormCommon.java`)."""
    return sorted(executors)


def place_evenly(topology: Topology, workers: Workers, free: FreeSlots, shuffle: int | None = None) -> Placement:
    """Place the waiting executors on free slots, round robin, and take the slots used.

    Args:
        topology: the topology.
        workers: its running workers, which get no new executors.
        free: the free slots.
        shuffle: seed of a random order of the executors; None: Storm's order.
    """
    alive = assigned(workers)
    todo = storm_order(waiting(topology, workers))
    if shuffle is not None:
        Random(f"{shuffle} {topology.id}").shuffle(todo)  # noqa: S311 - no secret is made here
    if not todo:
        return concluded(topology, alive)
    total = min(topology.workers, free.total + len(workers))
    new = min(max(total - len(workers), 0), free.total)
    if new == 0:
        return concluded(topology, alive, why_waiting(topology, workers, len(todo)))
    chosen = list(islice(interleaved(free), min(new, len(todo))))
    for slot in chosen:
        free.take(slot)
    dealt = {executor: chosen[at % new] for at, executor in enumerate(todo)}
    return concluded(topology, alive | dealt, fewer_workers(topology, total))
