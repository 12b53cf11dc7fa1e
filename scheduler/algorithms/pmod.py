"""`pmod`: when tasks or nodes change, executors stay in place and the nodes follow new communication steps.

"Pipelined Dynamic Scheduling of Big Data Streams" (Souravlas, Anastasiadou, 2020). Ours, where the paper is silent: an
executor without a node goes to the node with the fewest executors of its component; steps exist for every number of
nodes and tasks; after a change of the number of nodes, every node sends in the steady-state schedule.
"""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.pipeline.limits import MOST_NODES, check_nodes
from scheduler.pipeline.modular import Change, Step, estimated_cost, finish_times, step_cost
from scheduler.problem import CommunicationSchedule, Needs, Placement, Plan, Problem, concluded
from scheduler.toolkit.node_assignment import NodeAssignment, NodeUsage
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
    """

    old_nodes: Annotated[int, Meta(ge=1, le=MOST_NODES)] | None = None
    old_tasks: Annotated[int, Meta(ge=1, le=MOST_EXECUTORS)] | None = None
    v: Annotated[float, Meta(ge=0, le=1e9)] = 1.0
    w: Annotated[float, Meta(ge=0, le=1e9)] = 1.0


class Pmod:
    """Pipelined dynamic scheduling."""

    name: ClassVar[str] = "pmod"
    paper: ClassVar[str] = "Souravlas, Anastasiadou: Pipelined Dynamic Scheduling of Big Data Streams, 2020"
    needs: ClassVar[Needs] = Needs(
        online=True,
        cycles=True,
        shrinks=True,
        ignores="which components communicate, load, traffic, CPU, memory, hardware, the number of workers",
    )
    Params: ClassVar[type] = PmodParams

    def __init__(self, params: PmodParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place all topologies together, one after the other. Running executors do not move."""
        assignment = NodeAssignment(problem)
        check_nodes(len(assignment.nodes))
        placements = {usage.topology.id: _place_waiting(usage) for usage in assignment.usages}
        dropped = {(usage.topology.id, executor.name) for usage in assignment.usages for executor in usage.dropped}
        freed = [w for w in problem.existing if any((w.topology, name) in dropped for name in w.executors)]
        if not assignment.nodes:
            return Plan(placements, freed=freed, details=_nothing(self._params))
        change = self._change(problem, len(assignment.nodes))
        matrix = change.steps()
        details = _details(change, matrix, self._params)
        if change.old_nodes != change.nodes:
            matrix = Change(change.nodes, change.old_tasks, change.nodes, change.tasks).steps()
        schedule = CommunicationSchedule(assignment.nodes, tuple(map(tuple, matrix)), 1)
        return Plan(placements, freed=freed, schedule=schedule, details=details)

    def _change(self, problem: Problem, nodes: int) -> Change:
        ids = {topology.id for topology in problem.topologies}
        running = [worker for worker in problem.existing if worker.topology in ids and worker.executors]
        tasks = max((c.parallelism for topology in problem.topologies for c in topology.components), default=1)
        old_nodes = self._params.old_nodes or len({worker.node for worker in running}) or nodes
        check_nodes(old_nodes)
        old_tasks = self._params.old_tasks
        if old_tasks is None:
            sizes: dict[tuple[str, str], int] = {}
            for worker in running:
                for name in worker.executors:
                    key = (worker.topology, Executor.named(name).component)
                    sizes[key] = sizes.get(key, 0) + 1
            old_tasks = max(sizes.values(), default=tasks)
        return Change(old_nodes, old_tasks, nodes, tasks)


def _place_waiting(usage: NodeUsage) -> Placement:
    """Place waiting executors, component by component, on the nodes with fewest executors of the component."""
    message = "" if usage.assign_nodes(usage.waiting) else f"no free slot: {len(usage.waiting)} executors wait"
    return concluded(usage.topology, usage.assignments, message)


def _details(change: Change, matrix: list[Step], params: PmodParams) -> dict[str, Any]:
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
