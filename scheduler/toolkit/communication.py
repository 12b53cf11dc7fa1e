"""Communication between executors: classes with the same partners, and affinity to a growing group.

A shuffle between two components of 10,000 executors makes 10^8 communicating pairs, which are not listed: all executors
of a component have the same partners, except that a global grouping only reaches index 0. So a component is one class,
or two where a global grouping ends in it, and two classes are linked completely or not at all.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from workloads.topology import Topology


@dataclass(frozen=True)
class Classes:
    """Classes of a topology and the links between them.

    Attributes:
        members: class -> its executors' numbers, ascending.
        of: executor number -> its class.
        linked: class -> classes it communicates with in either direction, ascending; itself included if its executors
            communicate with each other.
    """

    members: tuple[range, ...]
    of: tuple[int, ...]
    linked: tuple[tuple[int, ...], ...]


def classes_of(topology: Topology) -> Classes:
    """Group the executors of `topology` into classes."""
    reached_globally = {to.id for _, to, entry in topology.links() if entry.grouping == "global"}
    members: list[range] = []
    of: list[int] = []
    mine: dict[str, list[int]] = {}
    first = 0
    for component in topology.components:
        cuts = [1] if component.id in reached_globally and component.parallelism > 1 else []
        for start, end in zip([0, *cuts], [*cuts, component.parallelism], strict=True):
            mine.setdefault(component.id, []).append(len(members))
            of.extend([len(members)] * (end - start))
            members.append(range(first + start, first + end))
        first += component.parallelism
    linked: list[set[int]] = [set() for _ in members]
    for source, destination, entry in topology.links():
        targets = mine[destination.id][:1] if entry.grouping == "global" else mine[destination.id]
        for one in mine[source.id]:
            for other in targets:
                linked[one].add(other)
                linked[other].add(one)
    return Classes(tuple(members), tuple(of), tuple(tuple(sorted(others)) for others in linked))


class GroupAffinity(Protocol):
    """Affinity of waiting executors, by number, to a group; the waiting ones are given at the start.

    `ClassAffinity` counts communicating pairs (rate 1 each) without listing them, `RateAffinity` adds observed rates.
    Both take time linear in the number of communicating partners; ties go to the lowest number.
    """

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
        self._rate: dict[int, int] = {}
        self._heap: list[tuple[int, int, int]] = []

    def remove(self, executor: int) -> None:
        kind = self._class_of[executor]
        if self._members[kind].pop() != executor:
            raise ValueError(f"executor {executor} is not the lowest of its class")
        self._offer(kind)

    def attract(self, executor: int) -> None:
        for kind in self._linked[self._class_of[executor]]:
            self._rate[kind] = self._rate.get(kind, 0) + 1
            self._offer(kind)

    def strongest(self) -> int | None:
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
        self._rate: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def remove(self, executor: int) -> None:
        self._waiting.remove(executor)

    def attract(self, executor: int) -> None:
        for other, rate in self._rates[executor].items():
            if other in self._waiting and rate > 0:
                self._rate[other] = self._rate.get(other, 0.0) + rate
                heappush(self._heap, (-self._rate[other], other))

    def strongest(self) -> int | None:
        while self._heap:
            rate, executor = self._heap[0]
            if executor in self._waiting and self._rate[executor] == -rate:
                return executor
            heappop(self._heap)
        return None
