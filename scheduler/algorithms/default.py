"""`default`: Storm's DefaultScheduler, `even` after releasing unevenly filled workers.

After Apache Storm 2.x, `storm-server/src/main/java/org/apache/storm/scheduler/DefaultScheduler.java`.
"""

from collections import Counter
from typing import ClassVar

from inventory.cluster import Cluster
from scheduler.algorithms.even import place_evenly
from scheduler.problem import Needs, NoParams, Placement, Plan, Problem, Slot
from scheduler.toolkit.slots import RunningWorkers, Workers, port_order, waiting
from workloads.topology import Executor, Topology


def place_by_default(cluster: Cluster, topology: Topology, state: RunningWorkers) -> Placement:
    """Release the workers of `topology` that have a wrong size, then place the waiting executors; update `state`."""
    workers = state.workers[topology.id]
    total = min(topology.workers, len(workers) + state.free.total)
    if total > len(workers) or waiting(topology, workers):
        state.release(_bad_slots(cluster, workers, len(topology.executors), total))
    placement = place_evenly(topology, workers, state.free)
    started: dict[Slot, list[Executor]] = {}
    for executor, slot in placement.assignments.items():
        if slot not in workers:
            started.setdefault(slot, []).append(executor)
    for slot, executors in started.items():
        state.note(topology.id, slot, executors)
    return placement


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
        """Place topologies one after the other; each sees the slots that earlier ones took and released."""
        state = RunningWorkers(problem)
        return state.plan({t.id: place_by_default(problem.cluster, t, state) for t in problem.topologies})
