"""Initial placements where pairs are too many to list: nodes are filled class by class.

10^5 executors in a few components have 10^9 pairs, but the rate that an executor keeps on a node is a sum over the
classes there. So every step takes time in the number of classes that communicate with the node, not of executors.
"""

from scheduler.partitioning.growth import by_capacity
from scheduler.partitioning.instance import Instance


def deal(instance: Instance) -> list[int] | None:
    """Return the better of two greedy placements (executor -> node), or None if neither respects all capacities."""
    found = [nodes for edge in (True, False) if (nodes := _grown(instance, edge)) is not None]
    return min(found, key=instance.cut) if found else None


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

    for node in order:
        rates: dict[int, int] = {}
        while True:
            near = [kind for kind in rates if takes(kind, node)]
            if near:
                chosen = max(near, key=lambda kind: (rates[kind], -waiting[kind], -kind))
            else:
                seeds = [kind for kind in range(len(left)) if takes(kind, node)]
                if not seeds:
                    break
                sign = -1 if from_the_edge else 1
                chosen = max(seeds, key=lambda kind: (waiting[kind] > 0, sign * waiting[kind], -kind))
            put(chosen, node)
            for other, rate in instance.near[chosen].items():
                rates[other] = rates.get(other, 0) + rate
    for kind in sorted(range(len(left)), key=lambda kind: -instance.load[kind]):
        for node in order:
            while takes(kind, node):
                put(kind, node)
    return nodes if not any(left) else None
