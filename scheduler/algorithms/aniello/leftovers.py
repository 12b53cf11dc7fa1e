"""Placement of executors outside the plan: by Storm's EvenScheduler, as in the authors' code.

EvenScheduler never extends running workers, so executors outside the plan would never be placed once the plan uses all
workers that the topology requested. Ours: they then join the plan's workers with room, round robin.
"""

from collections.abc import Sequence

from scheduler.algorithms.even import place_evenly, storm_order
from scheduler.problem import Placement, Slot, concluded
from scheduler.toolkit.running_workers import RunningWorkers
from scheduler.toolkit.slots import assigned, waiting
from workloads.topology import Executor, Topology


def deal_leftovers(topology: Topology, state: RunningWorkers, joined: Sequence[Slot] = (), most: int = 0) -> Placement:
    """Place the waiting executors of `topology`; update `state`.

    Args:
        topology: the topology.
        state: running workers, the plan's workers included.
        joined: the plan's workers, in the order in which executors join them; empty: none may be joined.
        most: maximum number of executors in a worker that is joined.
    """
    workers = state.workers[topology.id]
    placement = place_evenly(topology, workers, state.free)
    started: dict[Slot, list[Executor]] = {}
    for executor, slot in placement.assignments.items():
        if slot not in workers:
            started.setdefault(slot, []).append(executor)
    for slot, executors in started.items():
        state.note(topology.id, slot, executors)
    rest = storm_order(waiting(topology, workers))
    if not rest or not joined:
        return placement
    cursor = 0
    for executor in rest:
        open_slots = [slot for slot in (*joined[cursor:], *joined[:cursor]) if len(workers[slot]) < most]
        if not open_slots:
            break
        workers[open_slots[0]] = (*workers[open_slots[0]], executor)
        cursor = (joined.index(open_slots[0]) + 1) % len(joined)
    missing = len(waiting(topology, workers))
    return concluded(topology, assigned(workers), f"{missing} executors wait: all workers are full" if missing else "")
