"""Online schedulers by name, wrapped to reject invalid revisions with a message for every fault."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, get_args

from inventory.documents import Origin
from inventory.errors import InputError, nearest
from inventory.plugins import parameters
from scheduler.online.observation import Expected, Observation
from scheduler.online.replanner import Replan, replanning
from scheduler.online.revision import OnlineScheduler, Reason, Revision, Rhythm
from scheduler.problem import Move, Problem, Slot
from scheduler.registry import Checked, InvalidPlanError, scheduler_class
from scheduler.toolkit.plan_faults import (
    clock_faults,
    executor_fault,
    is_index,
    json_faults,
    kind_of,
    schedule_faults,
    shown_name,
    slot_faults,
    slot_in_words,
)
from scheduler.toolkit.slow_notice import slow_notice
from workloads.scaling import MOST_SCALED, resized, sizes_of, spouts_of, why_fixed
from workloads.topology import Executor, Topology

NOT_ONLINE = "the scheduler {!r} does not revise running topologies"


class CheckedOnline(Checked):
    """A scheduler whose revisions are checked like its plans."""

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        """Ask the scheduler what to change, and return its revision if it can be carried out.

        Args:
            problem: one topology, with what runs in `existing`.
            observation: the last window.

        Raises:
            InputError: the scheduler does not revise, or rejects its input.
            InvalidPlanError: the revision is invalid.
            RunError: the scheduler failed.
        """
        if not isinstance(self.inner, OnlineScheduler):
            raise InputError(f"{NOT_ONLINE.format(self.name)}: it has no `revise`")
        with slow_notice(self.name), self._faults_named():
            revision = self.inner.revise(problem, observation)
            if revision is None:
                return None
            faults = revision_faults(_running(problem, observation), observation, revision)
        if faults:
            raise InvalidPlanError(self.name, faults)
        return revision


def _running(problem: Problem, observation: Observation) -> Problem:
    """Return the problem with the numbers of executors that run."""
    (topology,) = problem.topologies
    present = resized(topology, sizes_of(observation.executors))
    return problem if present is topology else replace(problem, topologies=(present,))


def rhythm_of(scheduler: Checked) -> Rhythm | None:
    """Return when a scheduler is asked about a running topology; None if it does not revise."""
    return scheduler.inner.rhythm if isinstance(scheduler.inner, OnlineScheduler) else None


def make_online_scheduler(name: str, replan: Replan | None, *sources: Origin) -> CheckedOnline:
    """Return a scheduler that revises.

    Args:
        name: its name.
        replan: when its `place` makes a new plan, in place of a `revise` of its own; None: its own `revise`.
        sources: origins of its parameters (`inventory.plugins.parameters`).

    Raises:
        InputError: no such scheduler, an unknown parameter, a value that is not allowed, or it does not revise.
        UnfitError: the scheduler cannot be loaded.
    """
    kind = scheduler_class(name)
    if replan is not None:
        kind = replanning(kind, replan)
    elif not (hasattr(kind, "revise") and hasattr(kind, "rhythm")):
        raise InputError(f"{NOT_ONLINE.format(name)}; with `replan` its `place` does")
    return CheckedOnline(kind, parameters(kind.Params, *sources), *sources)


UNGATED = "the run follows no communication schedule"


def revision_faults(problem: Problem, observation: Observation, revision: object) -> list[str]:
    """Return all faults of `revision` as an answer to `observation`; empty if it can be carried out."""
    if not isinstance(revision, Revision):
        return [f"it returned {kind_of(revision)}, a Revision or None was expected"]
    return [
        *_reason_faults(revision),
        *_move_faults(problem, observation, revision),
        *_scaling_faults(problem, revision),
        *_schedule_faults(problem, observation, revision),
        *_frequency_faults(problem, revision),
        *json_faults(revision.details, "details"),
    ]


def _reason_faults(revision: Revision) -> Iterator[str]:
    reasons = get_args(Reason)
    if revision.reason not in (*reasons, ""):
        yield f"unknown reason {revision.reason!r}{nearest(revision.reason, reasons)}"
    elif revision.changes and not revision.reason:
        yield f"it changes something without a reason, which is one of {', '.join(reasons)}"
    if not isinstance(revision.text, str):
        yield f"text is {kind_of(revision.text)}, text was expected"
    if not is_index(revision.wave):
        yield f"wave is {revision.wave!r}, a number of executors was expected"
    if not isinstance(revision.expects, Expected):
        yield f"expects is {kind_of(revision.expects)}, an Expected was expected"
    else:
        yield from _expected_faults(revision.expects)


def _expected_faults(expects: Expected) -> Iterator[str]:
    if not isinstance(expects.load, Mapping):
        yield f"expects.load is {kind_of(expects.load)}, a mapping from nodes to loads was expected"
    for name, value in {"cut": expects.cut, "watts": expects.watts, **_mapping(expects.load)}.items():
        if value is not None and not (isinstance(value, int | float) and 0 <= value < inf):
            yield f"expects: {name!r}: {value!r} is no number >= 0"


def _move_faults(problem: Problem, observation: Observation, revision: Revision) -> Iterator[str]:
    if not isinstance(revision.moves, Sequence):
        yield f"moves is {kind_of(revision.moves)}, a sequence of moves was expected"
        return
    topologies = {topology.id: topology for topology in problem.topologies}
    times: Counter[tuple[str, Executor]] = Counter()
    places = observation.places
    owner = {Slot(worker.node, worker.slot): worker.topology for worker in problem.existing}
    for move in revision.moves:
        if not isinstance(move, Move):
            yield f"moves: {move!r} is {kind_of(move)}, a Move was expected"
            continue
        what = f"moves: {shown_name(move.executor)}"
        if move.topology not in topologies:
            yield f"{what}: unknown topology {move.topology!r}{nearest(move.topology, topologies)}"
            continue
        if not isinstance(move.executor, Executor):
            yield f"{what} is {kind_of(move.executor)}, an Executor was expected"
            continue
        fault = executor_fault(topologies[move.topology], move.executor)
        if fault:
            yield f"moves: unknown executor {shown_name(move.executor)}: {fault}"
            continue
        times[move.topology, move.executor] += 1
        ran = places.get(move.executor.name)
        if ran != move.source:
            yield f"{what} did not run in {slot_in_words(move.source)}, but in {slot_in_words(ran)}"
        if move.target == move.source:
            yield f"{what} moves to {slot_in_words(move.target)}, where it is"
            continue
        wrong = list(slot_faults(problem.cluster, move.target))
        yield from (f"{what}: {fault}" for fault in wrong)
        other = None if wrong else owner.get(move.target)
        if other is not None and other != move.topology:
            yield f"{what}: {slot_in_words(move.target)} has a worker of the topology {other!r}"
    for (_, executor), count in times.items():
        if count > 1:
            yield f"moves: {executor.name} moves {count} times"


def _scaling_faults(problem: Problem, revision: Revision) -> Iterator[str]:
    for what, value in (("parallelism", revision.parallelism), ("added", revision.added)):
        if not isinstance(value, Mapping):
            yield f"{what} is {kind_of(value)}, a mapping was expected"
    (topology,) = problem.topologies
    for component, size in _mapping(revision.parallelism).items():
        what = f"parallelism: {component!r}"
        if component not in topology.component:
            yield f"{what} is no component{nearest(component, topology.component)}"
        elif reason := why_fixed(topology.component[component], spouts=spouts_of(topology)):
            yield f"{what} keeps its number of executors: {reason}"
        elif not is_index(size) or not 1 <= size <= MOST_SCALED:
            yield f"{what}: {size!r} is no number of executors from 1 to {MOST_SCALED}"
        elif size == topology.component[component].parallelism:
            yield f"{what} has {size} executors already"
    after = _rescaled(topology, revision)
    wanted = [executor for executor in after.executors if executor not in topology.number_of]
    given = _mapping(revision.added)
    yield from (f"added: {executor.name} has no slot" for executor in wanted if executor not in given)
    owner = {Slot(worker.node, worker.slot): worker.topology for worker in problem.existing}
    for executor, slot in given.items():
        what = f"added: {shown_name(executor)}"
        if executor not in wanted:
            yield f"{what} is no executor that `parallelism` adds"
            continue
        wrong = list(slot_faults(problem.cluster, slot))
        yield from (f"{what}: {fault}" for fault in wrong)
        if not wrong and owner.get(slot, topology.id) != topology.id:
            yield f"{what}: {slot_in_words(slot)} has a worker of the topology {owner[slot]!r}"
    for move in _moves(revision):
        if move.executor in topology.number_of and move.executor not in after.number_of:
            yield f"moves: {move.executor.name} moves, and `parallelism` removes it"


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _rescaled(topology: Topology, revision: Revision) -> Topology:
    """Return the topology with those of the new numbers of executors that are possible."""
    sizes = {
        component: size
        for component, size in _mapping(revision.parallelism).items()
        if component in topology.component
        and not why_fixed(topology.component[component], spouts=spouts_of(topology))
        and is_index(size)
        and 1 <= size <= MOST_SCALED
    }
    return resized(topology, sizes)


def _schedule_faults(problem: Problem, observation: Observation, revision: Revision) -> Iterator[str]:
    schedule = revision.schedule
    if schedule is None:
        return
    if observation.schedule is None:
        yield f"schedule: {UNGATED}"
        return
    wrong = list(schedule_faults(problem.cluster, schedule))
    yield from wrong
    if wrong:
        return
    (topology,) = problem.topologies
    if schedule.stages not in (1, max(1, topology.stages)):
        yield f"schedule: {schedule.stages} stages, {topology.id!r} has {topology.stages}, and 1 is for a common step"
    if schedule.unserved is not None:
        source, target = schedule.unserved
        yield f"schedule: {source!r} has no step in which it sends to {target!r}"
    moved = {move.executor.name: move.target for move in _moves(revision)}
    after = _rescaled(topology, revision).executor_named
    places = observation.places | {
        executor.name: slot
        for executor, slot in _mapping(revision.added).items()
        if isinstance(executor, Executor) and isinstance(slot, Slot)
    }
    used = {name: moved.get(name, slot).node for name, slot in places.items() if name in after}
    for name, node in used.items():
        if node not in schedule.nodes:
            yield f"schedule: node {node!r} is missing, where {name} runs"


def _moves(revision: Revision) -> list[Move]:
    """Return the moves that are well-formed."""
    moves = revision.moves if isinstance(revision.moves, Sequence) else ()
    return [
        move
        for move in moves
        if isinstance(move, Move) and isinstance(move.executor, Executor) and isinstance(move.target, Slot)
    ]


def _frequency_faults(problem: Problem, revision: Revision) -> Iterator[str]:
    if not isinstance(revision.frequencies, Mapping):
        yield f"frequencies is {kind_of(revision.frequencies)}, a mapping from nodes to Hz was expected"
        return
    for name, hertz in revision.frequencies.items():
        if hertz is not None:
            yield from clock_faults(problem.cluster, name, hertz)
        elif name not in problem.cluster.by_id:
            yield f"frequencies: unknown node {name!r}{nearest(name, problem.cluster.by_id)}"
