"""`p-scheduler`: as few nodes as the load needs; executors to nodes, then to workers, by graph partitioning.

Our re-implementation from published descriptions of "P-Scheduler: adaptive hierarchical scheduling in Apache Storm"
(Eskandari, Huang, Eyers, ACSW 2016). Topologies are planned in the order given; each uses the capacity
that the others leave.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.adaptive.demand import Demand
from scheduler.adaptive.node_state import NodeState
from scheduler.adaptive.partition import cut, partition
from scheduler.partitioning.assembling import Part, assemble
from scheduler.problem import Needs, Plan, Problem
from scheduler.toolkit.scaling import as_float, decimal
from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class PSchedulerParams:
    """Parameters of `p-scheduler`.

    Attributes:
        target_utilisation: maximum share of a node's capacity to use.
    """

    target_utilisation: Annotated[float, Meta(gt=0, le=1)] = 0.8


class PScheduler:
    """Two phases of partitioning by observed traffic."""

    name: ClassVar[str] = "p-scheduler"
    paper: ClassVar[str] = (
        "Eskandari, Huang, Eyers: P-Scheduler, ACSW 2016; our re-implementation from published descriptions"
    )
    needs: ClassVar[Needs] = Needs(
        traffic="required", load=True, online=True, cycles=True, ignores="memory, hardware, groupings, racks"
    )
    Params: ClassVar[type] = PSchedulerParams

    def __init__(self, params: PSchedulerParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Plan topologies in order, each from scratch.

        A topology for which no slot exists keeps its running workers.
        """
        demand = Demand(problem)
        node_state = NodeState(problem, demand)
        index = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
        parts: dict[str, dict[Executor, Part]] = {}
        failures: dict[str, str] = {}
        account: dict[str, Any] = {}
        first = 0
        for number, topology in enumerate(problem.topologies):
            mine = sorted(range(first, first + len(topology.executors)), key=demand.rank.__getitem__)
            first += len(topology.executors)
            node_state.vacate(number)
            graph = _Graph(demand, mine)
            homes = self._nodes_for(demand, node_state, graph)
            if not homes:
                failures[topology.id] = f"no free slot: {len(mine)} executors wait"
                account[topology.id] = {"nodes": [], "cut": 0}
                continue
            on_node = partition(graph.load, graph.near, len(homes))
            seats = _by_load(graph, on_node, homes)
            workers = _workers(topology, graph, on_node, [node_state.free[node] for node in seats])
            for part, node in enumerate(seats):
                node_state.start(number, node, len({workers[at] for at, own in enumerate(on_node) if own == part}))
            for at, executor in enumerate(mine):
                node_state.put(executor, seats[on_node[at]])
            parts[topology.id] = {demand.executors[e]: (seats[on_node[at]], workers[at]) for at, e in enumerate(mine)}
            account[topology.id] = {
                "nodes": [index[node] for node in seats],
                "cut": as_float(Fraction(cut(graph.near, on_node), demand.rate_scale)),
            }
        return assemble(problem, parts, failures, {"topologies": account})

    def _nodes_for(self, demand: Demand, node_state: NodeState, graph: "_Graph") -> list[str]:
        """Return the fewest nodes that carry the load at the target utilisation, most free capacity first."""
        target = decimal(self._params.target_utilisation)
        room = {n: target * demand.capacity[n] - node_state.load[n] for n in node_state.nodes if node_state.free[n] > 0}
        order = sorted(room, key=lambda node: (node_state.load[node] - demand.capacity[node], node))
        load = Fraction(sum(graph.load))
        chosen: list[str] = []
        for node in order[: len(graph.load)]:
            if chosen and load <= 0:
                break
            chosen.append(node)
            load -= max(room[node], Fraction(0))
        return chosen


class _Graph:
    """Executors of one topology as a graph, in order of start task.

    Attributes:
        load: load of each executor.
        near: executor -> {executor: rate}.
    """

    def __init__(self, demand: Demand, mine: Sequence[int]) -> None:
        place = {executor: at for at, executor in enumerate(mine)}
        self.load = [demand.load[executor] for executor in mine]
        self.near = [{place[other]: rate for other, rate in demand.near[executor].items()} for executor in mine]


def _by_load(graph: _Graph, part: Sequence[int], nodes: Sequence[str]) -> list[str]:
    """Return part -> node: the part with the largest load gets the node with most free capacity."""
    loads = [0] * len(nodes)
    for at, p in enumerate(part):
        loads[p] += graph.load[at]
    seats = [""] * len(nodes)
    for node, p in zip(nodes, sorted(range(len(nodes)), key=lambda p: (-loads[p], p)), strict=True):
        seats[p] = node
    return seats


def _workers(topology: Topology, graph: _Graph, part: Sequence[int], free: Sequence[int]) -> list[int]:
    """Return executor -> number of its worker on its node.

    As many workers as asked for, shared by the nodes, rounded up.
    """
    wanted = -(-topology.workers // len(free))
    worker = [0] * len(part)
    for p, slots in enumerate(free):
        members = [at for at, own in enumerate(part) if own == p]
        place = {at: number for number, at in enumerate(members)}
        near = [{place[u]: rate for u, rate in graph.near[at].items() if u in place} for at in members]
        split = partition([graph.load[at] for at in members], near, min(wanted, slots, len(members)))
        for at, own in zip(members, split, strict=True):
            worker[at] = own
    return worker
