"""`aniello-offline`: assign executors to workers that hold their upstream components, before anything is measured.

Aniello, Baldoni, Querzoni: "Adaptive Online Scheduling in Storm", DEBS 2013, after the authors' published code,
`src/storm/scheduler/OfflineScheduler.java` of leonardoaniello/storm-adaptive-schedulers, whose parameter names are used
here. The waiting executors of a partly running topology are treated as a topology of their own with the remaining
requested workers (ours).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from math import floor
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.algorithms.aniello.packing import interpolate, most_executors
from scheduler.algorithms.aniello.planning import deal_leftovers
from scheduler.problem import Needs, Placement, Plan, Problem, Slot
from scheduler.toolkit.exact import decimal
from scheduler.toolkit.slots import FreeSlots, RunningWorkers, waiting
from workloads.topology import ACKER, Executor, Topology

Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class AnielloOfflineParams:
    """Parameters of `aniello-offline`.

    Attributes:
        alfa: executors per worker at most, from an even split (0) to one executor in each other worker (1).
        beta: nodes used, from the fewest with enough slots (0) to one per worker (1).
        epsilon: share of the components after which empty workers are preferred.
        as_published: reproduce the defects of the published code.
    """

    alfa: Share = 0.0
    beta: Share = 1.0
    epsilon: Share = 0.5
    as_published: bool = False


class AnielloOffline:
    """Assign the executors of a component to the workers that hold its inputs."""

    name: ClassVar[str] = "aniello-offline"
    paper: ClassVar[str] = "Aniello, Baldoni, Querzoni: Adaptive Online Scheduling in Storm, DEBS 2013 (offline)"
    needs: ClassVar[Needs] = Needs(cycles=True, ignores="load, traffic, CPU, memory, hardware, groupings")
    Params: ClassVar[type] = AnielloOfflineParams

    def __init__(self, params: AnielloOfflineParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place all topologies by their streams, in the order given; then place the rest evenly."""
        state = RunningWorkers(problem)
        planned = {topology.id: self._plan(topology, state) for topology in problem.topologies}
        placements: dict[str, Placement] = {}
        for topology in problem.topologies:
            slots, account = planned[topology.id]
            joined = () if self._params.as_published else slots
            placements[topology.id] = deal_leftovers(topology, state, joined, account.get("most_executors", 0))
        return state.plan(placements, {"topologies": {name: account for name, (_, account) in planned.items()}})

    def _plan(self, topology: Topology, state: RunningWorkers) -> tuple[list[Slot], dict[str, Any]]:
        """Start the workers of one topology. Return their slots and the details.

        Without slots in the result no plan can be made, and all executors are left over.
        """
        todo = waiting(topology, state.workers[topology.id])
        workers = topology.workers - len(state.workers[topology.id])
        if not self._params.as_published:
            workers = min(workers, len(todo))
        if not todo or workers <= 0:
            return [], {"fallback": "", "workers": []}
        if state.free.total < workers:
            return [], {"fallback": f"{workers} workers, {state.free.total} free slots", "workers": []}
        most = most_executors(len(todo), workers, self._params.alfa)
        order = upstream_first(topology)
        groups = group_by_streams(topology, order, todo, workers, most, self._params.epsilon)
        if groups is None:
            return [], {"fallback": f"a worker takes at most {most} executors: no room", "workers": []}
        slots = slots_round_robin(workers, state.free, self._params.beta)
        for slot, group in zip(slots, groups, strict=True):
            if group:
                state.start(topology.id, slot, group)
        account = {
            "fallback": "",
            "most_executors": most,
            "workers": [[topology.number_of[executor] for executor in group] for group in groups],
        }
        return [slot for slot, group in zip(slots, groups, strict=True) if group], account


def upstream_first(topology: Topology) -> list[str]:
    """Return component ids in topological order, smallest ready id first; ackers are left out.

    When a cycle leaves none ready, the smallest id with a listed input is next, else the smallest id of all (the
    published code asks the user for the order).
    """
    listed = [component for component in topology.components if component.id != ACKER]
    sources = {c.id: {entry.source for entry in c.inputs} - {c.id, ACKER} for c in listed}
    missing = {own: len(inputs) for own, inputs in sources.items()}
    fed: dict[str, list[str]] = {own: [] for own in sources}
    for own, inputs in sources.items():
        for source in inputs:
            fed[source].append(own)
    ready = sorted(own for own, count in missing.items() if not count)
    order: list[str] = []
    left = dict.fromkeys(sorted(sources))
    while left:
        if ready:
            own = heappop(ready)
        else:
            reached = [name for name in left if missing[name] < len(sources[name])]
            own = (reached or list(left))[0]
        if own not in left:
            continue
        del left[own]
        order.append(own)
        for other in fed[own]:
            missing[other] -= 1
            if not missing[other]:
                heappush(ready, other)
    return order


