"""`er-stream`: genetic search for the partition on the fewest nodes that keeps most traffic inside them.

"Er-Stream: An energy efficient and runtime-aware framework for distributed stream computing systems" (Sun, Cui, Wu,
Gao, Buyya, 2022). `place` is Algorithm 1 with Eq. 20 and 31, the initial placement of a topology; `revise` is
Algorithms 2 (moves off overloaded nodes), 3 (a new partition by measured traffic) and 4 (clocks). Ours: topologies are
partitioned one after the other; running executors stay, and their nodes count as used; the work of a search is
bounded.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import fsum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from scheduler.online.clocks import ClockControl, utilisations
from scheduler.online.observation import WITHOUT_EFFECT, Expected, Observation, clamped
from scheduler.online.overload import Relief, relieve, vacate
from scheduler.online.predicted_loads import PredictedLoads
from scheduler.online.rescheduling import RescheduleDecision, node_cut, not_asked, reschedule
from scheduler.online.revision import Reason, Revision, Rhythm
from scheduler.problem import Move, Needs, Placement, Plan, Problem, concluded
from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.cost import pairs_together
from scheduler.toolkit.genetic import CHROMOSOME_WORK, GENE_WORK, GeneticSettings, evolve
from scheduler.toolkit.local_traffic import LocalTraffic, Rates, inside_of, observed_rates
from scheduler.toolkit.node_assignment import NodeAssignment, TopologyUsage
from workloads.topology import Executor, Topology

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

MOST_WORK = 1_000_000_000
"""Work limit of one search, in numbers handled; a larger search runs fewer generations."""

MOST_WORDS = 3
"""Maximum number of nodes in the text of a revision."""


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
        B: highest load of a node without `max_load`, as a share of its `cpu`.
        max_moves: maximum number of executors that leave an overloaded node in one window.
        cool: windows for which an executor that moved is not moved again.
        period_s: seconds between two partitions by measured traffic.
        alpha: ratio of the traffic between nodes now and by a new partition that must be exceeded.
        p_min: share of full-speed performance that a slowed node keeps at least.
        save: energy that clocks minimise: power (`stream`), energy per tuple (`batch`); `off`: clocks stay.
        tol: slack up to which an executor is critical, as a share of the longest path.
    """

    population: Annotated[int, Meta(ge=1, le=10_000)] = 60
    generations: Annotated[int, Meta(ge=0, le=1_000_000)] = 200
    p_c: Annotated[float, Meta(ge=0, le=1)] = 0.8
    p_m: Annotated[float, Meta(ge=0, le=1)] = 0.1
    stall: Annotated[int, Meta(ge=1)] = 60
    seed: Annotated[int, Meta(ge=0)] = 0
    B: Annotated[float, Meta(gt=0, le=1)] = 0.85
    max_moves: Annotated[int, Meta(ge=0)] = 1
    cool: Annotated[int, Meta(ge=0)] = 6
    period_s: Annotated[float, Meta(gt=0)] = 30.0
    alpha: Annotated[float, Meta(ge=0)] = 1.2
    p_min: Annotated[float, Meta(gt=0, le=1)] = 0.9
    save: Literal["stream", "batch", "off"] = "stream"
    tol: Annotated[float, Meta(ge=0, le=1)] = 0.05


