"""`pmod`: when tasks or nodes change, executors stay in place and the nodes follow new communication steps.

"Pipelined Dynamic Scheduling of Big Data Streams" (Souravlas, Anastasiadou, 2020). Ours, where the paper is silent: an
executor without a node goes to the node with the fewest executors of its component; steps exist for every number of
nodes and tasks; after a change of the number of nodes, every node sends in the steady-state schedule.
"""

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace as replaced

from scheduler.online.elastic import BusyRule, revision_to, wanted_sizes
from scheduler.online.observation import Observation
from scheduler.online.revision import Reason, Revision, Rhythm
from scheduler.pipeline.modular import LayoutChange, Step, estimated_cost, finish_times, step_cost
from scheduler.problem import CommunicationSchedule, Needs, Overlap, Placement, Plan, Problem, concluded
from scheduler.toolkit.node_assignment import MOST_NODES, NodeAssignment, TopologyUsage, check_nodes
from workloads.scaling import resized, sizes_of
from workloads.topology import MOST_EXECUTORS, Executor

MOST_CELLS = 500_000
"""Larger class tables and single-index matrices, in cells, are left out of the details."""


@dataclass(frozen=True)
class PmodParams:
    """Parameters of `pmod`.

    Attributes:
        old_nodes: nodes before the change (N); None = nodes with running executors, or all nodes if there are none.
        old_tasks: tasks per node before the change (t); None = largest number of running executors of a component,
            or the current tasks if none runs.
        v: time to process a step, in units of the distance between neighbouring nodes.
        w: time to pack a step, in the same unit.
        elastic: what changes the parallelism of bolts while a topology runs: the time that their executors are `busy`.
    """

    old_nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] | None = None
    old_tasks: Annotated[int, Meta(ge=1, le=MOST_EXECUTORS)] | None = None
    v: Annotated[float, Meta(ge=0, le=1e9)] = 1.0
    w: Annotated[float, Meta(ge=0, le=1e9)] = 1.0
    elastic: Literal["off", "busy"] = "off"


