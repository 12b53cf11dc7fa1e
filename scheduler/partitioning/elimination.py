"""Elimination order of the classes, and the states of nodes while executors are placed in that order.

Common to the exact searches for W (`scheduler.partitioning.exact`) and for the cost of hops
(`scheduler.partitioning.exact_by_hops`).
"""

from collections.abc import Mapping

from scheduler.partitioning.instance import Instance

Content = tuple[tuple[int, int], ...]
"""(class, members) of a node's executors with unplaced partners."""

Key = tuple[int, int, Content, tuple[int, ...], tuple[tuple[int, int], ...]]
"""State of a node: free load, free memory, content, its slots and topologies hosted (where slots are scarce or workers
are limited), and (topology, work) of its executors (where workers are limited)."""


def elimination_order(instance: Instance) -> list[int]:
    """Return an order of the classes in which few executors at a time have partners on both sides.

    Classes without partners come last.
    """
    loners = [kind for kind, near in enumerate(instance.near) if not near]
    best: list[int] = []
    best_cost: tuple[int, int] | None = None
    starts = [kind for kind, near in enumerate(instance.near) if near]
    starts.sort(key=lambda kind: (len(instance.near[kind]), kind))
    for start in starts[:16]:
        order, cost = _order_from(instance, start, len(starts))
        if best_cost is None or cost < best_cost:
            best, best_cost = order, cost
    return best + loners


def _order_from(instance: Instance, start: int, count: int) -> tuple[list[int], tuple[int, int]]:
    sizes = [len(members) for members in instance.members]
    waiting = [len(near) for near in instance.near]  # class -> partners without a place in the order
    rates = [0] * len(sizes)  # class -> rate to those that have one, and partners without
    order: list[int] = []
    placed: set[int] = set()
    live: set[int] = set()
    widest = total = 0

    def place(kind: int) -> None:
        order.append(kind)
        placed.add(kind)
        live.add(kind)
        for other, rate in instance.near[kind].items():
            waiting[other] -= 1
            rates[other] += rate

    place(start)
    while len(order) < count:
        for kind in [kind for kind in live if not waiting[kind]]:
            live.remove(kind)
            for other, rate in instance.near[kind].items():
                rates[other] -= rate
        width = sum(sizes[kind] for kind in live)
        widest, total = max(widest, width), total + width
        offers = {other for kind in live for other in instance.near[kind] if other not in placed}
        if not offers:
            offers = {kind for kind, near in enumerate(instance.near) if near and kind not in placed}

        def growth(kind: int) -> tuple[int, int, int]:
            """Return the increase in executors with partners on both sides, and minus the rate to those of now."""
            near = instance.near[kind]
            closing = sum(sizes[other] for other in near if waiting[other] == 1 and other in live)
            return sizes[kind] * (waiting[kind] > 0) - closing, -rates[kind], kind

        place(min(offers, key=growth))
    return order, (widest, total)


def waiting_pairs(instance: Instance, left: Mapping[int, int]) -> int:
    """Return the rate between all executors that wait, where `left` is class -> waiting members."""
    twice = 0
    for one, mine in left.items():
        for other, rate in instance.near[one].items():
            if other == one:
                twice += rate * mine * (mine - 1)
            elif other in left:
                twice += rate * mine * left[other]
    return twice // 2


class NodeStates:
    """States of nodes, numbered as they are met.

    Attributes:
        keys: number -> state.
    """

    def __init__(self, instance: Instance) -> None:
        self.keys: list[Key] = []
        self._instance = instance
        self._number: dict[Key, int] = {}

    def numbered(self, key: Key) -> int:
        """Return the number of a state."""
        number = self._number.get(key)
        if number is None:
            number = self._number[key] = len(self.keys)
            self.keys.append(key)
        return number

    def empty(self) -> dict[int, int]:
        """Return usable node -> number of its state before any executor is placed."""
        instance = self._instance
        nodes: dict[int, int] = {}
        for node, slots in enumerate(instance.slots):
            if slots:
                hosted = (slots,) if instance.scarce or instance.worker is not None else ()
                nodes[node] = self.numbered((instance.capacity[node], instance.room[node], (), hosted, ()))
        return nodes


class Placing:
    """Placement of the members of one class: what becomes of the state of a node.

    Args:
        instance: the problem.
        states: the states of its nodes.
        kind: the class.
        waiting: this and all later classes of the order.
    """

    def __init__(self, instance: Instance, states: NodeStates, kind: int, waiting: list[int]) -> None:
        self.instance = instance
        self.states = states
        self.kind = kind
        self.coming = set(waiting)
        self.later = self.coming - {kind}
        self.lightest = min((instance.load[other] for other in self.later), default=-1)

    def rate_with(self, number: int) -> int:
        """Return the rate between one member and the executors of a node."""
        near = self.instance.near[self.kind]
        return sum(near.get(other, 0) * count for other, count in self.states.keys[number][2])

    def after(self, number: int) -> int:
        """Return the state of a node after it receives a member; -1 if it has no room."""
        instance, kind = self.instance, self.kind
        free, room, content, hosted, works = self.states.keys[number]
        free -= instance.load[kind]
        room -= instance.memory[kind]
        if free < 0 or room < 0:
            return -1
        if hosted and instance.topology[kind] not in hosted[1:]:
            if len(hosted) > hosted[0]:
                return -1
            hosted = (hosted[0], *sorted((*hosted[1:], instance.topology[kind])))
        if instance.worker is not None:
            fresh = ((instance.topology[kind], work) for work in instance.worker.works[kind])
            works = tuple(sorted((*works, *fresh), reverse=True))
            if not instance.worker.suffices(hosted[0], works, hosted[1:]):
                return -1
        if any(other in self.coming for other in instance.near[kind]):
            counts = dict(content)
            counts[kind] = counts.get(kind, 0) + 1
            content = tuple(sorted(counts.items()))
        return self.states.numbered((free, room, content, hosted, works))

    def still_open(self, content: Content) -> Content:
        """Return the executors of `content` that have partners in later classes."""
        near = self.instance.near
        return tuple((kind, count) for kind, count in content if any(other in self.later for other in near[kind]))
