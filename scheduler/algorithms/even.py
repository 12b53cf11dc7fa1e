"""`even`: Storm's EvenScheduler, round robin of executors over slots and of slots over nodes.

After Apache Storm 2.x, `storm-server/src/main/java/org/apache/storm/scheduler/EvenScheduler.java`. It uses only
numbers of executors and slots, not components, load, traffic or memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, ClassVar

from msgspec import Meta

from inventory.cluster import ExistingWorker
from scheduler.problem import Move, Needs, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.idle_rebalance import redistribute
from scheduler.toolkit.running_workers import started
from scheduler.toolkit.slots import (
    FreeSlots,
    Workers,
    assigned,
    fewer_workers,
    interleaved,
    running,
    waiting,
    why_waiting,
)
from workloads.topology import Executor, Topology


def storm_order(executors: Sequence[Executor]) -> list[Executor]:
    """Return executors in Storm's order: by component id, then index (`StormCommon.java`)."""
    return sorted(executors)


def place_evenly(topology: Topology, workers: Workers, free: FreeSlots) -> Placement:
    """Place the waiting executors on free slots, round robin, and take the slots used.

    Args:
        topology: the topology.
        workers: its running workers, which get no new executors.
        free: the free slots.
    """
    alive = assigned(workers)
    todo = storm_order(waiting(topology, workers))
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


@dataclass(frozen=True)
class EvenParams:
    """Parameters of `even`.

    Attributes:
        idle_rebalance: first move running workers onto idle nodes.
        idle_max_moves: maximum number of such moves per topology, 0 = no cap.
        idle_stable_rounds: rounds (of 3 s) that an idle node must have been up.
    """

    idle_rebalance: bool = False
    idle_max_moves: Annotated[int, Meta(ge=0)] = 0
    idle_stable_rounds: Annotated[int, Meta(ge=0)] = 3


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
        placements = {t.id: place_evenly(t, workers[t.id], free) for t in problem.topologies}
        freed = [worker for worker in problem.existing if _slot(worker) in moved.get(worker.topology, {})]
        migrations = [
            Move(worker.topology, Executor.named(name), _slot(worker), moved[worker.topology][_slot(worker)])
            for worker in freed
            for name in worker.executors
        ]
        return Plan(placements, freed=freed, migrations=migrations, details=started(problem, placements, freed))


def _slot(worker: ExistingWorker) -> Slot:
    return Slot(worker.node, worker.slot)
