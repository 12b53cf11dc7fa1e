"""`top-storm`: executors that communicate share a slot, and slots fill the most powerful nodes first.

"TOP-Storm: A topology-based resource-aware scheduler for Stream Processing Engine" (Muhammad, Aleem, Islam, 2020),
Algorithms 2 and 3. Where the paper is silent, our decisions: every executor pair is considered once; a slot never
exceeds its cap; frequency counts all executors of the slot (`affinity: group`) or only the seed pair (`seed`); an
executor without partners is placed with the left-overs; ties go to the lowest number, node id, port. The waiting
executors of a partly running topology are treated as a topology of their own with the remaining requested workers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from inventory.power_index import ALPHA, Source, power_index
from scheduler.problem import Needs, Placement, Plan, Problem, Slot, concluded
from scheduler.toolkit.communication import ClassAffinity, GroupAffinity, RateAffinity, classes_of
from scheduler.toolkit.slots import FreeSlots, Workers, assigned, fewer_workers, running, why_waiting
from workloads.topology import Topology
from workloads.traffic import Traffic


@dataclass(frozen=True)
class TopStormParams:
    """Parameters of `top-storm`.

    Attributes:
        alpha: weight of speed against RAM in the computing power (Eq. 2).
        affinity: count communication with all executors of the slot (`group`) or with its seed pair (`seed`).
        normalise: divide speed and RAM by their largest value in the cluster before adding them.
        flops: source of FLOPs per cycle; None = the best one available for all nodes.
    """

    alpha: Annotated[float, Meta(ge=0, le=1)] = ALPHA
    affinity: Literal["group", "seed"] = "group"
    normalise: bool = False
    flops: Source | None = None


class TopStorm:
    """Groups by communication, nodes by computing power."""

    name: ClassVar[str] = "top-storm"
    paper: ClassVar[str] = "Muhammad, Aleem, Islam: TOP-Storm, 2020"
    needs: ClassVar[Needs] = Needs(
        hardware=True, traffic="used", ignores="CPU and memory demands; power that earlier topologies use"
    )
    Params: ClassVar[type] = TopStormParams

    def __init__(self, params: TopStormParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place topologies in order; each reduces the free slots of the next one."""
        params = self._params
        index = power_index(problem.cluster.nodes, params.alpha, params.normalise, params.flops)
        free = FreeSlots(problem)
        workers = running(problem)
        number_of_node = {node.id: number for number, node in enumerate(problem.cluster.nodes)}
        placements: dict[str, Placement] = {}
        groups: list[list[int]] = []
        slot_nodes: list[int] = []
        first = 0  # number, over all topologies, of the topology's first executor
        for topology in problem.topologies:
            possible = free.total + len(workers[topology.id])
            mine = self._group(topology, workers[topology.id], free, problem.traffic)
            slots = _give_slots(mine, [node.node for node in index.ranked], free)
            placements[topology.id] = _placement(topology, workers[topology.id], mine, slots, possible)
            groups.extend([first + executor for executor in group] for group in mine)
            slot_nodes.extend(number_of_node[slot.node] for slot in slots)
            first += len(topology.executors)
        details: dict[str, Any] = {"groups": groups, "slot_nodes": slot_nodes, "flops": index.source}
        return Plan(placements, power=index.ranked, details=details)

    def _group(self, topology: Topology, workers: Workers, free: FreeSlots, traffic: Traffic | None) -> list[list[int]]:
        """Return the waiting executors, by number, grouped into slots; no group is empty (Algorithm 2)."""
        alive = assigned(workers)
        todo = [number for number, executor in enumerate(topology.executors) if executor not in alive]
        omega = min(topology.workers - len(workers), free.total, len(todo))
        if omega <= 0:
            return []
        cap = -(-len(todo) // omega)
        groups: list[list[int]] = [[] for _ in range(omega)]
        left = set(todo)
        if cap >= 2:
            rates = _rates(topology, traffic)
            affinity: GroupAffinity = (
                ClassAffinity(classes_of(topology), todo) if rates is None else RateAffinity(rates, todo)
            )
            self._fill(groups, cap, topology, left, affinity)
        _deal(groups, cap, sorted(left))
        return [group for group in groups if group]

    def _fill(
        self, groups: Sequence[list[int]], cap: int, topology: Topology, left: set[int], affinity: GroupAffinity
    ) -> None:
        """Seed one group after the other with a pair and grow it to `cap`; remove placed executors from `left`."""
        pairs = _free_pairs(topology, left)
        for group in groups:
            seed = next(pairs, None)
            if seed is None:
                return
            affinity.start()
            for executor in seed:
                _join(executor, group, left, affinity)
                affinity.attract(executor)
            while len(group) < cap and (strongest := affinity.strongest()) is not None:
                _join(strongest, group, left, affinity)
                if self._params.affinity == "group":
                    affinity.attract(strongest)


def _join(executor: int, group: list[int], left: set[int], affinity: GroupAffinity) -> None:
    group.append(executor)
    left.remove(executor)
    affinity.remove(executor)


def _free_pairs(topology: Topology, left: set[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of the topology, in order, whose executors are both in `left` at that moment.

    The caller removes both from `left` before the next pair. Equivalent to iterating over `topology.pairs()`, without
    listing them: of a source only the first waiting destination can matter.
    """
    first: dict[str, int] = {}
    ends: dict[str, int] = {}
    number = 0
    for component in topology.components:
        first[component.id] = number
        number += component.parallelism
        ends[component.id] = number
    lowest = dict(first)  # component -> all its executors below have been placed
    for source, destination, entry in topology.links():
        end = first[destination.id] + 1 if entry.grouping == "global" else ends[destination.id]
        for executor in range(lowest[source.id], ends[source.id]):
            while lowest[destination.id] < end and lowest[destination.id] not in left:
                lowest[destination.id] += 1
            if lowest[destination.id] >= end:
                break
            if executor in left:
                yield executor, lowest[destination.id]
        while lowest[source.id] < ends[source.id] and lowest[source.id] not in left:
            lowest[source.id] += 1


def _rates(topology: Topology, traffic: Traffic | None) -> list[dict[int, float]] | None:
    """Return observed rates per executor, both directions added; None when nothing of the topology was observed."""
    if traffic is None:
        return None
    number_of = {executor.name: number for number, executor in enumerate(topology.executors)}
    rates: list[dict[int, float]] = [{} for _ in topology.executors]
    observed = False
    for edge in traffic.edges:
        one, other = number_of.get(edge.source), number_of.get(edge.destination)
        if one is None or other is None or one == other:
            continue
        observed = True
        rates[one][other] = rates[other][one] = rates[one].get(other, 0.0) + edge.tuples_per_s
    return rates if observed else None


def _deal(groups: Sequence[list[int]], cap: int, executors: Sequence[int]) -> None:
    """Assign left-overs round robin from the second group on, skipping full groups."""
    counter = 1
    for executor in executors:
        while len(groups[counter % len(groups)]) >= cap:
            counter += 1
        groups[counter % len(groups)].append(executor)
        counter += 1


def _give_slots(groups: Sequence[Sequence[int]], nodes: Sequence[str], free: FreeSlots) -> list[Slot]:
    """Return a slot per group: the largest group first, nodes in the order given, each filled up (Algorithm 3)."""
    slots: dict[int, Slot] = {}
    order = iter(sorted(range(len(groups)), key=lambda at: -len(groups[at])))
    for node in nodes:
        while (slot := free.lowest(node)) is not None:
            group = next(order, None)
            if group is None:
                return [slots[at] for at in range(len(groups))]
            free.take(slot)
            slots[group] = slot
    return [slots[at] for at in range(len(groups))]


def _placement(
    topology: Topology, workers: Workers, groups: Sequence[Sequence[int]], slots: Sequence[Slot], possible: int
) -> Placement:
    placed = assigned(workers)
    for group, slot in zip(groups, slots, strict=True):
        for executor in group:
            placed[topology.executors[executor]] = slot
    missing = len(topology.executors) - len(placed)
    message = why_waiting(topology, workers, missing) if missing else fewer_workers(topology, possible)
    return concluded(topology, placed, message)
