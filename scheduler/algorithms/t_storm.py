"""`t-storm`: busy executors first, each to the node where it adds the least traffic between nodes.

Our re-implementation from published descriptions of "T-Storm: Traffic-Aware Online Scheduling in Storm" (Xu, Chen,
Tang, Su, ICDCS 2014). Without observed traffic the result is T-Storm's initial placement: `even` with one worker per
topology and node.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace
from itertools import accumulate, islice
from math import floor
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.algorithms.even import storm_order
from scheduler.online.observation import Observation
from scheduler.online.replanner import ReplanRules, by_plan, overloaded, stranded, trigger
from scheduler.online.revision import Revision, Rhythm
from scheduler.online.round_state import NodeState, ObservedDemand
from scheduler.problem import Needs, Placement, Plan, Problem, concluded
from scheduler.toolkit.exact import decimal
from scheduler.toolkit.node_assignment import Part, assemble
from scheduler.toolkit.slots import FreeSlots, Workers, assigned, running, waiting, why_waiting
from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class TStormParams:
    """Parameters of `t-storm`.

    Attributes:
        gamma: consolidation: a node accepts at most this multiple of its even share of the executors.
        period_s: seconds between two plans while a topology runs.
        overload: load of a node, as a share of its `cpu`, above which a plan is made and applied at once.
    """

    gamma: Annotated[float, Meta(ge=1)] = 1.0
    period_s: Annotated[float, Meta(ge=0)] = 300.0
    overload: Annotated[float, Meta(gt=0, le=1)] = 0.9


class TStorm:
    """Traffic-aware reassignment of all executors."""

    name: ClassVar[str] = "t-storm"
    paper: ClassVar[str] = "Xu, Chen, Tang, Su: T-Storm, ICDCS 2014; our re-implementation from published descriptions"
    needs: ClassVar[Needs] = Needs(
        traffic="used", load=True, online=True, cycles=True, ignores="memory, hardware, groupings"
    )
    rhythm: ClassVar[Rhythm] = Rhythm(20, 20, "ewma", 0.5, first_s=20, ask_s=20)
    Params: ClassVar[type] = TStormParams

    def __init__(self, params: TStormParams) -> None:
        self._params = params
        self._planned_s = 0.0

    def place(self, problem: Problem) -> Plan:
        """Reassign all topologies together where traffic was observed, else make the initial placement."""
        if problem.traffic is None:
            free, workers = FreeSlots(problem), running(problem)
            return Plan({t.id: place_one_per_node(t, workers[t.id], free) for t in problem.topologies})
        return self._reassign(problem)

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Apply a new plan every `period_s` if it changes anything, and at once when a node is overloaded."""
        hot = overloaded(observation, self._params.overload)
        if not hot.subjects and not stranded(problem, observation):
            since_s = observation.at_s - self._planned_s
            if since_s < self._params.period_s:
                details = {**trigger("period_s", since_s, self._params.period_s), "load": hot.value}
                return Revision(
                    text=f"no node is overloaded, and the period began {since_s:.0f} s ago", details=details
                )
            self._planned_s = observation.at_s
        return by_plan(problem, observation, self.place, ReplanRules(None, 0), {"overload": hot})

    def _reassign(self, problem: Problem) -> Plan:
        demand = ObservedDemand(problem)
        node_state = NodeState(problem, demand)
        for number in range(len(problem.topologies)):
            node_state.vacate(number)
        share = -(-len(demand.executors) // len(node_state.nodes)) if node_state.nodes else 0
        limit = floor(decimal(self._params.gamma) * share)
        order = sorted(
            range(len(demand.executors)),
            key=lambda e: (-demand.total(e), problem.topologies[demand.owner[e]].id, demand.rank[e]),
        )
        # The smallest load of an executor and all after it: a node without room for that is full.
        smallest = [*accumulate((demand.load[executor] for executor in reversed(order)), min)][::-1]
        hosted = dict.fromkeys(node_state.nodes, 0)
        nodes = [_Nodes(t, demand, node_state, hosted, limit) for t in range(len(problem.topologies))]
        beyond: dict[str, list[int]] = {"over_limit": [], "over_capacity": []}
        for executor, least in zip(order, smallest, strict=True):
            node = nodes[demand.owner[executor]].choose(executor, least, beyond)
            if node is not None:
                node_state.put(executor, node)
                hosted[node] += 1
        details: dict[str, Any] = {"order": order, "most_executors": limit, **beyond}
        return assemble(problem, *_outcome(problem, demand, node_state), details)


class _Nodes:
    """Nodes that executors of one topology may go to: those of their partners, and the least loaded ones."""

    def __init__(
        self, topology: int, demand: ObservedDemand, node_state: NodeState, hosted: Mapping[str, int], limit: int
    ) -> None:
        self._topology = topology
        self._demand = demand
        self._state = node_state
        self._hosted = hosted
        self._limit = limit
        self._wanted = _Least(node_state.nodes, node_state.load.__getitem__)

    @cached_property
    def _able(self) -> "_Least":
        return _Least(self._state.nodes, self._state.load.__getitem__)

    @cached_property
    def _possible(self) -> "_Least":
        load, capacity = self._state.load, self._demand.capacity
        return _Least(self._state.nodes, lambda node: _fullness(load[node], capacity[node]))

    def choose(self, executor: int, least: int, beyond: Mapping[str, list[int]]) -> str | None:
        """Return the node for one executor, or None without a free slot; record in `beyond` which limit was exceeded.

        Args:
            executor: the executor.
            least: the smallest load of this executor and those after it.
            beyond: `over_limit` and `over_capacity` -> executors.
        """
        load_of, capacity, hosted, limit = self._state.load, self._demand.capacity, self._hosted, self._limit
        load = self._demand.load[executor]

        def fits(node: str) -> bool:
            return load_of[node] + load <= capacity[node]

        def is_full(node: str) -> bool:
            return not self._hosts(node) or load_of[node] + least > capacity[node]

        rates = self._state.at.rate_by_node(executor)
        near = [node for node in rates if self._hosts(node) and fits(node)]

        def nearest(nodes: Iterable[str]) -> str | None:
            return min(nodes, key=lambda node: (-rates[node], load_of[node], node), default=None)

        wanted = nearest(node for node in near if hosted[node] < limit)
        wanted = wanted or self._wanted.first(fits, lambda node: is_full(node) or hosted[node] >= limit)
        if wanted is not None:
            return wanted
        able = nearest(near) or self._able.first(fits, is_full)
        if able is not None:
            beyond["over_limit"].append(executor)
            return able
        possible = self._possible.first(lambda _: True, lambda node: not self._hosts(node))
        if possible is not None:
            beyond["over_capacity"].append(executor)
        return possible

    def _hosts(self, node: str) -> bool:
        return self._state.hosts(self._topology, node)


class _Least:
    """Nodes by a key that never falls, and then by id."""

    def __init__(self, nodes: Iterable[str], key: Callable[[str], Any]) -> None:
        self._key = key
        self._heap = [(key(node), node) for node in nodes]
        heapify(self._heap)

    def first(self, fits: Callable[[str], bool], gone: Callable[[str], bool]) -> str | None:
        """Return the first node that fits, or None; nodes that are gone stay so."""
        heap = self._heap
        aside: list[tuple[Any, str]] = []
        fitting = None
        while heap and fitting is None:
            key, node = heap[0]
            now = self._key(node)
            if gone(node):
                heappop(heap)
            elif now != key:
                heapreplace(heap, (now, node))
            elif fits(node):
                fitting = node
            else:
                aside.append(heappop(heap))
        for entry in aside:
            heappush(heap, entry)
        return fitting


def _fullness(load: int, capacity: int) -> tuple[bool, Fraction]:
    """Return load / capacity for comparison; nodes without capacity count as fullest."""
    return (True, Fraction(load)) if not capacity else (False, Fraction(load, capacity))


def _outcome(
    problem: Problem, demand: ObservedDemand, node_state: NodeState
) -> tuple[dict[str, dict[Executor, Part]], dict[str, str]]:
    """Return topology -> executor -> part, and topology -> why executors wait."""
    parts: dict[str, dict[Executor, Part]] = {topology.id: {} for topology in problem.topologies}
    waits: dict[str, int] = {}
    for executor, node in enumerate(node_state.home):
        name = problem.topologies[demand.owner[executor]].id
        if node is None:
            waits[name] = waits.get(name, 0) + 1
        else:
            parts[name][demand.executors[executor]] = (node, 0)
    return parts, {name: f"no free slot: {count} executors wait" for name, count in waits.items()}


def place_one_per_node(topology: Topology, workers: Workers, free: FreeSlots) -> Placement:
    """Place as `even`, with at most one worker of the topology per node; take the slots used.

    Args:
        topology: the topology.
        workers: its running workers, which get no new executors.
        free: the free slots.
    """
    alive = assigned(workers)
    todo: Sequence[Executor] = storm_order(waiting(topology, workers))
    if not todo:
        return concluded(topology, alive)
    taken = {slot.node for slot in workers}
    order = sorted((node for node in free.nodes() if node not in taken), key=lambda node: -free.count(node))
    chosen = [next(free.of(node)) for node in islice(order, max(topology.workers - len(workers), 0))]
    if not chosen:
        full = len(workers) >= topology.workers or not free.total
        other = f"no free slot on a node without a worker of it: {len(todo)} executors wait"
        return concluded(topology, alive, why_waiting(topology, workers, len(todo)) if full else other)
    used = chosen[: len(todo)]
    for slot in used:
        free.take(slot)
    return concluded(topology, alive | {executor: chosen[at % len(chosen)] for at, executor in enumerate(todo)})
