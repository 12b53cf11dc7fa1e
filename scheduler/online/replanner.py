"""Revisions that planners share: a new plan where it saves enough, what waits, and executors off drained nodes.

The last is also the runtime's own answer for nodes that must become empty, when a scheduler has none.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

from msgspec import Meta, Struct

from inventory.errors import RunError
from inventory.values import Positive
from scheduler.online.observation import Expected, Observation, ObservedExecutor, ObservedNode, clamped, problem_at
from scheduler.online.replanning import Replanned, cut_of, loads_after, replan
from scheduler.online.revision import Reason, Revision, Rhythm
from scheduler.problem import Move, Plan, Problem, Scheduler, Slot
from scheduler.toolkit.cost import Loads
from workloads.scaling import resized, sizes_of
from workloads.topology import Executor

APPLIED = ("done", "partial", "unset")
"""Outcomes of revisions that took effect."""


ROUNDING = 1e-9


class Replan(Struct, frozen=True, forbid_unknown_fields=True):
    """Rules for new plans of a scheduler without `revise` for what runs.

    Attributes:
        every_s: time between two plans.
        min_gain_percent: traffic between nodes that a plan must save to be applied.
    """

    every_s: Positive = 60.0
    min_gain_percent: Annotated[float, Meta(ge=0, le=100)] = 10.0

    def rhythm(self, sample_s: float = Rhythm.sample_s) -> Rhythm:
        """Return when it is asked, with as many samples in a window as fit between two plans, and into a minute."""
        samples = max(1, int(min(Rhythm.window_s, self.every_s) / sample_s + ROUNDING))
        return Rhythm(samples * sample_s, sample_s, first_s=self.every_s, ask_s=self.every_s)


@dataclass(frozen=True)
class ReplanRules:
    """Conditions under which a plan is applied.

    Attributes:
        min_gain_percent: traffic between nodes that a plan must save; None = any plan that differs is applied.
        every_s: minimum time since the last applied revision.
        first: whether the first plan is applied whatever it saves.
        once: whether there is no further plan after the first applied one.
    """

    min_gain_percent: float | None = 10.0
    every_s: float = 60.0
    first: bool = False
    once: bool = False

    def gain(self, replanned: Replanned) -> str:
        """Return what a plan saves, or an empty text for too little."""
        if self.min_gain_percent is None or replanned.saves(self.min_gain_percent):
            return f"{replanned.cut_now:.6g} -> {replanned.cut_plan:.6g} tuples/s between nodes"
        return ""


def last_applied_s(observation: Observation) -> float | None:
    """Return when the last revision took effect."""
    return max((past.at_s for past in observation.history if past.outcome in APPLIED), default=None)


def stranded(problem: Problem, observation: Observation) -> list[str]:
    """Return the executors on nodes that are not available any more, in the topology's order."""
    (topology,) = problem.topologies
    available = {node.id for node in problem.cluster.available}
    return [e.name for e in topology.executors if observation.executors[e.name].node not in available]


class Urgent(NamedTuple):
    """Reason why a plan is urgent.

    Attributes:
        subjects: nodes or executors.
        value, threshold: their highest value, and the threshold that it exceeds.
        words: description of the problem; empty: the words of the reason.
    """

    subjects: Sequence[str]
    value: float
    threshold: float
    words: str = ""


def overloaded(observation: Observation, limit: float) -> Urgent:
    """Return the nodes with a load above `limit`, which is a share of their `cpu`."""
    loads = {name: node.load for name, node in observation.nodes.items() if node.load is not None}
    return Urgent([name for name, load in loads.items() if load > limit], max(loads.values(), default=0.0), limit)


def overfull(problem: Problem, observation: Observation) -> Urgent:
    """Return the nodes whose executors, by their observed loads, exceed the node's capacity; its share is 1."""
    loads = Loads(problem)
    used = dict.fromkeys(loads.capacity, 0.0)
    (topology,) = problem.topologies
    for executor in topology.executors:
        used[observation.executors[executor.name].node] += loads.of(topology, executor)
    beyond = [node for node, load in used.items() if load > loads.capacity[node]]
    return Urgent(
        beyond, max((load / loads.capacity[n] for n, load in used.items() if loads.capacity[n]), default=0.0), 1.0
    )


