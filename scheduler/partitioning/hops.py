"""Costs of hops between the nodes of an instance, in integers, and the cost of placements.

Nodes that cost the same from everywhere form a group: those of a rack, if hops cost by rack. Cost = sum over pairs of
executors on different nodes of rate times cost of the hop. Executors of a topology on a node share a worker.

Levels split that cost into cuts between ever larger sets of nodes. With ascending thresholds t_1 < t_2 < ... of the
table, a hop costs at least the sum over levels of (t_i - t_(i-1)), if its ends are not connected by hops below t_i. So
cost >= sum over levels of this step times the cut between the sets of nodes that are connected below the threshold; the
two are equal if hops cost by rack, and a rack is nearer than others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.solving import solve
from scheduler.problem import Hops, Problem
from scheduler.toolkit.exact import scaled
from scheduler.toolkit.objective import HopCosts, usable

MOST_LEVELS = 8
"""Maximum number of levels; with fewer, bounds are lower."""


@dataclass(frozen=True)
class HopTable:
    """Symmetric table over the nodes of an instance.

    Attributes:
        group: node -> its group.
        between: group -> group -> value for two different nodes, in integers.
        scale: these integers per unit of the value.
    """

    group: tuple[int, ...]
    between: tuple[tuple[int, ...], ...]
    scale: int

    def of(self, one: int, other: int) -> int:
        """Return the value for two nodes, 0 for a node and itself."""
        return 0 if one == other else self.between[self.group[one]][self.group[other]]

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Group -> its nodes."""
        members: list[list[int]] = [[] for _ in self.between]
        for node, group in enumerate(self.group):
            members[group].append(node)
        return tuple(map(tuple, members))

    def cost(self, instance: Instance, node_of: Sequence[int]) -> int:
        """Return the cost of a placement (executor -> node), in units of rate times units of the table."""
        by_node: list[dict[int, int]] = []
        by_group: list[dict[int, int]] = []
        for members in instance.members:
            nodes: dict[int, int] = {}
            groups: dict[int, int] = {}
            for executor in members:
                node = node_of[executor]
                nodes[node] = nodes.get(node, 0) + 1
                groups[self.group[node]] = groups.get(self.group[node], 0) + 1
            by_node.append(nodes)
            by_group.append(groups)
        twice = 0
        for one, others in enumerate(instance.near):
            for other, rate in others.items():
                if other < one:
                    continue
                pairs = sum(
                    times * more * self.between[a][b]
                    for a, times in by_group[one].items()
                    for b, more in by_group[other].items()
                )
                few, many = sorted((by_node[one], by_node[other]), key=len)
                for node, times in few.items():
                    if node in many:
                        group = self.group[node]
                        pairs -= times * many[node] * self.between[group][group]
                twice += rate * pairs * (1 if other == one else 2)
        return twice // 2


def hop_table(problem: Problem, hops: Hops) -> HopTable:
    """Return the costs of hops of a problem's cluster.

    Raises:
        LackingNodeError: a delay is not known.
    """
    costs = HopCosts(problem.cluster, hops, problem.traffic)
    if hops == "racks":
        nodes = problem.cluster.nodes
        network = problem.cluster.network
        racks = {rack: at for at, rack in enumerate(dict.fromkeys(node.rack for node in nodes))}
        scale, ((near, far),) = scaled([network.same_rack, network.other_rack])
        between = tuple(tuple(near if a == b else far for b in racks.values()) for a in racks.values())
        return HopTable(tuple(racks[node.rack] for node in nodes), between, scale)
    return _table(problem, costs.between)


def link_table(problem: Problem, hops: Hops) -> HopTable:
    """Return what multiplies the rate between two nodes: 1 by rack, 1 / Mbit/s by links.

    Raises:
        LackingNodeError: a rate is not known.
    """
    if hops == "racks":
        return HopTable((0,) * len(problem.cluster.nodes), ((1,),), 1)
    costs = HopCosts(problem.cluster, hops, problem.traffic)
    return _table(problem, lambda one, other: 1 / costs.rate(one, other))


def _table(problem: Problem, value: Callable[[str, str], float]) -> HopTable:
    """Return the table of a function of two nodes' ids; nodes that cannot be used have the value 0."""
    nodes = problem.cluster.nodes
    known = {node.id for node in usable(problem.cluster)}
    values = [
        [value(one.id, other.id) if one is not other and {one.id, other.id} <= known else 0.0 for other in nodes]
        for one in nodes
    ]
    scale, rows = scaled(*values)
    group: list[int] = []
    first: list[int] = []
    for node in range(len(nodes)):
        number = next((at for at, twin in enumerate(first) if _twins(rows, node, twin)), len(first))
        if number == len(first):
            first.append(node)
        group.append(number)
    twin = {group[node]: node for node in reversed(range(len(nodes))) if node not in first}
    between = tuple(
        tuple(rows[one][twin.get(a, one) if a == b else other] for b, other in enumerate(first))
        for a, one in enumerate(first)
    )
    return HopTable(tuple(group), between, scale)


def _twins(rows: Sequence[Sequence[int]], one: int, other: int) -> bool:
    return all(a == b for at, (a, b) in enumerate(zip(rows[one], rows[other], strict=True)) if at not in (one, other))


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
