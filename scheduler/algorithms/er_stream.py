"""`er-stream`: genetic search for the partition on the fewest nodes that keeps most traffic inside them.

"Er-Stream: An energy efficient and runtime-aware framework for distributed stream computing systems" (Sun, Cui, Wu,
Gao, Buyya, 2022), Algorithm 1 with Eq. 20 and 31: the initial placement of a topology. Ours: topologies are partitioned
one after the other; running executors stay, and their nodes count as used; the work of a search is bounded.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.cost import pairs_together
from scheduler.problem import Needs, Placement, Plan, Problem, concluded
from scheduler.toolkit.equivalence_classes import classes_of
from scheduler.toolkit.genetic import CHROMOSOME_WORK, GENE_WORK, GeneticSettings, evolve
from scheduler.toolkit.local_traffic import inside_of, observed
from scheduler.toolkit.node_assignment import NodeAssignment, NodeUsage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

MOST_WORK = 1_000_000_000
"""Work limit of one search, in numbers handled; a larger search runs fewer generations."""


@dataclass(frozen=True)
class ErStreamParams:
    """Parameters of `er-stream`.

    Attributes:
        population: partitions per generation.
        generations: maximum number of generations after the first.
        p_c: probability of crossover between two neighbouring partitions.
        p_m: probability of mutation of a partition.
        stall: generations without progress after which the search ends.
        seed: seed of the search.
    """

    population: Annotated[int, Meta(ge=1, le=10_000)] = 60
    generations: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    p_c: Annotated[float, Meta(ge=0, le=1)] = 0.8
    p_m: Annotated[float, Meta(ge=0, le=1)] = 0.1
    stall: Annotated[int, Meta(ge=1)] = 60
    seed: Annotated[int, Meta(ge=0)] = 0


class ErStream:
    """Er-Stream's initial partition."""

    name: ClassVar[str] = "er-stream"
    paper: ClassVar[str] = "Sun et al.: Er-Stream, Future Generation Computer Systems, 2022"
    needs: ClassVar[Needs] = Needs(
        traffic="used",
        cycles=True,
        ignores="CPU, memory, hardware, the number of workers; loads and clocks, which its runtime part looks at",
    )
    Params: ClassVar[type] = ErStreamParams

    def __init__(self, params: ErStreamParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place topologies in order; each gets the places that earlier ones left."""
        assignment = NodeAssignment(problem)
        places = _places(problem, assignment)
        placements: dict[str, Placement] = {}
        for usage in assignment.usages:
            message = self._partition(problem, assignment, usage, places)
            placements[usage.topology.id] = concluded(usage.topology, usage.assignments, message)
        return Plan(placements, details=_details(problem, placements))

    def _partition(self, problem: Problem, assignment: NodeAssignment, usage: NodeUsage, places: list[int]) -> str:
        """Choose nodes for the waiting executors of one topology. Return a message, or an empty text."""
        waiting = usage.waiting
        if not waiting:
            return ""
        used, room = _fewest_nodes(assignment, usage, places)
        if room < len(waiting):
            return f"{len(waiting)} executors wait, and the cluster has places for {room} of them"
        chosen, message = self._search(problem, assignment, usage, used, places)
        for executor, node in zip(waiting, chosen, strict=True):
            usage.add(executor, node)
            places[node] -= 1
        return message

    def _search(
        self, problem: Problem, assignment: NodeAssignment, usage: NodeUsage, used: Sequence[int], places: Sequence[int]
    ) -> tuple[list[int], str]:
        """Return waiting executor -> node, and a message."""
        import numpy as np

        topology, params = usage.topology, self._params
        many = len(usage.waiting)
        sizes = [min(places[node], many) for node in used]
        inside = inside_of(topology, observed(topology, problem.traffic), len(used))
        work = params.population * (CHROMOSOME_WORK + GENE_WORK * sum(sizes) + inside.work)
        generations = min(params.generations, MOST_WORK // work - 1)
        if generations < 0:
            in_order = (node for node, size in zip(used, sizes, strict=True) for _ in range(size))
            return list(islice(in_order, many)), "too large for the search: nodes are filled one after the other"
        message = ""
        if generations < params.generations:
            message = f"too large for the whole search: {generations} of {params.generations} generations"

        position = np.repeat(np.arange(len(used)), sizes)
        number = {assignment.nodes[node]: at for at, node in enumerate(used)}
        nodes = np.zeros(len(topology.executors), dtype=np.int64)
        for executor, slot in usage.assignments.items():
            nodes[topology.number_of[executor]] = number[slot.node]
        waiting = np.array([topology.number_of[executor] for executor in usage.waiting])
        node_of_gene = np.empty(len(position), dtype=np.int64)

        def fitness(chromosome: "Integers") -> int:
            node_of_gene[chromosome] = position
            nodes[waiting] = node_of_gene[:many]
            return inside.of(nodes)

        settings = GeneticSettings(params.population, generations, params.p_c, params.p_m, params.stall, params.seed)
        node_of_gene[evolve(len(position), fitness, inside.total, settings)] = position
        return [used[at] for at in node_of_gene[:many].tolist()], message


def _places(problem: Problem, assignment: NodeAssignment) -> list[int]:
    """Return node -> free places for executors: its capacity, else its slots, less the running executors."""
    running = dict.fromkeys(assignment.nodes, 0)
    for worker in problem.existing:
        if worker.node in running:
            running[worker.node] += len(worker.executors)
    nodes = [problem.cluster.by_id[name] for name in assignment.nodes]
    return [max(0, (node.slots if node.capacity is None else int(node.capacity)) - running[node.id]) for node in nodes]


def _fewest_nodes(assignment: NodeAssignment, usage: NodeUsage, places: Sequence[int]) -> tuple[list[int], int]:
    """Return the fewest nodes with places for all waiting executors, and their number of places (Eq. 20).

    Nodes with most places come first, after the nodes on which the topology already runs, which are always used.
    """
    occupied = {slot.node for slot in usage.assignments.values()}
    candidates = [node for node in range(len(assignment.nodes)) if usage.has_room(node)]
    candidates.sort(key=lambda node: (assignment.nodes[node] not in occupied, -places[node], assignment.nodes[node]))
    used: list[int] = []
    room = 0
    for node in candidates:
        if assignment.nodes[node] not in occupied and room >= len(usage.waiting):
            break
        used.append(node)
        room += places[node]
    return used, room


def _details(problem: Problem, placements: Mapping[str, Placement]) -> dict[str, Any]:
    """Return nodes used, traffic inside nodes per used node (Eq. 31) and traffic between nodes, topologies together."""
    inside: list[float] = []
    cut: list[float] = []
    for topology in problem.topologies:
        node_of = {executor: slot.node for executor, slot in placements[topology.id].assignments.items()}
        rates = observed(topology, problem.traffic)
        if rates is None:
            classes = classes_of(topology)
            nodes = [node_of.get(executor) for executor in topology.executors]
            on_node = [Counter(node for e in members if (node := nodes[e]) is not None) for members in classes.members]
            together = pairs_together(classes, on_node)
            inside.append(together)
            cut.append(pairs_together(classes, [Counter({"": counter.total()}) for counter in on_node]) - together)
            continue
        for (one, other), rate in rates.items():
            ends = [node_of.get(topology.executors[end]) for end in (one, other)]
            if None not in ends:
                (inside if ends[0] == ends[1] else cut).append(rate)
    number = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    slots = {slot for placement in placements.values() for slot in placement.assignments.values()}
    used = sorted({number[slot.node] for slot in slots})
    return {"used_nodes": used, "fitness": fsum(inside) / len(used) if used else None, "cut": fsum(cut)}
