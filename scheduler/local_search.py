"""`local-search`: the best placement that can be had in a given time. Ours.

Minimises W, the rate between nodes of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020), over all topologies of the
round together, under the nodes' capacities and, where components say what memory they take, their memory. A placement
that runs already is the first candidate, and is only left for a better one.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from scheduler.graph.assembling import assemble, parts_of
from scheduler.graph.finding import SMALL, find, looks_for
from scheduler.graph.infeasible import placeable
from scheduler.graph.instance import Instance
from scheduler.graph.small import lowest_cost
from scheduler.graph.tabu import Effort
from scheduler.problem import Needs, Plan, Problem


@dataclass(frozen=True)
class LocalSearchParams:
    """Parameters of `local-search`.

    Attributes:
        time_limit_s: seconds after which the best placement so far is the answer; most searches end well before.
        seed: of all random choices.
        node_weight: tuples/s (or pairs) between nodes that are accepted to use one node less.
        memory: keep to the nodes' memory, provided a component of the round says what it takes.
    """

    time_limit_s: Annotated[float, Meta(gt=0)] = 30.0
    seed: int = 0
    node_weight: Annotated[float, Meta(ge=0)] = 0.0
    memory: bool = True


class LocalSearch:
    """Greedy growth, tabu search and multilevel refinement."""

    name: ClassVar[str] = "local-search"
    paper: ClassVar[str] = "Millrace's own"
    needs: ClassVar[Needs] = Needs(
        resources=True, traffic="used", cycles=True, ignores="hardware, requested workers, network distance"
    )
    Params: ClassVar[type] = LocalSearchParams

    def __init__(self, params: LocalSearchParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """All topologies together; those that do not fit beside the earlier ones are not placed."""
        end = perf_counter() + self._params.time_limit_s
        efforts: list[Effort] = []

        def attempt(instance: Instance) -> list[int] | None:
            effort = Effort(looks_for(instance), lambda: perf_counter() > end)
            efforts.append(effort)
            weight = round(self._params.node_weight * instance.rate_scale)
            target = lowest_cost(instance, weight) if instance.executors <= SMALL else 0
            return find(instance, effort, self._params.seed, target, weight)

        topologies, failures, nodes = placeable(problem, attempt, self._params.memory)
        details: dict[str, Any] = {"limit_hit": any(effort.cut_short for effort in efforts)}
        parts = parts_of(problem, topologies, nodes) if nodes is not None else {}
        return assemble(problem, parts, failures, details)