class ErStream:
    """Er-Stream: the initial partition, and its revisions while the topology runs."""

    name: ClassVar[str] = "er-stream"
    paper: ClassVar[str] = "Sun et al.: Er-Stream, Future Generation Computer Systems, 2022"
    needs: ClassVar[Needs] = Needs(
        hardware=True,
        traffic="used",
        load=True,
        online=True,
        cycles=True,
        ignores="memory, the number of workers; at the start CPU, hardware and loads too",
    )
    rhythm: ClassVar[Rhythm] = Rhythm(5, 1, "trimmed", first_s=30, ask_s=5)
    Params: ClassVar[type] = ErStreamParams

    def __init__(self, params: ErStreamParams) -> None:
        self._params = params
        self._clocks = None if params.save == "off" else ClockControl(params.p_min, params.tol, params.save)
        self._moved: dict[Executor, float] = {}  # executor -> end of the window after which it was moved
        self._period = 0  # number of the last period with a new partition

    def place(self, problem: Problem) -> Plan:
        """Place topologies in order; each gets the places that earlier ones left."""
        assignment = NodeAssignment(problem)
        places = _places(problem, assignment)
        placements: dict[str, Placement] = {}
        for usage in assignment.usages:
            message = self._partition(problem, assignment, usage, places)
            placements[usage.topology.id] = concluded(usage.topology, usage.assignments, message)
        return Plan(placements, details=_details(problem, placements))

    def _partition(self, problem: Problem, assignment: NodeAssignment, usage: TopologyUsage, places: list[int]) -> str:
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
        self,
        problem: Problem,
        assignment: NodeAssignment,
        usage: TopologyUsage,
        used: Sequence[int],
        places: Sequence[int],
    ) -> tuple[list[int], str]:
        """Return waiting executor -> node, and a message."""
        import numpy as np

        topology = usage.topology
        many = len(usage.waiting)
        sizes = [min(places[node], many) for node in used]
        inside = inside_of(topology, observed_rates(topology, problem.traffic), len(used))
        number = {assignment.nodes[node]: at for at, node in enumerate(used)}
        nodes = np.zeros(len(topology.executors), dtype=np.int64)
        for executor, slot in usage.assignments.items():
            nodes[topology.number_of[executor]] = number[slot.node]
        waiting = np.array([topology.number_of[executor] for executor in usage.waiting])
        fittest, message = _fittest(self._params, inside, sizes, nodes, waiting)
        if fittest is None:
            in_order = (node for node, size in zip(used, sizes, strict=True) for _ in range(size))
            return list(islice(in_order, many)), f"{message}: nodes are filled one after the other"
        return [used[at] for at in fittest], message

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Move executors off overloaded nodes, else exchange executors between nodes; and set clocks."""
        (topology,) = problem.topologies
        if any(name not in observation.executors for name in topology.executor_named):
            return Revision(text="executors wait, which are placed without it")
        ratios = self._clocks.ratios(problem.cluster, observation) if self._clocks else {}
        loads = PredictedLoads(problem, observation, self._params.B, ratios)
        rates = observed_rates(topology, observation.as_traffic) or {}
        gone = {node for node in loads.place.values() if not _stays(node, problem, observation)}
        if gone:
            left = vacate(topology, loads, rates, gone) if observation.complete else []
            moves = _moves(topology, observation, loads)
            if not moves:
                return Revision(text=f"no room for the executors of {', '.join(sorted(gone))}")
            return self._revision(problem, observation, loads, rates, "nodes", moves, left)
        if not observation.complete:
            return Revision(text="the observation is not complete")
        held = self._held(topology, observation)
        relieved = relieve(topology, loads, rates, self._params.max_moves, held)
        moves = _moves(topology, observation, loads)
        if moves:
            return self._revision(problem, observation, loads, rates, "overload", moves, relieved)
        exchange: RescheduleDecision | str = "not due"
        period = int((observation.at_s + 1e-6) // self._params.period_s)
        if period > self._period:
            self._period = period
            exchange = self._exchange(topology, loads, rates, held) if rates else "no traffic was observed"
            moves = _moves(topology, observation, loads)
        return self._revision(problem, observation, loads, rates, "cut", moves, relieved, exchange)

    def _held(self, topology: Topology, observation: Observation) -> set[Executor]:
        """Return the executors that moved a short time ago."""
        undone = {at_s for at_s in set(self._moved.values()) if observation.outcome_of(at_s) in WITHOUT_EFFECT}
        self._moved = {executor: at_s for executor, at_s in self._moved.items() if at_s not in undone}
        since_s = observation.at_s - self._params.cool * (observation.at_s - observation.since_s) + 1e-6
        moved = {e: at_s for e in topology.executors if (at_s := observation.executors[e.name].moved_s) is not None}
        return {e for moved_at in (moved, self._moved) for e, at_s in moved_at.items() if at_s > since_s}

    def _exchange(
        self, topology: Topology, loads: PredictedLoads, rates: Rates, held: set[Executor]
    ) -> RescheduleDecision | str:
        """Partition the nodes in use again, and decide about the changes; or return why there is no partition."""
        import numpy as np

        used = [node for node in loads.nodes if loads.on(node)]
        if len(used) < len(set(loads.place.values())):
            return "a node in use has no measured load"
        many = len(topology.executors)
        sizes = [min(loads.places(node), many) for node in used]
        empty = iter(range(many, sum(sizes)))
        known: list[int] = []
        for node, size in zip(used, sizes, strict=True):
            here = [topology.number_of[executor] for executor in loads.on(node)]
            known += [*here, *islice(empty, size - len(here))]
        inside = inside_of(topology, rates, len(used))
        nodes, everybody = np.zeros(many, dtype=np.int64), np.arange(many)
        fittest, message = _fittest(self._params, inside, sizes, nodes, everybody, np.array(known))
        if fittest is None:
            return message
        plan = {executor: used[at] for executor, at in zip(topology.executors, fittest, strict=True)}
        exchange = reschedule(topology, loads, plan, rates, self._params.alpha, held)
        return replace(exchange, text=f"{exchange.text}; {message}") if message else exchange

    def _revision(
        self,
        problem: Problem,
        observation: Observation,
        loads: PredictedLoads,
        rates: Rates,
        reason: Reason,
        moves: Sequence[Move],
        relieved: Sequence[Relief],
        exchange: RescheduleDecision | str = "executors leave nodes first",
    ) -> Revision:
        """Add clocks, predictions and the account."""
        (topology,) = problem.topologies
        self._moved |= {move.executor: observation.at_s for move in moves}
        targets = {move.target.node for move in moves}
        clocks = self._clocks and self._clocks.answer(problem.cluster, topology, observation, loads, targets)
        frequencies = clocks.frequencies if clocks else {}
        expects = Expected(
            node_cut(topology, loads.place, rates) if rates else None,
            clamped(utilisations(problem.cluster, loads, frequencies)),
            clocks.watts if clocks else None,
        )
        details = {
            "loads": {
                node: {"load": round(load, 6), "bound": loads.bound[node]} for node, load in loads.observed.items()
            },
            "overload": [relief.account for relief in relieved],
            "reschedule": exchange.account if isinstance(exchange, RescheduleDecision) else not_asked(exchange),
            **(clocks.details if clocks else {"clocks": {}}),
        }
        words = [relief.text for relief in relieved[:MOST_WORDS]]
        if isinstance(exchange, RescheduleDecision):
            words.append(exchange.text)
        words += [f"{node} to {hz / 1e9:g} GHz" for node, hz in list(frequencies.items())[:MOST_WORDS]]
        return Revision(
            reason if moves else "clocks" if frequencies else "",
            "; ".join(words) or "nothing is to be changed",
            moves,
            frequencies=frequencies,
            expects=expects,
            details=details,
        )


def _stays(node: str, problem: Problem, observation: Observation) -> bool:
    """Return whether executors may stay on `node`."""
    observed = observation.nodes.get(node)
    return problem.cluster.by_id[node].available and (observed is None or observed.available)


def _moves(topology: Topology, observation: Observation, loads: PredictedLoads) -> list[Move]:
    """Return the moves from the observed places to those in `loads`."""
    places = observation.places
    changed = [e for e in topology.executors if loads.place[e] != places[e.name].node]
    return [
        Move(topology.id, e, places[e.name], slot) for e in changed if (slot := loads.slot(loads.place[e])) is not None
    ]


def _fittest(
    params: ErStreamParams,
    inside: LocalTraffic,
    sizes: Sequence[int],
    nodes: "Integers",
    waiting: "Integers",
    known: "Integers | None" = None,
) -> tuple[list[int] | None, str]:
    """Return waiting executor -> its node in the fittest partition (None without a search), and a message.

    Args:
        params: of the search.
        inside: traffic inside nodes.
        sizes: node -> places.
        nodes: executor -> node, where waiting executors are written.
        waiting: numbers of the executors to be placed.
        known: a partition of the first generation: place -> position in `waiting`, larger numbers for empty places.
    """
    import numpy as np

    work = params.population * (CHROMOSOME_WORK + GENE_WORK * sum(sizes) + inside.work)
    generations = min(params.generations, MOST_WORK // work - 1)
    if generations < 0:
        return None, "too large for the search"
    message = ""
    if generations < params.generations:
        message = f"too large for the whole search: {generations} of {params.generations} generations"
    position = np.repeat(np.arange(len(sizes)), sizes)
    node_of_gene = np.empty(len(position), dtype=np.int64)

    def fitness(chromosome: "Integers") -> int:
        node_of_gene[chromosome] = position
        nodes[waiting] = node_of_gene[: len(waiting)]
        return inside.of(nodes)

    settings = GeneticSettings(params.population, generations, params.p_c, params.p_m, params.stall, params.seed)
    node_of_gene[evolve(len(position), fitness, inside.total, settings, known)] = position
    return node_of_gene[: len(waiting)].tolist(), message


def _places(problem: Problem, assignment: NodeAssignment) -> list[int]:
    """Return node -> free places for executors: its capacity, else its slots, less the running executors."""
    running = dict.fromkeys(assignment.nodes, 0)
    for worker in problem.existing:
        if worker.node in running:
            running[worker.node] += len(worker.executors)
    nodes = [problem.cluster.by_id[name] for name in assignment.nodes]
    return [max(0, (node.slots if node.capacity is None else int(node.capacity)) - running[node.id]) for node in nodes]


def _fewest_nodes(assignment: NodeAssignment, usage: TopologyUsage, places: Sequence[int]) -> tuple[list[int], int]:
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
        rates = observed_rates(topology, problem.traffic)
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
