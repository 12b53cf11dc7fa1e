"""`t-storm`: busy executors first, each to the node where it adds the least traffic between nodes.

Our re-implementation from published descriptions of "T-Storm: Traffic-Aware Online Scheduling in Storm" (Xu, Chen,
Tang, Su, ICDCS 2014). Without observed traffic the result is T-Storm's initial placement: `even` with one worker per
topology and node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import floor
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.algorithms.even import storm_order
from scheduler.online.observation import Observation
from scheduler.online.replanner import ReplanRules, by_plan, overloaded, stranded, trigger
from scheduler.online.revision import Revision, Rhythm
from scheduler.online.round_state import Demand, NodeState
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
        demand = Demand(problem)
        node_state = NodeState(problem, demand)
        for number in range(len(problem.topologies)):
            node_state.vacate(number)
        share = -(-len(demand.executors) // len(node_state.nodes)) if node_state.nodes else 0
        limit = floor(decimal(self._params.gamma) * share)
        hosted = dict.fromkeys(node_state.nodes, 0)
        order = sorted(
            range(len(demand.executors)),
            key=lambda e: (-demand.total(e), problem.topologies[demand.owner[e]].id, demand.rank[e]),
        )
        beyond: dict[str, list[int]] = {"over_limit": [], "over_capacity": []}
        for executor in order:
            node = _choose(executor, demand, node_state, hosted, limit, beyond)
            if node is not None:
                node_state.put(executor, node)
                hosted[node] += 1
        details: dict[str, Any] = {"order": order, "most_executors": limit, **beyond}
        return assemble(problem, *_outcome(problem, demand, node_state), details)


def _choose(
    executor: int,
    demand: Demand,
    node_state: NodeState,
    hosted: Mapping[str, int],
    limit: int,
    beyond: Mapping[str, list[int]],
) -> str | None:
    """Return the node for one executor, or None without a free slot; record in `beyond` which limit was exceeded."""
    load = demand.load[executor]
    possible = [node for node in node_state.nodes if node_state.hosts(demand.owner[executor], node)]
    able = [node for node in possible if node_state.load[node] + load <= demand.capacity[node]]
    wanted = [node for node in able if hosted[node] < limit]
    if not wanted and able:
        beyond["over_limit"].append(executor)
    elif not wanted and possible:
        beyond["over_capacity"].append(executor)
        return min(possible, key=lambda node: (_fullness(node_state.load[node], demand.capacity[node]), node))
    rate_by_node = node_state.at.rate_by_node(executor)
    return min(wanted or able, key=lambda node: (-rate_by_node.get(node, 0), node_state.load[node], node), default=None)


def _fullness(load: int, capacity: int) -> tuple[bool, Fraction]:
    """Return load / capacity for comparison; nodes without capacity count as fullest."""
    return (True, Fraction(load)) if not capacity else (False, Fraction(load, capacity))


def _outcome(
    problem: Problem, demand: Demand, node_state: NodeState
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
