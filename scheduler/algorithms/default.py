"""`default`: Storm's DefaultScheduler, `even` after releasing unevenly filled workers.

After Apache Storm 2.x, `storm-server/src/main/java/org/apache/storm/scheduler/DefaultScheduler.java`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from inventory.cluster import Cluster
from scheduler.algorithms.even import place_evenly
from scheduler.problem import Needs, NoParams, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import RunningWorkers, Workers, assigned, port_order, waiting
from workloads.topology import Executor, Topology


def place_by_default(cluster: Cluster, topologies: Sequence[Topology], state: RunningWorkers) -> dict[str, Placement]:
    """Release workers of a wrong size, topology by topology, and place waiting executors; update `state`.

    After each topology's release, all topologies with waiting executors are placed, the first one first: Storm passes
    one topology to EvenScheduler, which asks the cluster for all that need scheduling. A released slot may thus go to
    another topology.
    """
    messages = {topology.id: "" for topology in topologies}
    for topology in [t for t in topologies if _needs_scheduling(t, state.workers[t.id])]:
        workers = state.workers[topology.id]
        total = min(topology.workers, len(workers) + state.free.total)
        if total > len(workers) or waiting(topology, workers):
            state.release(_bad_slots(cluster, workers, len(topology.executors), total))
        for other in topologies:
            if waiting(other, state.workers[other.id]):
                messages[other.id] = _place_waiting(other, state)
    return {t.id: concluded(t, assigned(state.workers[t.id]), messages[t.id]) for t in topologies}


def _needs_scheduling(topology: Topology, workers: Workers) -> bool:
    return topology.workers > len(workers) or bool(waiting(topology, workers))


def _place_waiting(topology: Topology, state: RunningWorkers) -> str:
    """Place waiting executors by `even`, note their workers, and return the message."""
    workers = state.workers[topology.id]
    placement = place_evenly(topology, workers, state.free)
    started: dict[Slot, list[Executor]] = {}
    for executor, slot in placement.assignments.items():
        if slot not in workers:
            started.setdefault(slot, []).append(executor)
    for slot, executors in started.items():
        state.note(topology.id, slot, executors)
    return placement.message


def _bad_slots(cluster: Cluster, workers: Workers, executors: int, total: int) -> list[Slot]:
    """Return slots of workers whose size is not one that an even split of `executors` over `total` workers leaves."""
    if not workers:
        return []
    size, larger = divmod(executors, total)
    quota = Counter({size + 1: larger, size: total - larger})
    bad: list[Slot] = []
    for slot in sorted(workers, key=lambda slot: (slot.node, port_order(cluster, slot))):
        if quota[len(workers[slot])]:
            quota[len(workers[slot])] -= 1
        else:
            bad.append(slot)
    return bad


class Default:
    """Evens out running workers, then places round robin."""

    name: ClassVar[str] = "default"
    paper: ClassVar[str] = "Apache Storm 2.x, DefaultScheduler"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="components, load, traffic, CPU, memory, hardware")
    Params: ClassVar[type] = NoParams

    def __init__(self, params: NoParams) -> None:
        pass

    def place(self, problem: Problem) -> Plan:
        """Release and place topologies one after the other; each sees the slots that earlier ones took and released."""
        state = RunningWorkers(problem)
        return state.plan(place_by_default(problem.cluster, problem.topologies, state))
