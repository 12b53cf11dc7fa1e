"""The account of a plan, for people and for `millrace place --explain --json`: pure data, printed elsewhere.

`hosts` says what every node holds, `crossing` what goes between nodes, `least` how far W is from what is possible, and
`telling` puts the algorithm's own `details` into words.
"""

from msgspec import Struct

from scheduler.cost import cost
from scheduler.explain.cut_links import CutLink, CutPair, cut_links, heaviest_pairs
from scheduler.explain.lower_bound import LowerBound
from scheduler.explain.node_load import NodeLoad, hosts_of
from scheduler.problem import Plan, Problem
from scheduler.toolkit.loads import Loads


class Explanation(Struct, frozen=True, forbid_unknown_fields=True):
    """What a plan comes to.

    Attributes:
        unit: what loads and capacities are counted in, `executors` or `points` (100 = one core).
        nodes: every node of the cluster, in its order.
        links: pairs of components with rate between nodes, the heaviest first.
        pairs: the executor pairs with most observed rate between nodes; None where nothing was observed.
        w: rate between nodes: observed tuples/s, or communicating pairs where nothing was observed.
        all_placed: whether every executor has a slot; if not, `w` may be below `least`.
        capacities_kept: whether no node holds more than its capacity; if not, `w` may be below `least`.
        least: what W can be at least.
    """

    unit: str
    nodes: tuple[NodeLoad, ...]
    links: tuple[CutLink, ...]
    pairs: tuple[CutPair, ...] | None
    w: int | float
    all_placed: bool
    capacities_kept: bool
    least: LowerBound


def account_of(problem: Problem, plan: Plan, least: LowerBound) -> Explanation:
    """Explain a checked plan; `least` is the same for all plans of a problem (`scheduler.explain.lower_bound`)."""
    judged = cost(problem, plan.placements)
    observed = judged.inter_node_tuples_per_s
    hosts = hosts_of(problem, plan)
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
