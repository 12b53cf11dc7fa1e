"""`aniello-online`: executors with much mutual traffic share workers, and such workers share nodes.

Aniello, Baldoni, Querzoni: "Adaptive Online Scheduling in Storm", DEBS 2013, after the authors' published code,
`src/storm/scheduler/OnlineScheduler.java` of leonardoaniello/storm-adaptive-schedulers, whose parameter names
are used here (with _ for the dot). The plan replaces the running placement if it saves enough traffic between nodes or
relieves an overloaded node. If nothing runs yet, the plan is always applied (ours).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, fsum
from typing import Annotated, Any, ClassVar

from msgspec import Meta
from msgspec.structs import replace as replaced

from scheduler.algorithms.aniello.packing import NoRoomError, most_executors
from scheduler.algorithms.aniello.planning import Knobs, Planned, Stats, deal_leftovers, make_plan, stats_of
from scheduler.online.observation import Observation
from scheduler.online.replanner import ReplanRules, by_plan
from scheduler.online.replanning import Replanned, cut_of
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Needs, Placement, Plan, Problem, Slot
from scheduler.toolkit.cost import Loads
from scheduler.toolkit.exact import decimal
from scheduler.toolkit.slots import RunningWorkers
from workloads.topology import Executor

Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class AnielloOnlineParams:
    """Parameters of `aniello-online`.

    Attributes:
        alfa: executors per worker at most, from an even split (0) to one executor in each other worker (1).
        beta: nodes used per topology, from few (0) to one per worker (1).
        gamma: maximum load of a worker as a multiple of the mean; None = no limit.
        delta: maximum workers of a topology on a node, from an even split (0) to as many as possible (1).
        traffic_improvement: traffic between nodes that a plan must save, in per cent.
        reschedule_timeout: minimum seconds between two applied plans, for callers that reschedule periodically.
        capacity_percent: share of a node's `cpu` that executors may use; at 100 no measured load would exceed it.
        initial: scheduler of the placement with which a topology starts, before any traffic is known.
        as_published: reproduce the defects of the published code, which has no usable default for gamma.
    """

    alfa: Share = 0.0
    beta: Share = 1.0
    gamma: Annotated[float, Meta(ge=1)] | None = None
    delta: Share = 0.0
    traffic_improvement: Annotated[float, Meta(ge=1, le=100)] = 10.0
    reschedule_timeout: Annotated[float, Meta(ge=0)] = 180.0
    capacity_percent: Annotated[float, Meta(gt=0, le=100)] = 85.0
    initial: str = "even"
    as_published: bool = False

    def __post_init__(self) -> None:
        if self.as_published and self.gamma is None:
            raise ValueError("gamma must be given together with as_published: its published default is refused")


class AnielloOnline:
    """Two greedy phases by observed traffic, and a comparison with the running placement."""

    name: ClassVar[str] = "aniello-online"
    paper: ClassVar[str] = "Aniello, Baldoni, Querzoni: Adaptive Online Scheduling in Storm, DEBS 2013 (online)"
    needs: ClassVar[Needs] = Needs(
        traffic="required", load=True, online=True, cycles=True, ignores="memory, hardware, groupings"
    )
    rhythm: ClassVar[Rhythm] = Rhythm(30, 5, "mean", first_s=30, ask_s=10)
    Params: ClassVar[type] = AnielloOnlineParams

    def __init__(self, params: AnielloOnlineParams) -> None:
        self._params = params
        self._knobs = Knobs(params.alfa, params.beta, params.gamma, params.delta, params.as_published)

    def place(self, problem: Problem) -> Plan:
        """Plan all topologies with stats together; apply the plan, or place the round by `even`."""
        unplanned = RunningWorkers(problem)
        even = {topology.id: deal_leftovers(topology, unplanned) for topology in problem.topologies}
        stats, workers = _workers(problem, stats_of(problem, self._params.as_published), self._params.as_published)
        if not stats:
            return unplanned.plan(even, {"applied": False, "reason": "no topology was observed that finds a slot"})
        planned = RunningWorkers(problem)
        ran = [list(planned.workers[mine.topology.id]) for mine in stats]
        for slots in ran:
            planned.release(slots)
        nodes = sorted(node.id for node in problem.cluster.available if node.slots)
        limits = self._limits(problem)
        capacity = [limits[node] for node in nodes]
        try:
            plan = make_plan(stats, workers, [planned.free.count(node) for node in nodes], capacity, self._knobs)
        except NoRoomError:
            return unplanned.plan(even, {"applied": False, "reason": "the plan found no room"})
        now = _Present(stats, even, nodes)
        reason = "nothing ran" if not any(ran) else self._why(now, plan, capacity)
        details: dict[str, Any] = {
            "applied": bool(reason),
            "reason": reason or "too little would be gained",
            "inter_node": {"now": now.cut_rate, "plan": plan.cut_rate},
        }
        if not reason:
            return unplanned.plan(even, details)
        details["workers"] = _account(problem, stats, plan, nodes)
        return planned.plan(self._apply(problem, stats, workers, plan, planned, nodes), details)

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Apply the plan if it saves enough traffic between nodes, or relieves an overloaded node.

        Rates are truncated to whole tuples/s, as in the published code; what is expected afterwards is not.
        """
        traffic = observation.as_traffic
        edges = tuple(replaced(edge, tuples_per_s=float(floor(edge.tuples_per_s))) for edge in traffic.edges)
        whole = replace(problem, traffic=replaced(traffic, edges=edges))
        rules = ReplanRules(self._params.traffic_improvement, self._params.reschedule_timeout)
        (topology,) = problem.topologies

        def accept(replanned: Replanned) -> str:
            kept = floor(replanned.cut_now * (100 - decimal(self._params.traffic_improvement)) / 100)
            if kept >= replanned.cut_plan:
                return f"{replanned.cut_now:.6g} -> {replanned.cut_plan:.6g} tuples/s between nodes"
            now = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
            later = now | {move.executor: move.target for move in replanned.moves}
            before, after = self._excess(whole, now), self._excess(whole, later)
            return f"executors exceed their nodes by {after:g} instead of {before:g}" if after < before else ""

        revision = by_plan(whole, observation, self.place, rules, accept=accept)
        if not revision.moves:
            return revision
        later = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
        later |= {move.executor: move.target for move in revision.moves}
        cut = cut_of(replace(problem, traffic=traffic), topology, later)
        return replace(revision, expects=replaced(revision.expects, cut=cut))

    def _excess(self, problem: Problem, slots: Mapping[Executor, Slot]) -> float:
        """Return the load beyond the limits of all nodes."""
        (topology,) = problem.topologies
        loads, limits = Loads(problem), self._limits(problem)
        carried = dict.fromkeys(limits, 0.0)
        for executor, slot in slots.items():
            carried[slot.node] += loads.of(topology, executor)
        return fsum(max(0.0, load - limits[node]) for node, load in carried.items())

    def _limits(self, problem: Problem) -> dict[str, float]:
        """Return node -> load that its executors may have."""
        loads = Loads(problem)
        percent = self._params.capacity_percent if loads.unit == "points" else 100.0
        return {node: capacity * percent / 100 for node, capacity in loads.capacity.items()}

    def _why(self, now: "_Present", plan: Planned, capacity: Sequence[float]) -> str:
        """Return why the plan replaces the running placement, or an empty text."""
        kept = floor(now.cut_rate * (100 - decimal(self._params.traffic_improvement)) / 100)
        if kept >= plan.cut_rate:
            return "less traffic between nodes"
        for carried, limit, later in zip(now.carried, capacity, plan.carried, strict=True):
            if carried > limit and later < carried:
                return "an overloaded node is relieved"
        return ""

    def _apply(
        self,
        problem: Problem,
        stats: Sequence[Stats],
        workers: Sequence[int],
        plan: Planned,
        state: RunningWorkers,
        nodes: Sequence[str],
    ) -> dict[str, Placement]:
        """Start the plan's workers, then place the remaining executors."""
        started: list[list[Slot]] = [[] for _ in stats]
        for worker, at in zip(plan.workers, plan.nodes, strict=True):
            mine = stats[worker.topology]
            slot = next(state.free.of(nodes[at]))
            state.start(mine.topology.id, slot, (mine.executors[e] for e in worker.executors))
            started[worker.topology].append(slot)
        doors: dict[str, tuple[Sequence[Slot], int]] = {}
        if not self._params.as_published:
            for mine, count, slots in zip(stats, workers, started, strict=True):
                doors[mine.topology.id] = slots, most_executors(len(mine.executors), count, self._params.alfa)
        return {t.id: deal_leftovers(t, state, *doors.get(t.id, ((), 0))) for t in problem.topologies}


