"""Waves: the order of a revision's moves, with a barrier for each wave.

Between two waves no node is loaded above the highest of: its load before the revision, its load after it, its own
`max_load`, else `MAX_LOAD` (docs/dataplane/migration.md).
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from agents.protocol import MoveToPlace, Slot

MAX_LOAD = 0.85
"""Highest load between waves of a node without a `max_load` of its own, as a share of its `cpu`."""

ROUNDING = 1e-9
"""Share of a node by which rounding may lift a load above its bound."""


@dataclass(frozen=True)
class WaveLoads:
    """Loads that decide the order.

    Attributes:
        executors: executor -> its load, in CPU points; executors that are missing count as 0.
        nodes: node -> its load, as a share of `points`; nodes that are missing count as 0.
        points: node -> its `cpu`, in CPU points.
        highest: node -> its `max_load`, for nodes that have one.
    """

    executors: Mapping[str, float]
    nodes: Mapping[str, float]
    points: Mapping[str, float]
    highest: Mapping[str, float]


@dataclass(frozen=True)
class _Group:
    """Moves that are in the same wave: one, or two between the same nodes in opposite directions.

    Attributes:
        moves: these moves.
        added: node -> load that they add to it, as a share of its points; negative: they take it away.
        targets: nodes whose resulting load counts, one or two.
    """

    moves: tuple[MoveToPlace, ...]
    added: Mapping[str, float]
    targets: tuple[str, ...]


def waves_of(
    moves: Sequence[MoveToPlace], places: Mapping[str, Slot], loads: WaveLoads, most: int
) -> list[tuple[MoveToPlace, ...]]:
    """Return the moves in waves of at most `most` executors; 0: one wave with all.

    What leads to the lowest load of a target is next; of equal ones, the first in `moves`. An executor that leaves one
    node for another and one that goes the opposite way are in the same wave, even if that makes it larger than `most`.
    When no further wave keeps the loads, all remaining moves are the last wave.

    Args:
        moves: at least one; every executor once.
        places: executor -> its slot now.
        loads: loads before the revision.
        most: most executors per wave.
    """
    if most == 0 or len(moves) <= most:
        return [tuple(moves)]
    groups = _inseparable(moves, places, loads)
    state = _Loads(groups, loads)
    # A pair may be too large for the rest of a wave when a single move is not.
    queues = [_Queue(groups, state, size) for size in (1, 2)]
    left = dict(enumerate(groups))
    waves = []
    while left:
        wave = _next_wave(groups, state, queues, most) or list(left)
        waves.append(tuple(move for number in wave for move in groups[number].moves))
        for number in wave:
            del left[number]
    return waves


def _inseparable(moves: Sequence[MoveToPlace], places: Mapping[str, Slot], loads: WaveLoads) -> list[_Group]:
    """Return pairs of opposite moves, and all other moves alone, in the order of `moves`."""
    together: list[tuple[MoveToPlace, ...]] = []
    waiting: dict[tuple[str, str], deque[int]] = {}
    for move in moves:
        source, target = places[move.executor].node, move.to.node
        opposite = waiting.get((target, source))
        if opposite and source != target:
            first = opposite.popleft()
            together[first] = (*together[first], move)
        else:
            waiting.setdefault((source, target), deque()).append(len(together))
            together.append((move,))
    groups = []
    for group in together:
        added: dict[str, float] = {}
        for move in group:
            load = loads.executors.get(move.executor, 0.0)
            for node, sign in ((places[move.executor].node, -1.0), (move.to.node, 1.0)):
                added[node] = added.get(node, 0.0) + sign * load / loads.points[node]
        groups.append(_Group(group, added, tuple(move.to.node for move in group)))
    return groups


class _Loads:
    """Loads of nodes while moves are assigned to waves.

    Attributes:
        now: node -> its load, as a share.
        bound: node -> the highest load that it may have between waves.
    """

    def __init__(self, groups: Iterable[_Group], loads: WaveLoads) -> None:
        after = dict(loads.nodes)
        for group in groups:
            for node, load in group.added.items():
                after[node] = after.get(node, 0.0) + load
        self.now = {node: loads.nodes.get(node, 0.0) for node in after}
        self.bound = {
            node: max(self.now[node], load, loads.highest.get(node, MAX_LOAD)) + ROUNDING
            for node, load in after.items()
        }


class _Queue:
    """Groups of one size, the one with the lowest resulting load first, among those that keep all bounds.

    Each group waits at one of its targets, in the order of the load that it adds there. What this target would have is
    a lower bound of the resulting load; where the other target would have more, the group goes on to that one when its
    turn comes. When the load of a node changes, only the first group at this node is looked at again.
    """

    def __init__(self, groups: Sequence[_Group], state: _Loads, size: int) -> None:
        self._groups, self._state = groups, state
        self._waiting: dict[str, list[tuple[float, int]]] = {}
        self._blocked: dict[str, list[tuple[float, int]]] = {}
        """Target -> groups that would lift it above its bound, which is not the target with the resulting load."""
        for number, group in enumerate(groups):
            if len(group.moves) == size:
                target = group.targets[0]
                self._waiting.setdefault(target, []).append((group.added[target], number))
        self._first: list[tuple[float, int, str]] = []
        """Resulting load, group and target: first groups of targets, among outdated entries."""
        for node, heap in self._waiting.items():
            heapify(heap)
            self._enter(node)

    def first(self) -> tuple[float, int] | None:
        """Return the resulting load and the number of the first group; None: all are taken, or break a bound."""
        now, bound = self._state.now, self._state.bound
        while self._first:
            load, number, node = self._first[0]
            heap = self._waiting[node]
            if not heap or (now[node] + heap[0][0], heap[0][1]) != (load, number) or load > bound[node]:
                # Outdated; or all groups here break the bound until the load of this node changes.
                heappop(self._first)
                continue
            group = self._groups[number]
            other = next((target for target in group.targets if target != node), None)
            if other is None:
                return load, number
            other_load = now[other] + group.added[other]
            if other_load <= min(load, bound[other]):
                return load, number
            self._leave(node)
            queue = self._waiting if other_load <= bound[other] else self._blocked
            heappush(queue.setdefault(other, []), (group.added[other], number))
            self._enter(other)
        return None

    def take(self) -> None:
        """Remove the first group, which `first` has just returned."""
        self._leave(self._first[0][2])

    def load_changed(self, node: str) -> None:
        """Take a changed load of a node into account."""
        blocked = self._blocked.get(node, [])
        while blocked and self._state.now[node] + blocked[0][0] <= self._state.bound[node]:
            heappush(self._waiting.setdefault(node, []), heappop(blocked))
        self._enter(node)

    def _enter(self, node: str) -> None:
        if heap := self._waiting.get(node):
            added, number = heap[0]
            heappush(self._first, (self._state.now[node] + added, number, node))

    def _leave(self, node: str) -> None:
        heappop(self._first)
        heappop(self._waiting[node])
        self._enter(node)


def _next_wave(groups: Sequence[_Group], state: _Loads, queues: Sequence[_Queue], most: int) -> list[int]:
    """Return the numbers of the groups of the next wave, and add their loads; empty: none keeps the loads."""
    wave: list[int] = []
    size = 0
    while size < most:
        heads = []
        for queue_size, queue in enumerate(queues, start=1):
            if (not wave or size + queue_size <= most) and (head := queue.first()):
                heads.append((head, queue))
        if not heads:
            break
        (_, number), queue = min(heads, key=lambda each: each[0])
        queue.take()
        wave.append(number)
        size += len(groups[number].moves)
        for node, load in groups[number].added.items():
            state.now[node] += load
            for each in queues:
                each.load_changed(node)
    return wave
