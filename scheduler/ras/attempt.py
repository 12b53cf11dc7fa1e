"""Resources of one topology while it is being placed; nothing is committed until the whole topology has places.

A worker is identified by its node's number and a place: the position of its slot among the slots that were free on the
node at the start of the attempt. Running workers are never extended. Until something is taken back, an executor that
does not fit into a worker will not fit later either; this shortens the search for a place. Storm 2.3 and later bind
ackers to workers when these are opened.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from scheduler.problem import Slot
from scheduler.ras.executor_order import is_system
from scheduler.ras.ledger import ResourceDemand, ResourceLedger
from workloads.topology import ACKER, Executor, Topology


@dataclass(frozen=True)
class Rules:
    """Rules on sharing a worker.

    Attributes:
        heap_limit: maximum heap of a worker, in the ledger's unit.
        offheap_counts: off-heap memory counts towards the limit too (1.x).
        soft_cpu: a node may exceed its CPU (R-Storm's paper).
        one_executor: a worker holds one executor.
        one_component: a worker holds executors of one component.
        incompatible: component -> components that must not share a worker with it.
        most_per_node: component -> maximum number of its executors on a node.
    """

    heap_limit: int
    offheap_counts: bool = False
    soft_cpu: bool = False
    one_executor: bool = False
    one_component: bool = False
    incompatible: Mapping[str, frozenset[str]] = field(default_factory=dict)
    most_per_node: Mapping[str, int] = field(default_factory=dict)

    @property
    def components_matter(self) -> bool:
        """Return whether an executor's component matters, beside its demand."""
        return self.one_component or bool(self.incompatible) or bool(self.most_per_node)


@dataclass(frozen=True)
class ExecutorKind:
    """Executors with the same set of possible places.

    Attributes:
        number: 0, 1, ... within the attempt.
        component: a component of these executors; the only one if components matter.
        demand: demand of each executor.
        heap: part of the demand that counts towards a worker's heap limit.
    """

    number: int
    component: str
    demand: ResourceDemand
    heap: int


class _Worker:
    __slots__ = ("components", "cpu", "executors", "heap")

    def __init__(self) -> None:
        self.cpu = 0
        self.heap = 0
        self.executors: list[Executor] = []
        self.components: Counter[str] = Counter()


class Attempt:
    """Placement of one topology in progress.

    Attributes:
        cpu, memory: node number -> remaining amount.
        count: node number -> executors of the topology there, running ones included.
        kinds: component -> its kind.
    """

    def __init__(self, ledger: ResourceLedger, topology: Topology, rules: Rules) -> None:
        self.ledger = ledger
        self.topology = topology
        self.rules = rules
        left = [ledger.left(node) for node in range(len(ledger.ids))]
        self.cpu = [amount.cpu for amount in left]
        self.memory = [amount.memory for amount in left]
        self.count = [0] * len(left)
        self._places = [ledger.state.free.count(node) for node in ledger.ids]
        self._workers: list[list[_Worker | None]] = [[] for _ in left]
        self._on_node: Counter[tuple[int, str]] = Counter()
        for slot, executors in ledger.state.workers[topology.id].items():
            node = ledger.number[slot.node]
            self.count[node] += len(executors)
            for executor in executors:
                self._on_node[node, executor.component] += 1
        self.kinds = self._kinds()
        # Kind -> node -> number of leading places known to have no room for it.
        self._from: list[dict[int, int]] = [{} for _ in {kind.number for kind in self.kinds.values()}]
        # Node -> a heap that no place on it has room for; smaller than any only where workers differ in nothing else.
        self._refused_heap = [self._refused_at_first(node) for node in range(len(left))]
        self._heap_decides = not (
            rules.components_matter or rules.one_executor or (ledger.min_cpu and not rules.soft_cpu)
        )
        self._cpu_adds_up = not ledger.min_cpu and not rules.soft_cpu

    def _kinds(self) -> dict[str, ExecutorKind]:
        kinds: dict[str, ExecutorKind] = {}
        seen: dict[tuple[ResourceDemand, str], ExecutorKind] = {}
        for component in self.topology.components:
            demand = self.ledger.demand(self.topology.id, component.id)
            alike = (demand, component.id if self.rules.components_matter else "")
            if alike not in seen:
                heap = demand.memory if self.rules.offheap_counts else demand.onheap
                seen[alike] = ExecutorKind(len(seen), component.id, demand, heap)
            kinds[component.id] = seen[alike]
        return kinds

    def _refused_at_first(self, node: int) -> int:
        return self.rules.heap_limit + 1 if self._places[node] else 0

    def may_take(self, kind: ExecutorKind, nodes: Iterable[int]) -> list[int]:
        """Return those of `nodes` that may have room for `kind`, without examining their workers."""
        memory, refused, heap = self.memory, self._refused_heap, kind.heap
        least = kind.demand.memory
        accepting = [node for node in nodes if memory[node] >= least and heap < refused[node]]
        if self._cpu_adds_up:
            accepting = [node for node in accepting if self.cpu[node] >= kind.demand.cpu]
        return accepting

    def alike(self) -> Counter[tuple[int, int, int]]:
        """Return (free slots, CPU, memory) -> number of such nodes, before anything is put."""
        return Counter(zip(self._places, self.cpu, self.memory, strict=True))

    def has_places(self, node: int) -> bool:
        """Return whether the node had a free slot at the start of the attempt."""
        return self._places[node] > 0

    def first_fit(self, node: int, kind: ExecutorKind, start: int = 0) -> int | None:
        """Return the first place on `node`, from `start` on, with room for one executor of `kind`, or None."""
        demand = kind.demand
        if demand.memory > self.memory[node]:
            return None
        if demand.cpu > self.cpu[node] and self._cpu_adds_up:
            return None
        if kind.heap >= self._refused_heap[node]:
            return None
        most = self.rules.most_per_node.get(kind.component)
        if most is not None and self._on_node[node, kind.component] >= most:
            return None
        workers = self._workers[node]
        known = self._from[kind.number]
        below = known.get(node, 0)
        place = max(start, below)
        while place < len(workers):
            worker = workers[place]
            if self._fits_empty(node, kind) if worker is None else self._fits(node, worker, kind):
                break
            place += 1
        if start <= below < place:
            known[node] = place
        if place < len(workers) or (place < self._places[node] and self._fits_empty(node, kind)):
            return place
        if self._heap_decides and start <= below:
            self._refused_heap[node] = kind.heap
        return None

    def takes(self, node: int, place: int, kind: ExecutorKind) -> bool:
        """Return whether the worker in `place` has room for one more executor of `kind`."""
        worker = self._workers[node][place]
        most = self.rules.most_per_node.get(kind.component)
        return (
            worker is not None
            and kind.demand.memory <= self.memory[node]
            and (most is None or self._on_node[node, kind.component] < most)
            and self._fits(node, worker, kind)
        )

    def _fits_empty(self, node: int, kind: ExecutorKind) -> bool:
        rules = self.rules
        return kind.heap <= rules.heap_limit and (
            rules.soft_cpu or max(kind.demand.cpu, self.ledger.min_cpu) <= self.cpu[node]
        )

    def _fits(self, node: int, worker: _Worker, kind: ExecutorKind) -> bool:
        rules, floor = self.rules, self.ledger.min_cpu
        if worker.heap + kind.heap > rules.heap_limit:
            return False
        more = max(worker.cpu + kind.demand.cpu, floor) - max(worker.cpu, floor)
        if more > self.cpu[node] and not rules.soft_cpu:
            return False
        if rules.one_executor:
            return False
        if rules.one_component and kind.component not in worker.components:
            return False
        barred = rules.incompatible.get(kind.component)
        return barred is None or barred.isdisjoint(worker.components)

    def put(self, node: int, place: int, kind: ExecutorKind, executor: Executor) -> bool:
        """Put `executor` into `place`. Return whether that opened a worker."""
        workers = self._workers[node]
        workers.extend([None] * (place + 1 - len(workers)))
        worker = workers[place]
        opened = worker is None
        floor = self.ledger.min_cpu
        if worker is None:
            worker = workers[place] = _Worker()
            before = 0
        else:
            before = max(worker.cpu, floor)
        worker.cpu += kind.demand.cpu
        worker.heap += kind.heap
        worker.executors.append(executor)
        worker.components[executor.component] += 1
        self.cpu[node] -= max(worker.cpu, floor) - before
        self.memory[node] -= kind.demand.memory
        self.count[node] += 1
        self._on_node[node, executor.component] += 1
        return opened

    def take_back(self, node: int, place: int, kind: ExecutorKind) -> None:
        """Remove the executor that was put into `place` last."""
        worker = self._workers[node][place]
        if worker is None:
            raise ValueError(f"place {place} of node {node} is empty")
        floor = self.ledger.min_cpu
        executor = worker.executors.pop()
        before = max(worker.cpu, floor)
        worker.cpu -= kind.demand.cpu
        worker.heap -= kind.heap
        worker.components -= Counter((executor.component,))
        self.memory[node] += kind.demand.memory
        self.count[node] -= 1
        self._on_node[node, executor.component] -= 1
        if worker.executors:
            self.cpu[node] += before - max(worker.cpu, floor)
        else:
            self.cpu[node] += before
            self._workers[node][place] = None
        self._refused_heap[node] = self._refused_at_first(node)
        for known in self._from:
            known.pop(node, None)

    def unplaced(self, executors: Iterable[Executor]) -> list[Executor]:
        """Return those of `executors` that have no place now."""
        placed = {one for workers in self._workers for worker in workers if worker for one in worker.executors}
        return [executor for executor in executors if executor not in placed]

    def commit(self) -> None:
        """Start the new workers."""
        for node, workers in enumerate(self._workers):
            if not any(workers):
                continue
            name = self.ledger.ids[node]
            slots: Sequence[Slot] = list(islice(self.ledger.state.free.of(name), len(workers)))
            for slot, worker in zip(slots, workers, strict=True):
                if worker is not None:
                    self.ledger.start(self.topology.id, slot, worker.executors)


def never_fits(ledger: ResourceLedger, topology: Topology, rules: Rules, executors: Iterable[Executor]) -> str:
    """Return why a worker or a node has too little memory for one of `executors` even if it is empty; else nothing."""
    largest, unit = ledger.largest_memory, ledger.mb_unit
    for component in dict.fromkeys(executor.component for executor in executors):
        demand = ledger.demand(topology.id, component)
        heap = demand.memory if rules.offheap_counts else demand.onheap
        if heap > rules.heap_limit:
            return (
                f"a worker has {unit.written(rules.heap_limit)} MB of heap (worker_max_heap_mb), and an executor of "
                f"{component!r} needs {unit.written(heap)} MB"
            )
        if demand.memory > largest:
            return (
                f"an executor of {component!r} needs {unit.written(demand.memory)} MB, and the largest available node "
                f"has {unit.written(largest)} MB"
            )
    return ""


def ackers_per_worker(attempt: Attempt) -> int:
    """Return the number of the topology's ackers divided by the workers that its on-heap memory needs."""
    topology, limit = attempt.topology, attempt.rules.heap_limit
    if ACKER not in topology.component:
        return 0
    onheap = sum(attempt.kinds[c.id].demand.onheap * c.parallelism for c in topology.components if not is_system(c.id))
    workers = max(1, -(-onheap // limit)) if limit else 1
    return -(-topology.component[ACKER].parallelism // workers)


class Ackers:
    """Waiting ackers of an attempt, at the end of the order; a first part of them is bound."""

    def __init__(self, attempt: Attempt, order: Sequence[Executor]) -> None:
        self._attempt = attempt
        self._waiting = [executor for executor in order if executor.component == ACKER]
        self.first = len(order) - len(self._waiting)
        self.bound = 0
        self._each = 0 if _alone(attempt.rules) else ackers_per_worker(attempt)
        self._kind: ExecutorKind | None = attempt.kinds.get(ACKER)

    def is_bound(self, position: int) -> bool:
        """Return whether the executor at `position` of the order is an acker bound to a worker."""
        return self.first <= position < self.first + self.bound

    def bind(self, node: int, place: int, kind: ExecutorKind, component: str) -> int:
        """Put ackers into the worker that `component` just opened, as far as they fit. Return how many."""
        acker, attempt = self._kind, self._attempt
        if acker is None or component == ACKER:
            return 0
        most = min(self._each, len(self._waiting) - self.bound)
        if acker.heap:
            most = min(most, (attempt.rules.heap_limit - kind.heap) // acker.heap)
        count = 0
        while count < most and attempt.takes(node, place, acker):
            attempt.put(node, place, acker, self._waiting[self.bound])
            self.bound += 1
            count += 1
        return count

    def take_back(self, node: int, place: int, count: int) -> None:
        """Undo the last `bind`, which bound `count` ackers to that worker."""
        for _ in range(count):
            self.bound -= 1
            self._attempt.take_back(node, place, self._attempt.kinds[ACKER])


def _alone(rules: Rules) -> bool:
    return rules.one_executor or rules.one_component
