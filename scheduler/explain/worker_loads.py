"""Load of every worker under a plan, and how many are to do more than their thread can."""

from collections.abc import Mapping, Sequence
from math import fsum

from msgspec import UNSET, Struct, UnsetType

from scheduler.problem import Placement, Problem, Slot
from scheduler.toolkit.cost import Loads

ROUNDING = 1e-9
"""Share by which a sum of loads may exceed the limit: they are added in another order than in a search."""


class WorkerLoad(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker of the round's topologies under a plan.

    Attributes:
        topology: its topology.
        node, slot: where it is.
        executors: number of its executors.
        load: CPU points of the executors whose loads are known; None if none is.
        known: whether the loads of all executors are known.
        limit: CPU points that it can compute; None: no limit.
    """

    topology: str
    node: str
    slot: int
    executors: int
    load: float | None
    known: bool
    limit: float | None

    @property
    def overloaded(self) -> bool | None:
        """Whether it is to do more than it can; None: not known."""
        if self.limit is None:
            return False
        if self.load is not None and self.load > self.limit * (1 + ROUNDING):
            return True
        return False if self.known else None


def loads_by_worker(problem: Problem, placements: Mapping[str, Placement]) -> tuple[WorkerLoad, ...]:
    """Return the load of every worker of the round's topologies, by topology, node in cluster order, and slot."""
    loads = Loads(problem)
    order = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    workers: list[WorkerLoad] = []
    for topology in problem.topologies:
        carried: dict[Slot, list[float | None]] = {}
        for executor, slot in placements[topology.id].assignments.items():
            carried.setdefault(slot, []).append(loads.known_points(topology, executor))
        for slot in sorted(carried, key=lambda slot: (order[slot.node], slot.index)):
            points = [each for each in carried[slot] if each is not None]
            count = len(carried[slot])
            load = fsum(points) if points else None
            known = len(points) == count
            workers.append(WorkerLoad(topology.id, slot.node, slot.index, count, load, known, problem.worker_points))
    return tuple(workers)


def overloaded_count(workers: Sequence[WorkerLoad]) -> int | None:
    """Return how many workers are overloaded by the loads that are known; None if no load is known."""
    limited = [worker for worker in workers if worker.limit is not None]
    if limited and all(worker.load is None for worker in limited):
        return None
    return sum(worker.overloaded is True for worker in workers)


def undetermined_count(workers: Sequence[WorkerLoad]) -> int:
    """Return how many other workers may be overloaded, too, because not all of their loads are known."""
    return sum(worker.overloaded is None for worker in workers)


def count_text(overloaded: int | UnsetType | None, undetermined: int | UnsetType = 0) -> str:
    """Return a number of overloaded workers as text; `undetermined` ones may be overloaded, too."""
    if overloaded is None or overloaded is UNSET:
        return "not known"
    return f"at least {overloaded}" if undetermined else str(overloaded)
