"""`aniello-online`: executors with much mutual traffic share workers, and such workers share nodes.

Aniello, Baldoni, Querzoni: "Adaptive Online Scheduling in Storm", DEBS 2013, after the authors' published code,
`src/storm/scheduler/OnlineScheduler.java` of leonardoaniello/storm-adaptive-schedulers, whose parameter names
are used here (with _ for the dot). The plan replaces the running placement if it saves enough traffic between nodes or
relieves an overloaded node. If nothing runs yet, the plan is always applied (ours).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.algorithms.aniello.leftovers import deal_leftovers
from scheduler.algorithms.aniello.limits import most_executors
from scheduler.algorithms.aniello.packing import NoRoomError
from scheduler.algorithms.aniello.planning import Knobs, Planned, make_plan
from scheduler.algorithms.aniello.stats import Stats, stats_of
from scheduler.problem import Needs, Placement, Plan, Problem, Slot
from scheduler.toolkit.loads import Loads
from scheduler.toolkit.running_workers import RunningWorkers
from scheduler.toolkit.scaling import decimal

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
        as_published: reproduce the defects of the published code, which has no usable default for gamma.
    """

    alfa: Share = 0.0
    beta: Share = 1.0
    gamma: Annotated[float, Meta(ge=1)] | None = None
    delta: Share = 0.0
    traffic_improvement: Annotated[float, Meta(ge=1, le=100)] = 10.0
    reschedule_timeout: Annotated[float, Meta(ge=0)] = 180.0
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
        capacity = [Loads(problem).capacity[node] for node in nodes]
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
    found: list[dict[str, Any]] = []
    for worker, at in zip(plan.workers, plan.nodes, strict=True):
        mine = stats[worker.topology]
        executors = [mine.topology.number_of[mine.executors[executor]] for executor in worker.executors]
        found.append({"topology": number[mine.topology.id], "node": index[nodes[at]], "executors": executors})
    return found
