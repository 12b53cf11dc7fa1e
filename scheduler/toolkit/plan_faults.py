"""Checks of a plan, with a message for every fault.

One function per part of a plan; each yields all faults that it finds and never fails itself, so that the author of a
scheduler sees the whole list at once.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from inventory.cluster import Cluster, ExistingWorker
from inventory.errors import nearest
from inventory.power_index import NodePower
from scheduler.problem import CommunicationSchedule, Move, Placement, Plan, Problem, Slot, Status
from workloads.topology import Executor, Topology

MOST_NAMED = 20
"""Maximum number of missing executors named in one fault."""

_FAULTLESS = frozenset({int, bool, str, type(None)})
"""Types of which every value can be written as JSON."""

_INDEX_OR_IDLE = frozenset({int, type(None)})


def plan_faults(problem: Problem, plan: object) -> list[str]:
    """Return all faults of `plan` as a solution of `problem`; empty if it can be used."""
    if not isinstance(plan, Plan):
        return [f"it returned {kind_of(plan)}, a Plan was expected"]
    return [
        *_placement_faults(problem, plan),
        *_existing_faults(problem, plan),
        *_move_faults(problem, plan),
        *_frequency_faults(problem.cluster, plan),
        *schedule_faults(problem.cluster, plan.schedule),
        *_power_faults(problem.cluster, plan),
        *json_faults(plan.details, "details"),
    ]


def _placement_faults(problem: Problem, plan: Plan) -> Iterator[str]:
    if not isinstance(plan.placements, Mapping):
        yield f"placements is {kind_of(plan.placements)}, a mapping was expected"
        return
    known = {topology.id: topology for topology in problem.topologies}
    for name in plan.placements:
        if name not in known:
            yield f"unknown topology {name!r}{nearest(name, known)}"
    holders: dict[Slot, list[str]] = {}
    for topology in problem.topologies:
        if topology.id not in plan.placements:
            yield f"topology {topology.id!r} has no placement"
            continue
        placement = plan.placements[topology.id]
        if not isinstance(placement, Placement):
            yield f"topology {topology.id!r}: it is {kind_of(placement)}, a Placement was expected"
            continue
        pairs, complaint = _pairs(placement.assignments)
        for fault in (
            *complaint,
            *_assignment_faults(problem.cluster, topology, pairs),
            *_status_faults(topology, placement, pairs),
        ):
            yield f"topology {topology.id!r}: {fault}"
        for slot in {slot for _, slot in pairs if _is_slot(slot)}:
            holders.setdefault(slot, []).append(topology.id)
    yield from _sharing_faults(problem, plan, holders)


def _pairs(assignments: Any) -> tuple[list[tuple[Any, Any]], list[str]]:
    """Return (executor, slot) pairs, and the faults of their container."""
    if isinstance(assignments, Mapping):
        return list(assignments.items()), []
    complaint = [f"assignments is {kind_of(assignments)}, a mapping from executors to slots was expected"]
    if isinstance(assignments, Iterable) and not isinstance(assignments, str | bytes):
        entries = list(assignments)
        return [tuple(e) for e in entries if isinstance(e, tuple | list) and len(e) == 2], complaint
    return [], complaint


def _assignment_faults(cluster: Cluster, topology: Topology, pairs: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    times: Counter[Executor] = Counter()
    for executor, slot in pairs:
        if not isinstance(executor, Executor):
            yield f"{executor!r} is {kind_of(executor)}, an Executor was expected"
            continue
        fault = executor_fault(topology, executor)
        if fault:
            yield f"unknown executor {executor.name}: {fault}"
        else:
            times[executor] += 1
        for fault in slot_faults(cluster, slot):
            yield f"{executor.name}: {fault}"
    for executor, count in times.items():
        if count > 1:
            yield f"{executor.name} is placed {count} times"


def executor_fault(topology: Topology, executor: Executor) -> str:
    """Return why `executor` is none of the topology's, or an empty text."""
    name = executor.component
    component = topology.component.get(name) if isinstance(name, str) else None
    if component is None:
        return f"no component {name!r}{nearest(name, topology.component)}"
    if not is_index(executor.index) or executor.index >= component.parallelism:
        return f"{component.id!r} has {component.parallelism} executors"
    return ""


def slot_faults(cluster: Cluster, slot: object) -> Iterator[str]:
    """Yield why `slot` is no slot of an available node."""
    if not isinstance(slot, Slot):
        yield f"{slot!r} is {kind_of(slot)}, a Slot was expected"
        return
    node = cluster.by_id.get(slot.node) if isinstance(slot.node, str) else None
    if node is None:
        yield f"unknown node {slot.node!r}{nearest(slot.node, cluster.by_id)}"
        return
    if not node.available:
        yield f"node {node.id!r} is not available"
    if not is_index(slot.index):
        yield f"{slot.index!r} is no slot of {node.id!r}"
    elif slot.index >= node.slots:
        yield f"slot {slot.index} is beyond the {node.slots} slots of {node.id!r}"


