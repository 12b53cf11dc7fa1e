"""`local-search`: the best placement found within a time limit. Ours.

Minimises W, the rate between nodes of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020), over all topologies of the
round together, under the nodes' capacities and, where components declare memory, their memory. A running placement is
the first candidate and is replaced only by a better one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from time import perf_counter
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from scheduler.partitioning.admission import placeable
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.jit_cache import compiled_kernels
from scheduler.partitioning.large_neighbourhood import BEST, FAST
from scheduler.partitioning.objectives import Aimed
from scheduler.partitioning.parts import cut_between_workers, worker_numbers
from scheduler.partitioning.solving import SMALL, find, looks_for
from scheduler.partitioning.tabu import Effort, lowest_cost
from scheduler.problem import Aim, Hops, Needs, Objective, Plan, Problem
from scheduler.toolkit.exact import decimal
from scheduler.toolkit.node_assignment import assemble, topology_parts
from scheduler.toolkit.objective import BETWEEN_WORKERS, check_aim
from workloads.topology import Topology

SHARE = 0.9
"""Share of the time limit for the search; the rest is for building the plan."""

CANDIDATES = 4
"""Number of placements compared when the rate between workers counts."""


@dataclass(frozen=True)
class LocalSearchParams:
    """Parameters of `local-search`.

    Attributes:
        time_limit_s: seconds after which the best placement so far is returned; most searches end well before.
        seed: seed of all random choices.
        node_weight: additional tuples/s (or pairs) between nodes accepted to use one node less.
        worker_weight: weight of the rate between workers of one node, relative to the rate between nodes.
        executors_per_worker: maximum size of a worker; None = one worker per topology and node.
        memory: respect the nodes' memory, if any component of the round declares its memory.
        preset: `fast` refines and anneals little after multilevel starts, `best` much. Up to 128 executors both are the
            same.
        objective: what is minimised: W (`cut`), `cost`, `busiest-link` or `busiest-node`.
        hops: costs and rates of links: by rack (`racks`), or as measured (`links`).
    """

    time_limit_s: Annotated[float, Meta(gt=0)] = 30.0
    seed: int = 0
    node_weight: Annotated[float, Meta(ge=0)] = 0.0
    worker_weight: Annotated[float, Meta(ge=0)] = 0.0
    executors_per_worker: Annotated[int, Meta(ge=1)] | None = None
    memory: bool = True
    preset: Literal["fast", "best"] = "best"
    objective: Objective = "cut"
    hops: Hops = "racks"


class LocalSearch:
    """Greedy growth and tabu search, or multilevel partitioning and annealing of a few nodes at a time."""

    name: ClassVar[str] = "local-search"
    paper: ClassVar[str] = "Millrace's own"
    needs: ClassVar[Needs] = Needs(
        resources=True, traffic="used", load=True, cycles=True, ignores="hardware, requested workers, network distance"
    )
    Params: ClassVar[type] = LocalSearchParams

    def __init__(self, params: LocalSearchParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place all topologies together. Those that do not fit beside earlier ones are not placed."""
        params = self._params
        large = sum(len(topology.executors) for topology in problem.topologies) > SMALL
        if large or params.objective in ("cost", "busiest-link"):
            compiled_kernels()  # compilation on first use does not count as search time
        end = perf_counter() + SHARE * params.time_limit_s
        efforts: list[Effort] = []
        aim = Aim(params.objective, params.hops)
        check_aim(problem, aim)
        preset = BEST if params.preset == "best" else FAST
        hop = BETWEEN_WORKERS if aim == Aim("cost", "racks") else 0.0
        worker_weight = decimal(params.worker_weight) + decimal(hop)
        least: dict[frozenset[str], float | None] = {}

        def attempt(instance: Instance, topologies: Sequence[Topology]) -> _Candidate | None:
            placed = frozenset(topology.id for topology in topologies)
            aimed = Aimed(problem, placed, instance, aim)
            if aim.objective != "cut":
                bound = aimed.least()
                least[placed] = None if bound is None else float(bound)
            # Placements of equal W may differ within nodes; compare several when that counts.
            splits = params.executors_per_worker is not None or instance.worker is not None
            weighs = worker_weight > 0 and splits
            cheapest: _Candidate | None = None
            for seed in range(params.seed, params.seed + (CANDIDATES if weighs else 1)):
                effort = Effort(looks_for(instance), lambda: perf_counter() > end)
                efforts.append(effort)
                weight = round(decimal(params.node_weight) * instance.rate_scale)
                if aim.objective == "cut":
                    target = lowest_cost(instance, weight) if instance.executors <= SMALL else 0
                    nodes = find(instance, effort, seed, target, weight, preset)
                else:
                    nodes = aimed.find(effort, seed, preset)
                if nodes is None:
                    break
                workers = None
                cost = aimed.value(nodes) * instance.rate_scale + weight * len(set(nodes))
                if splits:
                    workers = worker_numbers(instance, nodes, params.executors_per_worker, seed=seed)
                    cost += worker_weight * cut_between_workers(instance, nodes, workers)
                if cheapest is None or cost < cheapest.cost:
                    cheapest = _Candidate(nodes, workers, cost)
            return cheapest

        topologies, failures, solution = placeable(problem, attempt, params.memory)
        details: dict[str, Any] = {"limit_hit": any(effort.cut_short for effort in efforts)}
        parts = (
            topology_parts(problem, topologies, solution.node_of, solution.worker_of) if solution is not None else {}
        )
        plan = assemble(problem, parts, failures, details)
        bound = least.get(frozenset(topology.id for topology in topologies))
        return replace(plan, aim=aim, lower_bound=bound)


@dataclass(frozen=True)
class _Candidate:
    """Placement on nodes and, where executors are split, workers."""

    node_of: list[int]
    worker_of: list[int] | None
    cost: Fraction
