"""Search for a good placement with bounded effort, by the method that suits the size, and its lower bound on W."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from scheduler.partitioning.bounds import MOST_SETS as MOST_CONNECTED
from scheduler.partitioning.bounds import Density, Proof
from scheduler.partitioning.counts import by_capacity
from scheduler.partitioning.exact import search
from scheduler.partitioning.exact_by_node import few_fillings, search_by_node
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.lagrange import can_price, find_prices
from scheduler.partitioning.large_neighbourhood import BEST, Preset, search_large
from scheduler.partitioning.tabu import Effort, search_small
from scheduler.partitioning.worker_packing import packed_exactly, within_workers

SMALL = 128
"""Maximum number of executors for tabu search over all moves and swaps."""

MOST_PAIRS = 4_000_000
"""Maximum number of pairs listed; a quarter of it if executors have many partners."""

FEW_PER_LINK = 4
"""Up to this number of pairs per pair of classes that communicate, all are listed: it takes little more memory."""

DENSE = 64
"""Partners per executor from which on a look takes time in their number."""


PER_EXECUTOR, MANY, PER_EXECUTOR_OF_MANY = 6_000, 20_000, 11_000
"""Maximum effort per executor in large rounds, and in those of more than `MANY` executors."""

FEW_LOOKS, PER_EXECUTOR_OF_FEW = 16_000_000, 16_000
"""Effort up to which there may be more per executor in rounds of few executors."""

MOST_LOOKS = 3_000_000_000
"""Maximum effort."""


def looks_for(instance: Instance) -> int:
    """Return a reasonable effort: 20 ms for some dozen executors, 0.4 s for 1,000, half a minute for 100,000."""
    if instance.executors <= SMALL:
        return 80_000 + 60 * max(0, instance.executors - 32) ** 2
    each = PER_EXECUTOR if instance.executors <= MANY else PER_EXECUTOR_OF_MANY
    few = min(PER_EXECUTOR_OF_FEW * instance.executors, FEW_LOOKS)
    looks = max(few, min(each * instance.executors, MOST_LOOKS))
    partners = _partners(instance)
    return looks if partners <= DENSE else looks * DENSE // partners


def _partners(instance: Instance) -> int:
    """Return how many partners executors have on average."""
    return 2 * instance.pairs // instance.executors


def find(
    instance: Instance,
    effort: Effort,
    seed: int = 0,
    target: int = 0,
    node_weight: int = 0,
    preset: Preset = BEST,
) -> list[int] | None:
    """Return the best placement found (executor -> node), or None when none was found that respects all limits.

    Args:
        instance: the problem.
        effort: when to stop.
        seed: seed of all random choices.
        target: a cost known to be the lowest possible.
        node_weight: cost of a node in use, in units of rate; large searches always use about as few nodes as the
            load needs.
        preset: how large searches use their effort.
    """
    if instance.executors <= SMALL:
        nodes = search_small(instance, effort, seed, target, node_weight)
        if nodes is None and instance.worker is not None:
            start = packed_exactly(instance, effort.over)
            if start is not None:
                return search_small(replace(instance, home=tuple(start)), effort, seed, target, node_weight)
        return nodes
    most = MOST_PAIRS if _partners(instance) <= DENSE else MOST_PAIRS // 4
    listed = instance.pairs <= max(most, FEW_PER_LINK * instance.links)

    def search_by_sums(limits: Instance) -> list[int] | None:
        return search_large(limits, effort, seed, preset) if listed else deal(limits)

    nodes = search_by_sums(instance)
    if nodes is not None and instance.fits(nodes):
        return nodes
    if instance.worker is not None:

        def again(narrower: Instance) -> list[int] | None:
            effort.looks = looks_for(instance)
            return search_by_sums(narrower)

        nodes = within_workers(instance, nodes or [-1] * instance.executors, again)
        if nodes is not None:
            return nodes
    if not instance.scarce:
        return None

    def search(alone: Instance) -> list[int] | None:
        effort.looks = looks_for(alone)
        return find(alone, effort, seed, preset=preset)

    return place_sequentially(instance, search)


def place_sequentially(instance: Instance, search: Callable[[Instance], list[int] | None]) -> list[int] | None:
    """Place the topologies one after the other on the remaining resources; return None if one does not fit.

    Args:
        instance: the problem.
        search: places one topology (executor -> node), or returns None.
    """
    free, room, slots = list(instance.capacity), list(instance.room), list(instance.slots)
    nodes = [-1] * instance.executors
    for topology in sorted(set(instance.topology)):
        kinds = [kind for kind, owner in enumerate(instance.topology) if owner == topology]
        executors = sorted(executor for kind in kinds for executor in instance.members[kind])
        left = replace(instance, capacity=tuple(free), room=tuple(room), slots=tuple(slots))
        alone = _alone(left, kinds, executors)
        kind_nodes = search(alone)
        if kind_nodes is None:
            return None
        for executor, node in zip(executors, kind_nodes, strict=True):
            nodes[executor] = node
            free[node] -= instance.load[instance.class_of[executor]]
            room[node] -= instance.memory[instance.class_of[executor]]
        for node, members in alone.members_on(kind_nodes).items():
            slots[node] -= alone.workers_for(members)
    return nodes


def _alone(instance: Instance, kinds: Sequence[int], executors: Sequence[int]) -> Instance:
    """Return the problem of placing the members of `kinds`, which are `executors` and communicate with no others."""
    number = {executor: at for at, executor in enumerate(executors)}
    kind_of = {kind: at for at, kind in enumerate(kinds)}
    return replace(
        instance,
        members=tuple([number[executor] for executor in instance.members[kind]] for kind in kinds),
        load=tuple(instance.load[kind] for kind in kinds),
        memory=tuple(instance.memory[kind] for kind in kinds),
        topology=(0,) * len(kinds),
        near=tuple({kind_of[other]: rate for other, rate in instance.near[kind].items()} for kind in kinds),
        home=tuple(instance.home[executor] for executor in executors),
        worker=None if instance.worker is None else instance.worker.restricted(kinds),
    )


def deal(instance: Instance) -> list[int] | None:
    """Return the better of two greedy placements (executor -> node), or None if neither respects all capacities.

    For instances with too many pairs to list: nodes are filled class by class. 10^5 executors in a few components have
    10^9 pairs, but the rate that an executor keeps on a node is a sum over the classes there. So every step takes time
    in the number of classes that communicate with the node, not of executors.
    """
    dealt = [nodes for edge in (True, False) if (nodes := _grown(instance, edge)) is not None]
    return min(dealt, key=instance.cut) if dealt else None


def _grown(instance: Instance, from_the_edge: bool) -> list[int] | None:
    """Return a placement grown like `growth.grow`, without a table over classes and nodes.

    The rest goes where it fits.
    """
    left = [len(members) for members in instance.members]
    waiting = [sum(rate * left[other] for other, rate in near.items()) for near in instance.near]
    member = [iter(members) for members in instance.members]
    nodes = [-1] * instance.executors
    free, room = list(instance.capacity), list(instance.room)
    order = by_capacity(instance)

    def put(kind: int, node: int) -> None:
        nodes[next(member[kind])] = node
        left[kind] -= 1
        free[node] -= instance.load[kind]
        room[node] -= instance.memory[kind]
        for other, rate in instance.near[kind].items():
            waiting[other] -= rate

    def takes(kind: int, node: int) -> bool:
        return left[kind] > 0 and free[node] >= instance.load[kind] and room[node] >= instance.memory[kind]

    sign = -1 if from_the_edge else 1
    seeds: list[tuple[bool, int, int]] = []  # heap of classes, the best seed first; some are outdated
    changed = set(range(len(left)))
    lightest = min(instance.load, default=0)

    def entry(kind: int) -> tuple[bool, int, int]:
        return waiting[kind] <= 0, -sign * waiting[kind], kind

    def seed(node: int) -> int:
        """Return the class that an empty node, or one without communicating classes, starts with; -1: none has room."""
        if free[node] < lightest:
            return -1
        for kind in changed:
            if left[kind]:
                heappush(seeds, entry(kind))
        changed.clear()
        aside: set[tuple[bool, int, int]] = set()
        chosen = -1
        while seeds and chosen < 0:
            best = seeds[0]
            if not left[best[2]] or best != entry(best[2]):
                heappop(seeds)
            elif takes(best[2], node):
                chosen = best[2]
            else:
                aside.add(heappop(seeds))
        for each in aside:
            heappush(seeds, each)
        return chosen

    for node in order:
        rates: dict[int, int] = {}
        while True:
            near = [kind for kind in rates if takes(kind, node)]
            if near:
                chosen = max(near, key=lambda kind: (rates[kind], -waiting[kind], -kind))
            else:
                chosen = seed(node)
                if chosen < 0:
                    break
            put(chosen, node)
            for other, rate in instance.near[chosen].items():
                rates[other] = rates.get(other, 0) + rate
            changed.update(instance.near[chosen])
    for kind in sorted(range(len(left)), key=lambda kind: -instance.load[kind]):
        for node in order:
            if not left[kind]:
                break
            while takes(kind, node):
                put(kind, node)
    return nodes if not any(left) else None


MOST_CLASSES = 400
"""Maximum number of classes for which the exact search is tried."""

FEW_STATES = 20_000
"""Number of states after which the exact search begins anew, with prices of classes."""

EASIER, FEW_SETS = 8, 600
"""Share of the first search, and connected sets of its bound, where the exact search takes milliseconds."""

MOST_SETS = 10_000
"""Sets that are examined for each bound in the search for prices."""


FEW, MORE_SETS = 45, ((4, 60), (16, 30))
"""With more executors, prices are improved with so many times the sets, in so many steps."""


@dataclass(frozen=True)
class Solution:
    """A placement with a lower bound.

    Attributes:
        node_of: executor -> node.
        cut: W of the placement, in the instance's units of rate.
        lower_bound: lower bound on W, in the same units.
        least_rate: the lower bound in tuples/s (or pairs).
        limit_hit: whether the time limit ended the search.
    """

    node_of: list[int]
    cut: int
    lower_bound: int
    least_rate: float
    limit_hit: bool

    @property
    def proven(self) -> bool:
        """Return whether no placement is better."""
        return self.cut == self.lower_bound


def solve(
    instance: Instance, over: Callable[[], bool], seed: int, found: Callable[[], bool] | None = None
) -> Solution | None:
    """Return the best placement, proven where limits allow, or None when none was found that respects all limits.

    Args:
        instance: the problem.
        over: returns True when the time is up.
        seed: seed of the search for a first placement.
        found: returns True when the time of that first search is up; default `over`.
    """
    least = 0
    if instance.worker is not None:
        # Often a placement without the limit of workers keeps to it.
        relaxed = solve(replace(instance, worker=None), over, seed, found)
        if relaxed is None or instance.fits(relaxed.node_of):
            return relaxed
        least = relaxed.lower_bound
    fillings = few_fillings(instance)
    looks = looks_for(instance) // (1 if fillings is None else EASIER)
    effort = Effort(looks, over if found is None else found)
    density = Density(instance, MOST_CONNECTED if fillings is None else FEW_SETS)
    bound = max(least, density.least_cut(instance))
    nodes = find(instance, effort, seed, target=bound)
    cut = instance.cut(nodes) if nodes is not None else instance.total_rate + 1
    limit_hit = effort.cut_short
    if cut > bound and not limit_hit:
        kept = instance.total_rate - cut
        if fillings is not None:
            proof: Proof | None = search_by_node(instance, fillings, kept, over)
        else:
            proof = _proof(instance, density, kept, over)
        if proof is not None:
            limit_hit = proof.limit_hit
            if proof.node_of is not None:
                nodes, cut = proof.node_of, instance.total_rate - proof.most
            bound = max(bound, min(cut, instance.total_rate - proof.most))
    if nodes is None:
        return None
    return Solution(nodes, cut, bound, instance.in_rates(bound), limit_hit)


def _proof(instance: Instance, density: Density, kept: int, over: Callable[[], bool]) -> Proof | None:
    if len(instance.members) > MOST_CLASSES:
        return None
    if not can_price(instance):
        return search(instance, density, kept, over)
    first = search(instance, density, kept, over, states=FEW_STATES)
    if first.complete or first.limit_hit:
        return first
    prices = find_prices(instance, kept, over, MOST_SETS)
    for times, rounds in MORE_SETS if instance.executors > FEW else ():
        if prices.most > kept:
            prices = find_prices(instance, kept, over, times * MOST_SETS, rounds, prices)
    if prices.most <= kept:
        return Proof(None, kept, True, False)
    proof = search(instance, density, kept, over, prices)
    return replace(proof, most=min(proof.most, prices.most))
