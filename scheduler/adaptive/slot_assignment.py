"""Assignment of slots to executors whose nodes are known.

An executor that stays on its node stays in its worker. An executor that is new on a node joins its topology's worker
there, the one with the lowest port, or a new worker in the lowest free slot. Only workers that lose an executor are
released.
"""

from collections.abc import Mapping
from typing import Any

from inventory.cluster import ExistingWorker
from scheduler.adaptive.demand import Demand
from scheduler.adaptive.node_state import NodeState
from scheduler.problem import Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.running_workers import moves
from scheduler.toolkit.slots import FreeSlots, Workers, port_order, running
from workloads.topology import Executor, Topology


def assign_slots(problem: Problem, demand: Demand, node_state: NodeState, details: Mapping[str, Any]) -> Plan:
    """Return the plan for executors on the nodes chosen in `node_state`."""
    free = FreeSlots(problem)
    ran = running(problem)
    nodes: list[dict[Executor, str]] = [{} for _ in problem.topologies]
    for executor, node in enumerate(node_state.home):
        if node is not None:
            nodes[demand.owner[executor]][demand.executors[executor]] = node
    staying = {
        topology.id: _staying(ran[topology.id], home) for topology, home in zip(problem.topologies, nodes, strict=True)
    }
    for name, workers in staying.items():
        for slot in ran[name]:
            if slot not in workers:
                free.release(slot)
    placements = {
        topology.id: _assign_topology(problem, topology, home, staying[topology.id], free)
        for topology, home in zip(problem.topologies, nodes, strict=True)
    }
    freed = [worker for worker in problem.existing if _loses(problem, worker, staying)]
    return Plan(placements, freed=freed, migrations=moves(freed, placements), details=details)


def _staying(workers: Workers, home: Mapping[Executor, str]) -> Workers:
    """Return the running workers with the executors that stay; workers that lose all executors are left out."""
    kept = {slot: tuple(e for e in executors if home.get(e) == slot.node) for slot, executors in workers.items()}
    return {slot: executors for slot, executors in kept.items() if executors or not workers[slot]}


def _assign_topology(
    problem: Problem, topology: Topology, home: Mapping[Executor, str], staying: Workers, free: FreeSlots
) -> Placement:
    assignments = {executor: slot for slot, executors in staying.items() for executor in executors}
    door: dict[str, Slot] = {}
    for slot in sorted(staying, key=lambda slot: port_order(problem.cluster, slot)):
        door.setdefault(slot.node, slot)
    for executor in topology.executors:
        if executor in assignments or executor not in home:
            continue
        node = home[executor]
        if node not in door:
            fresh = next(free.of(node))
            free.take(fresh)
            door[node] = fresh
        assignments[executor] = door[node]
    waits = len(topology.executors) - len(assignments)
    return concluded(topology, assignments, f"no free slot: {waits} executors wait" if waits else "")


def _loses(problem: Problem, worker: ExistingWorker, staying: Mapping[str, Workers]) -> bool:
    if worker.topology not in staying or not problem.cluster.by_id[worker.node].available:
        return False
    return len(staying[worker.topology].get(Slot(worker.node, worker.slot), ())) < len(worker.executors)
