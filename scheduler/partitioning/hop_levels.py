"""Levels of hop costs: what a placement costs, split into cuts between ever larger sets of nodes.

With ascending thresholds t_1 < t_2 < ... of the table, a hop costs at least the sum over levels of (t_i - t_(i-1)), if
its ends are not connected by hops below t_i. So cost >= sum over levels of this step times the cut between the sets of
nodes that are connected below the threshold; the two are equal if hops cost by rack, and a rack is nearer than others.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.partitioning.hops import HopTable
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.solving import solve

MOST_LEVELS = 8
"""Maximum number of levels; with fewer, bounds are lower."""


@dataclass(frozen=True)
class Level:
    """One level.

    Attributes:
        step: the difference between its threshold and the one below.
        sets: the sets of usable nodes that hops below the threshold connect.
        merged: sets of groups whose nodes are one set; nodes of the other groups are sets of their own.
    """

    step: int
    sets: tuple[tuple[int, ...], ...]
    merged: tuple[tuple[int, ...], ...]

    def instance(self, instance: Instance) -> Instance:
        """Return the problem whose nodes are the sets; it has every placement of `instance`."""
        return replace(
            instance,
            capacity=tuple(sum(instance.capacity[node] for node in nodes) for nodes in self.sets),
            room=tuple(sum(instance.room[node] for node in nodes) for nodes in self.sets),
            slots=tuple(sum(instance.slots[node] for node in nodes) for nodes in self.sets),
            home=(-1,) * instance.executors,
        )


def levels_of(instance: Instance, table: HopTable) -> list[Level]:
    """Return the levels among usable nodes, lowest threshold first, at most `MOST_LEVELS`."""
    live = [[node for node in nodes if instance.slots[node]] for nodes in table.groups]
    inner = {group for group, nodes in enumerate(live) if len(nodes) > 1}
    used = [group for group, nodes in enumerate(live) if nodes]
    levels: list[Level] = []
    below = 0
    for threshold in sorted((_joining(table, used) | {table.between[a][a] for a in inner}) - {0}):
        merged = _connected(table, used, inner, threshold)
        together = {group for groups in merged for group in groups}
        sets = [tuple(sorted(node for group in groups for node in live[group])) for groups in merged]
        sets += [(node,) for group in used if group not in together for node in live[group]]
        levels.append(Level(threshold - below, tuple(sorted(sets)), tuple(merged)))
        below = threshold
    while len(levels) > MOST_LEVELS:
        # The cut between the next larger sets is never more.
        at = min(range(len(levels) - 1), key=lambda at: levels[at].step)
        levels[at : at + 2] = [replace(levels[at + 1], step=levels[at].step + levels[at + 1].step)]
    return levels


def _joining(table: HopTable, used: list[int]) -> set[int]:
    """Return the values at which sets of groups join: those of a minimum spanning tree (Prim, 1957)."""
    if not used:
        return set()
    nearest = {group: table.between[used[0]][group] for group in used[1:]}
    joined: set[int] = set()
    while nearest:
        group = min(nearest, key=lambda each: (nearest[each], each))
        joined.add(nearest.pop(group))
        for other, value in nearest.items():
            nearest[other] = min(value, table.between[group][other])
    return joined


def _connected(table: HopTable, used: list[int], inner: set[int], threshold: int) -> list[tuple[int, ...]]:
    """Return the sets of groups connected below the threshold; a group alone only if its nodes are."""
    components: list[tuple[int, ...]] = []
    seen: set[int] = set()
    for start in used:
        if start in seen:
            continue
        stack, mine = [start], {start}
        while stack:
            one = stack.pop()
            for other in used:
                if other not in mine and table.between[one][other] < threshold:
                    mine.add(other)
                    stack.append(other)
        seen |= mine
        if len(mine) > 1 or (start in inner and table.between[start][start] < threshold):
            components.append(tuple(sorted(mine)))
    return components


def least_cost(
    instance: Instance, levels: list[Level], over: Callable[[], bool], found: Callable[[], bool], seed: int
) -> tuple[int, bool]:
    """Return a lower bound on the cost of any placement, and whether the time limit ended the search for it.

    `over` and `found` are those of `scheduler.partitioning.solving.solve`.
    """
    total, limit_hit = 0, False
    for level in levels:
        if len(level.sets) > 1:
            solution = solve(level.instance(instance), over, seed, found)
            if solution is not None:
                total += level.step * solution.lower_bound
                limit_hit |= solution.limit_hit
    return total, limit_hit
