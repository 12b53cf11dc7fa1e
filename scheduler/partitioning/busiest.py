"""The busiest node and the busiest link: searches, exact for small rounds, and lower bounds.

The busiest node is that with the largest load / capacity, workers outside the round included. With equal loads the
executor that raises it least goes first, which is exact; otherwise the heaviest, and an exact packing below the value
reached is tried. Among placements that reach the value, W is minimised. The busiest link is searched by
`scheduler.partitioning.hop_search`, and proven by trying all placements of small rounds.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import heapify, heappop, heappush

from scheduler.partitioning.bounds import Density
from scheduler.partitioning.counts import tightest
from scheduler.partitioning.elimination import elimination_order
from scheduler.partitioning.exact import search
from scheduler.partitioning.hop_search import busiest_of
from scheduler.partitioning.hops import HopTable
from scheduler.partitioning.instance import Instance
from scheduler.problem import Problem
from scheduler.toolkit.cost import Loads
from scheduler.toolkit.exact import decimal
from workloads.topology import Executor

MOST_PACKED = 100_000
"""States of an exact packing."""

MOST_TRIED = 200_000
"""Steps of the exact search for the busiest link."""


OVERFULL = Fraction(10**18)
"""Load / capacity of a node without capacity."""


@dataclass(frozen=True)
class Fillings:
    """Capacities of all nodes and the load that others put on them, in the instance's unit of load."""

    full: tuple[Fraction, ...]
    others: tuple[Fraction, ...]

    def most(self, loads: Sequence[int], used: Collection[int]) -> Fraction:
        """Return the largest load / capacity of the nodes in `used`."""
        return max((self.of(node, loads[node]) for node in used), default=Fraction(0))

    def of(self, node: int, load: int) -> Fraction:
        """Return load / capacity with `load` of the round; 0 / 0 is 0, other values / 0 more than any."""
        total = self.others[node] + load
        if not self.full[node]:
            return OVERFULL if total else Fraction(0)
        return total / self.full[node]

    def below(self, instance: Instance, value: Fraction, strictly: bool) -> Instance:
        """Return the instance with capacities that keep every node at most at, or below, a value."""
        limits = []
        for node, capacity in enumerate(instance.capacity):
            exact = value * self.full[node] - self.others[node]
            limit = -(-exact.numerator // exact.denominator) - 1 if strictly else exact.numerator // exact.denominator
            limits.append(max(-1, min(capacity, limit)))
        slots = tuple(n if limit >= 0 else 0 for n, limit in zip(instance.slots, limits, strict=True))
        return replace(instance, capacity=tuple(max(0, limit) for limit in limits), slots=slots)


def fillings_in(problem: Problem, placed: Collection[str], instance: Instance) -> Fillings:
    """Return the fillings of a problem's nodes.

    Args:
        problem: the round.
        placed: ids of the topologies of the instance; other running workers count as others.
        instance: the instance.
    """
    loads = Loads(problem)
    unit = decimal(instance.load_unit)
    topology = {each.id: each for each in problem.topologies}
    others = {node.id: Fraction(0) for node in problem.cluster.nodes}
    for worker in problem.existing:
        if worker.topology not in placed:
            owner = topology.get(worker.topology)
            for name in worker.executors:
                load = loads.of_outside_executor(name) if owner is None else loads.of(owner, Executor.named(name))
                others[worker.node] += decimal(load)
    return Fillings(
        tuple(decimal(loads.capacity[node.id]) / unit for node in problem.cluster.nodes),
        tuple(others[node.id] / unit for node in problem.cluster.nodes),
    )


def level_loads(instance: Instance, fillings: Fillings) -> list[int] | None:
    """Return a placement (executor -> node) with a low busiest node, heaviest executors first; None if one fails."""
    free, room = list(instance.capacity), list(instance.room)
    load = [0] * len(free)
    nodes = [-1] * instance.executors
    order = sorted(range(len(instance.members)), key=lambda kind: (-instance.load[kind], kind))
    usable = [node for node, slots in enumerate(instance.slots) if slots]
    heap: list[tuple[Fraction, int]] = []
    weight = -1
    for kind in order:
        if instance.load[kind] != weight:
            weight = instance.load[kind]
            heap = [(fillings.of(node, load[node] + weight), node) for node in usable if free[node] >= weight]
            heapify(heap)
        for executor in instance.members[kind]:
            passed: list[tuple[Fraction, int]] = []
            while heap and room[heap[0][1]] < instance.memory[kind]:
                passed.append(heappop(heap))
            if not heap:
                return None
            _, node = heappop(heap)
            nodes[executor] = node
            load[node] += weight
            free[node] -= weight
            room[node] -= instance.memory[kind]
            if free[node] >= weight:
                heappush(heap, (fillings.of(node, load[node] + weight), node))
            for entry in passed:
                heappush(heap, entry)
    return nodes if instance.fits(nodes) else None


def node_loads(instance: Instance, node_of: Sequence[int]) -> list[int]:
    """Return node -> load of a placement (executor -> node)."""
    loads = [0] * len(instance.capacity)
    for executor, node in enumerate(node_of):
        loads[node] += instance.load[instance.class_of[executor]]
    return loads


def least_filling(instance: Instance, fillings: Fillings) -> Fraction:
    """Return a lower bound on the busiest node: all load spread evenly, and the heaviest executor on its best node."""
    usable = [node for node, slots in enumerate(instance.slots) if slots and fillings.full[node]]
    least = Fraction(0)
    for load in set(instance.load):
        least = max(
            least, min((fillings.of(n, load) for n in usable if instance.capacity[n] >= load), default=Fraction(0))
        )
    usable.sort(key=lambda node: fillings.others[node] / fillings.full[node])
    full, owed = Fraction(0), Fraction(instance.total_load)
    even = Fraction(0)
    for at, node in enumerate(usable):
        full += fillings.full[node]
        owed += fillings.others[node]
        even = owed / full
        after = usable[at + 1] if at + 1 < len(usable) else None
        if after is None or even <= fillings.others[after] / fillings.full[after]:
            break
    weights = set(instance.load)
    if len(weights) == 1 and instance.total_load:
        # Equal loads: the value at which enough executors fit is exact, unless memory or slots matter.
        alone = replace(instance, room=(0,) * len(instance.room), memory=(0,) * len(instance.memory))
        alone = replace(alone, slots=tuple(len(alone.topology) * bool(slots) for slots in alone.slots))
        nodes = level_loads(alone, fillings)
        if nodes is not None:
            even = max(even, fillings.most(node_loads(alone, nodes), set(nodes)))
    return max(least, even)


def pack_below(
    instance: Instance, fillings: Fillings, value: Fraction, over: Callable[[], bool]
) -> tuple[list[int] | None, bool, bool]:
    """Search for a placement with a busiest node below `value`.

    Returns:
        The placement (executor -> node) or None, whether its absence is proven, and whether the time was up.
    """
    tight = fillings.below(instance, value, strictly=True)
    if tight.total_load > sum(tight.capacity):
        return None, True, False
    counts = tightest(tight)
    if counts.complete:
        return counts.node_of(), False, False
    apart = replace(tight, near=tuple({} for _ in tight.near))
    proof = search(apart, Density(apart), -1, over, states=MOST_PACKED)
    return proof.node_of, proof.complete, proof.limit_hit


def least_link(instance: Instance, table: HopTable) -> Fraction:
    """Return a lower bound on the busiest link: the least W over all links, and an executor's losses over its links."""
    usable = [node for node, slots in enumerate(instance.slots) if slots]
    shares = [
        [Fraction(1, value) for other in usable if other != node and (value := table.of(node, other))]
        for node in usable
    ]
    if any(len(row) < len(usable) - 1 for row in shares) or len(usable) < 2:
        return Fraction(0)
    density = Density(instance)
    total = sum((sum(row, Fraction(0)) for row in shares), Fraction(0)) / 2
    bound = Fraction(density.least_cut(instance)) / total
    widest = max(sum(row, Fraction(0)) for row in shares)
    bound = max(bound, Fraction(max(density.lost, default=0)) / widest)
    values = {table.of(a, b) for a in usable for b in usable if a != b}
    if len(values) == 1:  # the load of a link is a whole number of units
        (value,) = values
        whole = bound / value
        return Fraction(-(-whole.numerator // whole.denominator) * value)
    return bound


def prove_link(
    instance: Instance, table: HopTable, known: int, least: Fraction, over: Callable[[], bool]
) -> tuple[list[int] | None, bool, bool]:
    """Try all placements with a busiest link below `known`.

    Returns:
        The best one (executor -> node) or None, whether all were tried, and whether the time was up.
    """
    search_all = _LinkSearch(instance, table, known, least, over)
    search_all.place(0, 0)
    return search_all.found, search_all.complete, search_all.limit_hit


class _LinkSearch:
    """Depth-first search over executors; members of a class go to nodes in ascending order."""

    def __init__(
        self, instance: Instance, table: HopTable, known: int, least: Fraction, over: Callable[[], bool]
    ) -> None:
        self._instance, self._table, self._known, self._least, self._over = instance, table, known, least, over
        self._order = [e for kind in elimination_order(instance) for e in instance.members[kind]]
        self._usable = [node for node, slots in enumerate(instance.slots) if slots]
        self._node = [-1] * instance.executors
        self._free, self._room = list(instance.capacity), list(instance.room)
        self._held: list[list[int]] = [[] for _ in instance.capacity]
        self._carried: dict[tuple[int, int], int] = {}
        self._steps = MOST_TRIED
        self.found: list[int] | None = None
        self.complete = True
        self.limit_hit = False

    def place(self, at: int, most: int) -> None:
        """Place the executors from `at` on; `most` is the busiest link so far."""
        if not self.complete or self._known <= self._least:
            return
        if at == len(self._order):
            if self._instance.fits(self._node):
                self.found, self._known = list(self._node), most
            return
        self._steps -= 1
        if self._steps <= 0 or (self._steps % 64 == 0 and self._over()):
            self.complete, self.limit_hit = False, self._steps > 0
            return
        executor = self._order[at]
        kind = self._instance.class_of[executor]
        before = self._order[at - 1] if at and self._instance.class_of[self._order[at - 1]] == kind else -1
        lowest = self._node[before] if before >= 0 else -1
        empty: set[tuple[int, int, int, int]] = set()
        for node in self._usable:
            if node < lowest or self._free[node] < self._instance.load[kind]:
                continue
            if self._room[node] < self._instance.memory[kind]:
                continue
            if not self._held[node]:
                alike = self._free[node], self._room[node], self._instance.slots[node], self._table.group[node]
                if alike in empty and before < 0:
                    continue
                empty.add(alike)
            self._try(executor, kind, node, at, most)

    def _try(self, executor: int, kind: int, node: int, at: int, most: int) -> None:
        added: dict[tuple[int, int], int] = {}
        for other in self._usable:
            if other != node and self._held[other]:
                near = self._instance.near[kind]
                rate = sum(near.get(self._instance.class_of[each], 0) for each in self._held[other])
                if rate:
                    added[(node, other) if node < other else (other, node)] = rate
        for pair, rate in added.items():
            most = max(most, (self._carried.get(pair, 0) + rate) * self._table.of(*pair))
        if most >= self._known:
            return
        for pair, rate in added.items():
            self._carried[pair] = self._carried.get(pair, 0) + rate
        self._node[executor] = node
        self._held[node].append(executor)
        self._free[node] -= self._instance.load[kind]
        self._room[node] -= self._instance.memory[kind]
        self.place(at + 1, most)
        self._free[node] += self._instance.load[kind]
        self._room[node] += self._instance.memory[kind]
        self._held[node].pop()
        self._node[executor] = -1
        for pair, rate in added.items():
            self._carried[pair] -= rate


def link_value(instance: Instance, table: HopTable, node_of: Sequence[int]) -> int:
    """Return the load of the busiest link."""
    return busiest_of(instance, table)(node_of)[0]
