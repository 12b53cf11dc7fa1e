"""Search for small instances: tabu search from several initial placements, then from perturbed best ones."""

from collections.abc import Iterator
from random import Random

from scheduler.partitioning.bounds import Density
from scheduler.partitioning.counts import Counts, counts_of
from scheduler.partitioning.growth import by_capacity, grow, in_order, tightest
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.tabu import Effort, improve

PATIENCE = 60
"""Steps without a better placement after which a search restarts."""

ORDERS = 40
"""Random orders tried before packing is given up."""


def search_small(
    instance: Instance, effort: Effort, seed: int = 0, target: int = 0, node_weight: int = 0
) -> list[int] | None:
    """Return the best placement found (executor -> node), or None when none was found that respects all limits.

    A running placement is replaced only by a better one.

    Args:
        instance: the problem.
        effort: when to stop.
        seed: seed of all random choices.
        target: a cost known to be the lowest possible; reaching it ends the search.
        node_weight: cost of a node in use, in units of rate.
    """
    random = Random(seed)  # noqa: S311 - no secret

    def cost(counts: Counts) -> int:
        return instance.total_rate - counts.kept + node_weight * sum(map(bool, counts.held))

    best: Counts | None = None
    for start in _starts(instance, random):
        if best is not None and (cost(best) <= target or effort.looks <= 0 or effort.cut_short):
            break
        found = improve(start, effort, target, PATIENCE, seed, node_weight)
        if best is None or cost(found) < cost(best):
            best = found
    if best is None:
        return None
    nodes = best.node_of()
    kicks = 0
    while cost(best) > target and effort.looks > 0 and not effort.cut_short and len(instance.capacity) > 1:
        kicks += 1
        start = counts_of(instance, nodes)
        before = effort.looks
        _disturb(start, random, 2 + kicks % (2 + instance.executors // 6))
        found = improve(start, effort, target, PATIENCE, seed + kicks, node_weight)
        if cost(found) < cost(best):
            best, nodes = found, found.node_of()
        if effort.looks == before:
            break
    return settled(instance, best)


def settled(instance: Instance, counts: Counts) -> list[int]:
    """Return executor -> node, with as many executors as possible on their current nodes."""
    nodes = [-1] * instance.executors
    for members, row in zip(instance.members, counts.count, strict=True):
        left = list(row)
        movers: list[int] = []
        for executor in members:
            home = instance.home[executor]
            if home >= 0 and left[home]:
                left[home] -= 1
                nodes[executor] = home
            else:
                movers.append(executor)
        spare = (node for node, count in enumerate(left) for _ in range(count))
        for executor, node in zip(movers, spare, strict=True):
            nodes[executor] = node
    return nodes


def lowest_cost(instance: Instance, node_weight: int = 0) -> int:
    """Return a lower bound on the cost of any placement."""
    density = Density(instance, sets=600)
    need, nodes = instance.total_load, 0
    for capacity in sorted(instance.capacity, reverse=True):
        if need <= 0:
            break
        need -= capacity
        nodes += 1
    return density.least_cut(instance) + node_weight * nodes


def _starts(instance: Instance, random: Random) -> Iterator[Counts]:
    if any(node >= 0 for node in instance.home):
        counts = Counts(instance)
        for executor, node in enumerate(instance.home):
            kind = instance.class_of[executor]
            if node >= 0 and counts.takes(kind, node):
                counts.put(kind, node)
        if _completed(counts):
            yield counts
    nodes = by_capacity(instance)
    hard = True
    for counts in (grow(instance, nodes, True), grow(instance, nodes, False), in_order(instance, nodes)):
        if _completed(counts):
            hard = False
            yield counts
    if not hard:
        return
    counts = tightest(instance)
    for _ in range(ORDERS):
        if counts.complete:
            yield counts
            return
        random.shuffle(nodes)
        counts = in_order(instance, nodes)


def _completed(counts: Counts) -> bool:
    """Place waiting executors, each with those it communicates with most. Return whether all had room."""
    if counts.complete:
        return True
    instance = counts.instance
    for kind in sorted(range(len(counts.left)), key=lambda kind: (-instance.load[kind], kind)):
        while counts.left[kind]:
            fitting = [node for node in range(len(instance.capacity)) if counts.takes(kind, node)]
            if not fitting:
                return False
            counts.put(kind, max(fitting, key=lambda node: (counts.rate[kind][node], counts.free[node], -node)))
    return True


def _disturb(counts: Counts, random: Random, moves: int) -> None:
    """Make random moves and swaps that respect all limits."""
    instance = counts.instance
    places = [
        (kind, node) for kind, row in enumerate(counts.count) for node, count in enumerate(row) for _ in range(count)
    ]
    nodes = [node for node, slots in enumerate(instance.slots) if slots]
    for _ in range(moves):
        at = random.randrange(len(places))
        kind, source = places[at]
        counts.take(kind, source)
        to = nodes[random.randrange(len(nodes))]
        if counts.takes(kind, to):
            counts.put(kind, to)
            places[at] = kind, to
            continue
        with_at = random.randrange(len(places))
        other, to = places[with_at]
        if with_at != at:
            counts.take(other, to)
            if counts.takes(other, source) and counts.takes(kind, to):
                counts.put(other, source)
                if counts.takes(kind, to):
                    counts.put(kind, to)
                    places[at], places[with_at] = (kind, to), (other, source)
                    continue
                counts.take(other, source)
            counts.put(other, to)
        counts.put(kind, source)
