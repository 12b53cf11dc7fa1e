"""From nodes per executor to a plan: slots, and changes to running workers.

A topology gets one worker per node and part (one part per node unless the caller splits nodes). A running worker on the
node that loses no executor stays and receives the other executors of its part. All other running workers of the round's
topologies are released. New workers take the node's free slots, lowest port first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from inventory.cluster import ExistingWorker
from scheduler.problem import Move, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.slots import FreeSlots, Workers, assigned, running
from workloads.topology import Executor, Topology

Part = tuple[str, int]
"""Node and number of the part on it, for one topology."""


def assemble(
    problem: Problem,
    parts: Mapping[str, Mapping[Executor, Part]],
    failures: Mapping[str, str],
    details: Mapping[str, Any],
) -> Plan:
    """Return the plan.

    Args:
        problem: the round.
        parts: topology -> executor -> its part; missing executors get no slot.
        failures: topology -> why it is not placed completely; running workers of a topology without parts stay.
        details: the algorithm's own account.
    """
    free = FreeSlots(problem)
    workers = running(problem)
    kept: dict[str, dict[Part, Slot]] = {}
    for topology in problem.topologies:
        if topology.id in parts:
            kept[topology.id] = _kept(workers[topology.id], parts[topology.id])
            for slot in workers[topology.id]:
                if slot not in kept[topology.id].values():
                    free.release(slot)
    placements: dict[str, Placement] = {}
    for topology in problem.topologies:
        message = failures.get(topology.id, "")
        if topology.id not in parts:
            alive = assigned(workers[topology.id])
            placements[topology.id] = concluded(topology, alive, message)
            continue
        homes = dict(kept[topology.id])
        for part in sorted(set(parts[topology.id].values()) - set(homes)):
            fresh = free.lowest(part[0])
            if fresh is None:
                raise ValueError(f"node {part[0]} has no slot for topology {topology.id}")
            free.take(fresh)
            homes[part] = fresh
        assignments = {executor: homes[part] for executor, part in parts[topology.id].items()}
        placements[topology.id] = concluded(topology, assignments, message)
    freed = _freed(problem, kept)
    return Plan(placements, freed=freed, migrations=_moves(freed, placements), details=details)


def _kept(workers: Workers, parts: Mapping[Executor, Part]) -> dict[Part, Slot]:
    """Return part -> running worker that stays for it.

    Of the workers that lose no executor the largest stays, then the one in the first slot.
    """
    kept: dict[Part, Slot] = {}
    for slot, executors in sorted(workers.items(), key=lambda item: (-len(item[1]), item[0])):
        homes = {parts.get(executor) for executor in executors}
        home = next(iter(homes)) if len(homes) == 1 else None
        if home is not None and home[0] == slot.node and home not in kept:
            kept[home] = slot
    return kept


def _freed(problem: Problem, kept: Mapping[str, Mapping[Part, Slot]]) -> list[ExistingWorker]:
    return [
        worker
        for worker in problem.existing
        if worker.topology in kept
        and problem.cluster.by_id[worker.node].available
        and Slot(worker.node, worker.slot) not in kept[worker.topology].values()
    ]


def _moves(freed: Sequence[ExistingWorker], placements: Mapping[str, Placement]) -> list[Move]:
    moves: list[Move] = []
    for worker in freed:
        source = Slot(worker.node, worker.slot)
        for name in worker.executors:
            executor = Executor.named(name)
            target = placements[worker.topology].assignments.get(executor)
            if target is not None and target != source:
                moves.append(Move(worker.topology, executor, source, target))
    return moves


def parts_of(
    problem: Problem, topologies: Sequence[Topology], node_of: Sequence[int], part_of: Sequence[int] | None = None
) -> dict[str, dict[Executor, Part]]:
    """Return topology -> executor -> part, from nodes (and parts on them) by executor number; -1 means no node."""
    nodes = problem.cluster.nodes
    found: dict[str, dict[Executor, Part]] = {}
    number = 0
    for topology in topologies:
        mine = found[topology.id] = {}
        for executor in topology.executors:
            if node_of[number] >= 0:
                mine[executor] = (nodes[node_of[number]].id, part_of[number] if part_of is not None else 0)
            number += 1
    return found
