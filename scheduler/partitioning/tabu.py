"""Tabu search by single moves and swaps, for instances small enough to examine all of them at every step."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from scheduler.partitioning.counts import Counts

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
    scarce, tight = instance.scarce, instance.memory_counts
    best, looks = 1 << 62, 0
    found: list[Found] = []
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
                    best, found = change, []
                found.append((change, kind, source, -1, to))
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
                instance.topology[kind] == instance.topology[other]
                or (counts.hosts(kind, to) and counts.hosts(other, source))
            ):
                continue
            if change < best:
                best, found = change, []
            found.append((change, kind, source, other, to))
    return found, looks


def _counted(like: Counts, count: list[list[int]]) -> Counts:
    fresh = Counts(like.instance)
    for kind, row in enumerate(count):
        for node, members in enumerate(row):
            for _ in range(members):
                fresh.put(kind, node)
    return fresh