def _status_faults(topology: Topology, placement: Placement, pairs: Sequence[tuple[Any, Any]]) -> Iterator[str]:
    if placement.status not in get_args(Status):
        yield f"unknown status {placement.status!r}{nearest(placement.status, get_args(Status))}"
        return
    if not isinstance(placement.message, str):
        yield f"message is {kind_of(placement.message)}, text was expected"
    elif placement.status != "placed" and not placement.message:
        yield f"it is {placement.status} and no message says why"
    placed = {executor for executor, _ in pairs if isinstance(executor, Executor)}
    missing = [executor.name for executor in topology.executors if executor not in placed]
    if placement.status == "placed" and missing:
        shown = ", ".join(missing[:MOST_NAMED]) + (", ..." if len(missing) > MOST_NAMED else "")
        yield f"it is called placed, but {len(missing)} executors are missing: {shown}"
    if placement.status == "partial" and not missing:
        yield "it is called partial, but no executor is missing"
    if placement.status == "partial" and len(missing) == len(topology.executors):
        yield "it is called partial, but all executors are missing"


def _sharing_faults(problem: Problem, plan: Plan, holders: Mapping[Slot, Sequence[str]]) -> Iterator[str]:
    """Yield slots held by two topologies, counting running workers that were not released."""
    released = _released(plan)
    running = {
        Slot(worker.node, worker.slot): worker.topology
        for worker in problem.existing
        if (worker.topology, worker.node, worker.slot) not in released and problem.cluster.by_id[worker.node].available
    }
    for slot, topologies in holders.items():
        everyone = dict.fromkeys([*topologies, *([running[slot]] if slot in running else [])])
        if len(everyone) > 1:
            yield f"slot {slot.index} of {slot.node!r} is shared by the topologies {', '.join(map(repr, everyone))}"


def _existing_faults(problem: Problem, plan: Plan) -> Iterator[str]:
    if not isinstance(plan.freed, Iterable):
        yield f"freed is {kind_of(plan.freed)}, a sequence of workers was expected"
        return
    ran = {(worker.topology, worker.node, worker.slot) for worker in problem.existing}
    times: Counter[tuple[str, str, int]] = Counter()
    for worker in plan.freed:
        if not isinstance(worker, ExistingWorker):
            yield f"freed: {worker!r} is {kind_of(worker)}, an ExistingWorker was expected"
            continue
        key = (worker.topology, worker.node, worker.slot)
        times[key] += 1
        if key not in ran:
            yield f"freed: no worker of {worker.topology!r} ran in slot {worker.slot} of {worker.node!r}"
    for (topology, node, slot), count in times.items():
        if count > 1:
            yield f"freed: the worker of {topology!r} in slot {slot} of {node!r} is listed {count} times"
    for worker in problem.existing:
        if problem.cluster.by_id[worker.node].available and (worker.topology, worker.node, worker.slot) not in times:
            yield from _kept_faults(worker, plan)


def _kept_faults(worker: ExistingWorker, plan: Plan) -> Iterator[str]:
    """Yield executors missing from a worker that was not released."""
    placement = plan.placements.get(worker.topology) if isinstance(plan.placements, Mapping) else None
    if not isinstance(placement, Placement) or not isinstance(placement.assignments, Mapping):
        return
    here = Slot(worker.node, worker.slot)
    for name in worker.executors:
        slot = placement.assignments.get(Executor.named(name))
        if slot != here:
            fate = "is missing" if slot is None else f"is placed in {slot_in_words(slot)}"
            yield (
                f"topology {worker.topology!r}: {name} {fate}, but its worker in slot {worker.slot} of "
                f"{worker.node!r} runs and was not released"
            )


def _released(plan: Plan) -> set[tuple[str, str, int]]:
    if not isinstance(plan.freed, Iterable):
        return set()
    return {(w.topology, w.node, w.slot) for w in plan.freed if isinstance(w, ExistingWorker)}


