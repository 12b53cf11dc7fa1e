"""The placement document: output of `millrace place --json`, readable by other programs.

The output is deterministic to the byte, and reading it gives the same document. See docs/reference/files.md.
"""

import dataclasses
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from inventory.documents import dump_json, parse_document
from inventory.errors import InputError
from inventory.power_index import LackingNodeError, power_index
from scheduler.explain.alternatives import Why
from scheduler.explain.best_known import BestKnown
from scheduler.explain.explanation import Explanation, loads_by_node
from scheduler.explain.worker_loads import loads_by_worker, overloaded_count, undetermined_count
from scheduler.problem import Aim, CommunicationSchedule, Placement, Plan, Problem, Slot, Status
from scheduler.toolkit.cost import Cost, cost
from scheduler.toolkit.objective import objective_value
from scheduler.toolkit.slots import fewer_workers
from workloads.derived_traffic import DERIVED
from workloads.topology import Executor, Topology
from workloads.traffic import Traffic


class ExecutorSlot(Struct, frozen=True, forbid_unknown_fields=True):
    """An executor and its slot."""

    executor: str
    node: str
    slot: int


class TopologyPlacement(Struct, frozen=True, forbid_unknown_fields=True):
    """Placement of one topology, with executors in the topology's order, running ones included.

    `note` is present only if the topology asks for more workers than there are slots for it.
    """

    status: Status
    message: str
    assignments: tuple[ExecutorSlot, ...]
    unassigned: tuple[str, ...]
    note: str | UnsetType = UNSET

    @property
    def placement(self) -> Placement:
        """The same as a `Placement`."""
        slots = {Executor.named(a.executor): Slot(a.node, a.slot) for a in self.assignments}
        return Placement(slots, self.status, self.message)


class NodeEntry(Struct, frozen=True, forbid_unknown_fields=True):
    """Computing power and rank of a node (TOP-Storm), or None if the cluster file lacks the data."""

    id: str
    computing_power: float | None
    index: int | None


class FreedWorker(Struct, frozen=True, forbid_unknown_fields=True):
    """A running worker that the scheduler released."""

    topology: str
    node: str
    slot: int
    executors: tuple[str, ...]


class PlannedMove(Struct, frozen=True, forbid_unknown_fields=True, rename={"source": "from", "target": "to"}):
    """An executor that moves."""

    topology: str
    executor: str
    source: Slot
    target: Slot


class PlacementFile(Struct, frozen=True, forbid_unknown_fields=True):
    """The placement document.

    `elapsed_s` is the scheduler's run time; everything else depends only on the input. `nodes` lists every node.
    `account` and `why` are present only on request, `best_known` only in comparisons; None if no placement that
    respects all capacities is known. `traffic` is `derived` if the cost is counted by traffic and loads that were not
    measured, but follow from rates, selectivities and costs; otherwise it is absent.
    """

    scheduler: str
    params: dict[str, Any]
    elapsed_s: float
    topologies: dict[str, TopologyPlacement]
    cost: Cost
    nodes: tuple[NodeEntry, ...]
    communication_schedule: CommunicationSchedule | None
    freed: tuple[FreedWorker, ...]
    details: dict[str, Any]
    migrations: tuple[PlannedMove, ...]
    frequencies_hz: dict[str, int]
    account: Explanation | UnsetType = UNSET
    why: Why | UnsetType = UNSET
    best_known: BestKnown | UnsetType | None = UNSET
    traffic: str | UnsetType = UNSET


def make_placement_file(
    scheduler: str,
    params: Mapping[str, Any],
    problem: Problem,
    plan: Plan,
    elapsed_s: float,
    account: Explanation | UnsetType = UNSET,
    why: Why | UnsetType = UNSET,
    aim: Aim | None = None,
    measured: Traffic | None = None,
    derived: Traffic | None = None,
) -> PlacementFile:
    """Return the document for a checked `plan`.

    Args:
        scheduler: name of the scheduler.
        params: its parameters as plain data, defaults filled in.
        problem: its input.
        plan: its output.
        elapsed_s: its run time.
        account: explanation of the plan, if requested.
        why: alternatives of one executor, if requested.
        aim: the objective, if the scheduler has none itself.
        measured: traffic and loads by which the cost is counted, if the scheduler did not get all that is known.
        derived: the same, used if nothing was measured.

    Raises:
        LackingNodeError: what was measured of a link in use does not suffice for the objective.
    """
    return PlacementFile(
        scheduler=scheduler,
        params=dict(params),
        elapsed_s=round(elapsed_s, 6),
        topologies={t.id: _topology(problem, t, plan.placements[t.id]) for t in problem.topologies},
        cost=_cost(problem, plan, plan.aim or aim, derived if measured is None else measured),
        nodes=_nodes(problem, plan),
        communication_schedule=_schedule(plan),
        freed=tuple(FreedWorker(w.topology, w.node, w.slot, w.executors) for w in plan.freed),
        details=msgspec.json.decode(msgspec.json.encode(plan.details)),
        migrations=tuple(PlannedMove(m.topology, m.executor.name, m.source, m.target) for m in plan.migrations),
        frequencies_hz=dict(plan.frequencies),
        account=account,
        why=why,
        traffic=DERIVED if measured is None and derived is not None else UNSET,
    )


