"""Explanation of a plan, for `millrace place --explain`: pure data, printed elsewhere.

`node_load` lists the load of every node, `cut_links` the traffic between nodes, `lower_bound` a lower bound on W, and
`details` formats the algorithm's own `details` as text.
"""

from msgspec import Struct

from scheduler.cost import cost
from scheduler.explain.cut_links import CutLink, CutPair, cut_links, heaviest_pairs
from scheduler.explain.lower_bound import LowerBound
from scheduler.explain.node_load import NodeLoad, loads_by_node
from scheduler.problem import Plan, Problem
from scheduler.toolkit.loads import Loads


class Explanation(Struct, frozen=True, forbid_unknown_fields=True):
    """Explanation of a plan.

    Attributes:
        unit: unit of loads and capacities, `executors` or `points` (100 = one core).
        nodes: every node of the cluster, in cluster order.
        links: pairs of components with traffic between nodes, highest rate first.
        pairs: the executor pairs with the highest observed rate between nodes; None without observed traffic.
        w: rate between nodes: observed tuples/s, or communicating pairs without observed traffic.
        all_placed: whether every executor has a slot; otherwise `w` may be below `least`.
        capacities_kept: whether no node exceeds its capacity; otherwise `w` may be below `least`.
        least: lower bound on W.
    """

    unit: str
    nodes: tuple[NodeLoad, ...]
    links: tuple[CutLink, ...]
    pairs: tuple[CutPair, ...] | None
    w: int | float
    all_placed: bool
    capacities_kept: bool
    least: LowerBound


def explain_plan(problem: Problem, plan: Plan, least: LowerBound) -> Explanation:
    """Explain a checked plan; `least` is the same for all plans of a problem (`scheduler.explain.lower_bound`)."""
    judged = cost(problem, plan.placements)
    observed = judged.inter_node_tuples_per_s
    hosts = loads_by_node(problem, plan)
    return Explanation(
        unit=Loads(problem).unit,
        nodes=hosts,
        links=cut_links(problem, plan.placements),
        pairs=None if problem.traffic is None else heaviest_pairs(problem.traffic, plan.placements),
        w=judged.inter_node_edges if observed is None else observed,
        all_placed=all(len(plan.placements[t.id].assignments) == len(t.executors) for t in problem.topologies),
        capacities_kept=not any(host.overloaded for host in hosts),
        least=least,
    )