def _move_faults(problem: Problem, plan: Plan) -> Iterator[str]:
    if not isinstance(plan.migrations, Iterable):
        yield f"migrations is {kind_of(plan.migrations)}, a sequence of moves was expected"
        return
    ran = {
        (worker.topology, name): Slot(worker.node, worker.slot)
        for worker in problem.existing
        for name in worker.executors
    }
    for move in plan.migrations:
        if not isinstance(move, Move):
            yield f"migrations: {move!r} is {kind_of(move)}, a Move was expected"
            continue
        what = f"migrations: {shown_name(move.executor)} of {move.topology!r}"
        if ran.get((move.topology, shown_name(move.executor))) != move.source:
            yield f"{what} did not run in {slot_in_words(move.source)}"
        placement = plan.placements.get(move.topology) if isinstance(plan.placements, Mapping) else None
        if not isinstance(placement, Placement) or not isinstance(placement.assignments, Mapping):
            continue  # reported already, or a topology outside the round
        if placement.assignments.get(move.executor) != move.target:
            yield f"{what} is not placed in {slot_in_words(move.target)}, where it moves to"


def _frequency_faults(cluster: Cluster, plan: Plan) -> Iterator[str]:
    if not isinstance(plan.frequencies, Mapping):
        yield f"frequencies is {kind_of(plan.frequencies)}, a mapping from nodes to Hz was expected"
        return
    for name, hertz in plan.frequencies.items():
        yield from clock_faults(cluster, name, hertz)


def clock_faults(cluster: Cluster, name: str, hertz: object) -> Iterator[str]:
    """Yield why `hertz` is no clock of the node called `name`."""
    node = cluster.by_id.get(name)
    if node is None:
        yield f"frequencies: unknown node {name!r}{nearest(name, cluster.by_id)}"
    elif not isinstance(hertz, int) or not is_index(hertz) or hertz == 0:
        yield f"frequencies: {hertz!r} is no clock in Hz for {name!r}"
    elif node.frequencies_hz is not None and hertz not in node.frequencies_hz:
        close = min(node.frequencies_hz, key=lambda offered: (abs(offered - hertz), offered), default=None)
        yield f"frequencies: {name!r} does not offer {hertz} Hz, the nearest is {close}"


def schedule_faults(cluster: Cluster, schedule: object) -> Iterator[str]:
    """Yield why `schedule` is no communication schedule of nodes of the cluster; None is one."""
    if schedule is None:
        return
    if not isinstance(schedule, CommunicationSchedule):
        yield f"schedule is {kind_of(schedule)}, a CommunicationSchedule was expected"
        return
    for name in schedule.nodes:
        if name not in cluster.by_id:
            yield f"schedule: unknown node {name!r}{nearest(name, cluster.by_id)}"
    size = len(schedule.nodes)
    if len(set(schedule.nodes)) != size:
        yield "schedule: a node is listed twice"
    indices = {None, *range(size)}
    for number, step in enumerate(schedule.steps):
        if len(step) != size:
            yield f"schedule: step {number} has {len(step)} senders, there are {size} nodes"
        if {*map(type, step)} <= _INDEX_OR_IDLE and indices.issuperset(step):
            continue
        for sender, receiver in enumerate(step):
            if receiver is not None and (not is_index(receiver) or receiver >= size):
                yield f"schedule: step {number}, sender {sender}: {receiver!r} is no node's index"


def _power_faults(cluster: Cluster, plan: Plan) -> Iterator[str]:
    if plan.power is None:
        return
    times: Counter[str] = Counter()
    for entry in plan.power:
        if not isinstance(entry, NodePower):
            yield f"power: {entry!r} is {kind_of(entry)}, a NodePower was expected"
            continue
        times[entry.node] += 1
        if entry.node not in cluster.by_id:
            yield f"power: unknown node {entry.node!r}{nearest(entry.node, cluster.by_id)}"
    for node, count in times.items():
        if count > 1:
            yield f"power: {node!r} is listed {count} times"


def json_faults(value: object, where: str) -> Iterator[str]:
    """Yield what in `value` cannot be written as JSON; `where` is its name in messages."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                yield f"{where}: the key {key!r} is {kind_of(key)}, text was expected"
            yield from json_faults(inner, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        if {*map(type, value)} <= _FAULTLESS:  # matrices are large
            return
        for at, inner in enumerate(value):
            yield from json_faults(inner, f"{where}[{at}]")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield f"{where}: {value} is not a finite number"
    elif value is not None and not isinstance(value, str | int):
        yield f"{where}: {kind_of(value)} cannot be written as JSON"


def _is_slot(slot: object) -> bool:
    return isinstance(slot, Slot) and isinstance(slot.node, str) and is_index(slot.index)


def is_index(value: object) -> bool:
    """Return whether `value` is a number that counts from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def shown_name(executor: object) -> str:
    """Return the executor's name, or what was given instead."""
    return executor.name if isinstance(executor, Executor) else repr(executor)


def slot_in_words(slot: object) -> str:
    """Return `slot 0 of 'n1'`, or what was given instead."""
    return f"slot {slot.index} of {slot.node!r}" if isinstance(slot, Slot) else repr(slot)


def kind_of(value: object) -> str:
    """Return `a str`, `an int`, `None`, ..."""
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
