"""`d-storm`: nodes are filled one after the other with the executors that fit them best.

Our re-implementation from published descriptions of "D-Storm: Dynamic Resource-Efficient Scheduling of Stream
Processing Applications" (Liu, Buyya, ICPADS 2017): a first-fit-decreasing heuristic for bin packing that keeps traffic
inside nodes. Topologies are planned in the order given; each uses the resources that the others leave.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from math import lcm
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.online.observation import WITHOUT_EFFECT, Observation
from scheduler.online.replanner import ReplanRules, Urgent, by_plan, last_applied_s, overloaded
from scheduler.online.revision import Revision, Rhythm
from scheduler.online.round_state import NodeState, ObservedDemand
from scheduler.problem import Needs, Plan, Problem
from scheduler.toolkit.exact import as_float, decimal
from scheduler.toolkit.node_assignment import Part, assemble
from workloads.topology import DEFAULT_ONHEAP_MB, Executor, Topology

Weight = Annotated[float, Meta(ge=0)]


@dataclass(frozen=True)
class DStormParams:
    """Parameters of `d-storm`.

    Attributes:
        a1: weight of an executor's size relative to the node's.
        a2: weight of its traffic to executors on the node.
        a3: weight of its traffic to executors on other nodes, which is subtracted.
        bounds: share by which an executor's load may differ from the load that it was planned with.
        min_gain_percent: traffic between nodes that a plan must save where loads are as planned (ours).
    """

    a1: Weight = 1.0
    a2: Weight = 1.0
    a3: Weight = 1.0
    bounds: Annotated[float, Meta(ge=0)] = 0.2
    min_gain_percent: Annotated[float, Meta(ge=0, le=100)] = 10.0


OVERLOAD = 0.9
"""Load of a node, as a share of its `cpu`, above which a new plan is applied."""

APART_S = 60.0
"""Minimum time between two applied plans (ours)."""


class DStorm:
    """Bin packing by size and traffic, with hard limits on CPU and memory."""

    name: ClassVar[str] = "d-storm"
    paper: ClassVar[str] = "Liu, Buyya: D-Storm, ICPADS 2017; our re-implementation from published descriptions"
    needs: ClassVar[Needs] = Needs(
        resources=True,
        memory=True,
        traffic="used",
        load=True,
        online=True,
        cycles=True,
        ignores="workers asked for, hardware, groupings",
    )
    rhythm: ClassVar[Rhythm] = Rhythm(60, 1, "mean", first_s=60, ask_s=10)
    Params: ClassVar[type] = DStormParams

    def __init__(self, params: DStormParams) -> None:
        self._params = params
        self._planned: Mapping[str, float] = {}  # executor -> load that the last plan was made with
        self._before: tuple[float, Mapping[str, float]] | None = None  # end of that window, and `_planned` until then

    def place(self, problem: Problem) -> Plan:
        """Place topologies in order, each as a whole or not at all. A topology that fails keeps its running workers."""
        demand = ObservedDemand(problem)
        node_state = NodeState(problem, demand)
        index = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
        parts: dict[str, dict[Executor, Part]] = {}
        failures: dict[str, str] = {}
        account: dict[str, Any] = {}
        first = 0
        for number, topology in enumerate(problem.topologies):
            mine = range(first, first + len(topology.executors))
            first = mine.stop
            stay = node_state.vacate(number)
            packing = _Packing(problem, demand, node_state, self._params, number, mine)
            packing.run()
            if packing.waiting:
                node_state.restore(number, stay)
                failures[topology.id] = _failure(topology, demand, packing.waiting)
            else:
                homes = ((e, node) for e in mine if (node := node_state.home[e]) is not None)
                parts[topology.id] = {demand.executors[e]: (node, 0) for e, node in homes}
            account[topology.id] = {
                "opened": [index[node] for node in packing.opened],
                "order": [executor - mine.start for executor in packing.order],
            }
        return assemble(problem, parts, failures, {"topologies": account})

    def _off(self, problem: Problem, observation: Observation) -> Urgent:
        """Return the executors whose load differs from the planned one by more than `bounds`, a share of it."""
        (topology,) = problem.topologies
        # Executors that were added since the last plan have the load that their component declares.
        declared = {e.name: topology.component[e.component].cpu_points for e in topology.executors}
        planned, bounds = {**declared, **self._planned}, self._params.bounds
        observed = observation.executors.items()
        off = [name for name, now in observed if abs(now.load - planned[name]) > bounds * planned[name]]
        shares = (abs(now.load - planned[name]) / planned[name] for name, now in observed if planned[name])
        return Urgent(off, max(shares, default=0.0), bounds, "load differs from the planned one")

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Apply a new plan when a node is overloaded, loads are not as planned, or enough traffic is saved."""
        if self._before is not None and observation.outcome_of(self._before[0]) in WITHOUT_EFFECT:
            self._planned = self._before[1]
        self._before = None
        last = last_applied_s(observation)
        apart = last is None or observation.at_s - last >= APART_S
        off, hot = self._off(problem, observation), overloaded(observation, OVERLOAD)
        rules = ReplanRules(self._params.min_gain_percent, APART_S)
        revision = by_plan(
            problem, observation, self.place, rules, {"overload": hot, "infeasible": off} if apart else {}
        )
        if revision.moves:
            self._before = (observation.at_s, self._planned)
        if revision.moves or ("cut" in revision.details and off.subjects):
            self._planned = {name: now.load for name, now in observation.executors.items()}
        return revision


