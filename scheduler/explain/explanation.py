"""Explanation of a plan: load and capacity of every node, traffic between nodes, and a lower bound on W.

Traffic is by pairs of components, of executors and of nodes, rates of both directions added. Without observed traffic
every communicating pair counts 1, and pairs are counted by class (`scheduler.toolkit.communication`), never listed.

The search for the bound counts its effort in steps, not seconds, so that explanations are the same on every machine. It
is that of the scheduler `optimal`; its modules are loaded only on demand.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import combinations
from math import fsum

from msgspec import Struct
from msgspec.structs import replace as replaced

from scheduler.explain.worker_loads import WorkerLoad, loads_by_worker, overloaded_count
from scheduler.problem import Placement, Plan, Problem, Slot
from scheduler.toolkit.communication import Classes, classes_of
from scheduler.toolkit.cost import Loads, cost
from workloads.topology import Executor, Topology
from workloads.traffic import Traffic

MOST_SHOWN = 10
"""Maximum number of links and pairs listed in an explanation."""


class CutLink(Struct, frozen=True, forbid_unknown_fields=True):
    """Two components of a topology: the rate between them that crosses nodes, and their total rate."""

    topology: str
    source: str
    destination: str
    cut: int | float
    total: int | float


class CutPair(Struct, frozen=True, forbid_unknown_fields=True):
    """Two communicating executors on different nodes."""

    source: str
    source_node: str
    destination: str
    destination_node: str
    tuples_per_s: float


def cut_links(problem: Problem, placements: Mapping[str, Placement], most: int = MOST_SHOWN) -> tuple[CutLink, ...]:
    """Return the links with the highest rate between nodes, at most `most`; ties as listed in the topologies.

    Executors without a slot are ignored.
    """
    links: list[CutLink] = []
    for topology in problem.topologies:
        assignments = placements[topology.id].assignments
        if problem.traffic is None:
            links.extend(_declared_links(topology, {e: slot.node for e, slot in assignments.items()}))
        else:
            nodes = {e.name: slot.node for e, slot in assignments.items()}
            links.extend(_observed_links(topology, nodes, problem.traffic))
    links.sort(key=lambda link: -link.cut)
    return tuple(link for link in links[:most] if link.cut > 0)


def _counted(topology: Topology, node_of: Mapping[Executor, str]) -> tuple[Classes, list[Counter[str]]]:
    """Return the topology's classes, and for each the number of its executors per node."""
    classes = classes_of(topology)
    where = [
        Counter(node for e in members if (node := node_of.get(topology.executors[e])) is not None)
        for members in classes.members
    ]
    return classes, where


