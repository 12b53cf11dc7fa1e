"""First level of I-Scheduler: executors are fused into groups until the optimiser can handle the graph.

"I-Scheduler: Iterative scheduling for distributed stream processing systems" (Eskandari, Mair, Huang, Eyers, 2020).
Where the paper is silent, our decisions: k and beta are rounded up, beta counts the vertices of the reduced graph
(t + f - phi); parts are as equal as possible and never above the capacity; of the parts those with the largest load,
then the largest inner rate, then the lowest executor are fused.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.objectives import AimedSolution
from scheduler.partitioning.parts import Partitioner, contracted, partition
from scheduler.partitioning.solving import SMALL, Solution, solve


@dataclass(frozen=True)
class Pass:
    """One pass of fusing, with the paper's symbols; `beta` is None where the paper does not compute it."""

    t: int
    f: int
    capacity: float
    quantity: int
    k: int
    beta: int | None
    alpha: int


@dataclass(frozen=True)
class Assigned:
    """Result of the first level.

    Attributes:
        node_of: executor -> node, None when no placement was found.
        passes: the passes of fusing.
        fallback: whether the groups were mapped directly, without the optimiser.
        limit_hit: whether the time limit stopped the optimiser.
    """

    node_of: list[int] | None
    passes: list[Pass] = field(default_factory=list)
    fallback: bool = False
    limit_hit: bool = False


Optimiser = Callable[[Instance, Callable[[], bool], int], Solution | AimedSolution | None]
"""Places a graph of at most phi vertices, until a time and with a seed."""


@dataclass(frozen=True)
class _Group:
    executors: list[int]
    node: int
    """Node of the group in the direct mapping."""


