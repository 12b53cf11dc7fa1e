"""What a worker can compute: executors of a node are divided over its workers, each up to one limit.

The work of executors is in CPU points, whatever the capacities of nodes count. An executor whose work is not known has
none here. A division of a node exists or not, so the limit is no sum over executors: it is bin packing, answered by
best fit and, where that needs too many workers, by branch and bound.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

MOST_STEPS, MOST_SEARCHED = 20_000, 200
"""Steps of branch and bound, after which a division counts as impossible, and executors up to which it is tried."""


@dataclass(frozen=True)
class WorkerLimit:
    """Limit of a worker's work.

    Attributes:
        most: largest work of one worker, in an integer unit.
        works: class -> work of the executors that a member stands for, largest first; those without work are left out.
        unit: CPU points per unit.
    """

    most: int
    works: tuple[tuple[int, ...], ...]
    unit: float

    def suffices(self, workers: int, works: Sequence[tuple[int, int]], topologies: Collection[int]) -> bool:
        """Return whether so many workers can do `works`, (topology, work) in descending order, of `topologies`."""
        mine: dict[int, list[int]] = {topology: [] for topology in topologies}
        for topology, work in works:
            mine[topology].append(work)
        if len(mine) == 1:
            ((_, alone),) = mine.items()
            # In any order: what does not fit finds every worker fuller than it leaves room for.
            if not alone or sum(alone) <= workers * (self.most - alone[0]):
                return True
            return enough_workers(tuple(alone), self.most, workers)
        return sum(workers_needed(tuple(each), self.most) for each in mine.values()) <= workers

    def restricted(self, kinds: Sequence[int]) -> "WorkerLimit":
        """Return the limit for an instance of these classes, in that order."""
        return WorkerLimit(self.most, tuple(self.works[kind] for kind in kinds), self.unit)

    def in_points(self, work: int) -> str:
        """Return work as text, in CPU points."""
        return f"{work * self.unit:g}"


@lru_cache(maxsize=1 << 16)
def enough_workers(works: tuple[int, ...], most: int, workers: int) -> bool:
    """Return whether so many workers can do `works` (largest first), with at most `most` for each."""
    return divided_works(works, most, workers) is not None


def workers_needed(works: tuple[int, ...], most: int) -> int:
    """Return the number of workers with at most `most` work that do `works`; 1 for none, more than any if it cannot be.

    Args:
        works: work of executors, largest first.
        most: largest work of a worker.
    """
    if works and works[0] > most:
        return len(works) + 1
    workers = max(1, -(-sum(works) // most) if most else 1)
    while not enough_workers(works, most, workers):
        workers += 1
    return workers


def divided_works(works: Sequence[int], most: int, workers: int) -> list[int] | None:
    """Return the worker of each of `works` (largest first), with at most `most` for each worker; None: not found."""
    if sum(works) > workers * most or (works and works[0] > most):
        return None
    fitted = _best_fit(works, most, workers)
    if fitted is not None or len(works) > MOST_SEARCHED:
        return fitted
    return _Division(works, most, workers).find()


def _best_fit(works: Sequence[int], most: int, workers: int) -> list[int] | None:
    """Return the division in which each goes to the fullest worker that takes it."""
    free = [(most, 0)] if workers else []
    opened = min(1, workers)
    worker_of: list[int] = []
    for work in works:
        at = bisect_left(free, (work, -1))
        if at == len(free):
            if opened == workers:
                return None
            left, worker = most, opened
            opened += 1
        else:
            left, worker = free.pop(at)
        insort(free, (left - work, worker))
        worker_of.append(worker)
    return worker_of


class _Division:
    """Depth-first search for a division, largest work first; equal workers and equal work are tried once.

    Workers may leave no more room unused than all of them have beyond the work: what is smaller than the smallest work.
    """

    def __init__(self, works: Sequence[int], most: int, workers: int) -> None:
        self._works = works
        self._free = [most] * workers
        self._worker_of = [-1] * len(works)
        self._steps = MOST_STEPS
        self._spare = most * workers - sum(works)

    def find(self) -> list[int] | None:
        return self._worker_of if self._place(0) else None

    def _place(self, at: int) -> bool:
        if at == len(self._works):
            return True
        self._steps -= 1
        if self._steps < 0:
            return False
        work = self._works[at]
        first = self._worker_of[at - 1] if at and self._works[at - 1] == work else 0
        tried: set[int] = set()
        for worker in range(first, len(self._free)):
            free = self._free[worker]
            if free < work or free in tried:
                continue
            tried.add(free)
            wasted = free - work if free - work < self._works[-1] else 0
            if wasted > self._spare:
                continue
            self._spare -= wasted
            self._free[worker] -= work
            self._worker_of[at] = worker
            if self._place(at + 1):
                return True
            self._free[worker] += work
            self._spare += wasted
        return False
