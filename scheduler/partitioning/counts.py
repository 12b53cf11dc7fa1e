"""Placements under construction or search: the number of members of each class on each node; initial placements.

Members of a class are interchangeable, so counts suffice; an executor without equals is a class of one. Rates between a
class and a node are kept up to date, so that the gain of a move takes two look-ups. Initial placements fill nodes one
after the other with communicating executors.
"""

from collections.abc import Sequence

from scheduler.partitioning.instance import Instance


class Counts:
    """Counts per class and node, and derived quantities.

    Attributes:
        count: class -> node -> members there.
        rate: class -> node -> rate between one member and all executors there.
        free: node -> remaining load; below 0 without a slot, where not even an executor without load may go.
        room: node -> remaining memory.
        left: class -> members without a node.
        kept: rate inside nodes so far.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        nodes = range(len(instance.capacity))
        self.count = [[0 for _ in nodes] for _ in instance.members]
        self.rate = [[0 for _ in nodes] for _ in instance.members]
        self.free = [
            capacity if slots else -1 for capacity, slots in zip(instance.capacity, instance.slots, strict=True)
        ]
        self.room = list(instance.room)
        self.left = [len(members) for members in instance.members]
        self.kept = 0
        self.held = [0 for _ in nodes]
        self._hosted: list[dict[int, int]] = [{} for _ in nodes]
        self._scarce = instance.scarce
        self._limited = instance.worker is not None
        self._near = [tuple(others.items()) for others in instance.near]

    def takes(self, kind: int, node: int) -> bool:
        """Return whether `node` has room for one more member of class `kind`."""
        instance = self.instance
        if self.free[node] < instance.load[kind] or self.room[node] < instance.memory[kind]:
            return False
        return not (self._scarce or self._limited) or self.hosts(kind, node)

    def hosts(self, kind: int, node: int, leaving: int = -1) -> bool:
        """Return whether `node` has a slot for the topology of class `kind`, and workers for its work.

        Args:
            kind: class of an executor that comes.
            node: the node.
            leaving: class of an executor that leaves, for its work; its topology's slot counts as taken.
        """
        if self._scarce:
            hosted = self._hosted[node]
            if self.instance.topology[kind] not in hosted and len(hosted) >= self.instance.slots[node]:
                return False
        if not self._limited:
            return True
        members = {other: row[node] for other, row in enumerate(self.count) if row[node]}
        members[kind] = members.get(kind, 0) + 1
        if leaving >= 0:
            members[leaving] -= 1
        return self.instance.hosts(node, members)

    def put(self, kind: int, node: int) -> None:
        """Place one more member of class `kind` on `node`."""
        self.left[kind] -= 1
        self.kept += self.rate[kind][node]
        self._shift(kind, node, 1)

    def take(self, kind: int, node: int) -> None:
        """Remove a member of class `kind` from `node`."""
        self._shift(kind, node, -1)
        self.kept -= self.rate[kind][node]
        self.left[kind] += 1

    def _shift(self, kind: int, node: int, by: int) -> None:
        instance = self.instance
        self.count[kind][node] += by
        self.free[node] -= by * instance.load[kind]
        self.room[node] -= by * instance.memory[kind]
        self.held[node] += by
        for other, rate in self._near[kind]:
            self.rate[other][node] += by * rate
        if self._scarce:
            topology = instance.topology[kind]
            hosted = self._hosted[node]
            hosted[topology] = hosted.get(topology, 0) + by
            if not hosted[topology]:
                del hosted[topology]

    @property
    def complete(self) -> bool:
        """Return whether every executor has a node."""
        return not any(self.left)

    def node_of(self) -> list[int]:
        """Return executor -> node, or -1 without one; members of a class go to nodes in ascending order."""
        nodes = [-1] * self.instance.executors
        for members, counts in zip(self.instance.members, self.count, strict=True):
            at = iter(members)
            for node, count in enumerate(counts):
                for _ in range(count):
                    nodes[next(at)] = node
        return nodes


def counts_of(instance: Instance, node_of: Sequence[int]) -> Counts:
    """Return the counts of a placement (executor -> node, -1 without one)."""
    counts = Counts(instance)
    for executor, node in enumerate(node_of):
        if node >= 0:
            counts.put(instance.class_of[executor], node)
    return counts


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


def fill_in_order(instance: Instance, nodes: Sequence[int]) -> Counts:
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
