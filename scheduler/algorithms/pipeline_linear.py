"""`pipeline-linear`: tasks distributed over nodes so that in every step each node receives from exactly one node.

"Pipeline-Based Linear Scheduling of Big Data Streams in the Cloud" (Tantalaki, Souravlas, Roumeliotis, Katsavounis,
2020): distribution (Algorithm 1), refinement (Algorithm 2), pipelined execution (Algorithm 3). Ours: several topologies
form one graph, since nodes follow one schedule; more components than nodes are distributed in layers of as many
components as there are nodes; running executors stay; an executor whose node has no slot for its topology goes to the
node with the fewest executors of its component.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from scheduler.online.observation import Observation
from scheduler.online.replanner import ReplanRules, by_plan
from scheduler.online.revision import Revision, Rhythm
from scheduler.pipeline.refinement import Distribution, Swap, refine_layer, relabelled
from scheduler.pipeline.timeline import Flow, flow_of, round_timeline
from scheduler.problem import CommunicationSchedule, Needs, Placement, Plan, Problem, concluded
from scheduler.toolkit.node_assignment import NodeAssignment, TopologyUsage, check_nodes
from workloads.topology import Executor, Topology

MOST_CELLS = 4_000_000
"""Matrices with more cells in total are left out of the details."""


ANY_PLAN = ReplanRules(min_gain_percent=None, every_s=0)


@dataclass(frozen=True)
class PipelineLinearParams:
    """Parameters of `pipeline-linear`.

    Attributes:
        refine: place communicating components on common nodes, at the expense of balance.
    """

    refine: bool = True


class PipelineLinear:
    """Static pipelined scheduling."""

    name: ClassVar[str] = "pipeline-linear"
    paper: ClassVar[str] = "Tantalaki et al.: Pipeline-Based Linear Scheduling of Big Data Streams in the Cloud, 2020"
    needs: ClassVar[Needs] = Needs(ignores="load, traffic, groupings, CPU, memory, hardware, the number of workers")
    rhythm: ClassVar[Rhythm] = Rhythm(5, 1, "mean")
    Params: ClassVar[type] = PipelineLinearParams

    def __init__(self, params: PipelineLinearParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place all topologies together, their components numbered consecutively."""
        assignment = NodeAssignment(problem)
        check_nodes(len(assignment.nodes))
        flow = flow_of(sum(len(t.components) for t in problem.topologies), _links(problem.topologies))
        largest = max((c.parallelism for t in problem.topologies for c in t.components), default=1)
        grid = Distribution.padded(len(assignment.nodes), largest) if assignment.nodes else None
        layers = self._layers(grid, flow) if grid else []
        origins = [_inverse(labels) for labels, _ in layers]
        placements = {usage.topology.id: _place_waiting(usage, grid, origins) for usage in assignment.usages}
        schedule: list[tuple[int, ...]] = []
        if grid:
            schedule = [tuple(row) for row in relabelled(grid.rows(grid.nodes), layers[0][0])]
        details = {
            "t": grid.tasks if grid else None,
            "G": grid.block if grid else None,
            **_matrices(grid, layers),
            "schedule": schedule,
            "timeline": round_timeline(flow, assignment.counts, schedule) if grid else [],
            "node_loads": assignment.loads,
        }
        communication = CommunicationSchedule(assignment.nodes, tuple(schedule), flow.stages) if grid else None
        return Plan(placements, schedule=communication, details=details)

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        """Distribute all executors anew; the plan differs only if nodes or numbers of executors do."""
        revision = by_plan(problem, observation, self.place, ANY_PLAN)
        if revision.reason != "cut":
            return revision
        scaled = any(change.kind == "scale" for change in observation.changes)
        text = "executors are distributed anew, after a change of their number or of nodes"
        return replace(revision, reason="scale" if scaled else "nodes", text=text)

    def _layers(self, grid: Distribution, flow: Flow) -> list[tuple[list[int], list[Swap]]]:
        """Return, per layer, the new labels and the exchanges that produce them."""
        layers = max(1, -(-len(flow.level) // grid.nodes))
        edges: list[list[tuple[int, int]]] = [[] for _ in range(layers)]
        if self._params.refine:
            for source, destination in flow.edges:
                layer, local = divmod(source, grid.nodes)
                if destination // grid.nodes == layer:
                    edges[layer].append((local, destination % grid.nodes))
        return [refine_layer(grid, inside) for inside in edges]


def _links(topologies: Sequence[Topology]) -> list[tuple[int, int]]:
    """Return (source, destination) of every link, components numbered over all topologies in order."""
    links: list[tuple[int, int]] = []
    first = 0
    for topology in topologies:
        number = {component.id: first + at for at, component in enumerate(topology.components)}
        links.extend((number[source.id], number[destination.id]) for source, destination, _ in topology.links())
        first += len(number)
    return links


def _matrices(grid: Distribution | None, layers: Sequence[tuple[list[int], list[Swap]]]) -> dict[str, Any]:
    """Return `m_inter` and `layers`; matrices that are too large to write are None."""
    written = grid is not None and (1 + len(layers)) * grid.tasks * grid.nodes <= MOST_CELLS
    rows = grid.rows(grid.tasks) if grid is not None and written else None
    return {
        "m_inter": rows,
        "layers": [
            {
                "m_fin": None if rows is None else relabelled(rows, labels),
                "swaps": [list(swap) for swap in swaps],
            }
            for labels, swaps in layers
        ],
    }


def _place_waiting(usage: TopologyUsage, grid: Distribution | None, origins: Sequence[Sequence[int]]) -> Placement:
    """Place the waiting executors on the nodes of their cells.

    Args:
        usage: the topology's executors on the nodes.
        grid: the matrix before refinement; None without nodes.
        origins: layer -> final label -> label in `grid`.
    """
    left: list[Executor] = []
    for executor in usage.waiting:
        node = None
        if grid is not None:
            layer, label = divmod(usage.number[executor.component], grid.nodes)
            node = grid.column(executor.index, origins[layer][label])
        if node is not None and usage.has_room(node):
            usage.add(executor, node)
        else:
            left.append(executor)
    if not usage.assign_nodes(left):
        return concluded(usage.topology, usage.assignments, f"no free slot: {len(left)} executors wait")
    message = f"{len(left)} executors are not on the node of their cell, which has no free slot" if left else ""
    return concluded(usage.topology, usage.assignments, message)


def _inverse(permutation: Sequence[int]) -> list[int]:
    """Return the inverse of `permutation`."""
    inverse = [0] * len(permutation)
    for at, value in enumerate(permutation):
        inverse[value] = at
    return inverse