def by_plan(
    problem: Problem,
    observation: Observation,
    place: Callable[[Problem], Plan],
    rules: ReplanRules,
    urgent: Mapping[Reason, Urgent] = {},
    accept: Callable[[Replanned], str] | None = None,
) -> Revision:
    """Plan anew, and return the revision, or why there is none.

    Args:
        problem: the round.
        observation: the last window.
        place: makes the plan.
        rules: when a plan is applied.
        urgent: reason -> what a plan is applied for at once, whatever it saves.
        accept: returns why a plan is applied, or an empty text; instead of `min_gain_percent`.
    """
    last = last_applied_s(observation)
    away = stranded(problem, observation)
    pressing: dict[Reason, Urgent] = {"nodes": Urgent(away, len(away), 0)} if away else {}
    pressing |= {reason: each for reason, each in urgent.items() if each.subjects}
    details: dict[str, Any] = {
        "last_applied_s": last,
        "every_s": rules.every_s,
        "min_gain_percent": rules.min_gain_percent,
        "urgent": {reason: list(each.subjects) for reason, each in pressing.items()},
    }
    if not pressing and last is not None and rules.once:
        details |= trigger("once", last, None)
        return Revision(text="the placement is revised once only", details=details)
    if not pressing and last is not None and observation.at_s - last < rules.every_s:
        details |= trigger("every_s", observation.at_s - last, rules.every_s)
        return Revision(text=f"the last revision was {observation.at_s - last:.0f} s ago", details=details)
    replanned = replan(problem, observation, place)
    details |= replan_details(replanned)
    if pressing:
        details |= next(trigger(reason, each.value, each.threshold) for reason, each in pressing.items())
    elif rules.first and last is None:
        details |= trigger("first", None, None)
    else:
        details |= trigger("gain_percent", replanned.gain_percent, rules.min_gain_percent)
    if replanned.message:
        return Revision(text=f"no plan: {replanned.message}", details=details)
    if not replanned.moves:
        if replanned.schedule is None:
            return Revision(text="the plan is what runs", details=details)
        text = "the plan has another communication schedule for what runs"
        return Revision("schedule", text, schedule=replanned.schedule, details=details)
    revision = partial(
        Revision,
        moves=replanned.moves,
        schedule=replanned.schedule,
        expects=expected_of_plan(replanned),
        details=details,
    )
    for reason, (subjects, _, _, words) in pressing.items():
        text = f"{', '.join(subjects[:3])}{', ...' if len(subjects) > 3 else ''}: {words or WORDS[reason]}"
        return revision(reason, text)
    if rules.first and last is None:
        return revision("cut", "the first plan by observed rates")
    text = rules.gain(replanned) if accept is None else accept(replanned)
    if text:
        return revision("cut", text)
    return _with_other_nodes(problem, observation, place, details) or Revision(
        text="the plan saves too little", details=details
    )


def _with_other_nodes(
    problem: Problem, observation: Observation, place: Callable[[Problem], Plan], details: Mapping[str, Any]
) -> Revision | None:
    """Return the revision to a communication schedule for the nodes that are available now, without any move.

    None if the run follows none or has no other nodes, or if the scheduler has none for what runs.
    """
    present = observation.schedule
    if present is None or {node.id for node in problem.cluster.available} == set(present.nodes):
        return None
    plan = place(problem)
    (placement,) = plan.placements.values()
    stays = {executor.name: slot for executor, slot in placement.assignments.items()} == observation.places
    if plan.schedule is None or not stays or set(plan.schedule.nodes) == set(present.nodes):
        return None
    return Revision("schedule", "nodes have come or gone", schedule=plan.schedule, details=details)


def replanning(kind: type[Scheduler], replan: Replan) -> type[Scheduler]:
    """Return the scheduler with a `revise` that makes a new plan with `place`, and applies it if it saves enough.

    Executors leave nodes that are not available at once.
    """
    # `Rhythm.ask_s` is the time between plans.
    rules = ReplanRules(replan.min_gain_percent, every_s=0)

    class Replanning(kind):  # type: ignore[misc, valid-type]
        rhythm: ClassVar[Rhythm] = replan.rhythm()

        def revise(self, problem: Problem, observation: Observation) -> Revision:
            return by_plan(problem, observation, self.place, rules)

    # For messages about its faults, which name the code of the plug-in.
    Replanning.__module__ = kind.__module__
    return Replanning


WORDS: Mapping[Reason, str] = {
    "nodes": "the node is not available any more",
    "overload": "overloaded",
    "infeasible": "more load than capacity",
}


def replan_details(replanned: Replanned) -> dict[str, Any]:
    """Return what a plan would do, for the details of a decision."""
    return {
        "cut": {"now": replanned.cut_now, "plan": replanned.cut_plan},
        "moves_before_renaming": replanned.named,
        "moves_after_renaming": len(replanned.moves),
    }


def trigger(name: str, value: float | None, threshold: float | None) -> dict[str, Any]:
    """Return what decides, for the details of a decision."""
    return {"trigger": {"name": name, "value": value, "threshold": threshold}}


def expected_of_plan(replanned: Replanned) -> Expected:
    """Return the prediction of a plan."""
    return Expected(replanned.cut_plan, clamped(replanned.load_plan))


def by_placing_waiting(problem: Problem, observation: Observation, place: Callable[[Problem], Plan]) -> Revision:
    """Place what waits, because its node is not available, and whatever else `place` moves by itself.

    For schedulers whose `place` extends what runs.
    """
    (topology,) = problem.topologies
    plan = place(problem)
    placement = plan.placements[topology.id]
    now = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
    after = {executor: placement.assignments.get(executor, slot) for executor, slot in now.items()}
    moves = [Move(topology.id, e, now[e], after[e]) for e in topology.executors if now[e] != after[e]]
    cut = {"now": cut_of(problem, topology, now), "plan": cut_of(problem, topology, after)}
    loads = loads_after(problem, observation, after)
    expects = Expected(cut["plan"], clamped(loads))
    away = stranded(problem, observation)
    counts = {"moves_before_renaming": len(moves), "moves_after_renaming": len(moves)}
    details = {**trigger("nodes", len(away), 0), "cut": cut, **counts, "plan": dict(plan.details)}
    if not moves:
        return Revision(text="the plan is what runs", details=details)
    text = f"{len(away)} executors waited" if away else "loads are levelled"
    return Revision("nodes" if away else "overload", text, moves, expects=expects, details=details)


