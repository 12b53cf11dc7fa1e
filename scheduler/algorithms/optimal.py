"""`optimal`: the placement with the minimum rate between nodes, with a proof.

The objective is W of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020): the rate between executors on different
nodes, over all topologies of the round together, under the nodes' capacities. The method is ours: a tabu search
finds a placement, an exact search (`scheduler.partitioning.exact_by_node` or `scheduler.partitioning.exact`) proves it
or finds a better one.
"""

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.partitioning.instance import placeable
from scheduler.partitioning.solving import solve
from scheduler.problem import Needs, Plan, Problem
from scheduler.toolkit.cost import cost
from scheduler.toolkit.node_assignment import assemble, parts_of


@dataclass(frozen=True)
class OptimalParams:
    """Parameters of `optimal`.

    Attributes:
        time_limit_s: seconds for the whole search; without a proof by then the best placement found is returned.
        seed: seed of the search for a first placement.
    """

    time_limit_s: Annotated[float, Meta(gt=0)] = 60.0
    seed: int = 0


class Optimal:
    """The exact minimum of the rate between nodes."""

    name: ClassVar[str] = "optimal"
    paper: ClassVar[str] = "exact minimum of the objective of Eskandari et al.: I-Scheduler, 2020"
    needs: ClassVar[Needs] = Needs(
        resources=True,
        traffic="used",
        load=True,
        cycles=True,
        ignores="memory, hardware, requested workers, traffic in a node",
    )
    Params: ClassVar[type] = OptimalParams

    def __init__(self, params: OptimalParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place all topologies together. Those that do not fit beside earlier ones are not placed."""
        end = perf_counter() + self._params.time_limit_s
        topologies, failures, solution = placeable(
            problem, lambda instance: solve(instance, lambda: perf_counter() > end, self._params.seed)
        )
        if solution is None:
            return assemble(problem, {}, failures, {"proven": False, "lower_bound": 0, "gap": None, "limit_hit": False})
        plan = assemble(problem, parts_of(problem, topologies, solution.node_of), failures, {})
        w = _rate_between_nodes(replace(problem, topologies=tuple(topologies)), plan)
        bound = w if solution.proven else min(w, solution.least_rate)
        details: dict[str, Any] = {
            "proven": solution.proven,
            "lower_bound": bound,
            "gap": (w - bound) / w if w else 0.0,
            "limit_hit": solution.limit_hit,
        }
        return replace(plan, details=details)


def _rate_between_nodes(problem: Problem, plan: Plan) -> float:
    judged = cost(problem, plan.placements)
    return judged.inter_node_edges if judged.inter_node_tuples_per_s is None else judged.inter_node_tuples_per_s
