"""Tabu search for instances small enough to examine all single moves and swaps at every step.

`search_small` searches from several initial placements, then from perturbed best ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from scheduler.partitioning.bounds import Density
from scheduler.partitioning.counts import Counts, by_capacity, counts_of, fill_in_order, grow, tightest
from scheduler.partitioning.instance import Instance

TENURE = 6
"""Tabu tenure: minimum number of steps before a class may return to a node, and maximum number of additional steps."""


@dataclass
class Effort:
    """Remaining effort: a count of looks, the same on every machine, and a clock as a safeguard.

    Attributes:
        looks: moves that may still be evaluated.
        over: returns True when the time is up.
        cut_short: whether the time was up before the looks were used.
    """

    looks: int
    over: Callable[[], bool]
    cut_short: bool = False

    def spend(self, looks: int) -> bool:
        """Use `looks`. Return whether any remain."""
        self.looks -= looks
        if self.looks > 0 and self.over():
            self.cut_short = True
        return self.looks > 0 and not self.cut_short


def improve(counts: Counts, effort: Effort, target: int, patience: int, seed: int, node_weight: int = 0) -> Counts:
    """Search from a complete placement. Return the best one found; `counts` itself is changed.

    Args:
        counts: the starting point.
        effort: when to stop.
        target: stop when the cost, W + `node_weight` * nodes used, is as low as this.
        patience: stop after this many steps without a better placement.
        seed: seed of the choice among equal moves.
        node_weight: cost of a node in use, in the unit of rates.
    """
    instance = counts.instance
    random = Random(seed)  # noqa: S311 - no secret
    nodes = [node for node, capacity in enumerate(instance.capacity) if instance.slots[node] and capacity >= 0]
    cost = instance.total_rate - counts.kept + node_weight * sum(map(bool, counts.held))
    best_cost, best = cost, [list(row) for row in counts.count]
    barred = [[0] * len(instance.capacity) for _ in instance.members]
    step = idle = 0
    while best_cost > target and idle < patience:
        step += 1
        idle += 1
        moves, looks = _best_moves(counts, nodes, barred, step, cost - best_cost, node_weight)
        more = effort.spend(looks)
        if not more or not moves:
            if not more:
                break
            continue
        change, kind, source, other, target_node = moves[random.randrange(len(moves))]
        counts.take(kind, source)
        if other >= 0:
            counts.take(other, target_node)
            counts.put(other, source)
            barred[other][target_node] = step + TENURE + random.randrange(TENURE)
        counts.put(kind, target_node)
        barred[kind][source] = step + TENURE + random.randrange(TENURE)
        cost += change
        if cost < best_cost:
            best_cost, best, idle = cost, [list(row) for row in counts.count], 0
    return _counted(counts, best)


Found = tuple[int, int, int, int, int]
"""Change in cost, class, its node, class to swap with (or -1), node of that class or node to move to."""


def _best_moves(
    counts: Counts, nodes: list[int], barred: list[list[int]], step: int, behind: int, node_weight: int
) -> tuple[list[Found], int]:
    """Return the moves and swaps that lower the cost most or raise it least, and how many were evaluated.

    A barred move counts if it leads below the best cost so far, which is `behind` below the current cost.
    """
    instance = counts.instance
    load, memory, near = instance.load, instance.memory, instance.near
    free, room, held = counts.free, counts.room, counts.held
    tight, limited = instance.memory_counts, instance.worker is not None
    scarce = instance.scarce or limited
    best, looks = 1 << 62, 0
    best_moves: list[Found] = []
    present: list[tuple[int, int, int]] = []  # class, node, cost of leaving
    for kind, row in enumerate(counts.count):
        weight, rates, mine = load[kind], counts.rate[kind], barred[kind]
        inner = near[kind].get(kind, 0)
        for source in nodes:
            if not row[source]:
                continue
            loss = rates[source] - inner
            present.append((kind, source, loss))
            leaving = loss - (node_weight if held[source] == 1 else 0)
            looks += len(nodes)
            tried: set[int] = set()
            for to in nodes:
                if free[to] < weight or to == source:
                    continue
                change = leaving - rates[to]
                if not held[to]:
                    change += node_weight
                    if free[to] in tried:  # empty nodes of one size are interchangeable
                        continue
                    tried.add(free[to])
                if change > best or (mine[to] > step and change >= -behind):
                    continue
                if (tight and room[to] < memory[kind]) or (scarce and not counts.hosts(kind, to)):
                    continue
                if change < best:
                    best, best_moves = change, []
                best_moves.append((change, kind, source, -1, to))
    looks += len(present) * len(present) // 2
    for at, (kind, source, loss) in enumerate(present):
        weight, rates, mine, others = load[kind], counts.rate[kind], barred[kind], near[kind]
        slack = free[source] + weight
        for other, to, other_loss in present[at + 1 :]:
            if to == source or other == kind or slack < load[other] or free[to] + load[other] < weight:
                continue
            change = loss + other_loss - rates[to] - counts.rate[other][source]
            if change > best:
                continue
            change += 2 * others.get(other, 0)
            if change > best or ((mine[to] > step or barred[other][source] > step) and change >= -behind):
                continue
            if tight and not (
                room[source] + memory[kind] >= memory[other] and room[to] + memory[other] >= memory[kind]
            ):
                continue
            if scarce and not (
                (not limited and instance.topology[kind] == instance.topology[other])
                or (counts.hosts(kind, to, other) and counts.hosts(other, source, kind))
            ):
                continue
            if change < best:
                best, best_moves = change, []
            best_moves.append((change, kind, source, other, to))
    return best_moves, looks


def _counted(like: Counts, count: list[list[int]]) -> Counts:
    fresh = Counts(like.instance)
    for kind, row in enumerate(count):
        for node, members in enumerate(row):
            for _ in range(members):
                fresh.put(kind, node)
    return fresh


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
        improved = improve(start, effort, target, PATIENCE, seed, node_weight)
        if best is None or cost(improved) < cost(best):
            best = improved
    if best is None:
        return None
    nodes = best.node_of()
    kicks = 0
    while cost(best) > target and effort.looks > 0 and not effort.cut_short and len(instance.capacity) > 1:
        kicks += 1
        start = counts_of(instance, nodes)
        before = effort.looks
        _disturb(start, random, 2 + kicks % (2 + instance.executors // 6))
        improved = improve(start, effort, target, PATIENCE, seed + kicks, node_weight)
        if cost(improved) < cost(best):
            best, nodes = improved, improved.node_of()
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
    starts: tuple[Callable[[], Counts], ...] = (
        lambda: grow(instance, nodes, True),
        lambda: grow(instance, nodes, False),
        lambda: fill_in_order(instance, nodes),
    )
    for start in starts:  # each is made only if the effort lasts so long
        counts = start()
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
        counts = fill_in_order(instance, nodes)


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
