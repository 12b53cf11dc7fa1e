"""Initial placements: nodes are filled one after the other with communicating executors."""

from collections.abc import Sequence

from scheduler.partitioning.counts import Counts
from scheduler.partitioning.instance import Instance


def by_capacity(instance: Instance) -> list[int]:
    """Return usable nodes, largest first, equal ones in cluster order."""
    nodes = [node for node, capacity in enumerate(instance.capacity) if capacity > 0 or instance.slots[node]]
    return sorted(nodes, key=lambda node: -instance.capacity[node])


def grow(instance: Instance, nodes: Sequence[int], from_the_edge: bool) -> Counts:
    """Fill `nodes` in order, always with the executor that has the largest rate to the node.

    Ties go to the smallest rate to waiting executors, then the lowest class. A node starts with the executor that has
    the smallest (`from_the_edge`) or the largest rate to waiting executors. Executors without room stay without a node.
    """
    counts = Counts(instance)
    waiting = [sum(rate * len(instance.members[other]) for other, rate in near.items()) for near in instance.near]
    for kind, near in enumerate(instance.near):
        waiting[kind] -= near.get(kind, 0)
    for node in nodes:
        empty = True
        while True:
            best, chosen = None, -1
            for kind, left in enumerate(counts.left):
                if not left or not counts.takes(kind, node):
                    continue
                rate, outside = counts.rate[kind][node], waiting[kind]
                if empty:
                    key = (-outside if from_the_edge else outside, 0) if outside else (-(1 << 62), 0)
                else:
                    key = (rate, -outside)
                if best is None or key > best:
                    best, chosen = key, kind
            if chosen < 0:
                break
            counts.put(chosen, node)
            empty = False
            for other, rate in instance.near[chosen].items():
                waiting[other] -= rate
    return counts


def in_order(instance: Instance, nodes: Sequence[int]) -> Counts:
    """Fill `nodes` in order with executors in order; an executor that does not fit goes to a later node."""
    counts = Counts(instance)
    waiting = [instance.class_of[executor] for executor in range(instance.executors)]
    for node in nodes:
        passed: list[int] = []
        for kind in waiting:
            if counts.takes(kind, node):
                counts.put(kind, node)
            else:
                passed.append(kind)
        waiting = passed
        if not waiting:
            break
    return counts


def tightest(instance: Instance) -> Counts:
    """Place the heaviest executor first, each on the node that it fills best, for loads that are hard to pack."""
    counts = Counts(instance)
    order = sorted(range(len(instance.members)), key=lambda kind: (-instance.load[kind], -instance.memory[kind], kind))
    for kind in order:
        for _ in instance.members[kind]:
            fitting = [node for node in range(len(instance.capacity)) if counts.takes(kind, node)]
            if fitting:
                counts.put(kind, min(fitting, key=lambda node: (counts.free[node], node)))
    return counts
