"""The objectives beside W: value, search and exact search of placements, by the method of the objective."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from scheduler.partitioning.bounds import Density
from scheduler.partitioning.busiest import (
    Fillings,
    fillings_in,
    least_filling,
    least_link,
    level_loads,
    node_loads,
    pack_below,
    prove_link,
)
from scheduler.partitioning.exact_by_hops import search_by_hops as search_exactly
from scheduler.partitioning.exact_by_rack import rack_cost
from scheduler.partitioning.hop_search import busiest_of, improve_hops, search_hops
from scheduler.partitioning.hops import HopTable, hop_table, least_cost, levels_of, link_table
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.large_neighbourhood import BEST, Preset
from scheduler.partitioning.solving import MOST_CLASSES, SMALL, find, looks_for, solve
from scheduler.partitioning.tabu import Effort
from scheduler.problem import Aim, Problem


@dataclass(frozen=True)
class AimedSolution:
    """A placement with a lower bound.

    Attributes:
        node_of: executor -> node.
        value: value of the objective.
        lower_bound: lower bound on it, at most `value`.
        limit_hit: whether the time limit ended the search.
    """

    node_of: list[int]
    value: Fraction
    lower_bound: Fraction
    limit_hit: bool

    @property
    def proven(self) -> bool:
        """Return whether no placement is better."""
        return self.value == self.lower_bound


class Aimed:
    """An instance with an objective.

    Args:
        problem: the round.
        placed: ids of the topologies of the instance.
        instance: the instance; its nodes are those of the cluster, its vertices may be groups of executors.
        aim: the objective.

    Raises:
        LackingNodeError: by links, a delay or a rate is not known.
    """

    def __init__(self, problem: Problem, placed: Collection[str], instance: Instance, aim: Aim) -> None:
        self.instance = instance
        self.aim = aim
        self._problem, self._placed = problem, placed
        if aim.objective in ("cost", "busiest-link"):
            _ = self._table

    @cached_property
    def _table(self) -> HopTable:
        make = hop_table if self.aim.objective == "cost" else link_table
        return make(self._problem, self.aim.hops)

    @cached_property
    def _fillings(self) -> Fillings:
        return fillings_in(self._problem, self._placed, self.instance)

    def value(self, node_of: Sequence[int]) -> Fraction:
        """Return the value of a placement (executor -> node), with rates in tuples/s, or pairs."""
        if self.aim.objective == "cut":
            return Fraction(self.instance.cut(node_of), self.instance.rate_scale)
        if self.aim.objective == "busiest-node":
            return self._fillings.most(node_loads(self.instance, node_of), set(node_of))
        if self.aim.objective == "cost":
            return self._in_units(self._table.cost(self.instance, node_of))
        return self._in_units(busiest_of(self.instance, self._table)(node_of)[0])

    def find(self, effort: Effort, seed: int = 0, preset: Preset = BEST) -> list[int] | None:
        """Return the best placement found (executor -> node), or None when none was found that respects all limits."""
        if self.aim.objective == "cut":
            return find(self.instance, effort, seed, preset=preset)
        if self.aim.objective == "busiest-node":
            return self._levelled(effort, seed, preset)
        return search_hops(self.instance, self._table, self.aim.objective == "busiest-link", effort, seed, preset)

    def improve(self, node_of: list[int], effort: Effort, seed: int = 0) -> list[int]:
        """Return the placement, or a better one near it."""
        if self.aim.objective not in ("cost", "busiest-link"):
            return node_of
        links = self.aim.objective == "busiest-link"
        return improve_hops(self.instance, self._table, links, effort, seed, [node_of]) or node_of

    def least(self) -> Fraction | None:
        """Return a lower bound on the value of any placement; None if it is not computed."""
        instance = self.instance
        if self.aim.objective == "busiest-node":
            return least_filling(instance, self._fillings)
        if self.aim.objective == "cut" or len(instance.members) > MOST_CLASSES:
            return None
        if self.aim.objective == "busiest-link":
            return self._in_units(least_link(instance, self._table))
        levels = levels_of(instance, self._table)
        cuts = [(level.step, level.instance(instance)) for level in levels if len(level.sets) > 1]
        return self._in_units(sum(step * Density(coarse).least_cut(coarse) for step, coarse in cuts))

    def solve(
        self, over: Callable[[], bool], seed: int = 0, found: Callable[[], bool] | None = None
    ) -> AimedSolution | None:
        """Return the best placement, proven where limits allow, or None when none was found that respects all limits.

        Args:
            over: returns True when the time is up.
            seed: seed of the search for a first placement.
            found: returns True when the time of that first search is up; default `over`.
        """
        if self.aim.objective == "cut":
            solution = solve(self.instance, over, seed, found)
            if solution is None:
                return None
            scale = self.instance.rate_scale
            bounds = Fraction(solution.cut, scale), Fraction(solution.lower_bound, scale)
            return AimedSolution(solution.node_of, *bounds, solution.limit_hit)
        effort = Effort(looks_for(self.instance), over if found is None else found)
        if self.aim.objective == "busiest-node":
            return self._solve_node(effort, over, seed)
        if self.aim.objective == "cost":
            return self._solve_cost(effort, over, seed)
        return self._solve_link(effort, over, seed)

    def _in_units(self, value: int | Fraction) -> Fraction:
        return Fraction(value) / (self.instance.rate_scale * self._table.scale)

    def _solve_cost(self, effort: Effort, over: Callable[[], bool], seed: int) -> AimedSolution | None:
        instance, table = self.instance, self._table
        exact = rack_cost(instance, table, over)
        if exact is not None:
            nodes, cost = exact
            home = list(instance.home)
            if min(home, default=-1) >= 0 and instance.fits(home) and table.cost(instance, home) == cost:
                nodes = home
            return AimedSolution(nodes, self._in_units(cost), self._in_units(cost), False)
        best = search_hops(instance, table, False, effort, seed)
        known = _above_all(instance, table) if best is None else table.cost(instance, best)
        levels = levels_of(instance, table)
        least, limit_hit = least_cost(instance, levels, over, effort.over, seed)
        if least < known and not over() and len(instance.members) <= MOST_CLASSES:
            proof = search_exactly(instance, table, levels, known, over)
            limit_hit |= proof.limit_hit
            if proof.node_of is not None:
                best, known = proof.node_of, proof.least
            if proof.complete:
                least = known
        if best is None:
            return None
        least = min(least, known)
        return AimedSolution(best, self._in_units(known), self._in_units(least), least < known and limit_hit)

    def _solve_link(self, effort: Effort, over: Callable[[], bool], seed: int) -> AimedSolution | None:
        instance, table = self.instance, self._table
        best = search_hops(instance, table, True, effort, seed)
        known = _above_all(instance, table) if best is None else busiest_of(instance, table)(best)[0]
        least, limit_hit = min(Fraction(known), least_link(instance, table)), effort.cut_short
        if least < known and instance.executors <= SMALL:
            better, complete, limit_hit = prove_link(instance, table, known, least, over)
            if better is not None:
                best, known = better, busiest_of(instance, table)(better)[0]
            if complete:
                least = Fraction(known)
        if best is None:
            return None
        return AimedSolution(best, self._in_units(known), self._in_units(least), limit_hit)

    def _solve_node(self, effort: Effort, over: Callable[[], bool], seed: int) -> AimedSolution | None:
        instance, fillings = self.instance, self._fillings
        least, limit_hit = least_filling(instance, fillings), False
        nodes = self._first(effort, seed)
        value = None if nodes is None else self.value(nodes)
        while value is None or value > least:
            # Without a first placement, any within the capacities will do.
            better, none, limit_hit = pack_below(instance, fillings, 2 + 2 * least if value is None else value, over)
            if better is None or not instance.fits(better):
                if none and value is not None:
                    least = value
                break
            nodes, value = better, self.value(better)
        if nodes is None or value is None:
            return None
        tight = fillings.below(instance, value, strictly=False)
        solution = solve(tight, over, seed, effort.over)
        if solution is not None and instance.fits(solution.node_of) and self.value(solution.node_of) <= value:
            nodes, value = solution.node_of, self.value(solution.node_of)
        return AimedSolution(nodes, value, min(least, value), limit_hit)

    def _first(self, effort: Effort, seed: int, preset: Preset = BEST) -> list[int] | None:
        """Return the better of levelled loads and of any placement within the limits."""
        levelled = level_loads(self.instance, self._fillings)
        return find(self.instance, effort, seed, preset=preset) if levelled is None else levelled

    def _levelled(self, effort: Effort, seed: int, preset: Preset) -> list[int] | None:
        """Return a placement with a low busiest node and, among those, little W."""
        nodes = self._first(Effort(effort.looks, effort.over), seed, preset)
        if nodes is None:
            return None
        value = self.value(nodes)
        tight = self._fillings.below(self.instance, value, strictly=False)
        closer = find(tight, effort, seed, preset=preset)
        if closer is not None and self.instance.fits(closer) and self.value(closer) <= value:
            nodes = closer
        home = list(self.instance.home)
        if min(home, default=-1) >= 0 and self.instance.fits(home):
            key = self.value(home), self.instance.cut(home)
            if key <= (self.value(nodes), self.instance.cut(nodes)):
                return home
        return nodes


def _above_all(instance: Instance, table: HopTable) -> int:
    """Return more than the value of any placement."""
    return 1 + instance.total_rate * max((max(row) for row in table.between), default=0)