def _declared_links(topology: Topology, node_of: Mapping[Executor, str]) -> list[CutLink]:
    classes, where = _counted(topology, node_of)
    component = [topology.executors[members[0]].component for members in classes.members]
    cut: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    for one, others in enumerate(classes.linked):
        for other in others:
            if other < one:
                continue
            key = (component[one], component[other])
            if other == one:
                count = where[one].total()
                pairs = count * (count - 1) // 2
                kept = sum(times * (times - 1) // 2 for times in where[one].values())
            else:
                pairs = where[one].total() * where[other].total()
                fewer, more = sorted((where[one], where[other]), key=len)
                kept = sum(times * more[node] for node, times in fewer.items() if node in more)
            total[key] += pairs
            cut[key] += pairs - kept
    return [CutLink(topology.id, *_directed(topology, key), cut[key], total[key]) for key in total]


def _directed(topology: Topology, key: tuple[str, str]) -> tuple[str, str]:
    """Return `key` with the source first where tuples flow only in the other direction."""
    one, other = key
    forth = any(entry.source == one for entry in topology.component[other].inputs)
    return (one, other) if forth else (other, one)


def _observed_links(topology: Topology, node_of: Mapping[str, str], traffic: Traffic) -> list[CutLink]:
    order = {component.id: at for at, component in enumerate(topology.components)}
    cut: dict[tuple[str, str], list[float]] = {}
    total: dict[tuple[str, str], list[float]] = {}
    for edge in traffic.edges:
        source, destination = node_of.get(edge.source), node_of.get(edge.destination)
        if source is None or destination is None:
            continue
        ends = (Executor.named(edge.source).component, Executor.named(edge.destination).component)
        one, other = sorted(ends, key=order.__getitem__)
        total.setdefault((one, other), []).append(edge.tuples_per_s)
        if source != destination:
            cut.setdefault((one, other), []).append(edge.tuples_per_s)
    return [
        CutLink(topology.id, *_directed(topology, key), fsum(cut.get(key, ())), fsum(total[key]))
        for key in sorted(total, key=lambda pair: (order[pair[0]], order[pair[1]]))
    ]


def heaviest_pairs(
    traffic: Traffic, placements: Mapping[str, Placement], most: int = MOST_SHOWN
) -> tuple[CutPair, ...]:
    """Return the executor pairs with the highest observed rate between nodes, at most `most`.

    Ties keep the order of the traffic.
    """
    node_of = {e.name: slot.node for placement in placements.values() for e, slot in placement.assignments.items()}
    rates: dict[tuple[str, str], list[float]] = {}
    for edge in traffic.edges:
        if edge.source in node_of and edge.destination in node_of:
            key = (edge.source, edge.destination)
            rates.setdefault(key[::-1] if key[::-1] in rates else key, []).append(edge.tuples_per_s)
    cut = [
        CutPair(one, node_of[one], other, node_of[other], fsum(pair_rates))
        for (one, other), pair_rates in rates.items()
        if node_of[one] != node_of[other]
    ]
    cut.sort(key=lambda pair: -pair.tuples_per_s)
    return tuple(pair for pair in cut[:most] if pair.tuples_per_s > 0)


def between_nodes(
    problem: Problem, placements: Mapping[str, Placement], nodes: Collection[str]
) -> dict[tuple[str, str], float]:
    """Return pairs of `nodes`, in cluster order -> rate between them; pairs without traffic are left out."""
    place = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
    rates_between: dict[tuple[str, str], list[float]] = {}
    for topology in problem.topologies:
        assignments = placements[topology.id].assignments
        if problem.traffic is None:
            _declared_between(
                topology, {e: slot.node for e, slot in assignments.items() if slot.node in nodes}, rates_between
            )
    if problem.traffic is not None:
        node_of = {e.name: slot.node for placement in placements.values() for e, slot in placement.assignments.items()}
        for edge in problem.traffic.edges:
            source, destination = node_of.get(edge.source), node_of.get(edge.destination)
            if source in nodes and destination in nodes and source is not None and destination is not None:
                rates_between.setdefault((source, destination), []).append(edge.tuples_per_s)
    summed: dict[tuple[str, str], list[float]] = {}
    for (one, other), rates in rates_between.items():
        if one != other:
            key = (one, other) if place[one] < place[other] else (other, one)
            summed.setdefault(key, []).extend(rates)
    ordered = sorted(summed, key=lambda pair: (place[pair[0]], place[pair[1]]))
    return {pair: rate for pair in ordered if (rate := fsum(summed[pair])) > 0}


def _declared_between(
    topology: Topology, node_of: Mapping[Executor, str], rates_between: dict[tuple[str, str], list[float]]
) -> None:
    classes, where = _counted(topology, node_of)
    for one, others in enumerate(classes.linked):
        for other in others:
            if other == one:
                for a, b in combinations(where[one], 2):
                    rates_between.setdefault((a, b), []).append(where[one][a] * where[one][b])
            elif other > one:
                for a, times in where[one].items():
                    for b, more in where[other].items():
                        rates_between.setdefault((a, b), []).append(times * more)


MOST_SEARCHED = 100
"""Maximum number of executors for which the minimum is searched."""

MOST_BOUNDED = 4_000
"""Maximum number of executor classes for which a bound is computed."""

LOOKS = 2_000
EASY = 18
"""Steps of the search by number of classes; a step's time grows with about the fourth power of that number."""


class LowerBound(Struct, frozen=True, forbid_unknown_fields=True):
    """Lower bound on W when every executor may go to any node and no node or worker is overloaded.

    Attributes:
        lower_bound: no such placement has a smaller W; None if not computed.
        optimum: the smallest W, proven; None if unknown.
        best_found: W of the best placement found by the search; None without a search.
        note: why a value is missing, or an empty text.
    """

    lower_bound: int | float | None
    optimum: int | float | None
    best_found: int | float | None
    note: str


def compute_lower_bound(problem: Problem) -> LowerBound:
    """Return the lower bound, and the minimum for small rounds, over all executors of the round's topologies."""
    from scheduler.partitioning.admission import why_not
    from scheduler.partitioning.bounds import Density
    from scheduler.partitioning.instance import instance_of
    from scheduler.partitioning.solving import solve

    topologies = list(problem.topologies)
    instance = instance_of(unsettled(problem), topologies)
    reason = why_not(instance, topologies)
    if reason:
        return LowerBound(None, None, None, f"no placement keeps to all capacities: {reason}")
    if instance.executors > MOST_SEARCHED:
        large = f"{instance.executors} executors are more than the {MOST_SEARCHED} up to which it is looked for"
        if len(instance.members) > MOST_BOUNDED:
            large += f", and {len(instance.members)} classes more than the {MOST_BOUNDED} up to which W is bounded"
            return LowerBound(None, None, None, large)
        return LowerBound(instance.in_rates(Density(instance).least_cut(instance)), None, None, large)
    classes = len(instance.members)
    budget = StepBudget(LOOKS if classes <= EASY else LOOKS * EASY**4 // classes**4)
    solution = solve(instance, budget.over, seed=0, found=_never)  # the first search has its own step limit
    if solution is None:
        return LowerBound(None, None, None, "no placement was found that keeps to all capacities")
    cut_rate = instance.in_rates(solution.cut)
    if solution.proven:
        return LowerBound(cut_rate, cut_rate, cut_rate, "")
    return LowerBound(solution.least_rate, None, cut_rate, "the search ended without a proof")


def unsettled(problem: Problem) -> Problem:
    """Return the round with none of its topologies running."""
    mine = {topology.id for topology in problem.topologies}
    others = tuple(worker for worker in problem.existing if worker.topology not in mine)
    return replace(problem, cluster=replaced(problem.cluster, existing=others))


class StepBudget:
    """Step counter with the interface of a clock."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def over(self) -> bool:
        self._left -= 1
        return self._left < 0


def _never() -> bool:
    return False


class NodeLoad(Struct, frozen=True, forbid_unknown_fields=True):
    """A node under a plan. Workers of topologies outside the round count as `others`.

    Attributes:
        id: the node.
        available: whether it may be used.
        executors: executors of the round's topologies on the node.
        load: load of these executors, in the unit of the explanation.
        others_load: load of workers outside the round.
        capacity: capacity in the same unit.
        slots: number of slots.
        slots_used: slots used by the round's topologies.
        slots_others: slots used by workers outside the round.
        memory_mb: memory of the round's executors; None if no component declares memory.
        memory_limit_mb: memory of the node.
    """

    id: str
    available: bool
    executors: int
    load: float
    others_load: float
    capacity: float
    slots: int
    slots_used: int
    slots_others: int
    memory_mb: float | None
    memory_limit_mb: float

    @property
    def overloaded(self) -> bool:
        """Return whether the node exceeds its capacity."""
        return self.executors > 0 and self.load + self.others_load > self.capacity


def loads_by_node(problem: Problem, plan: Plan, counts_defaults: bool = False) -> tuple[NodeLoad, ...]:
    """Return the load of every node of the cluster, in cluster order.

    With `counts_defaults`, components that declare no memory count with Storm's default.
    """
    loads = Loads(problem)
    mine = {topology.id for topology in problem.topologies}
    carried: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    memory: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    used: set[Slot] = set()
    for topology in problem.topologies:
        for executor, slot in plan.placements[topology.id].assignments.items():
            carried[slot.node].append(loads.of(topology, executor))
            memory[slot.node].append(topology.component[executor.component].memory)
            used.add(slot)
    others: dict[str, list[float]] = {node.id: [] for node in problem.cluster.nodes}
    strangers: Counter[str] = Counter()
    for worker in problem.existing:
        if worker.topology not in mine:
            others[worker.node].extend(loads.of_outside_executor(name) for name in worker.executors)
            strangers[worker.node] += 1
    slots = Counter(slot.node for slot in used)
    said = counts_defaults or any(
        value is not None
        for topology in problem.topologies
        for component in topology.components
        for value in (component.memory_mb, component.onheap_mb, component.offheap_mb)
    )
    return tuple(
        NodeLoad(
            id=node.id,
            available=node.available,
            executors=len(carried[node.id]),
            load=fsum(carried[node.id]),
            others_load=fsum(others[node.id]),
            capacity=loads.capacity[node.id],
            slots=node.slots,
            slots_used=slots[node.id],
            slots_others=strangers[node.id],
            memory_mb=fsum(memory[node.id]) if said else None,
            memory_limit_mb=node.memory_mb,
        )
        for node in problem.cluster.nodes
    )


class Explanation(Struct, frozen=True, forbid_unknown_fields=True):
    """Explanation of a plan.

    Attributes:
        unit: unit of loads and capacities, `executors` or `points` (100 = one core).
        nodes: every node of the cluster, in cluster order.
        links: pairs of components with traffic between nodes, highest rate first.
        pairs: the executor pairs with the highest observed rate between nodes; None without observed traffic.
        w: rate between nodes: observed tuples/s, or communicating pairs without observed traffic.
        all_placed: whether every executor has a slot; otherwise `w` may be below `least`.
        capacities_kept: whether no node or worker is known to be overloaded; otherwise `w` may be below `least`.
        least: lower bound on W.
        workers: workers of the round's topologies.
    """

    unit: str
    nodes: tuple[NodeLoad, ...]
    links: tuple[CutLink, ...]
    pairs: tuple[CutPair, ...] | None
    w: int | float
    all_placed: bool
    capacities_kept: bool
    least: LowerBound
    workers: tuple[WorkerLoad, ...] = ()


def explain_plan(problem: Problem, plan: Plan, least: LowerBound) -> Explanation:
    """Explain a checked plan; `least` is the same for all plans of a problem (`scheduler.explain.explanation`)."""
    judged = cost(problem, plan.placements)
    observed = judged.inter_node_tuples_per_s
    hosts = loads_by_node(problem, plan)
    workers = loads_by_worker(problem, plan.placements)
    return Explanation(
        unit=Loads(problem).unit,
        nodes=hosts,
        links=cut_links(problem, plan.placements),
        pairs=None if problem.traffic is None else heaviest_pairs(problem.traffic, plan.placements),
        w=judged.inter_node_edges if observed is None else observed,
        all_placed=all(len(plan.placements[t.id].assignments) == len(t.executors) for t in problem.topologies),
        capacities_kept=not any(host.overloaded for host in hosts) and not overloaded_count(workers),
        workers=workers,
        least=least,
    )
