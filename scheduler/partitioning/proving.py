"""A good placement, and how far from the best one it can be at most."""

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
"""With more classes the exact search has no chance, and is not tried."""


@dataclass(frozen=True)
class Solution:
    """A placement with its bound.

    Attributes:
        node_of: executor -> node.
        cut: its W, in the instance's units of rate.
        lower_bound: no placement has a lower W.
        least_rate: the same in tuples/s (or pairs).
        limit_hit: the clock ended the search.
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
    """The best placement, proven where limits allow; None when none was found that keeps all limits.

    Args:
        instance: what is to be placed.
        over: says that time is up.
        seed: of the search for a first placement.
        found: says that time is up for that search, where it is not `over` that says it.
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
