"""Observations of a topology for the online scheduler: loads and rates, truncated to integers as in its database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.problem import Problem
from scheduler.toolkit.loads import Loads
from workloads.topology import Executor, Topology


@dataclass(frozen=True)
class Stats:
    """Observations of one topology. Executors are numbered by start task (component id, index).

    Attributes:
        topology: the topology.
        executors: all executors of the topology.
        load: executor -> load.
        pairs: (sender, receiver, rate) between different executors, for observed rates above 0.
    """

    topology: Topology
    executors: tuple[Executor, ...]
    load: tuple[int, ...]
    pairs: tuple[tuple[int, int, int], ...]

    @property
    def near(self) -> list[dict[int, int]]:
        """Return executor -> {executor: rate, both directions added}."""
        return undirected(len(self.executors), self.pairs)

    @property
    def busy(self) -> list[int]:
        """Return the executors with traffic, ascending. The others are never part of a plan."""
        return sorted({executor for pair in self.pairs for executor in pair[:2]})


def undirected(size: int, pairs: Sequence[tuple[int, int, int]]) -> list[dict[int, int]]:
    """Return vertex -> {vertex: rate, both directions added}."""
    near: list[dict[int, int]] = [{} for _ in range(size)]
    for one, other, rate in pairs:
        near[one][other] = near[other][one] = near[one].get(other, 0) + rate
    return near


def stats_of(problem: Problem, as_published: bool) -> list[Stats]:
    """Return the stats of the observed topologies, in the order given. The others are left out of this round.

    As published, rates are looked up by task number alone: rates of all topologies are added up, and a topology that
    lacks a named task has incomplete stats.
    """
    loads = Loads(problem)
    orders = {t.id: tuple(sorted(t.executors)) for t in problem.topologies}
    rates: dict[str, dict[tuple[int, int], float]] = {}
    for topology in problem.topologies:
        mine = rates[topology.id] = {}
        number_of = {executor.name: number for number, executor in enumerate(orders[topology.id])}
        for (sender, receiver), rate in _observed(problem).items():
            if sender in number_of and receiver in number_of and sender != receiver and rate:
                mine[number_of[sender], number_of[receiver]] = rate
    if as_published:
        rates = _mixed(orders, rates)
    return [
        Stats(
            topology,
            orders[topology.id],
            tuple(int(loads.of(topology, executor)) for executor in orders[topology.id]),
            tuple((*pair, int(rate)) for pair, rate in sorted(rates[topology.id].items())),
        )
        for topology in problem.topologies
        if rates[topology.id]
    ]


def _observed(problem: Problem) -> Mapping[tuple[str, str], float]:
    return problem.traffic.rate if problem.traffic is not None else {}


def _mixed(
    orders: Mapping[str, Sequence[Executor]], rates: Mapping[str, Mapping[tuple[int, int], float]]
) -> dict[str, dict[tuple[int, int], float]]:
    together: dict[tuple[int, int], float] = {}
    for mine in rates.values():
        for pair, rate in mine.items():
            together[pair] = together.get(pair, 0.0) + rate
    highest = max((task for pair in together for task in pair), default=-1)
    return {name: dict(together) if highest < len(order) else {} for name, order in orders.items()}