class Pmod:
    """Pipelined dynamic scheduling."""

    name: ClassVar[str] = "pmod"
    paper: ClassVar[str] = "Souravlas, Anastasiadou: Pipelined Dynamic Scheduling of Big Data Streams, 2020"
    needs: ClassVar[Needs] = Needs(
        online=True,
        cycles=True,
        shrinks=True,
        scales=True,
        ignores="which components communicate, load, traffic, CPU, memory, hardware, the number of workers",
    )
    overlap: ClassVar[Overlap] = "transfer"
    rhythm: ClassVar[Rhythm] = Rhythm(5, 1, "mean", first_s=5, ask_s=5)
    Params: ClassVar[type] = PmodParams

    def __init__(self, params: PmodParams) -> None:
        self._params = params
        self._busy = BusyRule() if params.elastic == "busy" else None
        self._followed: tuple[CommunicationSchedule, int] | None = None  # the present schedule, and its number of tasks

    def place(self, problem: Problem) -> Plan:
        """Place all topologies together, one after the other. Running executors do not move."""
        assignment, placements = _place(problem)
        dropped = {(usage.topology.id, executor.name) for usage in assignment.usages for executor in usage.dropped}
        freed = [w for w in problem.existing if any((w.topology, name) in dropped for name in w.executors)]
        if not assignment.nodes:
            return Plan(placements, freed=freed, details=_nothing(self._params))
        change = _change(problem, len(assignment.nodes), self._params)
        schedule, details = _steps(assignment.nodes, change, self._params)
        return Plan(placements, freed=freed, schedule=schedule, details=details)

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Place added executors and those of lost nodes, and follow new steps."""
        (topology,) = problem.topologies
        sizes = sizes_of(observation.executors)
        if self._busy and sizes == wanted_sizes(topology):
            topology = resized(topology, self._busy.sizes(topology, observation))
            problem = replace(problem, topologies=(topology,))
        account = {"elastic": self._busy.account} if self._busy else {}
        present = observation.schedule
        assignment, placements = _place(problem)
        if present is not None:
            staying = set(present.nodes) & set(assignment.nodes)
            if len(staying) < len(present.nodes) and len(staying) < len(assignment.nodes):
                # A schedule cannot lose nodes and get others at once.
                assignment, placements = _place(_only_on(problem, staying))
        placement = placements[topology.id]
        if placement.status != "placed":
            return Revision(text=f"no plan: {placement.message}", details=account)
        revision = revision_to(topology, observation, placement.assignments)
        before = {slot.node for slot in observation.places.values()} if present is None else present.nodes
        old_tasks, tasks = self._scheduled_tasks(present, max(sizes.values())), _largest(problem)
        follows = present is not None and (set(before) != set(assignment.nodes) or old_tasks != tasks)
        numbers = {"N": len(before), "t": old_tasks, "Q": len(assignment.nodes), "s": tasks}
        unchanged = Revision(text="nothing is to be changed", details={**numbers, **account})
        if not revision.changes and not follows:
            return unchanged
        change = LayoutChange(len(before), old_tasks, len(assignment.nodes), tasks)
        schedule, details = _steps(assignment.nodes, change, self._params)
        if not revision.changes and schedule == present:
            self._followed = (schedule, tasks)
            return unchanged
        reason, text = _why(revision)
        return replace(
            revision,
            reason=reason,
            text=text,
            schedule=None if present is None else schedule,
            details={**numbers, **details, **account},
        )

    def _scheduled_tasks(self, present: CommunicationSchedule | None, tasks: int) -> int:
        """Return the number of tasks that the present steps are for: what ran when they were seen first."""
        if present is None:
            return tasks
        if self._followed is None or self._followed[0] != present:
            self._followed = (present, tasks)
        return self._followed[1]


def _place(problem: Problem) -> tuple[NodeAssignment, dict[str, Placement]]:
    """Return the nodes with all executors that have a slot on them, and topology -> its placement."""
    assignment = NodeAssignment(problem)
    check_nodes(len(assignment.nodes))
    return assignment, {usage.topology.id: _place_waiting(usage) for usage in assignment.usages}


def _only_on(problem: Problem, nodes: Set[str]) -> Problem:
    """Return the problem with these nodes available only."""
    available = [replaced(node, available=node.available and node.id in nodes) for node in problem.cluster.nodes]
    return replace(problem, cluster=replaced(problem.cluster, nodes=tuple(available)))


def _why(revision: Revision) -> tuple[Reason, str]:
    """Return the reason of a revision, and the same in words."""
    lost = f"{len(revision.moves)} executors had lost their node"
    if revision.parallelism:
        sizes = ", ".join(f"{component} to {size}" for component, size in revision.parallelism.items())
        return "scale", f"{sizes}; {lost}" if revision.moves else sizes
    if revision.moves:
        return "nodes", lost
    return "schedule", "nodes have come or gone, or there are more or fewer tasks"


def _largest(problem: Problem) -> int:
    """Return the largest parallelism of a component."""
    return max((c.parallelism for topology in problem.topologies for c in topology.components), default=1)


def _change(problem: Problem, nodes: int, params: PmodParams) -> LayoutChange:
    """Return the change from what runs, or from what the parameters say, to `nodes` nodes."""
    ids = {topology.id for topology in problem.topologies}
    running = [worker for worker in problem.existing if worker.topology in ids and worker.executors]
    tasks = _largest(problem)
    old_nodes = params.old_nodes or len({worker.node for worker in running}) or nodes
    check_nodes(old_nodes)
    old_tasks = params.old_tasks
    if old_tasks is None:
        sizes: dict[tuple[str, str], int] = {}
        for worker in running:
            for name in worker.executors:
                key = (worker.topology, Executor.named(name).component)
                sizes[key] = sizes.get(key, 0) + 1
        old_tasks = max(sizes.values(), default=tasks)
    return LayoutChange(old_nodes, old_tasks, nodes, tasks)


def _steps(
    nodes: tuple[str, ...], change: LayoutChange, params: PmodParams
) -> tuple[CommunicationSchedule, dict[str, Any]]:
    """Return the schedule after the change, and the details of the change."""
    matrix = change.steps()
    details = _details(change, matrix, params)
    if change.old_nodes != change.nodes:
        matrix = LayoutChange(change.nodes, change.old_tasks, change.nodes, change.tasks).steps()
    return CommunicationSchedule(nodes, tuple(map(tuple, matrix)), 1), details


def _place_waiting(usage: TopologyUsage) -> Placement:
    """Place waiting executors, component by component, on the nodes with fewest executors of the component."""
    message = "" if usage.assign_nodes(usage.waiting) else f"no free slot: {len(usage.waiting)} executors wait"
    return concluded(usage.topology, usage.assignments, message)


def _details(change: LayoutChange, matrix: list[Step], params: PmodParams) -> dict[str, Any]:
    costs = [step_cost(step) for step in matrix]
    table = sim = None
    if change.classes + change.old_nodes * change.nodes <= MOST_CELLS:
        pairs = change.pairs()
        table = [{"k": k, "pairs": pairs[k], "c": c} for k, c in enumerate(change.common().tolist())]
        sim = [{"k": k, "cells": change.receivers(mine)} for k, mine in enumerate(pairs) if mine]
    square = change.old_nodes == change.nodes >= 4
    times = finish_times(costs, params.v, params.w)
    return {
        "g": change.classes,
        "class_table": table,
        "sim": sim,
        "sm": matrix,
        "costs": costs,
        "total_cost": sum(costs),
        "prop2": estimated_cost(change.nodes) if square else None,
        "timing": {"v": params.v, "w": params.w, "makespan": times[-1], "finish_times": times},
    }


def _nothing(params: PmodParams) -> dict[str, Any]:
    """Return the details of a cluster without usable nodes."""
    unknown = dict.fromkeys(("g", "class_table", "sim", "sm", "costs", "total_cost", "prop2"))
    return {**unknown, "timing": {"v": params.v, "w": params.w, "makespan": None, "finish_times": []}}
