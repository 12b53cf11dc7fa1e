"""Plan of the online scheduler: observations, executors to workers, workers to nodes, and a spread over enough nodes.

Loads and rates are truncated to integers, as in the authors' database. Where no worker (node) accepts an executor
(worker), the published code abandons the round. Ours relaxes limits instead: first the limit on load, then the limit on
workers per node; never the number of slots.

Executors outside the plan are placed by Storm's EvenScheduler, as in the authors' code. It never extends running
workers, so they would never be placed once the plan uses all workers that the topology requested. Ours: they then join
the plan's workers with room, round robin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import floor

from scheduler.algorithms.aniello.packing import Bins, NoRoomError, Packing, most_executors, most_workers, nodes_wanted
from scheduler.algorithms.even import place_evenly, storm_order
from scheduler.problem import Placement, Problem, Slot, concluded
from scheduler.toolkit.cost import Loads
from scheduler.toolkit.exact import decimal
from scheduler.toolkit.slots import RunningWorkers, assigned, waiting
from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class Stats:
    """Observations of one topology. Executors are numbered by start task (component id, index).

    Attributes:
        topology: the topology.
        executors: all executors of the topology.
        load: executor -> load.
        pairs: (sender, receiver, rate) between different executors, for observed rates above 0.
    """

    topology: Topology
    executors: tuple[Executor, ...]
    load: tuple[int, ...]
    pairs: tuple[tuple[int, int, int], ...]

    @property
    def near(self) -> list[dict[int, int]]:
        """Return executor -> {executor: rate, both directions added}."""
        return undirected(len(self.executors), self.pairs)

    @property
    def busy(self) -> list[int]:
        """Return the executors with traffic, ascending. The others are never part of a plan."""
        return sorted({executor for pair in self.pairs for executor in pair[:2]})


def undirected(size: int, pairs: Sequence[tuple[int, int, int]]) -> list[dict[int, int]]:
    """Return vertex -> {vertex: rate, both directions added}."""
    near: list[dict[int, int]] = [{} for _ in range(size)]
    for one, other, rate in pairs:
        near[one][other] = near[other][one] = near[one].get(other, 0) + rate
    return near


def stats_of(problem: Problem, as_published: bool) -> list[Stats]:
    """Return the stats of the observed topologies, in the order given. The others are left out of this round.

    As published, rates are looked up by task number alone: rates of all topologies are added up, and a topology that
    lacks a named task has incomplete stats.
    """
    loads = Loads(problem)
    edges = problem.traffic.edges if problem.traffic is not None else ()
    orders = {t.id: tuple(sorted(t.executors)) for t in problem.topologies}
    rates: dict[str, dict[tuple[int, int], float]] = {}
    for topology in problem.topologies:
        number_of = {executor.name: number for number, executor in enumerate(orders[topology.id])}
        mine: dict[tuple[int, int], float] = {}
        for edge in edges:
            sender, receiver = number_of.get(edge.source), number_of.get(edge.destination)
            if sender is not None and receiver is not None and sender != receiver and edge.tuples_per_s:
                mine[sender, receiver] = mine.get((sender, receiver), 0.0) + edge.tuples_per_s
        rates[topology.id] = mine
    if as_published:
        rates = _mixed(orders, rates)
    return [
        Stats(
            topology,
            orders[topology.id],
            tuple(int(loads.of(topology, executor)) for executor in orders[topology.id]),
            tuple((*pair, int(rate)) for pair, rate in sorted(rates[topology.id].items())),
        )
        for topology in problem.topologies
        if rates[topology.id]
    ]


def _mixed(
    orders: Mapping[str, Sequence[Executor]], rates: Mapping[str, Mapping[tuple[int, int], float]]
) -> dict[str, dict[tuple[int, int], float]]:
    together: dict[tuple[int, int], float] = {}
    for mine in rates.values():
        for pair, rate in mine.items():
            together[pair] = together.get(pair, 0.0) + rate
    highest = max((task for pair in together for task in pair), default=-1)
    return {name: dict(together) if highest < len(order) else {} for name, order in orders.items()}


@dataclass(frozen=True)
class Knobs:
    """Parameters of the plan; see `AnielloOnlineParams`."""

    alfa: float
    beta: float
    gamma: float | None
    delta: float
    as_published: bool


@dataclass(frozen=True)
class PlannedWorker:
    """Worker of the plan: number of its topology among the planned ones, executors and load."""

    topology: int
    executors: tuple[int, ...]
    load: int


@dataclass(frozen=True)
class Planned:
    """The whole plan.

    Attributes:
        workers: all workers, topology by topology.
        nodes: worker -> number of its node.
        cut_rate: rate between nodes.
        carried: node -> load as computed by the planner.
    """

    workers: tuple[PlannedWorker, ...]
    nodes: tuple[int, ...]
    cut_rate: int
    carried: tuple[int, ...]


def make_plan(
    stats: Sequence[Stats], workers: Sequence[int], places: Sequence[int], capacity: Sequence[float], knobs: Knobs
) -> Planned:
    """Plan all topologies that have stats.

    Args:
        stats: the topologies.
        workers: topology -> number of workers; `places` suffices for all of them unless `as_published`.
        places: node -> free slots, those of the topologies' current workers included.
        capacity: node -> maximum load.
        knobs: parameters.

    Raises:
        NoRoomError: an executor or a worker found no room (only with `as_published`).
    """
    planned = [
        PlannedWorker(number, tuple(sorted(group)), sum(mine.load[executor] for executor in group))
        for number, (mine, count) in enumerate(zip(stats, workers, strict=True))
        for group in executors_to_workers(mine, count, knobs)
        if group
    ]
    return _NodePacking(stats, planned, places, capacity, knobs).run()


def executors_to_workers(stats: Stats, workers: int, knobs: Knobs) -> list[list[int]]:
    """Return worker -> executors of one topology (phase 1). Executors without traffic are left out."""
    size, total = len(stats.executors), sum(stats.load)
    share = Fraction(total // workers) if knobs.as_published else Fraction(total, workers)
    limit = None if knobs.gamma is None else floor(decimal(knobs.gamma) * share)
    group = [0] * size
    bins = Bins(stats.load, group, [most_executors(size, workers, knobs.alfa)], [limit] * workers)
    packing = Packing(bins, stats.load, group, stats.near, strict=knobs.as_published)
    for one, other, _ in sorted(stats.pairs, key=lambda pair: (-pair[2], pair)):
        packing.place_pair(one, other)
    for executor in stats.busy:
        at = None if bins.home[executor] is not None else bins.least(0, 1, stats.load[executor], any_load=True)
        if at is not None:
            bins.put(executor, at)
    _fill_empty(bins, packing, stats.busy)
    return [list(items) for items in bins.items]


def _fill_empty(bins: Bins, packing: Packing, executors: Sequence[int]) -> None:
    """Move one executor into each empty worker: the one with least rate to its worker, which must have others."""
    empty = [at for at, items in enumerate(bins.items) if not items]
    if not empty:
        return
    heap = [(packing.rate_at_home(executor), executor) for executor in executors if bins.home[executor] is not None]
    heapify(heap)
    for at in empty:
        executor, home = -1, None
        while heap and home is None:
            lost, executor = heappop(heap)
            home = bins.home[executor]
            if home is not None and (len(bins.items[home]) < 2 or lost != packing.rate_at_home(executor)):
                home = None  # the last one there, or outdated
        if home is None:
            return
        bins.take(executor)
        bins.put(executor, at)
        for other in packing.partners_in(executor, home):
            heappush(heap, (packing.rate_at_home(other), other))


class _NodePacking:
    """Phases 2 and 3: workers of all topologies onto nodes."""

    def __init__(
        self,
        stats: Sequence[Stats],
        workers: Sequence[PlannedWorker],
        places: Sequence[int],
        capacity: Sequence[float],
        knobs: Knobs,
    ) -> None:
        self._workers = workers
        self._knobs = knobs
        nodes = sum(count > 0 for count in places)
        counts = [sum(worker.topology == t for worker in workers) for t in range(len(stats))]
        self._wanted = [nodes_wanted(count, nodes, knobs.beta) if nodes else 0 for count in counts]
        most = [
            most_workers(count, wanted, knobs.delta) if wanted else 0
            for count, wanted in zip(counts, self._wanted, strict=True)
        ]
        self._load = [worker.load for worker in workers]
        self._group = [worker.topology for worker in workers]
        self._pairs = _worker_pairs(stats, workers)
        self._near = undirected(len(workers), self._pairs)
        self._bins = Bins(
            self._load, self._group, most, [floor(limit) for limit in capacity], places, weightless=knobs.as_published
        )
        self._packing = Packing(self._bins, self._load, self._group, self._near, strict=knobs.as_published)

    def run(self) -> Planned:
        """Place all workers.

        Raises:
            NoRoomError: see `make_plan`.
        """
        pairs = sorted(self._pairs, key=lambda pair: (self._group[pair[0]], -pair[2], pair))
        last = pairs[-1:] if self._knobs.as_published else []  # the published sort never compares it
        for one, other, _ in sorted(pairs[: len(pairs) - len(last)], key=lambda pair: (-pair[2], pair)) + last:
            self._packing.place_pair(one, other)
        for worker in range(len(self._workers)):
            if self._bins.home[worker] is None:
                self._place_worker(worker)
        for topology, wanted in enumerate(self._wanted):
            self._spread(topology, wanted)
        nodes = [home for home in self._bins.home if home is not None]
        cut_rate = self._packing.cut_rate()
        if not cut_rate and self._knobs.as_published:
            cut_rate = -1
        return Planned(tuple(self._workers), tuple(nodes), cut_rate, tuple(self._bins.load))

    def _place_worker(self, worker: int) -> None:
        """Place a worker that belongs to no pair, or that no node accepted."""
        bins, group, load = self._bins, self._group[worker], self._load[worker]
        at = bins.least(group, 1, load)
        if at is None and not self._knobs.as_published:
            at = bins.least(group, 1, load, any_load=True)
            at = bins.roomy() if at is None else at
        if at is None:
            raise NoRoomError
        bins.put(worker, at)

    def _spread(self, topology: int, wanted: int) -> None:
        """Use one more node at a time (phase 3), by the move that adds the least traffic between nodes."""
        bins, packing = self._bins, self._packing
        used = self._used(topology)
        if self._knobs.as_published:
            self._spread_as_published(topology, wanted)
            return
        # Nodes without the topology have none of its workers' partners.
        targets = sorted((load, at) for at, load in enumerate(bins.load) if at not in used)
        heap = [
            (packing.rate_at_home(worker), home, worker)
            for worker, home in enumerate(bins.home)
            if home is not None and self._group[worker] == topology
        ]
        heapify(heap)
        while heap and len(used) < wanted:
            added, node, worker = heappop(heap)
            if bins.home[worker] != node or used[node] < 2 or packing.rate_at_home(worker) != added:
                continue
            load = self._load[worker]
            target = next((entry for entry in targets if bins.accepts(entry[1], topology, 1, load)), None)
            if target is None:
                continue
            targets.remove(target)
            bins.take(worker)
            bins.put(worker, target[1])
            used[node] -= 1
            used[target[1]] = 1
            for other in packing.partners_in(worker, node):
                heappush(heap, (packing.rate_at_home(other), node, other))

    def _spread_as_published(self, topology: int, wanted: int) -> None:
        """Use one more node at a time; workers of other topologies may be moved, too."""
        while True:
            used = self._used(topology)
            if len(used) >= wanted:
                return
            best: tuple[int, int, int] | None = None
            for node in sorted(used):
                if used[node] < 2:
                    continue
                for worker in sorted(self._bins.items[node]):
                    target = self._unused(worker, used)
                    if target is not None:
                        rate_by_node = self._packing.rate_by_node(worker)
                        added = rate_by_node.get(node, 0) - rate_by_node.get(target, 0)
                        if best is None or added < best[0]:
                            best = added, worker, target
            if best is None:
                return
            self._bins.take(best[1])
            self._bins.put(best[1], best[2])
            if self._group[best[1]] != topology:
                return  # another topology's worker was moved, which would not terminate

    def _used(self, topology: int) -> dict[int, int]:
        """Return node -> number of workers of `topology`, nodes without any left out."""
        used: dict[int, int] = {}
        for worker, at in enumerate(self._bins.home):
            if at is not None and self._group[worker] == topology:
                used[at] = used.get(at, 0) + 1
        return used

    def _unused(self, worker: int, used: Mapping[int, int]) -> int | None:
        """Return the least loaded node outside `used` that accepts `worker`, or None."""
        bins = self._bins
        able = (
            at
            for at in range(len(bins.items))
            if at not in used and bins.accepts(at, self._group[worker], 1, self._load[worker])
        )
        return min(able, key=lambda at: (bins.load[at], at), default=None)


def _worker_pairs(stats: Sequence[Stats], workers: Sequence[PlannedWorker]) -> list[tuple[int, int, int]]:
    """Return (worker, worker, rate in both directions) for all pairs of workers that exchange tuples."""
    home = {(worker.topology, executor): at for at, worker in enumerate(workers) for executor in worker.executors}
    rates: dict[tuple[int, int], int] = {}
    for topology, mine in enumerate(stats):
        for sender, receiver, rate in mine.pairs:
            one, other = home[topology, sender], home[topology, receiver]
            if one != other:
                pair = min(one, other), max(one, other)
                rates[pair] = rates.get(pair, 0) + rate
    return [(one, other, rate) for (one, other), rate in sorted(rates.items())]


def deal_leftovers(topology: Topology, state: RunningWorkers, joined: Sequence[Slot] = (), most: int = 0) -> Placement:
    """Place the waiting executors of `topology`; update `state`.

    Args:
        topology: the topology.
        state: running workers, the plan's workers included.
        joined: the plan's workers, in the order in which executors join them; empty: none may be joined.
        most: maximum number of executors in a worker that is joined.
    """
    workers = state.workers[topology.id]
    placement = place_evenly(topology, workers, state.free)
    started: dict[Slot, list[Executor]] = {}
    for executor, slot in placement.assignments.items():
        if slot not in workers:
            started.setdefault(slot, []).append(executor)
    for slot, executors in started.items():
        state.note(topology.id, slot, executors)
    rest = storm_order(waiting(topology, workers))
    if not rest or not joined:
        return placement
    with_room = [slot for slot in joined if len(workers[slot]) < most]
    cursor = 0
    for executor in rest:
        if not with_room:
            break
        slot = with_room[cursor]
        workers[slot] = (*workers[slot], executor)
        if len(workers[slot]) < most:
            cursor += 1
        else:
            del with_room[cursor]
        cursor = cursor if cursor < len(with_room) else 0
    missing = len(waiting(topology, workers))
    return concluded(topology, assigned(workers), f"{missing} executors wait: all workers are full" if missing else "")
