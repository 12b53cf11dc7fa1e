"""Choice of the waiting executor that communicates most with a growing group; ties go to the lowest number.

Two implementations: `ClassAffinity` counts communicating pairs (rate 1 each) without listing them, `RateAffinity` adds
observed rates. Both take time linear in the number of communicating partners.
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Protocol

from scheduler.toolkit.equivalence_classes import Classes


class Affinity(Protocol):
    """Affinity of waiting executors, by number, to a group; the waiting ones are given at the start."""

    def start(self) -> None:
        """Begin a new, empty group."""
        ...

    def remove(self, executor: int) -> None:
        """Remove `executor` from the waiting ones."""
        ...

    def attract(self, executor: int) -> None:
        """Add `executor` to the group, and count its communication from now on."""
        ...

    def strongest(self) -> int | None:
        """Return the waiting executor with the largest rate to the group, or None when none has any."""
        ...


class ClassAffinity:
    """Rate 1 between executors of linked classes.

    Executors of one class must be removed in ascending order, as callers that take the lowest do.
    """

    def __init__(self, classes: Classes, waiting: Iterable[int]) -> None:
        self._class_of = classes.of
        self._linked = classes.linked
        self._members: list[list[int]] = [[] for _ in classes.members]
        for executor in sorted(waiting, reverse=True):
            self._members[classes.of[executor]].append(executor)
        self.start()

    def start(self) -> None:
        """See `Affinity.start`."""
        self._rate: dict[int, int] = {}
        self._heap: list[tuple[int, int, int]] = []

    def remove(self, executor: int) -> None:
        """See `Affinity.remove`."""
        kind = self._class_of[executor]
        if self._members[kind].pop() != executor:
            raise ValueError(f"executor {executor} is not the lowest of its class")
        self._offer(kind)

    def attract(self, executor: int) -> None:
        """See `Affinity.attract`."""
        for kind in self._linked[self._class_of[executor]]:
            self._rate[kind] = self._rate.get(kind, 0) + 1
            self._offer(kind)

    def strongest(self) -> int | None:
        """See `Affinity.strongest`."""
        while self._heap:
            rate, lowest, kind = self._heap[0]
            members = self._members[kind]
            if members and members[-1] == lowest and self._rate[kind] == -rate:
                return lowest
            heappop(self._heap)
        return None

    def _offer(self, kind: int) -> None:
        if kind in self._rate and self._members[kind]:
            heappush(self._heap, (-self._rate[kind], self._members[kind][-1], kind))


class RateAffinity:
    """Observed rates between executors."""

    def __init__(self, rates: Sequence[Mapping[int, float]], waiting: Iterable[int]) -> None:
        """`rates[i][j]` is the rate between executors i and j, both directions added."""
        self._rates = rates
        self._waiting = set(waiting)
        self.start()

    def start(self) -> None:
        """See `Affinity.start`."""
        self._rate: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def remove(self, executor: int) -> None:
        """See `Affinity.remove`."""
        self._waiting.remove(executor)

    def attract(self, executor: int) -> None:
        """See `Affinity.attract`."""
        for other, rate in self._rates[executor].items():
            if other in self._waiting and rate > 0:
                self._rate[other] = self._rate.get(other, 0.0) + rate
                heappush(self._heap, (-self._rate[other], other))

    def strongest(self) -> int | None:
        """See `Affinity.strongest`."""
        while self._heap:
            rate, executor = self._heap[0]
            if executor in self._waiting and self._rate[executor] == -rate:
                return executor
            heappop(self._heap)
        return None
