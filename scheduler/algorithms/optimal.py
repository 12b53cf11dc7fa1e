"""`optimal`: the placement with the minimum rate between nodes, with a proof.

The objective is W of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020): the rate between executors on different
nodes, over all topologies of the round together, under the nodes' capacities. The method is ours: a tabu search
finds a placement, an exact search (`scheduler.partitioning.exact_by_node` or `scheduler.partitioning.exact`) proves it
or finds a better one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.partitioning.admission import placeable
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.objectives import Aimed, AimedSolution
from scheduler.partitioning.parts import limited_workers
from scheduler.partitioning.solving import Solution, solve
from scheduler.problem import Aim, Hops, Needs, Objective, Plan, Problem
from scheduler.toolkit.cost import cost
from scheduler.toolkit.node_assignment import assemble, topology_parts
from scheduler.toolkit.objective import check_aim, objective_value
from workloads.topology import Topology


@dataclass(frozen=True)
class OptimalParams:
    """Parameters of `optimal`.

    Attributes:
        time_limit_s: seconds for the whole search; without a proof by then the best placement found is returned.
        seed: seed of the search for a first placement.
        objective: what is minimised: W (`cut`), `cost`, `busiest-link` or `busiest-node`.
        hops: costs and rates of links: by rack (`racks`), or as measured (`links`).
    """

    time_limit_s: Annotated[float, Meta(gt=0)] = 60.0
    seed: int = 0
    objective: Objective = "cut"
    hops: Hops = "racks"


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
        aim = Aim(self._params.objective, self._params.hops)
        end = perf_counter() + self._params.time_limit_s
        if aim.objective != "cut":
            return self._aimed(problem, aim, lambda: perf_counter() > end)

        def attempt(instance: Instance, topologies: Sequence[Topology]) -> tuple[Solution, list[int] | None] | None:
            solution = solve(instance, lambda: perf_counter() > end, self._params.seed)
            return None if solution is None else (solution, limited_workers(instance, solution.node_of))

        topologies, failures, found = placeable(problem, attempt)
        if found is None:
            return assemble(problem, {}, failures, {"proven": False, "lower_bound": 0, "gap": None, "limit_hit": False})
        solution, workers = found
        plan = assemble(problem, topology_parts(problem, topologies, solution.node_of, workers), failures, {})
        w = _rate_between_nodes(replace(problem, topologies=tuple(topologies)), plan)
        bound = w if solution.proven else min(w, solution.least_rate)
        details: dict[str, Any] = {
            "proven": solution.proven,
            "lower_bound": bound,
            "gap": (w - bound) / w if w else 0.0,
            "limit_hit": solution.limit_hit,
        }
        return replace(plan, details=details, aim=aim, lower_bound=bound)

    def _aimed(self, problem: Problem, aim: Aim, over: Callable[[], bool]) -> Plan:
        """Return the plan for another objective than W."""
        check_aim(problem, aim)

        def attempt(
            instance: Instance, topologies: Sequence[Topology]
        ) -> tuple[AimedSolution, list[int] | None] | None:
            placed = {topology.id for topology in topologies}
            solution = Aimed(problem, placed, instance, aim).solve(over, self._params.seed)
            return None if solution is None else (solution, limited_workers(instance, solution.node_of))

        topologies, failures, found = placeable(problem, attempt)
        details: dict[str, Any]
        if found is None:
            details = {"proven": False, "lower_bound": 0, "gap": None, "limit_hit": False}
            return replace(assemble(problem, {}, failures, details), aim=aim)
        solution, workers = found
        plan = assemble(problem, topology_parts(problem, topologies, solution.node_of, workers), failures, {})
        value = objective_value(replace(problem, topologies=tuple(topologies)), plan.placements, aim)
        bound = value if solution.proven else min(value, float(solution.lower_bound))
        details = {
            "proven": solution.proven,
            "lower_bound": bound,
            "gap": (value - bound) / value if value else 0.0,
            "limit_hit": solution.limit_hit,
        }
        return replace(plan, details=details, aim=aim, lower_bound=bound)


def _rate_between_nodes(problem: Problem, plan: Plan) -> float:
    judged = cost(problem, plan.placements)
    return judged.inter_node_edges if judged.inter_node_tuples_per_s is None else judged.inter_node_tuples_per_s