def group_by_streams(
    topology: Topology, order: Sequence[str], todo: Sequence[Executor], workers: int, most: int, epsilon: float
) -> list[list[Executor]] | None:
    """Return the executors of `todo` in `workers` groups of at most `most`, or None without enough room.

    Args:
        topology: the topology.
        order: its components, upstream first; components not listed are not grouped.
        todo: executors to group.
        workers: number of groups; some may stay empty.
        most: maximum number of executors in a group.
        epsilon: share of `order` after which empty groups are preferred.
    """
    mine: dict[str, list[Executor]] = {}
    for executor in sorted(todo):
        mine.setdefault(executor.component, []).append(executor)
    threshold = floor(decimal(epsilon) * len(order))
    bins = _Groups(workers, most)
    for number, component in enumerate(order):
        executors = mine.get(component, [])
        inputs = {entry.source for entry in topology.component[component].inputs}
        first, second = bins.candidates(inputs, len(executors), number >= threshold)
        turns = _Turns(bins.groups, most, first), _Turns(bins.groups, most, second)
        for executor in executors:
            at = turns[0].next() if turns[0].open else turns[1].next() if turns[1].open else None
            if at is None:
                return None
            bins.add(executor, at)
    return bins.groups


class _Groups:
    """Groups of at most `most` executors; only those that a component needs are examined for it.

    Attributes:
        groups: the executors of each group.
    """

    def __init__(self, workers: int, most: int) -> None:
        self.groups: list[list[Executor]] = [[] for _ in range(workers)]
        self._most = most
        self._of: dict[str, set[int]] = {}
        # Group -> itself if it has room, else a later group; `workers` is the end. As published, `most` may be below 1.
        self._next = list(range(workers + 1)) if most > 0 else [workers] * (workers + 1)
        self._empty = list(range(workers)) if most > 0 else []

    def add(self, executor: Executor, at: int) -> None:
        """Add `executor` to group `at`, which has room."""
        self.groups[at].append(executor)
        self._of.setdefault(executor.component, set()).add(at)
        if len(self.groups[at]) >= self._most:
            self._next[at] = at + 1

    def candidates(self, inputs: set[str], executors: int, empty_first: bool) -> tuple[list[int], list[int]]:
        """Return the groups for `executors` executors of a component: those that are filled first, and the others.

        Round robin reaches only as many groups as there are executors, so no more are returned.

        Args:
            inputs: components that it reads from; their groups are filled first.
            executors: number of executors.
            empty_first: the last empty groups come before all others.
        """
        near = {at for source in inputs for at in self._of.get(source, ()) if len(self.groups[at]) < self._most}
        primary = sorted(near)
        if empty_first:
            primary = [*self._last_empty(executors), *primary]
        primary = primary[:executors]
        if sum(self._most - len(self.groups[at]) for at in primary) >= executors:
            return primary, []
        others = (at for at in self._with_room() if at not in near and not (empty_first and not self.groups[at]))
        return primary, list(islice(others, executors))

    def _last_empty(self, count: int) -> list[int]:
        """Return at most `count` empty groups, the last one first."""
        empty: list[int] = []
        while self._empty and len(empty) < count:
            at = self._empty.pop()
            if not self.groups[at]:
                empty.append(at)
        self._empty.extend(reversed(empty))
        return empty

    def _with_room(self) -> Iterator[int]:
        """Yield the groups with room, ascending."""
        at = self._room_from(0)
        while at < len(self.groups):
            yield at
            at = self._room_from(at + 1)

    def _room_from(self, at: int) -> int:
        """Return the first group with room from `at` on."""
        passed: list[int] = []
        while self._next[at] != at:
            passed.append(at)
            at = self._next[at]
        for each in passed:
            self._next[each] = at
        return at


class _Turns:
    """Round robin over groups, skipping full ones."""

    def __init__(self, groups: Sequence[Sequence[Executor]], most: int, members: Sequence[int]) -> None:
        self._groups = groups
        self._most = most
        self._members = list(members)
        self._cursor = 0

    @property
    def open(self) -> bool:
        """Return whether a group has room."""
        return bool(self._members)

    def next(self) -> int:
        """Return the next group, which gets one more executor."""
        at = self._members[self._cursor]
        if len(self._groups[at]) + 1 >= self._most:
            del self._members[self._cursor]
        else:
            self._cursor += 1
        if self._cursor >= len(self._members):
            self._cursor = 0
        return at


def slots_round_robin(workers: int, free: FreeSlots, beta: float) -> list[Slot]:
    """Return a free slot per worker, round robin over the nodes with most free slots. No slot is taken.

    Args:
        workers: number of workers, at most the number of free slots.
        free: the free slots.
        beta: from the fewest nodes with enough slots (0) to one node per worker (1).
    """
    nodes = sorted(free.nodes(), key=lambda node: -free.count(node))
    fewest = slots = 0
    while slots < workers:
        slots += free.count(nodes[fewest])
        fewest += 1
    columns = [free.of(node) for node in nodes[: interpolate(fewest, min(len(nodes), workers), beta)]]
    dealt: list[Slot] = []
    while len(dealt) < workers:
        for column in columns:
            slot = next(column, None)
            if slot is not None and len(dealt) < workers:
                dealt.append(slot)
    return dealt