def _cost(problem: Problem, plan: Plan, aim: Aim | None, known: Traffic | None) -> Cost:
    informed = problem if known is None else dataclasses.replace(problem, traffic=known)
    workers = loads_by_worker(informed, plan.placements)
    judged = replace(
        cost(informed, plan.placements),
        overloaded_nodes=sum(node.overloaded for node in loads_by_node(informed, plan)),
        overloaded_workers=overloaded_count(workers),
        undetermined_workers=undetermined_count(workers),
    )
    if aim is None:
        return judged
    value: float
    if aim.objective == "cut":
        observed = judged.inter_node_tuples_per_s
        value = judged.inter_node_edges if observed is None else observed
    else:
        value = objective_value(problem, plan.placements, aim)
    bound = plan.lower_bound if plan.aim == aim else None
    return replace(judged, objective=float(value) if isfinite(value) else None, lower_bound=bound)


def _topology(problem: Problem, topology: Topology, placement: Placement) -> TopologyPlacement:
    assignments: list[ExecutorSlot] = []
    unassigned: list[str] = []
    for executor in topology.executors:
        slot = placement.assignments.get(executor)
        if slot is None:
            unassigned.append(executor.name)
        else:
            assignments.append(ExecutorSlot(executor.name, slot.node, slot.index))
    note = fewer_workers(topology, _slots_for(problem, topology)) or UNSET
    return TopologyPlacement(placement.status, placement.message, tuple(assignments), tuple(unassigned), note)


def _slots_for(problem: Problem, topology: Topology) -> int:
    """Return the number of slots of available nodes in which no other topology runs before the round."""
    available = {node.id: node.slots for node in problem.cluster.nodes if node.available}
    taken = {(w.node, w.slot) for w in problem.existing if w.topology != topology.id and w.node in available}
    return sum(available.values()) - len(taken)


def _nodes(problem: Problem, plan: Plan) -> tuple[NodeEntry, ...]:
    ranked = plan.power
    if ranked is None:
        try:
            ranked = power_index(problem.cluster.nodes).ranked
        except LackingNodeError:
            ranked = ()  # not needed by this scheduler
    by_id = {entry.node: entry for entry in ranked}
    return tuple(
        NodeEntry(node.id, by_id[node.id].power, by_id[node.id].index)
        if node.id in by_id
        else NodeEntry(node.id, None, None)
        for node in problem.cluster.nodes
    )


def _schedule(plan: Plan) -> CommunicationSchedule | None:
    if plan.schedule is None:
        return None
    return CommunicationSchedule(
        tuple(plan.schedule.nodes), tuple(tuple(step) for step in plan.schedule.steps), plan.schedule.stages
    )


def to_json(answer: PlacementFile) -> str:
    """Return the document as text, with the same bytes for the same document."""
    return dump_json(answer)


def parse_placement_file(text: str, source: str = "<text>") -> PlacementFile:
    """Return the document that `to_json` wrote.

    Raises:
        InputError: the text is not a placement document; the message names line, key and value.
    """
    try:
        return msgspec.json.decode(text, type=PlacementFile)
    except (msgspec.DecodeError, UnicodeError):
        # Parse again with the slower parser that records line numbers (and accepts YAML too).
        return parse_document(text, source).convert(PlacementFile)


def read_placement_file(path: Path) -> PlacementFile:
    """Return the document in a placement file.

    Raises:
        InputError: the file cannot be read, or is not a placement document.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        raise InputError(f"{path}: cannot be read: {fault}") from None
    return parse_placement_file(text, str(path))
