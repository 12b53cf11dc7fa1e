"""Search for a good placement together with a lower bound on W."""

from collections.abc import Callable
from dataclasses import dataclass

from scheduler.partitioning.bounds import Density
from scheduler.partitioning.exact import search
from scheduler.partitioning.exact_by_node import applies, search_by_node
from scheduler.partitioning.finding import find, looks_for
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.proof import Proof
from scheduler.partitioning.tabu import Effort

MOST_CLASSES = 400
"""Maximum number of classes for which the exact search is tried."""


@dataclass(frozen=True)
class Solution:
    """A placement with a lower bound.

    Attributes:
        node_of: executor -> node.
        cut: W of the placement, in the instance's units of rate.
        lower_bound: lower bound on W, in the same units.
        least_rate: the lower bound in tuples/s (or pairs).
        limit_hit: whether the time limit ended the search.
    """

    node_of: list[int]
    cut: int
    lower_bound: int
    least_rate: float
    limit_hit: bool

    @property
    def proven(self) -> bool:
        """Whether no placement is better."""
        return self.cut == self.lower_bound


def solve(
    instance: Instance, over: Callable[[], bool], seed: int, found: Callable[[], bool] | None = None
) -> Solution | None:
    """Return the best placement, proven where limits allow, or None when none was found that respects all limits.

    Args:
        instance: the problem.
        over: returns True when the time is up.
        seed: seed of the search for a first placement.
        found: returns True when the time of that first search is up; default `over`.
    """
    effort = Effort(looks_for(instance), over if found is None else found)
    density = Density(instance)
    bound = density.least_cut(instance)
    nodes = find(instance, effort, seed, target=bound)
    cut = instance.cut(nodes) if nodes is not None else instance.total_rate + 1
    limit_hit = effort.cut_short
    if cut > bound and not limit_hit:
        proof = _proof(instance, density, instance.total_rate - cut, over)
        if proof is not None:
            limit_hit = proof.limit_hit
            if proof.node_of is not None:
                nodes, cut = proof.node_of, instance.total_rate - proof.most
            bound = max(bound, min(cut, instance.total_rate - proof.most))
    if nodes is None:
        return None
    return Solution(nodes, cut, bound, _in_rates(bound, instance.rate_scale), limit_hit)


def _proof(instance: Instance, density: Density, kept: int, over: Callable[[], bool]) -> Proof | None:
    if len(instance.members) > MOST_CLASSES:
        return None
    if applies(instance):
        return search_by_node(instance, kept, over)
    return search(instance, density, kept, over)


def _in_rates(value: int, scale: int) -> float:
    return value // scale if value % scale == 0 else value / scale