def drain(problem: Problem, observation: Observation) -> Revision | None:
    """Return the moves of all executors off nodes that are not available; None if there are none, or no other node.

    Each goes to the node in use with the fewest executors of its component, then the fewest executors, then the first
    in the file, and there to the topology's lowest slot. If every node in use is unavailable, all available nodes with
    a free slot count.

    Args:
        problem: the topology, the cluster, and the workers of other topologies.
        observation: the last window.
    """
    current = problem_at(problem, observation)
    (topology,) = current.topologies
    away = set(stranded(current, observation))
    where = {topology.executor_named[name]: slot for name, slot in observation.places.items()}
    staying = {executor: slot for executor, slot in where.items() if executor.name not in away}
    slots = _lowest_slots(current, set(staying.values()))
    if not away or not slots:
        return None
    executors = Counter(slot.node for slot in staying.values())
    of_component = Counter((slot.node, executor.component) for executor, slot in staying.items())
    moves: list[Move] = []
    for executor in topology.executors:
        if executor.name in away:
            node = _fewest(executor, list(slots), executors, of_component)
            moves.append(Move(topology.id, executor, where[executor], slots[node]))
            executors[node] += 1
            of_component[node, executor.component] += 1
    nodes = ", ".join(sorted({move.source.node for move in moves}))
    return Revision("nodes", f"moved by the runtime, since the scheduler leaves executors on {nodes}", moves)


def moves_off(problem: Problem, places: Mapping[str, Slot], nodes: Set[str]) -> Sequence[Move]:
    """Return the moves of `drain` in a run without observations.

    Args:
        problem: the topology, the cluster, and the workers of other topologies.
        places: executor -> its slot.
        nodes: nodes that must become empty.
    """
    revision = drain(problem, _placed(places, nodes))
    return () if revision is None else revision.moves


def slots_of_added(
    problem: Problem, places: Mapping[str, Slot], nodes: Set[str], sizes: Mapping[str, int]
) -> dict[str, Slot]:
    """Return the slots of executors that are added while a topology runs, as the runtime chooses them.

    Each goes to the node in use with the fewest executors of its component, then the fewest executors, then the first
    in the file, and there to the topology's lowest slot.

    Args:
        problem: the topology, the cluster, and the workers of other topologies.
        places: executor -> its slot, before.
        nodes: nodes that may not be used.
        sizes: new numbers of executors of components.

    Returns:
        executor -> its slot, of the executors that are added.

    Raises:
        RunError: there is no slot.
    """
    topology = resized(problem.topologies[0], {**sizes_of(places), **sizes})
    staying = {name: slot for name, slot in places.items() if name in topology.executor_named}
    current = problem_at(problem, _placed(staying, nodes))
    slots = _lowest_slots(current, {slot for slot in staying.values() if slot.node not in nodes})
    executors = Counter(slot.node for slot in staying.values())
    of_component = Counter((slot.node, Executor.named(name).component) for name, slot in staying.items())
    added: dict[str, Slot] = {}
    for executor in topology.executors:
        if executor.name not in staying:
            if not slots:
                raise RunError("no node has a slot for more executors")
            node = _fewest(executor, list(slots), executors, of_component)
            added[executor.name] = slots[node]
            executors[node] += 1
            of_component[node, executor.component] += 1
    return added


def _placed(places: Mapping[str, Slot], away: Set[str]) -> Observation:
    """Return an observation without measurements."""
    executors = {name: ObservedExecutor(node=at.node, slot=at.index, busy=0.0, load=0.0) for name, at in places.items()}
    nodes = {node: ObservedNode(load=None, base=None, available=False) for node in away}
    return Observation(at_s=0.0, since_s=0.0, samples=0, executors=executors, nodes=nodes)


def _lowest_slots(problem: Problem, used: set[Slot]) -> dict[str, Slot]:
    """Return the candidate nodes in the order of the file, each with the slot that its executors get."""
    in_use: dict[str, Slot] = {}
    for node in problem.cluster.available:
        mine = [slot for slot in used if slot.node == node.id]
        if mine:
            in_use[node.id] = min(mine)
    if in_use:
        return in_use
    taken = {Slot(worker.node, worker.slot) for worker in problem.existing}
    free = {
        node.id: [slot for index in range(node.slots) if (slot := Slot(node.id, index)) not in taken]
        for node in problem.cluster.available
    }
    return {node: slots[0] for node, slots in free.items() if slots}


def _fewest(
    executor: Executor, nodes: list[str], executors: Counter[str], of_component: Counter[tuple[str, str]]
) -> str:
    """Return the first node with the fewest executors of the component, then the fewest executors."""
    return min(nodes, key=lambda node: (of_component[node, executor.component], executors[node]))