def _workers(problem: Problem, stats: Sequence[Stats], as_published: bool) -> tuple[list[Stats], list[int]]:
    """Return the topologies that can be planned, and the number of workers of each.

    At most one worker per executor, and (ours) no more than there are slots: earlier topologies first, but none takes a
    slot that a later topology of the plan uses now. As published slots are not considered.
    """
    state = RunningWorkers(problem)
    wanted = [min(mine.topology.workers, len(mine.executors)) for mine in stats]
    if as_published:
        return list(stats), wanted
    ran = [len(state.workers[mine.topology.id]) for mine in stats]
    reserved = [min(*pair) for pair in zip(ran, wanted, strict=True)]
    left = state.free.total + sum(ran) - sum(reserved)
    chosen: list[Stats] = []
    counts: list[int] = []
    for mine, most, own in zip(stats, wanted, reserved, strict=True):
        count = min(most, left + own)
        left -= count - own
        if count:
            chosen.append(mine)
            counts.append(count)
    return chosen, counts


class _Present:
    """Placement without the plan: running executors stay, waiting ones are placed evenly.

    Attributes:
        cut_rate: rate between nodes.
        carried: node -> load of the executors that are also in the plan.
    """

    def __init__(self, stats: Sequence[Stats], placements: Mapping[str, Placement], nodes: Sequence[str]) -> None:
        carried = dict.fromkeys(nodes, 0)
        self.cut_rate = 0
        for mine in stats:
            slots = placements[mine.topology.id].assignments
            at = [slot.node if (slot := slots.get(executor)) is not None else None for executor in mine.executors]
            for sender, receiver, rate in mine.pairs:
                if at[sender] is not None and at[receiver] is not None and at[sender] != at[receiver]:
                    self.cut_rate += rate
            for executor in mine.busy:
                node = at[executor]
                if node is not None:
                    carried[node] += mine.load[executor]
        self.carried = list(carried.values())


def _account(problem: Problem, stats: Sequence[Stats], plan: Planned, nodes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the plan's workers with topology, node and executors by number, in input order."""
    index = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    number = {topology.id: at for at, topology in enumerate(problem.topologies)}
    described: list[dict[str, Any]] = []
    for worker, at in zip(plan.workers, plan.nodes, strict=True):
        mine = stats[worker.topology]
        executors = [mine.topology.number_of[mine.executors[executor]] for executor in worker.executors]
        described.append({"topology": number[mine.topology.id], "node": index[nodes[at]], "executors": executors})
    return described
