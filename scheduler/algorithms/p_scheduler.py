"""`p-scheduler`: as few nodes as the load needs; executors to nodes, then to workers, by graph partitioning.

Our re-implementation from published descriptions of "P-Scheduler: adaptive hierarchical scheduling in Apache Storm"
(Eskandari, Huang, Eyers, ACSW 2016). Topologies are planned in the order given; each uses the capacity
that the others leave.

The partitioning is greedy growth, then refinement after Kernighan and Lin, and deterministic: ties go to the lower
vertex, then the lower part. A part weighs at most 5 % more than the mean. Where vertices are too heavy for that, the
limit is the largest part after assigning vertices by weight, heaviest first. Refinement makes passes of tentative
moves, each vertex once, and keeps the best prefix (Fiduccia and Mattheyses' form). It then exchanges pairs where no
single vertex has room.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.online.observation import Observation
from scheduler.online.replanner import ReplanRules, by_plan
from scheduler.online.revision import Revision, Rhythm
from scheduler.online.round_state import NodeState, ObservedDemand
from scheduler.problem import Needs, Plan, Problem
from scheduler.toolkit.communication import RateAffinity
from scheduler.toolkit.exact import as_float, decimal
from scheduler.toolkit.node_assignment import Part, assemble
from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class PSchedulerParams:
    """Parameters of `p-scheduler`.

    Attributes:
        target_utilisation: maximum share of a node's capacity to use.
        min_gain_percent: traffic between nodes that a plan after the first must save (ours).
        every_s: minimum seconds between two applied plans (ours).
        initial: scheduler of the placement with which an online run starts, before any traffic is known.
    """

    target_utilisation: Annotated[float, Meta(gt=0, le=1)] = 0.8
    min_gain_percent: Annotated[float, Meta(ge=0, le=100)] = 10.0
    every_s: Annotated[float, Meta(ge=0)] = 300.0
    initial: str = "even"


class PScheduler:
    """Two phases of partitioning by observed traffic."""

    name: ClassVar[str] = "p-scheduler"
    paper: ClassVar[str] = (
        "Eskandari, Huang, Eyers: P-Scheduler, ACSW 2016; our re-implementation from published descriptions"
    )
    needs: ClassVar[Needs] = Needs(
        traffic="required", load=True, online=True, cycles=True, ignores="memory, hardware, groupings, racks"
    )
    rhythm: ClassVar[Rhythm] = Rhythm(60, 1, "mean", first_s=60, ask_s=60)
    Params: ClassVar[type] = PSchedulerParams

    def __init__(self, params: PSchedulerParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Plan topologies in order, each from scratch.

        A topology for which no slot exists keeps its running workers.
        """
        demand = ObservedDemand(problem)
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
            on_node = partition_graph(graph.load, graph.near, len(homes))
            seats = _by_load(graph, on_node, homes)
            workers = _workers(topology, graph, on_node, [node_state.free[node] for node in seats])
            started = Counter(part for part, _ in set(zip(on_node, workers, strict=True)))
            for part, node in enumerate(seats):
                node_state.start(number, node, started[part])
            for at, executor in enumerate(mine):
                node_state.put(executor, seats[on_node[at]])
            parts[topology.id] = {demand.executors[e]: (seats[on_node[at]], workers[at]) for at, e in enumerate(mine)}
            account[topology.id] = {
                "nodes": [index[node] for node in seats],
                "cut": as_float(Fraction(cut_between_parts(graph.near, on_node), demand.rate_scale)),
            }
        return assemble(problem, parts, failures, {"topologies": account})

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Apply the first plan by observed traffic, and later ones that save enough."""
        rules = ReplanRules(self._params.min_gain_percent, self._params.every_s, first=True)
        return by_plan(problem, observation, self.place, rules)

    def _nodes_for(self, demand: ObservedDemand, node_state: NodeState, graph: "_Graph") -> list[str]:
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

    def __init__(self, demand: ObservedDemand, mine: Sequence[int]) -> None:
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
    members_of: list[list[int]] = [[] for _ in free]
    for at, own in enumerate(part):
        members_of[own].append(at)
    for members, slots in zip(members_of, free, strict=True):
        place = {at: number for number, at in enumerate(members)}
        near = [{place[u]: rate for u, rate in graph.near[at].items() if u in place} for at in members]
        split = partition_graph([graph.load[at] for at in members], near, min(wanted, slots, len(members)))
        for at, own in zip(members, split, strict=True):
            worker[at] = own
    return worker


MOST_PASSES = 10

MOST_IDLE = 100
"""A pass ends after this many consecutive moves without a smaller cut."""


def partition_graph(weight: Sequence[int], near: Sequence[Mapping[int, int]], parts: int) -> list[int]:
    """Return vertex -> part. No part is empty.

    Args:
        weight: weight of each vertex; when all are 0, vertices are counted.
        near: vertex -> {vertex: rate}, symmetric.
        parts: number of parts, at most the number of vertices.
    """
    if parts == 1:
        return [0] * len(weight)
    weight = weight if any(weight) else [1] * len(weight)
    level = _dealt(weight, parts)
    heaviest = max(_loads(weight, level, parts))
    limit = max(sum(weight) * 21 // (20 * parts), heaviest)
    starts = [level]
    grown = _grown(weight, near, parts, limit)
    if max(_loads(weight, grown, parts)) <= limit:
        starts.insert(0, grown)
    return min(
        (_Refinement(weight, near, parts, limit, start).run() for start in starts),
        key=lambda p: cut_between_parts(near, p),
    )


def cut_between_parts(near: Sequence[Mapping[int, int]], part: Sequence[int]) -> int:
    """Return the rate between different parts."""
    return sum(rate for v, others in enumerate(near) for u, rate in others.items() if u < v and part[u] != part[v])


def _loads(weight: Sequence[int], part: Sequence[int], parts: int) -> list[int]:
    loads = [0] * parts
    for v, p in enumerate(part):
        loads[p] += weight[v]
    return loads


def _dealt(weight: Sequence[int], parts: int) -> list[int]:
    """Return vertex -> part: heaviest vertex first, each to the lightest part.

    Ties go to the part with fewer vertices, then to the lower part.
    """
    part = [0] * len(weight)
    heap = [(0, 0, p) for p in range(parts)]
    for v in sorted(range(len(weight)), key=lambda v: -weight[v]):
        load, count, p = heappop(heap)
        part[v] = p
        heappush(heap, (load + weight[v], count + 1, p))
    return part


def _grown(weight: Sequence[int], near: Sequence[Mapping[int, int]], parts: int, limit: int) -> list[int]:
    """Grow parts one after the other around the busiest remaining vertex. The last part takes the rest."""
    part = [parts - 1] * len(weight)
    affinity = RateAffinity(near, range(len(weight)))
    busiest = sorted(range(len(weight)), key=lambda v: (-sum(near[v].values()), v))
    waiting = dict.fromkeys(busiest)
    rest = sum(weight)
    for p in range(parts - 1):
        affinity.start()
        load = 0
        while len(waiting) > parts - 1 - p:
            v = affinity.strongest()
            if v is None:
                v = next(iter(waiting))
            if load and (load + weight[v] > limit or (2 * load + weight[v]) * (parts - p) > 2 * rest):
                break
            part[v] = p
            load += weight[v]
            del waiting[v]
            affinity.remove(v)
            affinity.attract(v)
        rest -= load
    return part


class _Refinement:
    """Refinement of one partition."""

    def __init__(
        self, weight: Sequence[int], near: Sequence[Mapping[int, int]], parts: int, limit: int, part: Sequence[int]
    ) -> None:
        self._weight = weight
        self._near = near
        self._parts = parts
        self._step = parts * len(part)
        self._limit = limit
        self._part = list(part)
        self._load = _loads(weight, part, parts)
        self._members = [set[int]() for _ in range(parts)]
        for v, p in enumerate(part):
            self._members[p].add(v)
        self._rate: list[dict[int, int]] = [{} for _ in weight]  # vertex -> part -> rate
        for v, others in enumerate(near):
            for u, rate in others.items():
                self._rate[v][self._part[u]] = self._rate[v].get(self._part[u], 0) + rate

    def run(self) -> list[int]:
        """Return the refined partition."""
        for _ in range(MOST_PASSES):
            moved = self._pass()
            if not self._exchange() and not moved:
                break
        return self._part

    def _gain(self, v: int, p: int) -> int:
        return self._rate[v].get(p, 0) - self._rate[v].get(self._part[v], 0)

    def _put(self, v: int, p: int) -> None:
        source = self._part[v]
        self._part[v] = p
        self._load[source] -= self._weight[v]
        self._load[p] += self._weight[v]
        self._members[source].remove(v)
        self._members[p].add(v)
        for u, rate in self._near[v].items():
            self._rate[u][source] -= rate
            self._rate[u][p] = self._rate[u].get(p, 0) + rate

    def _possible(self, v: int, p: int) -> bool:
        return self._load[p] + self._weight[v] <= self._limit and len(self._members[self._part[v]]) > 1

    def _pass(self) -> bool:
        """Make tentative moves, best first, each vertex once; keep the best prefix. Return whether the cut fell."""
        parts, step = self._parts, self._step
        heap = [entry for v in range(len(self._part)) for entry in self._moves(v)]
        heapify(heap)
        blocked: list[list[int]] = [[] for _ in range(parts)]
        locked: set[int] = set()
        log: list[tuple[int, int]] = []
        total = best = kept = 0
        while heap and len(log) - kept < MOST_IDLE:
            entry = heappop(heap)
            v, p = divmod(entry % step, parts)
            gain = -(entry // step)
            if v in locked or self._part[v] == p or gain != self._gain(v, p):
                continue
            if not self._possible(v, p):
                blocked[p].append(entry)
                continue
            source = self._part[v]
            self._put(v, p)
            locked.add(v)
            log.append((v, source))
            total += gain
            if total > best:
                best, kept = total, len(log)
            for entry in blocked[source]:
                heappush(heap, entry)
            blocked[source] = []
            for u in self._near[v]:
                if u not in locked:
                    # Entries of other parts are still valid, unless its own part is one of the two.
                    either = None if self._part[u] in (source, p) else (source, p)
                    for entry in self._moves(u, either):
                        heappush(heap, entry)
        for v, source in reversed(log[kept:]):
            self._put(v, source)
        return best > 0

    def _moves(self, v: int, targets: Sequence[int] | None = None) -> list[int]:
        """Return the moves of `v` to `targets`, or to all parts, that it has rates with.

        A move is one number, which orders like (-gain, v, p) and takes half of the memory.
        """
        rates, here, step = self._rate[v], self._part[v], self._step
        at = v * self._parts + rates.get(here, 0) * step
        if targets is None:
            return [at + p - rate * step for p, rate in rates.items() if rate and p != here]
        return [at + p - rate * step for p in targets if (rate := rates.get(p))]

    def _exchange(self) -> bool:
        """Swap pairs that reduce the cut, in one pass over all vertices. Return whether a pair was found."""
        exchanged = False
        for v, rates in enumerate(self._rate):
            source = self._part[v]
            if max(rates.values(), default=0) <= rates.get(source, 0):
                continue  # most vertices, once moves have been made
            for p in sorted(p for p, rate in rates.items() if rate and p != source):
                gain = self._gain(v, p)
                if gain <= 0:
                    continue
                u = self._partner(v, p, gain)
                if u is not None:
                    self._put(v, p)
                    self._put(u, source)
                    exchanged = True
                    break
        return exchanged

    def _partner(self, v: int, p: int, gain: int) -> int | None:
        """Return the member of `p` whose exchange with `v` reduces the cut most, or None."""
        source = self._part[v]
        mine, heavy, near, rates = self._weight[v], self._weight, self._near[v], self._rate
        # The difference in weight that both parts have room for.
        most, least = self._limit - self._load[p], self._load[source] - self._limit
        highest, best = 0, -1
        for u in self._members[p]:
            of = rates[u]
            together = gain + of.get(source, 0) - of.get(p, 0)
            if together < highest or together <= 0 or not least <= mine - heavy[u] <= most:
                continue
            together -= 2 * near.get(u, 0)
            if together > highest or (together == highest > 0 and u < best):
                highest, best = together, u
        return None if best < 0 else best
