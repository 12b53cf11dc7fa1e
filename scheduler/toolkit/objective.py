"""Objectives beside W: what links cost, and how loaded the busiest link or node is.

`cost` is the sum over communicating executors of their rate times the cost of a hop between their slots. By rack a hop
costs what R-Storm's distance is: 0 within a worker, 0.5 within a node, `same_rack` or `other_rack` of the cluster's
`network` between nodes. By links it costs what was measured: the delay in ms plus the time in which the link carries a
tuple, the mean of both directions, and nothing within a node. `busiest-link` is the largest rate between two nodes,
both directions added; by links it is divided by the link's Mbit/s. `busiest-node` is the largest load / capacity.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import combinations
from math import fsum
from typing import get_args

from inventory.cluster import Cluster, Node
from inventory.power_index import LackingNodeError
from scheduler.problem import Aim, Hops, Objective, Placement, Problem, Slot
from scheduler.toolkit.communication import classes_of
from scheduler.toolkit.cost import Loads
from workloads.traffic import Traffic

BETWEEN_WORKERS = 0.5
"""R-Storm's distance between two workers of one node."""

Rate = tuple[Slot, Slot, float]
"""Rate between executors in two slots."""


class HopCosts:
    """Costs of hops in a cluster, the same in both directions.

    Attributes:
        within: cost between two workers of one node.
    """

    def __init__(self, cluster: Cluster, hops: Hops, traffic: Traffic | None) -> None:
        self._cluster, self._hops = cluster, hops
        self._tuple_bits = 8 * _bytes_per_tuple(traffic)
        self.within = BETWEEN_WORKERS if hops == "racks" else 0.0

    def between(self, one: str, other: str) -> float:
        """Return the cost of a hop between two different nodes.

        Raises:
            LackingNodeError: the delay of the link is not known.
        """
        if self._hops == "racks":
            racks = [self._cluster.by_id[node].rack for node in (one, other)]
            network = self._cluster.network
            return network.same_rack if racks[0] == racks[1] else network.other_rack
        delays, rates = [self._measured(one, other, at) for at in range(2)]
        if not delays:
            raise _lacking(one, other, "delay_ms", "a cost by links")
        transfers = [self._tuple_bits / (1000 * rate) for rate in rates]
        return fsum(delays) / len(delays) + (fsum(transfers) / len(transfers) if transfers else 0.0)

    def rate(self, one: str, other: str) -> float:
        """Return what divides the rate between two different nodes: 1 by rack, the link's Mbit/s by links.

        Raises:
            LackingNodeError: the rate of the link is not known.
        """
        if self._hops == "racks":
            return 1.0
        rates = self._measured(one, other, 1)
        if not rates:
            raise _lacking(one, other, "rate_mbit", "the busiest link by links")
        return fsum(rates) / len(rates)

    def _measured(self, one: str, other: str, what: int) -> list[float]:
        """Return the measured delays (0) or rates (1) of both directions, as far as they are known."""
        links = [self._links.get(pair) for pair in ((one, other), (other, one))]
        return [value for link in links if link is not None and (value := link[what]) is not None]

    @cached_property
    def _links(self) -> dict[tuple[str, str], tuple[float | None, float | None]]:
        return {(link.sender, link.receiver): (link.delay_ms, link.rate_mbit) for link in self._cluster.network.links}


def _lacking(one: str, other: str, key: str, what: str) -> LackingNodeError:
    return LackingNodeError(
        one,
        f"{what} needs the {key} between {one!r} and {other!r}: "
        f"give it in network.links of the cluster file, as {{from: {one}, to: {other}, {key}: ...}}",
    )


def _bytes_per_tuple(traffic: Traffic | None) -> float:
    """Return the mean size of observed tuples; 0 if no bytes were observed."""
    known = [edge for edge in traffic.edges if edge.bytes_per_s and edge.tuples_per_s] if traffic is not None else []
    return fsum(e.bytes_per_s for e in known) / fsum(e.tuples_per_s for e in known) if known else 0.0