class Fusing:
    """The first level for one topology.

    Args:
        instance: the problem.
        order: usable nodes, by id.
        partitioner: method of partitioning.
        seed: seed of all searches.
        optimise: optimiser of the reduced graph; default: of W.
    """

    def __init__(
        self,
        instance: Instance,
        order: Sequence[int],
        partitioner: Partitioner,
        seed: int,
        optimise: Optimiser = solve,
    ) -> None:
        self._instance = instance
        self._optimise = optimise
        self._partitioner: Partitioner = partitioner
        self._seed = seed
        # Where all loads are equal, capacities count executors.
        loads = set(instance.load)
        self._unit = max(loads) if len(loads) == 1 and 0 not in loads else 0
        types: dict[int, list[int]] = {}
        for node in order:
            capacity = instance.capacity[node] // self._unit if self._unit else instance.capacity[node]
            if capacity:
                types.setdefault(capacity, []).append(node)
        self._types = sorted(types.items(), reverse=True)
        self._made: dict[tuple[tuple[int, ...], int, int], list[list[int]] | None] = {}
        self._load = [1] * len(instance.load) if self._unit else list(instance.load)

    def run(self, phi: int, over: Callable[[], bool]) -> Assigned:
        """Fuse, and place the resulting graph; phi = 0 means without the optimiser.

        Args:
            phi: maximum number of vertices for the optimiser.
            over: returns True when its time is up.
        """
        use_optimiser = phi > 0
        waiting = list(range(self._instance.executors))
        groups: list[_Group] = []
        passes: list[Pass] = []
        for capacity, nodes in self._types:
            if over():
                return Assigned(None, passes, limit_hit=True)
            if not waiting or len(waiting) + len(groups) <= phi:
                break
            k = max(1, -(-self._weight(waiting) // capacity))
            if k > 1 and use_optimiser and len(groups) + k > phi:
                use_optimiser, phi = False, 0
            parts = self._parted(waiting, capacity, k)
            if parts is None:
                return Assigned(None, passes)
            t, f = len(waiting), len(groups)
            beta, wanted = self._wanted(t, f, capacity, phi, len(nodes)) if use_optimiser and k > 1 else (None, None)
            count = min(len(parts), len(nodes)) if wanted is None else min(wanted, len(parts))
            fused = self._best(parts)
            alpha, gone = 0, set[int]()
            for part, node in zip(fused[:count], nodes, strict=False):
                if use_optimiser and not self._unit and k > 1 and t - len(gone) + len(groups) <= phi:
                    break
                groups.append(_Group(part, node))
                gone.update(part)
                alpha += 1
            waiting = [executor for executor in waiting if executor not in gone]
            passes.append(Pass(t, f, capacity * self._in_loads, len(nodes), k, beta, alpha))
        if not use_optimiser:
            return Assigned(self._mapped(groups, waiting), passes, fallback=True)
        vertices = [group.executors for group in groups] + [[executor] for executor in waiting]
        solution = self._optimise(contracted(self._instance, vertices, self._instance.load), over, self._seed)
        if solution is None:
            return Assigned(None, passes)
        node_of = [-1] * self._instance.executors
        for vertex, node in zip(vertices, solution.node_of, strict=True):
            for executor in vertex:
                node_of[executor] = node
        return Assigned(node_of, passes, limit_hit=solution.limit_hit)

    @property
    def _in_loads(self) -> float:
        """Load per unit of capacity; 1 where capacities count executors."""
        return 1 if self._unit else self._instance.load_unit

    def _weight(self, executors: Sequence[int]) -> int:
        return sum(self._load[self._instance.class_of[executor]] for executor in executors)

    def _wanted(self, t: int, f: int, capacity: int, phi: int, quantity: int) -> tuple[int | None, int]:
        """Return beta (Eq. 8) and the maximum number of parts to fuse."""
        if not self._unit:
            return None, quantity
        beta = -(-(t + f - phi) // (capacity - 1))
        return beta, min(beta, quantity)

    def _parted(self, executors: Sequence[int], capacity: int, k: int) -> list[list[int]] | None:
        """Return the parts; those of the first pass are the same with and without the optimiser."""
        key = (tuple(executors), capacity, k)
        if key not in self._made:
            self._made[key] = self._parts(executors, capacity, k)
        return self._made[key]

    def _parts(self, executors: Sequence[int], capacity: int, k: int) -> list[list[int]] | None:
        """Return at least `k` parts, none above `capacity`; more only where loads cannot be packed into `k`."""
        if k == 1:
            return [list(executors)]
        size, larger = divmod(len(executors), k)
        if self._unit:
            limits = [size + 1] * larger + [size] * (k - larger)
            return partition(self._instance, executors, self._load, limits, self._partitioner, self._seed)
        weights = sorted((self._load[self._instance.class_of[executor]] for executor in executors), reverse=True)
        if weights[0] > capacity:
            return None
        fewest = k if len(executors) <= SMALL else max(k, _packed(weights, capacity))
        for parts in range(fewest, len(executors) + 1):
            limits = [capacity] * parts
            partitioned = partition(self._instance, executors, self._load, limits, self._partitioner, self._seed)
            if partitioned is not None:
                return [part for part in partitioned if part]
        return None

    def _best(self, parts: Sequence[list[int]]) -> list[list[int]]:
        return sorted(parts, key=lambda part: (-self._weight(part), -self._inner_rate(part), part[0]))

    def _inner_rate(self, part: Sequence[int]) -> int:
        counts: dict[int, int] = {}
        for executor in part:
            kind = self._instance.class_of[executor]
            counts[kind] = counts.get(kind, 0) + 1
        twice = 0
        for kind, count in counts.items():
            for other, rate in self._instance.near[kind].items():
                twice += rate * count * (counts.get(other, 0) - (other == kind))
        return twice // 2

    def _mapped(self, groups: Sequence[_Group], waiting: Sequence[int]) -> list[int] | None:
        """Return the direct mapping: groups to their nodes, remaining executors to the node of their largest rate."""
        instance = self._instance
        node_of = [-1] * instance.executors
        free = list(instance.capacity)
        placed: list[dict[int, int]] = [{} for _ in instance.members]  # class -> node -> members there

        def put(executor: int, node: int) -> None:
            kind = instance.class_of[executor]
            node_of[executor] = node
            free[node] -= instance.load[kind]
            placed[kind][node] = placed[kind].get(node, 0) + 1

        for group in groups:
            for executor in group.executors:
                put(executor, group.node)
        order = [node for _, nodes in self._types for node in nodes]
        rank = {node: at for at, node in enumerate(order)}
        first: dict[int, int] = {}  # load -> first position in `order` that may have room for it
        for executor in waiting:
            kind = instance.class_of[executor]
            load = instance.load[kind]
            rates: dict[int, int] = {}
            for other, rate in instance.near[kind].items():
                for node, count in placed[other].items():
                    rates[node] = rates.get(node, 0) + rate * count
            at = first.get(load, 0)
            while at < len(order) and free[order[at]] < load:
                at += 1
            first[load] = at
            if at == len(order):
                return None
            # Ties: larger, then lower id; without any rate the first one with room.
            near = [(-rate, rank[node]) for node, rate in rates.items() if free[node] >= load]
            put(executor, order[min(near)[1]] if near else order[at])
        return node_of


def _packed(weights: Sequence[int], capacity: int) -> int:
    """Return the number of parts when each weight, heaviest first, goes to the part with the least remaining room.

    Large searches pack in the same way; with fewer parts they would fail.
    """
    free: list[int] = []
    for weight in weights:
        at = bisect_left(free, weight)
        insort(free, (free.pop(at) if at < len(free) else capacity) - weight)
    return len(free)