Entry = tuple[int, int, int]
"""Negative priority, rank of the kind's first executor, and the kind."""


def _failure(topology: Topology, demand: ObservedDemand, waiting: Sequence[int]) -> str:
    executor = demand.executors[waiting[0]]
    load = as_float(Fraction(demand.load[waiting[0]], demand.load_scale))
    memory = topology.component[executor.component].memory
    return (
        f"no node is left: {len(waiting)} executors do not fit, the first is {executor.name} "
        f"with load {load:g} and {memory:g} MB"
    )


class _Packing:
    """Packing of one topology onto nodes.

    Attributes:
        opened: nodes that received executors, in this order.
        order: executors in the order of placement.
    """

    def __init__(
        self,
        problem: Problem,
        demand: ObservedDemand,
        node_state: NodeState,
        params: DStormParams,
        number: int,
        mine: range,
    ) -> None:
        self._demand = demand
        self._ground = node_state
        self._number = number
        self._memory = _memory_used(problem, demand, node_state)
        self._cluster_cpu = sum(demand.capacity[node] for node in node_state.nodes)
        self._cluster_memory = sum(demand.memory_of[node] for node in node_state.nodes)
        self.opened: list[str] = []
        self.order: list[int] = []
        self._least = min((demand.load[e] for e in mine), default=0), min((demand.memory[e] for e in mine), default=0)
        ranked = sorted(mine, key=demand.rank.__getitem__, reverse=True)
        self._left: dict[int, list[int]] = {}  # kind -> executors without a node, the first to be placed at the end
        for executor in ranked:
            self._left.setdefault(demand.kind[executor], []).append(executor)
        weights = [decimal(weight) for weight in (params.a1, params.a2, params.a3)]
        self._size, self._near, self._far = (int(weight * lcm(*(w.denominator for w in weights))) for weight in weights)
        self._total = sum(demand.total(executor) for executor in mine) // 2 or 1
        self._inside: dict[int, int] = {}  # kind -> rate to executors on the open node
        self._outside = dict.fromkeys(self._left, 0)  # kind -> rate to executors on the nodes before it
        self._uniform = len({(demand.load[e], demand.memory[e]) for e in mine}) <= 1
        self._heaps: dict[tuple[int, int], list[Entry]] = {}
        # Kinds whose priority has changed, and how many of them each heap has seen.
        self._changed: list[int] = []
        self._seen: dict[tuple[int, int], int] = {}

    @property
    def waiting(self) -> list[int]:
        """Return executors without a node, by topology and start task."""
        return sorted((e for left in self._left.values() for e in left), key=self._demand.rank.__getitem__)

    def run(self) -> None:
        """Fill nodes, most available resources first, until all executors are placed or no node is left."""
        order = sorted(self._ground.nodes, key=lambda node: -self._available(node))
        for node in order:
            if not any(self._left.values()):
                return
            if self._ground.hosts(self._number, node):
                self._fill(node)

    def _available(self, node: str) -> Fraction:
        """Return the mean of the node's free CPU and memory, each as a share of the cluster's."""
        demand = self._demand
        cpu = max(demand.capacity[node] - self._ground.load[node], 0)
        memory = max(demand.memory_of[node] - self._memory[node], 0)
        return (_share(cpu, self._cluster_cpu) + _share(memory, self._cluster_memory)) / 2

    def _fill(self, node: str) -> None:
        """Place the fitting executor of highest priority, repeatedly."""
        for kind, rate in self._inside.items():
            self._outside[kind] += rate
        self._inside = {}
        heap = self._by_priority(node)
        aside: list[Entry] = []
        before = len(self.order)
        touched: dict[int, None] = {}
        while heap and self._has_room(node, *self._least):
            entry = heappop(heap)
            value, rank, kind = entry
            left = self._left[kind]
            if not left or self._demand.rank[left[-1]] != rank or self._priority(kind, node) != -value:
                continue  # outdated entry
            executor = left[-1]
            if not self._has_room(node, self._demand.load[executor], self._demand.memory[executor]):
                aside.append(entry)  # never fits later: the node only fills up
                continue
            left.pop()
            self.order.append(executor)
            self._ground.put(executor, node)
            self._memory[node] += self._demand.memory[executor]
            for other, rate in self._demand.near[kind].items():
                self._inside[other] = self._inside.get(other, 0) + rate
            for other in {kind, *self._demand.near[kind]}:
                touched[other] = None
                if self._left[other]:
                    heappush(heap, (-self._priority(other, node), self._demand.rank[self._left[other][-1]], other))
        for entry in aside:
            heappush(heap, entry)
        self._changed.extend(touched)
        if len(self.order) > before:
            self.opened.append(node)

    def _by_priority(self, node: str) -> "list[Entry]":
        """Return a heap for `node`, still empty, with the first executor of every kind."""
        shape = (0, 0) if self._uniform else (self._demand.capacity[node], self._demand.memory_of[node])
        heap = self._heaps.get(shape, [])
        kinds: Iterable[int] = dict.fromkeys(self._changed[self._seen.get(shape, 0) :])
        if shape not in self._heaps or len(heap) > 4 * len(self._left) + 64:
            heap, kinds = [], self._left
        rank = self._demand.rank
        fresh = [(-self._priority(kind, node), rank[left[-1]], kind) for kind in kinds if (left := self._left[kind])]
        if heap:
            for entry in fresh:
                heappush(heap, entry)
        else:
            heap = fresh
            heapify(heap)
        self._heaps[shape] = heap
        self._seen[shape] = len(self._changed)
        return heap

    def _priority(self, kind: int, node: str) -> int:
        """Return the description's rho, scaled to an integer on this node.

        The scale is twice the node's CPU x its memory x the topology's traffic x the weights' common denominator; where
        all executors are of one size, the traffic alone decides.
        """
        traffic = self._near * self._inside.get(kind, 0) - self._far * self._outside[kind]
        if self._uniform:
            return traffic
        executor, demand = self._left[kind][-1], self._demand
        cpu, memory = demand.capacity[node] or 1, demand.memory_of[node] or 1
        size = demand.load[executor] * memory + demand.memory[executor] * cpu
        return self._size * size * self._total + 2 * cpu * memory * traffic

    def _has_room(self, node: str, load: int, memory: int) -> bool:
        return (
            self._ground.load[node] + load <= self._demand.capacity[node]
            and self._memory[node] + memory <= self._demand.memory_of[node]
        )


def _share(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)


def _memory_used(problem: Problem, demand: ObservedDemand, node_state: NodeState) -> dict[str, int]:
    """Return node -> memory in use.

    Executors of topologies outside the round count with a component's default.
    """
    ours = {topology.id for topology in problem.topologies}
    elsewhere = Counter[str]()
    for worker in problem.existing:
        if worker.topology not in ours:
            elsewhere[worker.node] += len(worker.executors)
    used = {node: int(elsewhere[node] * DEFAULT_ONHEAP_MB * demand.memory_scale) for node in node_state.nodes}
    for executor, home in enumerate(node_state.home):
        if home is not None:
            used[home] += demand.memory[executor]
    return used
