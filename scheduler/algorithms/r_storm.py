"""`r-storm`: communicating executors go to nearby nodes that they fit most tightly.

Peng, Hosseini, Hong, Farivar, Campbell: "R-Storm: Resource-Aware Scheduling in Storm", Middleware 2015, and the code
derived from it in Apache Storm (commit 780a472ad; v1.0.0 to v1.0.6, `DefaultResourceAwareStrategy.java`). Our
decisions: of equally distant nodes the one with the smaller id is taken (the code loses one of them); a share of zero
is 0; components that no spout reaches come last, with Storm's own.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from scheduler.problem import Needs, Placement, Plan, Problem, concluded
from scheduler.ras.attempt import Attempt, ExecutorKind, Rules, never_fits
from scheduler.ras.executor_order import is_system
from scheduler.ras.ledger import ResourceLedger, ratio
from scheduler.toolkit.slots import assigned, waiting
from workloads.topology import Component, Executor, Topology

Weight = Annotated[float, Meta(ge=0)]
Variant = Literal["rstorm_paper", "780a472ad", "rstorm_1_0"]


@dataclass(frozen=True)
class RStormParams:
    """Parameters of `r-storm`.

    Attributes:
        variant: the paper, the commit that made distances relative, or the released code.
        wc: weight of CPU in the distance.
        wm: weight of memory.
        wn: weight of the network.
    """

    variant: Variant = "rstorm_paper"
    wc: Weight = 1.0
    wm: Weight = 1.0
    wn: Weight = 1.0


class RStorm:
    """Breadth first from the spouts, each executor on the nearest node that has room."""

    name: ClassVar[str] = "r-storm"
    paper: ClassVar[str] = "Peng et al.: R-Storm, Middleware 2015; Apache Storm 1.0"
    needs: ClassVar[Needs] = Needs(
        resources=True,
        memory=True,
        cycles=True,
        ignores="workers asked for, load, traffic, priorities, clock, FLOPs per cycle",
    )
    Params: ClassVar[type] = RStormParams

    def __init__(self, params: RStormParams) -> None:
        self._params = params

    def heap(self, component: Component) -> float:
        """Return the MB that an executor uses of the heap of its worker: on-heap and off-heap, as in Storm 1.0."""
        return component.memory

    def place(self, problem: Problem) -> Plan:
        """Place topologies in order, each as a whole or not at all."""
        ledger = ResourceLedger(problem)
        placements = {topology.id: self._place(problem, ledger, topology) for topology in problem.topologies}
        return ledger.state.plan(placements)

    def _place(self, problem: Problem, ledger: ResourceLedger, topology: Topology) -> Placement:
        workers = ledger.state.workers[topology.id]
        todo = waiting(topology, workers)
        message = ""
        if todo and not any(component.kind == "spout" for component in topology.components):
            message = "there is no spout to begin with"
        elif todo and not ledger.ids:
            message = "no node is available"
        elif todo:
            rules = Rules(
                ledger.mb_unit.count(topology.worker_max_heap_mb),
                offheap_counts=True,
                soft_cpu=self._params.variant == "rstorm_paper",
            )
            message = never_fits(ledger, topology, rules, todo)
            attempt = Attempt(ledger, topology, rules)
            stuck = None if message else _Walk(problem, attempt, self._params).run(breadth_first(topology, todo))
            if stuck is not None:
                message = f"not enough resources: {stuck.name} fits on no node that may be used"
            elif not message:
                attempt.commit()
        return concluded(topology, assigned(workers), message)


def breadth_first(topology: Topology, executors: Sequence[Executor]) -> list[Executor]:
    """Return one executor of each component in turns, components breadth first from the spouts.

    Components that no spout reaches come last.
    """
    near: dict[str, tuple[set[str], set[str]]] = {c.id: (set(), set()) for c in topology.components}
    for source, destination, _ in topology.links():
        near[source.id][0].add(destination.id)
        near[destination.id][1].add(source.id)
    seen: dict[str, None] = {}
    for spout in sorted(c.id for c in topology.components if c.kind == "spout" and not is_system(c.id)):
        queue = deque([] if spout in seen else [spout])
        seen[spout] = None
        while queue:
            children, parents = near[queue.popleft()]
            for neighbour in (*sorted(children), *sorted(parents)):
                if neighbour not in seen:
                    seen[neighbour] = None
                    queue.append(neighbour)
    left: dict[str, deque[Executor]] = {}
    for executor in sorted(executors):
        left.setdefault(executor.component, deque()).append(executor)
    order: list[Executor] = []
    turn = list(seen)
    while turn := [component for component in turn if left.get(component)]:
        order.extend(left[component].popleft() for component in turn)
    return order + [executor for component in left.values() for executor in component]


class _Walk:
    """Placement of one topology. The reference node moves or stays, depending on the variant."""

    def __init__(self, problem: Problem, attempt: Attempt, params: RStormParams) -> None:
        ledger = attempt.ledger
        self._attempt = attempt
        self._params = params
        self._rack = ledger.rack
        # The code's distances are half of the paper's, in which nodes of one rack are 1 apart by default.
        self._same_rack = problem.cluster.network.same_rack / 2
        self._other_rack = problem.cluster.network.other_rack / 2
        self._point, self._mb = ledger.cpu_unit.count(1.0), ledger.mb_unit.count(1.0)
        self._first_rack = self._largest_rack()
        self._reference: int | None = None
        if params.variant == "rstorm_paper":
            mine = [node for node, rack in enumerate(self._rack) if rack == self._first_rack]
            self._reference = max(mine, key=lambda node: (self._size(node), -node))
        self._log: list[int] = []  # nodes on which executors were placed
        self._open: dict[int, _Open] = {}

    def run(self, order: Sequence[Executor]) -> Executor | None:
        """Place all executors. Return the first one that fits nowhere, or None."""
        moves = self._params.variant != "rstorm_paper"
        for executor in order:
            kind = self._attempt.kinds[executor.component]
            nearest = self._nearest(kind)
            if nearest is None:
                return executor
            node, place = nearest
            self._attempt.put(node, place, kind, executor)
            self._log.append(node)
            if moves:
                self._reference = node
        return None

    def _nearest(self, kind: ExecutorKind) -> tuple[int, int] | None:
        """Return the nearest node that accepts the executor, and the place there."""
        if kind.number not in self._open:
            self._open[kind.number] = _Open(self._attempt, self._rack, _squared(self._params.wn * self._other_rack))
            self._open[kind.number].enter(range(len(self._rack)), lambda node: self._misfit(kind, node))
        candidates, reference = self._open[kind.number], self._reference
        candidates.enter(dict.fromkeys(self._log[candidates.seen :]), lambda node: self._misfit(kind, node))
        candidates.seen = len(self._log)
        while True:
            near: list[tuple[float, int]] = []
            own = self._first_rack if reference is None else self._rack[reference]
            head = candidates.head(own)
            if head is not None:
                near.append((head[0] + self._way(head[1]), head[1]))
            if reference is not None:
                if candidates.has(reference):
                    near.append((self._misfit(kind, reference), reference))
                elsewhere = candidates.elsewhere(own)
                if elsewhere is not None:
                    near.append(elsewhere)
            if not near:
                return None
            _, node = min(near)
            place = self._attempt.first_fit(node, kind)
            if place is not None:
                return node, place
            candidates.close(node)

    def _misfit(self, kind: ExecutorKind, node: int) -> float:
        """Return the squared difference between the demand and the node's remaining resources."""
        points = self._difference(kind.demand.cpu, max(self._attempt.cpu[node], 0), self._point)
        mb = self._difference(kind.demand.memory, self._attempt.memory[node], self._mb)
        return _squared(self._params.wc * points) + _squared(self._params.wm * mb)

    def _way(self, node: int) -> float:
        """Return the squared network distance to the reference node."""
        if self._reference is None or node == self._reference:
            return 0.0
        near = self._rack[node] == self._rack[self._reference]
        return _squared(self._params.wn * (self._same_rack if near else self._other_rack))

    def _difference(self, demanded: int, left: int, one: int) -> float:
        if self._params.variant == "rstorm_paper":
            return ratio(demanded - left, one)
        if self._params.variant == "rstorm_1_0":
            return ratio(demanded - left, left + one)
        return ratio(demanded - left, left) if left else 0.0  # the demand is 0 too, or it would not fit

    def _size(self, node: int) -> int:
        """Return the sum of remaining MB and points."""
        return self._attempt.cpu[node] * self._mb + self._attempt.memory[node] * self._point

    def _largest_rack(self) -> str:
        sizes: dict[str, int] = {}
        for node, rack in enumerate(self._rack):
            sizes[rack] = sizes.get(rack, 0) + self._size(node)
        return min(sizes, key=lambda rack: (-sizes[rack], rack))


