"""Running workers during a round, for schedulers that also release them."""

from collections.abc import Iterable, Mapping
from typing import Any

from inventory.cluster import ExistingWorker
from scheduler.problem import Move, Placement, Plan, Problem, Slot
from scheduler.toolkit.slots import FreeSlots, Workers, running
from workloads.topology import Executor


class RunningWorkers:
    """Running workers and free slots, updated as the scheduler releases and starts workers.

    Attributes:
        workers: topology id -> its workers, topologies outside the round included.
        owner: slot in use -> topology.
        free: the free slots.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.workers = running(problem)
        self.owner = {slot: topology for topology, workers in self.workers.items() for slot in workers}
        self.free = FreeSlots(problem)

    def release(self, slots: Iterable[Slot]) -> None:
        """Stop the workers in `slots`."""
        for slot in slots:
            del self.workers[self.owner.pop(slot)][slot]
            self.free.release(slot)

    def start(self, topology: str, slot: Slot, executors: Iterable[Executor]) -> None:
        """Start a worker of `topology` in a free slot."""
        self.free.take(slot)
        self.note(topology, slot, executors)

    def note(self, topology: str, slot: Slot, executors: Iterable[Executor]) -> None:
        """Record a new worker whose slot is already taken."""
        self.owner[slot] = topology
        self.workers[topology][slot] = tuple(executors)

    def plan(self, placements: Mapping[str, Placement], details: Mapping[str, Any] | None = None) -> Plan:
        """Return the plan with released workers and moves. The default `details` list the workers started."""
        freed = released(self._problem, self.workers)
        details = started(self._problem, placements, freed) if details is None else details
        return Plan(placements, freed=freed, migrations=moves(freed, placements), details=details)


def released(problem: Problem, workers: Mapping[str, Workers]) -> list[ExistingWorker]:
    """Return the workers on available nodes that no longer run unchanged.

    A worker stopped and restarted in its slot with the same executors does not count as released.
    """
    return [
        worker
        for worker in problem.existing
        if problem.cluster.by_id[worker.node].available
        and _as_set(workers.get(worker.topology, {}).get(Slot(worker.node, worker.slot)))
        != frozenset(map(Executor.named, worker.executors))
    ]


def _as_set(executors: Iterable[Executor] | None) -> frozenset[Executor] | None:
    return None if executors is None else frozenset(executors)


def moves(freed: Iterable[ExistingWorker], placements: Mapping[str, Placement]) -> list[Move]:
    """Return the executors of released workers that received another slot."""
    found: list[Move] = []
    for worker in freed:
        placement = placements.get(worker.topology)
        source = Slot(worker.node, worker.slot)
        for executor in map(Executor.named, worker.executors):
            target = placement.assignments.get(executor) if placement is not None else None
            if target is not None and target != source:
                found.append(Move(worker.topology, executor, source, target))
    return found


def started(
    problem: Problem, placements: Mapping[str, Placement], freed: Iterable[ExistingWorker]
) -> dict[str, list[dict[str, Any]]]:
    """Return the new workers, topology by topology, in the order in which slots were taken.

    Args:
        problem: the round.
        placements: with executors in the order in which they were placed.
        freed: running workers that were released.
    """
    stopped = {(worker.node, worker.slot) for worker in freed}
    running = {
        (worker.node, worker.slot) for worker in problem.existing if problem.cluster.by_id[worker.node].available
    }
    node_of = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    found: list[dict[str, Any]] = []
    for number, topology in enumerate(problem.topologies):
        workers: dict[Slot, list[int]] = {}
        for executor, slot in placements[topology.id].assignments.items():
            if slot not in running or slot in stopped:
                workers.setdefault(slot, []).append(topology.number_of[executor])
        found += [
            {"topology": number, "node": node_of[slot.node], "slot": slot.index, "executors": executors}
            for slot, executors in workers.items()
        ]
    return {"started": found}
