"""Costs of hops between the nodes of an instance, in integers, and the cost of placements.

Nodes that cost the same from everywhere form a group: those of a rack, if hops cost by rack. Cost = sum over pairs of
executors on different nodes of rate times cost of the hop. Executors of a topology on a node share a worker.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from scheduler.partitioning.instance import Instance
from scheduler.problem import Hops, Problem
from scheduler.toolkit.exact import scaled
from scheduler.toolkit.objective import HopCosts, usable


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
