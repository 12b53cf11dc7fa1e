"""Strategy round-robin of Storm 2.5 and later: each executor goes to the next node with room.

After Apache Storm, `storm-server/.../scheduling/RoundRobinResourceAwareStrategy.java`. Only nodes without workers of
other topologies are used. There is no backtracking.
"""

from collections.abc import Sequence

from scheduler.ras.ackers import Ackers
from scheduler.ras.attempt import Attempt, Kind
from workloads.topology import Executor


class RoundRobin:
    """Cursor that moves over nodes, once for every executor.

    Attributes:
        states: executors placed.
    """

    def __init__(self, attempt: Attempt, nodes: Sequence[int], order: Sequence[Executor], when_different: bool) -> None:
        """Start before the first node.

        Args:
            attempt: the topology.
            nodes: usable nodes, in order.
            order: the executors.
            when_different: return to the first node when the component changes, not when it stays the same.
        """
        self._attempt = attempt
        self._nodes = nodes
        self._order = order
        self._when_different = when_different
        self._ackers = Ackers(attempt, order)
        # Kind -> position in `nodes` -> a later position before which no node is open.
        self._open: dict[int, list[int]] = {}
        self.states = 0

    def run(self) -> bool:
        """Place the executors. Return whether all found a place."""
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
        """Return the first position from `start` on whose node has room for `kind`, and the place, or None."""
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
