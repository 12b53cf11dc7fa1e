"""Executors in slots that are a core each: few slots on few nodes, none above a share of its core.

A worker is one process that computes on one core at a time. A slot takes executors up to a share of a core, or a single
larger one; a node takes them up to the same share of its CPU, and up to its `capacity`, which counts executors.
"""

from collections.abc import Callable, Collection, Mapping
from heapq import heapify, heappop, heappush
from math import inf

from scheduler.problem import Problem, Slot
from scheduler.toolkit.slots import FreeSlots, port_order
from workloads.topology import Executor

CORE = 100.0
"""CPU points of a core."""

Places = Mapping[Executor, Slot]
Points = Mapping[Executor, float]

SlotEntry = tuple[float, tuple[int, int], Slot]
NodeEntry = tuple[float, int, str]
"""CPU points in a slot, or load of a node; its rank; itself."""


class CorePacking:
    """Nodes and free slots of a round, and what is placed on them."""

    def __init__(
        self,
        problem: Problem,
        share: float,
        most_nodes: int | None = None,
        nodes: Collection[str] | None = None,
        base: Mapping[str, float] = {},
    ) -> None:
        """Start without executors.

        Args:
            problem: the round; the slots of its running workers are taken.
            share: share of a core, and of a node's CPU, that may be used.
            most_nodes: maximum number of nodes in use; None = all.
            nodes: the only nodes that may be used; None = all.
            base: node -> CPU points that are used otherwise.
        """
        self._share = share
        self._most_nodes = inf if most_nodes is None else most_nodes
        self._cluster = problem.cluster
        self._free = FreeSlots(problem)
        usable = [node for node in problem.cluster.available if nodes is None or node.id in nodes]
        self._rank = {node.id: at for at, node in enumerate(usable)}
        self._cpu = {node.id: node.cpu_points for node in usable}
        self._most_on = {node.id: inf if node.capacity is None else node.capacity for node in usable}
        self._on_node = {node.id: base.get(node.id, 0.0) for node in usable}
        self._in_slot: dict[Slot, float] = {}
        self._number = dict.fromkeys(self._rank, 0)
        self._used: set[str] = set()
        # Heaps with out-of-date entries: slots of the topology, and nodes with and without executors.
        self._own: list[SlotEntry] = []
        self._joined: list[NodeEntry] = []
        self._unused = [(self._load(node), rank, node) for node, rank in self._rank.items()]
        heapify(self._unused)
        # Without room for executors of the present size.
        self._aside_slots: list[SlotEntry] = []
        self._aside_nodes: list[tuple[list[NodeEntry], NodeEntry]] = []

    def nodes(self, places: Places) -> set[str]:
        """Return which of the nodes of `places` may stay in use: those with most executors."""
        number: dict[str, int] = {}
        for slot in places.values():
            if slot.node in self._rank:
                number[slot.node] = number.get(slot.node, 0) + 1
        order = sorted(number, key=lambda node: (-number[node], self._rank[node]))
        return set(order[: int(min(self._most_nodes, len(order)))])

    def slots(self, places: Places) -> int:
        """Return how many slots a topology can have that runs in `places`."""
        own: dict[str, int] = {}
        for slot in set(places.values()):
            own[slot.node] = own.get(slot.node, 0) + 1
        kept = self.nodes(places)
        count = {node: own.get(node, 0) + self._free.count(node) for node in self._rank}
        order = sorted(count, key=lambda node: (node not in kept, -count[node]))
        return sum(count[node] for node in order[: int(min(self._most_nodes, len(order)))])

    def keep(self, slot: Slot, points: float, margin: float = inf) -> bool:
        """Let a running executor stay, unless its slot or node would exceed their share by more than `margin`."""
        if margin < inf and not self._fits(slot, points, margin):
            return False
        self._add(slot, points)
        return True

    def place(
        self, own: Collection[Slot], waiting: Points, home: Places
    ) -> tuple[dict[Executor, Slot], list[Executor]]:
        """Place the executors of a topology, largest first, and take their slots.

        In this order: the least used slot of the topology with room, a free slot of a node in use, another node.
        Without room, executors stay at `home`, else they go where the resulting load is smallest.

        Args:
            own: slots of the topology.
            waiting: executor -> CPU points.
            home: slots where waiting executors may stay.

        Returns:
            Executor -> slot, without those for which there is no slot at all; and the executors that found no room.
        """
        placed: dict[Executor, Slot] = {}
        beyond: list[Executor] = []
        for node in {slot.node for slot in home.values()}:
            self._use(node)
        self._aside_slots.clear()
        self._own = [(self._in_slot.get(slot, 0.0), self._key(slot), slot) for slot in own if slot.node in self._rank]
        heapify(self._own)
        size = too_large = inf
        for executor, points in sorted(waiting.items(), key=lambda item: -item[1]):
            if points < size:
                size = points
                self._restore()
            slot = self._with_room(points) if points < too_large else None
            if slot is None:
                # Loads only rise: others of this size find no room either.
                too_large = points
                self._restore()
                beyond.append(executor)
                slot = home.get(executor) or self._least_loaded(points)
            if slot is None:
                continue
            if self._free.is_free(slot):
                self._free.take(slot)
            self._add(slot, points)
            heappush(self._own, (self._in_slot[slot], self._key(slot), slot))
            placed[executor] = slot
        return placed, beyond

    def highest(self) -> float:
        """Return the highest load of a slot, as a share of a core, or of a node, as a share of its CPU."""
        slots = [points / CORE for points in self._in_slot.values()]
        return max([*slots, *self.node_loads().values()], default=0.0)

    def node_loads(self) -> dict[str, float]:
        """Return node with executors -> its load, as a share of its CPU."""
        return {node: self._load(node) for node in sorted(self._used)}

    def _with_room(self, points: float) -> Slot | None:
        """Return a slot with room, or None."""
        slot = self._least_used(lambda slot: self._fits(slot, points), self._share * CORE - points)
        if slot is not None:
            return slot
        for joining in (False, True):
            node = self._least_loaded_node(joining, lambda node: self._has_room(node, points))
            if node is not None:
                return self._free.lowest(node)
        return None

    def _least_loaded(self, points: float) -> Slot | None:
        """Return the slot with the smallest load afterwards, of itself or its node, or None without any slot."""
        nodes = [self._least_loaded_node(joining, lambda _: True) for joining in (False, True)]
        slots = [self._least_used(lambda _: True, inf), *(self._free.lowest(node) for node in nodes if node)]

        def load(slot: Slot) -> float:
            return max((self._in_slot.get(slot, 0.0) + points) / CORE, self._load(slot.node, points))

        return min(filter(None, slots), key=lambda slot: (load(slot), self._key(slot)), default=None)

    def _least_used(self, fits: Callable[[Slot], bool], most: float) -> Slot | None:
        """Return the least used slot of the topology that fits, with at most `most` CPU points in use unless empty."""
        while self._own and (not self._own[0][0] or self._own[0][0] <= most):
            entry = heappop(self._own)
            if entry[0] == self._in_slot.get(entry[2], 0.0):
                if fits(entry[2]):
                    heappush(self._own, entry)
                    return entry[2]
                self._aside_slots.append(entry)
        return None

    def _least_loaded_node(self, joining: bool, fits: Callable[[str], bool]) -> str | None:
        """Return the least loaded node with a free slot that fits: in use, or another one if it may join."""
        if joining and len(self._used) >= self._most_nodes:
            return None
        heap = self._unused if joining else self._joined
        while heap:
            entry = heappop(heap)
            load, _, node = entry
            if load == self._load(node) and (node in self._used) != joining and self._free.count(node):
                if fits(node):
                    heappush(heap, entry)
                    return node
                self._aside_nodes.append((heap, entry))
        return None

    def _restore(self) -> None:
        """Put back what had no room for larger executors."""
        for slot in self._aside_slots:
            heappush(self._own, slot)
        for heap, node in self._aside_nodes:
            heappush(heap, node)
        self._aside_slots.clear()
        self._aside_nodes.clear()

    def _fits(self, slot: Slot, points: float, margin: float = 0.0) -> bool:
        in_slot = self._in_slot.get(slot)
        most = self._share * CORE * (1 + margin)
        return (in_slot is None or in_slot + points <= most) and self._has_room(slot.node, points, margin)

    def _has_room(self, node: str, points: float, margin: float = 0.0) -> bool:
        # A larger executor cannot use more than a core.
        after = self._on_node[node] + min(points, self._share * CORE)
        return after <= self._share * self._cpu[node] * (1 + margin) and self._number[node] < self._most_on[node]

    def _load(self, node: str, more: float = 0.0) -> float:
        points = self._on_node[node] + more
        return points / self._cpu[node] if self._cpu[node] else inf if points else 0.0

    def _key(self, slot: Slot) -> tuple[int, int]:
        return self._rank[slot.node], port_order(self._cluster, slot)

    def _add(self, slot: Slot, points: float) -> None:
        self._in_slot[slot] = self._in_slot.get(slot, 0.0) + points
        self._on_node[slot.node] += points
        self._number[slot.node] += 1
        self._use(slot.node)

    def _use(self, node: str) -> None:
        self._used.add(node)
        heappush(self._joined, (self._load(node), self._rank[node], node))
