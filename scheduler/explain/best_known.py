"""How far plans are from the best known placement of their round: the gap of `millrace place --compare`."""

from collections.abc import Mapping

from msgspec import Struct

from scheduler.explain.explanation import (
    MOST_SEARCHED,
    LowerBound,
    compute_lower_bound,
    loads_by_node,
    unsettled,
)
from scheduler.problem import Plan, Problem
from scheduler.toolkit.cost import cost

SEARCH = "search"
"""Origin of a best known placement that none of the compared schedulers found."""


class BestKnown(Struct, frozen=True, forbid_unknown_fields=True):
    """The best known placement of a round, and a plan's distance from it.

    Attributes:
        w: its rate between nodes: observed tuples/s, or communicating pairs without observed traffic.
        by: the scheduler that found it, the first of several; `search` if none of those compared did.
        optimal: whether no placement has a smaller W, proven.
        gap: by which share W of the plan is larger; 0 = equally good. None where that is undefined: not every executor
            has a slot, a node exceeds its capacity or is not available, or `w` is 0 and the plan's is not.
    """

    w: int | float
    by: str
    optimal: bool
    gap: float | None


def find_best_known(
    plans: Mapping[str, tuple[Problem, Plan]], everything: Problem, least: LowerBound | None = None
) -> dict[str, BestKnown | None]:
    """Return the best known placement of a round, with the gap of each plan; None if no placement is known.

    It is the best of all plans that respect the capacities, and of a search: of the exact one for small rounds, of
    the multilevel method for larger ones.

    Args:
        plans: scheduler -> its problem and its checked plan, all of the same round.
        everything: the round.
        least: its lower bound, if it was computed.
    """
    small = sum(len(topology.executors) for topology in everything.topologies) <= MOST_SEARCHED
    if small and least is None:
        least = compute_lower_bound(everything)
    searched = least.best_found if small and least is not None else _searched(everything)
    optimum = None if least is None else least.optimum
    found = {name: _valid_w(problem, plan) for name, (problem, plan) in plans.items()}
    values = {name: w for name, w in found.items() if w is not None}
    if searched is not None:
        values[SEARCH] = searched
    if not values:
        return dict.fromkeys(plans)
    best = min(values.values()) if optimum is None else optimum
    by = next(name for name, w in values.items() if _gap(w, best) == 0.0)
    return {
        name: BestKnown(best, by, optimum is not None, None if w is None else _gap(w, best))
        for name, w in found.items()
    }


def _searched(problem: Problem) -> int | float | None:
    """Return W of a placement by the preset `fast` of `local-search`; None if none respects the capacities."""
    from scheduler.partitioning.instance import instance_of, why_not
    from scheduler.partitioning.large_neighbourhood import FAST
    from scheduler.partitioning.solving import find, looks_for
    from scheduler.partitioning.tabu import Effort

    topologies = list(problem.topologies)
    instance = instance_of(unsettled(problem), topologies)
    if why_not(instance, topologies):
        return None
    nodes = find(instance, Effort(looks_for(instance), lambda: False), preset=FAST)
    return None if nodes is None else instance.in_rates(instance.cut(nodes))


def _valid_w(problem: Problem, plan: Plan) -> int | float | None:
    """Return W of a plan that places every executor and respects all capacities; None for other plans."""
    if any(len(plan.placements[t.id].assignments) != len(t.executors) for t in problem.topologies):
        return None
    if any(host.overloaded or (host.executors and not host.available) for host in loads_by_node(problem, plan)):
        return None
    judged = cost(problem, plan.placements)
    return judged.inter_node_edges if judged.inter_node_tuples_per_s is None else judged.inter_node_tuples_per_s


def _gap(w: int | float, best: int | float) -> float | None:
    """Return the gap; sums of the same rates in another order differ by less than its last digit."""
    if best == 0:
        return 0.0 if w == 0 else None
    return max(0.0, round(w / best - 1, 9))
