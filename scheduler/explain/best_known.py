"""Gap of plans to the best known placement of their round, as in `millrace place --compare`."""

from collections.abc import Mapping

from msgspec import Struct

from scheduler.explain.explanation import (
    LOOKS,
    MOST_SEARCHED,
    LowerBound,
    StepBudget,
    compute_lower_bound,
    loads_by_node,
    unsettled,
)
from scheduler.explain.worker_loads import loads_by_worker, overloaded_count
from scheduler.problem import Aim, Plan, Problem
from scheduler.toolkit.cost import cost
from scheduler.toolkit.objective import objective_value

SEARCH = "search"
"""Origin of a best known placement that none of the compared schedulers found."""


class BestKnown(Struct, frozen=True, forbid_unknown_fields=True):
    """The best known placement of a round, and a plan's distance from it.

    Attributes:
        w: its rate between nodes: observed tuples/s, or communicating pairs without observed traffic; or its value of
            the objective that was asked for.
        by: the scheduler that found it, the first of several; `search` if none of those compared did.
        optimal: whether no placement has a smaller W, proven.
        gap: by which share W of the plan is larger; 0 = equally good. None where that is undefined: not every executor
            has a slot, a node or a worker is overloaded or a node is not available, or `w` is 0 and the plan's is not.
    """

    w: int | float
    by: str
    optimal: bool
    gap: float | None


def find_best_known(
    plans: Mapping[str, tuple[Problem, Plan]],
    everything: Problem,
    least: LowerBound | None = None,
    aim: Aim | None = None,
) -> dict[str, BestKnown | None]:
    """Return the best known placement of a round, with the gap of each plan; None if no placement is known.

    It is the best of all plans that respect the capacities, and of a search: of the exact one for small rounds, of
    the multilevel method for larger ones.

    Args:
        plans: scheduler -> its problem and its checked plan, all of the same round.
        everything: the round.
        least: its lower bound, if it was computed.
        aim: the objective; None for W.
    """
    small = sum(len(topology.executors) for topology in everything.topologies) <= MOST_SEARCHED
    if aim is not None:
        searched, optimum = _aimed(everything, aim, small)
    else:
        if small and least is None:
            least = compute_lower_bound(everything)
        searched = least.best_found if small and least is not None else _searched(everything)
        optimum = None if least is None else least.optimum
    values_of_plans = {name: _valid_w(problem, plan, aim) for name, (problem, plan) in plans.items()}
    values = {name: w for name, w in values_of_plans.items() if w is not None}
    if searched is not None:
        values[SEARCH] = searched
    if not values:
        return dict.fromkeys(plans)
    if aim is not None and optimum is None:
        optimum = _proven(plans, values_of_plans, aim)
    best = min(values.values()) if optimum is None else optimum
    by = next(name for name, w in values.items() if _gap(w, best) == 0.0)
    return {
        name: BestKnown(best, by, optimum is not None, None if w is None else _gap(w, best))
        for name, w in values_of_plans.items()
    }


def _searched(problem: Problem) -> int | float | None:
    """Return W of a placement by the preset `fast` of `local-search`; None if none respects the capacities."""
    from scheduler.partitioning.admission import why_not
    from scheduler.partitioning.instance import instance_of
    from scheduler.partitioning.large_neighbourhood import FAST
    from scheduler.partitioning.solving import find, looks_for
    from scheduler.partitioning.tabu import Effort

    topologies = list(problem.topologies)
    instance = instance_of(unsettled(problem), topologies)
    if why_not(instance, topologies):
        return None
    nodes = find(instance, Effort(looks_for(instance), lambda: False), preset=FAST)
    return None if nodes is None else instance.in_rates(instance.cut(nodes))


def _proven(plans: Mapping[str, tuple[Problem, Plan]], values: Mapping[str, float | None], aim: Aim) -> float | None:
    """Return the value of a plan that meets its own lower bound, if there is one."""
    for name, (_, plan) in plans.items():
        value = values[name]
        if value is not None and plan.aim == aim and plan.lower_bound is not None and value <= plan.lower_bound:
            return value
    return None


def _aimed(problem: Problem, aim: Aim, small: bool) -> tuple[float | None, float | None]:
    """Return the value of a placement found by a search, and the optimum if it is proven."""
    from scheduler.partitioning.admission import why_not
    from scheduler.partitioning.instance import instance_of
    from scheduler.partitioning.large_neighbourhood import FAST
    from scheduler.partitioning.objectives import Aimed
    from scheduler.partitioning.solving import looks_for
    from scheduler.partitioning.tabu import Effort

    topologies = list(problem.topologies)
    alone = unsettled(problem)
    instance = instance_of(alone, topologies)
    if why_not(instance, topologies):
        return None, None
    aimed = Aimed(alone, {topology.id for topology in topologies}, instance, aim)
    if small:
        solution = aimed.solve(StepBudget(LOOKS).over, found=lambda: False)
        if solution is None:
            return None, None
        return float(solution.value), float(solution.value) if solution.proven else None
    nodes = aimed.find(Effort(looks_for(instance), lambda: False), preset=FAST)
    return None if nodes is None else float(aimed.value(nodes)), None


def _valid_w(problem: Problem, plan: Plan, aim: Aim | None) -> int | float | None:
    """Return W, or another objective, of a plan that places all executors within capacities; None for others."""
    if any(len(plan.placements[t.id].assignments) != len(t.executors) for t in problem.topologies):
        return None
    if any(host.overloaded or (host.executors and not host.available) for host in loads_by_node(problem, plan)):
        return None
    if overloaded_count(loads_by_worker(problem, plan.placements)):
        return None
    if aim is not None:
        return objective_value(problem, plan.placements, aim)
    judged = cost(problem, plan.placements)
    return judged.inter_node_edges if judged.inter_node_tuples_per_s is None else judged.inter_node_tuples_per_s


def _gap(w: int | float, best: int | float) -> float | None:
    """Return the gap; sums of the same rates in another order differ by less than its last digit."""
    if best == 0:
        return 0.0 if w == 0 else None
    return max(0.0, round(w / best - 1, 9))