def objective_value(problem: Problem, placements: Mapping[str, Placement], aim: Aim) -> float:
    """Return the value of an objective for `placements` (topology id -> placement).

    Executors without a slot are ignored. The value is infinite if a node without capacity has load.

    Raises:
        LackingNodeError: what was measured of a link in use does not suffice.
    """
    if aim.objective == "busiest-node":
        return max(_fillings(problem, placements), default=0.0)
    costs = HopCosts(problem.cluster, aim.hops, problem.traffic)
    rates = _rates(problem, placements)
    if aim.objective == "cost":
        return fsum(rate * _hop(costs, one, other) for one, other, rate in rates if one != other)
    between: dict[tuple[str, str], list[float]] = {}
    for one, other, rate in rates:
        if one.node != other.node:
            a, b = sorted((one.node, other.node))
            between.setdefault((a, b), []).append(rate)
    if aim.objective == "cut":
        return fsum(rate for rates_of in between.values() for rate in rates_of)
    return max((fsum(rates_of) / costs.rate(*pair) for pair, rates_of in between.items() if any(rates_of)), default=0.0)


def _hop(costs: HopCosts, one: Slot, other: Slot) -> float:
    return costs.within if one.node == other.node else costs.between(one.node, other.node)


def _rates(problem: Problem, placements: Mapping[str, Placement]) -> Iterator[Rate]:
    """Yield the rates between slots, summed by class where nothing was observed, rates within a slot included."""
    if problem.traffic is not None:
        slot_of = {e.name: slot for t in problem.topologies for e, slot in placements[t.id].assignments.items()}
        for edge in problem.traffic.edges:
            if edge.source in slot_of and edge.destination in slot_of and edge.source != edge.destination:
                yield slot_of[edge.source], slot_of[edge.destination], edge.tuples_per_s
        return
    for topology in problem.topologies:
        classes = classes_of(topology)
        assignments = placements[topology.id].assignments
        where = [
            Counter(slot for e in members if (slot := assignments.get(topology.executors[e])) is not None)
            for members in classes.members
        ]
        for one, others in enumerate(classes.linked):
            for other in others:
                if other == one:
                    yield from ((a, b, where[one][a] * where[one][b]) for a, b in combinations(where[one], 2))
                elif other > one:
                    yield from ((a, b, where[one][a] * where[other][b]) for a in where[one] for b in where[other])


def _fillings(problem: Problem, placements: Mapping[str, Placement]) -> Iterator[float]:
    """Yield load / capacity of the nodes with executors of the round, workers of others included."""
    loads = Loads(problem)
    carried: dict[str, list[float]] = {}
    for topology in problem.topologies:
        for executor, slot in placements[topology.id].assignments.items():
            carried.setdefault(slot.node, []).append(loads.of(topology, executor))
    mine = {topology.id for topology in problem.topologies}
    for worker in problem.existing:
        if worker.topology not in mine and worker.node in carried:
            carried[worker.node].extend(loads.of_outside_executor(name) for name in worker.executors)
    for node, values in carried.items():
        load = fsum(values)
        yield load / loads.capacity[node] if loads.capacity[node] else float("inf") if load else 0.0


def aim_of(params: Mapping[str, object]) -> Aim | None:
    """Return the objective among a scheduler's parameters, or None for W or a scheduler without one."""
    for objective in get_args(Objective):
        for hops in get_args(Hops):
            if (params.get("objective"), params.get("hops")) == (objective, hops) and objective != "cut":
                return Aim(objective, hops)
    return None


def usable(cluster: Cluster) -> list[Node]:
    """Return the nodes whose links an objective needs."""
    return [node for node in cluster.nodes if node.available and node.slots]


def check_aim(problem: Problem, aim: Aim) -> None:
    """Check that all that was measured of links between usable nodes suffices for the objective.

    Raises:
        LackingNodeError: it does not.
    """
    if aim.hops == "links" and aim.objective in ("cost", "busiest-link"):
        costs = HopCosts(problem.cluster, aim.hops, problem.traffic)
        known = costs.between if aim.objective == "cost" else costs.rate
        for one, other in combinations(usable(problem.cluster), 2):
            known(one.id, other.id)
