"""Strategies default, generic and constraint of Storm 2.3 and later: first fit with backtracking.

After Apache Storm, `storm-server/.../scheduling/{BaseResourceAwareStrategy,ConstraintSolverStrategy}.java`. Executors
take the first place in the order of nodes that fits. When nothing fits, the last executor is moved to its next place,
and so on, until all are placed, the first executor has no place left, or the limit of places tried is reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal, NamedTuple

from scheduler.ras.attempt import Ackers, Attempt
from scheduler.ras.node_order import NodeOrder
from workloads.topology import Executor

SortAgain = Literal["same", "other", "never"]


@dataclass(frozen=True)
class Limits:
    """Limits of a search.

    Attributes:
        states: maximum number of places tried in the whole search.
        seconds: wall-clock limit, as a safeguard.
        sort_again: before which executors nodes are sorted again: of the same component as the last one, as in Storm;
            of another component, as intended there; or of none, except after a step back.
    """

    states: int
    seconds: float
    sort_again: SortAgain = "same"


class _Step(NamedTuple):
    """A placed executor, its bound ackers, and its remaining options."""

    position: int
    node: int
    place: int
    ackers: int
    options: Sequence[int] | None = None
    at: int = 0


class Search:
    """One search; `run` may be called once.

    Attributes:
        states: places tried.
        backtracks: how often nothing fitted.
        limit_hit: whether the time limit ended the search.
    """

    def __init__(self, attempt: Attempt, nodes: NodeOrder, order: Sequence[Executor], limits: Limits) -> None:
        self._attempt = attempt
        self._nodes = nodes
        self._order = order
        self._kinds = [attempt.kinds[executor.component] for executor in order]
        self._limits = limits
        self._ackers = Ackers(attempt, order)
        self._steps: list[_Step] = []
        self._best = -1  # first node in the order, because the last executor, of the same kind, went there
        self._deadline = monotonic() + limits.seconds
        self.states = 0
        self.backtracks = 0
        self.limit_hit = False

    def run(self) -> bool:
        """Place the executors. Return whether all found a place."""
        position: int | None = 0
        while position is not None and position < len(self._order):
            if self._ackers.is_bound(position):
                self._best = -1
                position += 1
            elif self._spent():
                return False
            elif self._advance(position):
                position += 1
            else:
                position = self._back()
        return position is not None

    def _spent(self) -> bool:
        self.limit_hit = monotonic() > self._deadline
        return self.limit_hit or self.states > self._limits.states

    def _advance(self, position: int) -> bool:
        """Place the executor at `position` in the first place that fits. Return whether one does."""
        same = position > 0 and self._order[position].component == self._order[position - 1].component
        fresh = position == 0 or self._limits.sort_again == ("same" if same else "other")
        if fresh:
            self._nodes.sort()
        fitting = self._first_fit(position, self._best if fresh and same else -1)
        if fitting is None:
            return False
        self._put(position, *fitting)
        self._best = fitting[0] if fresh else -1
        return True

    def _first_fit(self, position: int, best: int) -> tuple[int, int] | None:
        """Return the first node and place with room for the executor.

        `best`, unless -1, is known to be the first node.
        """
        kind = self._kinds[position]
        if best >= 0 and (place := self._attempt.first_fit(best, kind)) is not None:
            return best, place
        return self._nodes.first_fit(kind)

    def _put(self, position: int, node: int, place: int, options: Sequence[int] | None = None, at: int = 0) -> None:
        executor, kind = self._order[position], self._kinds[position]
        opened = self._attempt.put(node, place, kind, executor)
        ackers = self._ackers.bind(node, place, kind, executor.component) if opened else 0
        self._nodes.changed(node)
        self._steps.append(_Step(position, node, place, ackers, options, at))
        self.states += 1

    def _back(self) -> int | None:
        """Move the last executor that has another place left. Return the position after it, or None."""
        self.backtracks += 1
        self._best = -1
        while self._steps:
            step = self._steps.pop()
            kind = self._kinds[step.position]
            self._ackers.take_back(step.node, step.place, step.ackers)
            self._attempt.take_back(step.node, step.place, kind)
            self._nodes.changed(step.node, taken_back=True)
            self._nodes.sort()
            if self._spent():
                return None
            options, at = step.options, step.at
            if options is None:
                maybe = self._attempt.may_take(kind, range(len(self._attempt.cpu)))
                open_nodes = [node for node in maybe if self._attempt.first_fit(node, kind) is not None]
                options = self._nodes.ranked(open_nodes)
                at = options.index(step.node)
            start = step.place + 1
            for here in range(at, len(options)):
                place = self._attempt.first_fit(options[here], kind, start)
                if place is not None:
                    self._put(step.position, options[here], place, options, here)
                    return step.position + 1
                start = 0
        return None
