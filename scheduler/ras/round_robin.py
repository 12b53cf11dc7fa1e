"""The strategy round-robin of Storm 2.5 and later: each executor on the next node that takes it.

After Apache Storm, `storm-server/.../scheduling/RoundRobinResourceAwareStrategy.java`. Only nodes that run nothing of
other topologies are used. There is no way back.
"""

from collections.abc import Sequence

from scheduler.ras.ackers import Ackers
from scheduler.ras.attempt import Attempt, Kind
from workloads.topology import Executor


class RoundRobin:
    """A cursor that walks over nodes, once for every executor.

    Attributes:
        states: executors placed.
    """

    def __init__(self, attempt: Attempt, nodes: Sequence[int], order: Sequence[Executor], when_different: bool) -> None:
        """Start before the first node.

        Args:
            attempt: the topology.
            nodes: those that may be used, in order.
            order: the executors.
            when_different: go back to the first node when the component changes, not when it stays.
        """
        self._attempt = attempt
        self._nodes = nodes
        self._order = order
        self._when_different = when_different
        self._ackers = Ackers(attempt, order)
        # Kind -> position in `nodes` -> a position from there on, below which nothing is open.
        self._open: dict[int, list[int]] = {}
        self.states = 0

    def run(self) -> bool:
        """Whether all executors found a place."""
        cursor = 0
        for position, executor in enumerate(self._order):
            if self._ackers.is_bound(position):
                continue
            kind = self._attempt.kinds[executor.component]
            same = position > 0 and executor.component == self._order[position - 1].component
            if cursor == len(self._nodes) or same is not self._when_different:
                cursor = 0
            at, place = self._next_open(cursor, kind)
            if place is None:
                return False
            node = self._nodes[at]
            if self._attempt.put(node, place, kind, executor):
                self._ackers.bind(node, place, kind, executor.component)
            self.states += 1
            cursor = at + 1
        return True

    def _next_open(self, start: int, kind: Kind) -> tuple[int, int | None]:
        """The first position from `start` on whose node takes `kind`, and the place there, None if none does."""
        if kind.number not in self._open:
            self._open[kind.number] = list(range(len(self._nodes) + 1))
        leads = self._open[kind.number]
        at, place = start, None
        passed: list[int] = []
        while at < len(self._nodes):
            if leads[at] != at:
                passed.append(at)
                at = leads[at]
                continue
            place = self._attempt.first_fit(self._nodes[at], kind)
            if place is not None:
                break
            leads[at] = at + 1
        for position in passed:
            leads[position] = at
        return at, place
