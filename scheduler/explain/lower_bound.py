"""How small W can be for a round: a lower bound, and for small rounds the minimum itself.

The effort is counted in steps, never in seconds, so that an account says the same on every machine. The search
is that of the scheduler `optimal`; it is loaded only when somebody asks.
"""

from dataclasses import replace

from msgspec import Struct
from msgspec.structs import replace as replaced

from scheduler.problem import Problem

MOST_SEARCHED = 100
"""Executors up to which the minimum is looked for."""

MOST_BOUNDED = 4_000
"""Classes of executors up to which a bound is computed."""

LOOKS = 2_000
EASY = 18
"""So long a search goes on for so many classes; a step's time grows with about the fourth power of their number."""


class LowerBound(Struct, frozen=True, forbid_unknown_fields=True):
    """What W is at least when every executor may go anywhere and no node holds more than its capacity.

    Attributes:
        lower_bound: no such placement has a smaller W; None when none was computed.
        optimum: the smallest W, proven; None when it is not known.
        best_found: W of the best placement that the search met; None without a search.
        note: why something is missing; empty when nothing is.
    """

    lower_bound: int | float | None
    optimum: int | float | None
    best_found: int | float | None
    note: str


def least_of(problem: Problem) -> LowerBound:
    """Bound, and minimum where the round is small enough, over all executors of the round's topologies."""
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
    solution = solve(instance, budget.over, seed=0, found=_never)  # the first search counts its own steps
    if solution is None:
        return LowerBound(None, None, None, "no placement was found that keeps to all capacities")
    found = _rate(solution.cut, instance.rate_scale)
    if solution.proven:
        return LowerBound(found, found, found, "")
    return LowerBound(solution.least_rate, None, found, "the search ended without a proof")


def _unsettled(problem: Problem) -> Problem:
    """The round as if none of its topologies ran yet."""
    mine = {topology.id for topology in problem.topologies}
    others = tuple(worker for worker in problem.existing if worker.topology not in mine)
    return replace(problem, cluster=replaced(problem.cluster, existing=others))


class _Budget:
    """Stands where others put a clock."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def over(self) -> bool:
        self._left -= 1
        return self._left < 0


def _never() -> bool:
    return False


def _rate(value: int, scale: int) -> int | float:
    return value // scale if value % scale == 0 else value / scale
