"""`matrix`: running tasks stay, new tasks go to the cheapest node, and only overloaded nodes give tasks away.

Our re-implementation from published descriptions of "A Task Scheduling Approach for Real-Time Stream Processing" (Chen,
Zhuang, Li, Xu, CCBD 2014), built for SpeedStream. Matrix L holds the rates between tasks, X maps tasks to nodes, S
holds switch hops between nodes. The cost is the sum of L X X S; every node's load stays within a tolerance of the mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.online.observation import Observation
from scheduler.online.replanner import by_placing_waiting, stranded, trigger
from scheduler.online.revision import Revision, Rhythm
from scheduler.online.round_state import NodeState, ObservedDemand, assign_slots
from scheduler.problem import Needs, Plan, Problem
from scheduler.toolkit.exact import as_float, decimal


@dataclass(frozen=True)
class MatrixParams:
    """Parameters of `matrix`.

    Attributes:
        tolerance: maximum deviation of a node's load from the mean, in CPU points (executors, where nodes have a
            `capacity`); None = the largest load of a task.
        watch_load: whether loads are levelled while a topology runs, and not only when nodes come and go.
    """

    tolerance: Annotated[float, Meta(ge=0)] | None = None
    watch_load: bool = False


class Matrix:
    """Initial placement and local repairs by traffic between racks and nodes."""

    name: ClassVar[str] = "matrix"
    paper: ClassVar[str] = (
        "Chen, Zhuang, Li, Xu: A Task Scheduling Approach for Real-Time Stream Processing, CCBD 2014; "
        "our re-implementation from published descriptions"
    )
    needs: ClassVar[Needs] = Needs(
        traffic="used",
        load=True,
        online=True,
        cycles=True,
        ignores="workers asked for, CPU of nodes, memory, hardware, groupings",
    )
    rhythm: ClassVar[Rhythm] = Rhythm(30, 1, "mean", first_s=30, ask_s=30)
    Params: ClassVar[type] = MatrixParams

    def __init__(self, params: MatrixParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place waiting tasks, then level loads; all topologies together."""
        demand = ObservedDemand(problem)
        node_state = NodeState(problem, demand)
        tolerance = (
            Fraction(max(demand.load, default=0))
            if self._params.tolerance is None
            else decimal(self._params.tolerance) * demand.load_scale
        )
        matrices = _Matrices(problem, demand, node_state, tolerance)
        matrices.place_waiting()
        moved = matrices.level()
        details: dict[str, Any] = {
            "cost": as_float(Fraction(matrices.cost(), demand.rate_scale)),
            "mean_load": as_float(matrices.mean / demand.load_scale),
            "tolerance": as_float(tolerance / demand.load_scale),
            "moved": moved,
        }
        return assign_slots(problem, demand, node_state, details)

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Place the tasks of nodes that are gone, and level loads, when nodes come or go (always with `watch_load`)."""
        if not (self._params.watch_load or observation.changes or stranded(problem, observation)):
            return Revision(text="no node has come or gone", details=trigger("nodes", 0, 0))
        return by_placing_waiting(problem, observation, self.place)


class _Matrices:
    """L (rates), X (node of each task) and S (hops: 0 on the node, 1 in the rack, 2 beyond) of one round."""

    def __init__(self, problem: Problem, demand: ObservedDemand, node_state: NodeState, tolerance: Fraction) -> None:
        self._demand = demand
        self._ground = node_state
        self._rack = {node: problem.cluster.by_id[node].rack for node in node_state.nodes}
        self._tolerance = tolerance
        waits = sum(demand.load[e] for e, home in enumerate(node_state.home) if home is None)
        self.mean = Fraction(sum(node_state.load.values()) + waits, len(node_state.nodes) or 1)

    def place_waiting(self) -> None:
        """Place tasks by total rate, each on the cheapest node within the tolerance, else on the least loaded one."""
        demand, node_state = self._demand, self._ground
        waiting = [e for e, home in enumerate(node_state.home) if home is None]
        for executor in sorted(waiting, key=lambda e: (-demand.total(e), demand.rank[e])):
            nodes = [node for node in node_state.nodes if node_state.hosts(demand.owner[executor], node)]
            most = self.mean + self._tolerance - demand.load[executor]
            within = [node for node in nodes if node_state.load[node] <= most]
            if within:
                hops = self._hops(node_state.at.rate_by_node(executor))
                node_state.put(executor, min(within, key=lambda node: (hops[node], node_state.load[node], node)))
            elif nodes:
                node_state.put(executor, min(nodes, key=lambda node: (node_state.load[node], node)))

    def _hops(self, rate_by_node: Mapping[str, int]) -> dict[str, int]:
        """Return node -> rate x hops of a task there, given the rate to its partners by node."""
        total = 0
        in_rack: dict[str, int] = {}
        for node, rate in rate_by_node.items():
            total += rate
            in_rack[self._rack[node]] = in_rack.get(self._rack[node], 0) + rate
        return {
            node: 2 * total - in_rack.get(self._rack[node], 0) - rate_by_node.get(node, 0)
            for node in self._ground.nodes
        }

    def cost(self) -> int:
        """Return the sum of L X X S, every pair counted once."""
        return (
            sum(
                self._hops(self._ground.at.rate_by_node(executor))[node]
                for executor, node in enumerate(self._ground.home)
                if node is not None
            )
            // 2
        )

    def level(self) -> list[int]:
        """Move tasks off the most loaded node while a node is out of tolerance. Return the moved tasks.

        Every move must bring loads closer together, and a task moves at most once (ours); so the loop terminates.
        """
        demand, node_state = self._demand, self._ground
        movable: dict[str, dict[int, list[tuple[int, int]]]] = {node: {} for node in node_state.nodes}
        for executor, node in enumerate(node_state.home):
            if node is not None and demand.load[executor]:
                movable[node].setdefault(demand.kind[executor], []).append((demand.rank[executor], executor))
        for kinds in movable.values():
            for tasks in kinds.values():
                heapify(tasks)
        moved: list[int] = []
        while any(abs(load - self.mean) > self._tolerance for load in node_state.load.values()):
            fullest = min(node_state.nodes, key=lambda node: (-node_state.load[node], node))
            move = self._cheapest(fullest, movable[fullest])
            if move is None:
                break
            executor, target = move
            tasks = movable[fullest][demand.kind[executor]]
            heappop(tasks)
            if not tasks:
                del movable[fullest][demand.kind[executor]]
            node_state.move(executor, target)
            moved.append(executor)
        return moved

    def _cheapest(self, source: str, movable: Mapping[int, list[tuple[int, int]]]) -> tuple[int, str] | None:
        """Return the task and its new node with the smallest rise in cost among moves that even out loads."""
        demand, node_state = self._demand, self._ground
        best: tuple[int, int, int, str] | None = None
        cheapest: tuple[int, str] | None = None
        for tasks in movable.values():
            rank, executor = tasks[0]
            room = node_state.load[source] - demand.load[executor]
            targets = [
                node
                for node in node_state.nodes
                if node_state.load[node] < room and node_state.hosts(demand.owner[executor], node)
            ]
            if not targets:
                continue
            node_state.at.take(executor, source)
            hops = self._hops(node_state.at.rate_by_node(executor))
            node_state.at.put(executor, source)
            for node in targets:
                rise = (hops[node] - hops[source], rank, node_state.load[node], node)
                if best is None or rise < best:
                    best, cheapest = rise, (executor, node)
        return cheapest
