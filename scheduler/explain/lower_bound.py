"""Lower bound on W for a round, and for small rounds the minimum itself.

The effort is counted in steps, not seconds, so that explanations are the same on every machine. The search is that of
the scheduler `optimal`; its modules are loaded only on demand.
"""

from dataclasses import replace

from msgspec import Struct
from msgspec.structs import replace as replaced

from scheduler.problem import Problem

MOST_SEARCHED = 100
"""Maximum number of executors for which the minimum is searched."""

MOST_BOUNDED = 4_000
"""Maximum number of executor classes for which a bound is computed."""

LOOKS = 2_000
EASY = 18
"""Steps of the search by number of classes; a step's time grows with about the fourth power of that number."""


class LowerBound(Struct, frozen=True, forbid_unknown_fields=True):
    """Lower bound on W when every executor may go to any node and no node exceeds its capacity.

    Attributes:
        lower_bound: no such placement has a smaller W; None if not computed.
        optimum: the smallest W, proven; None if unknown.
        best_found: W of the best placement found by the search; None without a search.
        note: why a value is missing, or an empty text.
    """

    lower_bound: int | float | None
    optimum: int | float | None
    best_found: int | float | None
    note: str


def compute_lower_bound(problem: Problem) -> LowerBound:
    """Return the lower bound, and the minimum for small rounds, over all executors of the round's topologies."""
    from scheduler.partitioning.bounds import Density
    from scheduler.partitioning.infeasible import why_not
    from scheduler.partitioning.instance import instance_of
    from scheduler.partitioning.proving import solve

    topologies = list(problem.topologies)
    instance = instance_of(_unsettled(problem), topologies)
    reason = why_not(instance, topologies)
    if reason:
        return LowerBound(None, None, None, f"no placement keeps to all capacities: {reason}")
    if instance.executors > MOST_SEARCHED:
        large = f"{instance.executors} executors are more than the {MOST_SEARCHED} up to which it is looked for"
        if len(instance.members) > MOST_BOUNDED:
            large += f", and {len(instance.members)} classes more than the {MOST_BOUNDED} up to which W is bounded"
            return LowerBound(None, None, None, large)
        return LowerBound(_rate(Density(instance).least_cut(instance), instance.rate_scale), None, None, large)
    classes = len(instance.members)
    budget = _Budget(LOOKS if classes <= EASY else LOOKS * EASY**4 // classes**4)
    solution = solve(instance, budget.over, seed=0, found=_never)  # the first search has its own step limit
    if solution is None:
        return LowerBound(None, None, None, "no placement was found that keeps to all capacities")
    found = _rate(solution.cut, instance.rate_scale)
    if solution.proven:
        return LowerBound(found, found, found, "")
    return LowerBound(solution.least_rate, None, found, "the search ended without a proof")


def _unsettled(problem: Problem) -> Problem:
    """Return the round with none of its topologies running."""
    mine = {topology.id for topology in problem.topologies}
    others = tuple(worker for worker in problem.existing if worker.topology not in mine)
    return replace(problem, cluster=replaced(problem.cluster, existing=others))


class _Budget:
    """Step counter with the interface of a clock."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def over(self) -> bool:
        self._left -= 1
        return self._left < 0


def _never() -> bool:
    return False


def _rate(value: int, scale: int) -> int | float:
    return value // scale if value % scale == 0 else value / scale