def _squared(value: float) -> float:
    return value * value  # infinite where ** would raise


class _Open:
    """Nodes that may still accept one kind of executor: per rack the best one, the network aside.

    Within a rack all nodes but the reference are equally distant, so the best node overall is among the best of each
    rack. Racks other than the reference's are equally distant, too, so that the best of those is kept at hand.

    Attributes:
        seen: number of placements already processed.
    """

    def __init__(self, attempt: Attempt, rack: Sequence[str], other_rack: float) -> None:
        """Begin without nodes; `other_rack` is the squared distance of nodes in different racks."""
        self._attempt = attempt
        self._rack = rack
        self._other_rack = other_rack
        self._closed: set[int] = set()
        self._heaps: dict[str, list[tuple[float, int, int, int]]] = {}
        self._changed: set[str] = set()
        self._racks: list[tuple[float, int]] = []  # heap of distance to another rack, and node; some are outdated
        self._head: dict[str, tuple[float, int] | None] = {}
        self.seen = 0

    def has(self, node: int) -> bool:
        """Return whether the node is still open."""
        return node not in self._closed

    def close(self, node: int) -> None:
        """Close the node."""
        self._closed.add(node)
        self._changed.add(self._rack[node])

    def enter(self, nodes: Iterable[int], misfit: Callable[[int], float]) -> None:
        """Insert nodes that are new or have changed."""
        for node in nodes:
            self._changed.add(self._rack[node])
            if node not in self._closed:
                heap = self._heaps.setdefault(self._rack[node], [])
                heappush(heap, (misfit(node), node, self._attempt.cpu[node], self._attempt.memory[node]))

    def head(self, rack: str) -> tuple[float, int] | None:
        """Return misfit and number of the best open node of a rack, or None."""
        if rack in self._changed:
            heap = self._heaps.get(rack, [])
            while heap and not self._holds(*heap[0]):
                heappop(heap)
            head = (heap[0][0], heap[0][1]) if heap else None
            if head is not None and head != self._head.get(rack):
                heappush(self._racks, (head[0] + self._other_rack, head[1]))
            self._head[rack] = head
            self._changed.remove(rack)
        return self._head.get(rack)

    def elsewhere(self, rack: str) -> tuple[float, int] | None:
        """Return distance and number of the best open node outside of a rack, or None."""
        for other in list(self._changed):
            self.head(other)
        aside: list[tuple[float, int]] = []
        nearest: tuple[float, int] | None = None
        while self._racks and nearest is None:
            distance, node = self._racks[0]
            head = self._head.get(self._rack[node])
            if head is None or (head[0] + self._other_rack, head[1]) != (distance, node):
                heappop(self._racks)
            elif self._rack[node] != rack:
                nearest = distance, node
            else:
                aside.append(heappop(self._racks))
        for entry in set(aside):
            heappush(self._racks, entry)
        return nearest

    def _holds(self, _: float, node: int, cpu: int, memory: int) -> bool:
        attempt = self._attempt
        return node not in self._closed and attempt.cpu[node] == cpu and attempt.memory[node] == memory
