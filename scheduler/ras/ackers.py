"""Ackers bound to workers when these are opened (Storm 2.3 and later)."""

from collections.abc import Sequence

from scheduler.ras.attempt import Attempt, Kind, Rules
from scheduler.ras.executor_order import is_system
from workloads.topology import ACKER, Executor


def ackers_per_worker(attempt: Attempt) -> int:
    """Return the number of the topology's ackers divided by the workers that its on-heap memory needs."""
    topology, limit = attempt.topology, attempt.rules.heap_limit
    if ACKER not in topology.component:
        return 0
    onheap = sum(attempt.kinds[c.id].demand.onheap * c.parallelism for c in topology.components if not is_system(c.id))
    workers = max(1, -(-onheap // limit)) if limit else 1
    return -(-topology.component[ACKER].parallelism // workers)


class Ackers:
    """Waiting ackers of an attempt, at the end of the order; a first part of them is bound."""

    def __init__(self, attempt: Attempt, order: Sequence[Executor]) -> None:
        self._attempt = attempt
        self._waiting = [executor for executor in order if executor.component == ACKER]
        self.first = len(order) - len(self._waiting)
        self.bound = 0
        self._each = 0 if _alone(attempt.rules) else ackers_per_worker(attempt)
        self._kind: Kind | None = attempt.kinds.get(ACKER)

    def is_bound(self, position: int) -> bool:
        """Return whether the executor at `position` of the order is an acker bound to a worker."""
        return self.first <= position < self.first + self.bound

    def bind(self, node: int, place: int, kind: Kind, component: str) -> int:
        """Put ackers into the worker that `component` just opened, as far as they fit. Return how many."""
        acker, attempt = self._kind, self._attempt
        if acker is None or component == ACKER:
            return 0
        most = min(self._each, len(self._waiting) - self.bound)
        if acker.heap:
            most = min(most, (attempt.rules.heap_limit - kind.heap) // acker.heap)
        count = 0
        while count < most and attempt.takes(node, place, acker):
            attempt.put(node, place, acker, self._waiting[self.bound])
            self.bound += 1
            count += 1
        return count

    def take_back(self, node: int, place: int, count: int) -> None:
        """Undo the last `bind`, which bound `count` ackers to that worker."""
        for _ in range(count):
            self.bound -= 1
            self._attempt.take_back(node, place, self._attempt.kinds[ACKER])


def _alone(rules: Rules) -> bool:
    return rules.one_executor or rules.one_component
