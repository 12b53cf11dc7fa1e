"""`i-scheduler`: fuse executors that communicate, then place the fused graph optimally.

"I-Scheduler: Iterative scheduling for distributed stream processing systems" (Eskandari, Mair, Huang, Eyers, 2020).
First level: executors to nodes (`scheduler.partitioning.fusing`), with an optimiser for at most `phi` vertices and a
direct mapping as the fallback; ours returns the better of the two. Second level: the executors of a node to workers of
at most `T` executors. Topologies are placed one after the other; each gets the capacity and the slots that earlier ones
leave.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta
from msgspec.structs import replace as replaced

from inventory.cluster import ExistingWorker
from scheduler.online.observation import Observation
from scheduler.online.replanner import ReplanRules, by_plan, overfull
from scheduler.online.revision import Revision, Rhythm
from scheduler.partitioning.admission import not_found, why_not
from scheduler.partitioning.fusing import Assigned, Fusing
from scheduler.partitioning.instance import Instance, instance_of
from scheduler.partitioning.objectives import Aimed, AimedSolution
from scheduler.partitioning.parts import worker_numbers
from scheduler.partitioning.solving import Solution, find, looks_for, solve
from scheduler.partitioning.tabu import Effort
from scheduler.problem import Aim, Hops, Needs, Objective, Plan, Problem
from scheduler.toolkit.node_assignment import Part, assemble, topology_parts
from scheduler.toolkit.objective import check_aim
from workloads.topology import Executor, Topology

THRESHOLDS = ((0.05, 28), (0.2, 32), (0.5, 40), (1.0, 48))
"""(theta, phi): within theta seconds our optimiser proves every micro-benchmark of phi executors; measured by
`benchmarks/schedulers.py --calibrate`."""


@dataclass(frozen=True)
class ISchedulerParams:
    """Parameters of `i-scheduler`, named as in the paper.

    Attributes:
        theta: seconds allowed for the optimiser; 0 = never use it.
        phi: maximum number of vertices given to the optimiser; None = what it solves within theta.
        T: maximum number of executors per worker.
        partitioner: recursive bisection, or all parts at once; more than 128 executors are always split at once.
        seed: seed of all random choices.
        min_gain_percent: traffic between nodes that a later plan must save (ours; the paper applies one plan).
        every_s: minimum seconds between two applied plans (ours).
        initial: scheduler of the placement with which an online run starts, before any traffic is known.
        once: whether only the first plan by observed traffic is applied, as in the paper.
        objective: what is minimised (ours): W (`cut`), as in the paper, `cost`, `busiest-link` or `busiest-node`.
        hops: costs and rates of links: by rack (`racks`), or as measured (`links`).
    """

    theta: Annotated[float, Meta(ge=0)] = 1.0
    phi: Annotated[int, Meta(ge=0)] | None = None
    T: Annotated[int, Meta(ge=1)] = 5
    partitioner: Literal["recursive", "kway"] = "recursive"
    seed: int = 0
    min_gain_percent: Annotated[float, Meta(ge=0, le=100)] = 10.0
    every_s: Annotated[float, Meta(ge=0)] = 300.0
    initial: str = "even"
    once: bool = False
    objective: Objective = "cut"
    hops: Hops = "racks"


def find_threshold(theta: float) -> int:
    """Return phi for `theta` seconds; 0 for less than the smallest measured time."""
    return max((phi for seconds, phi in THRESHOLDS if seconds <= theta), default=0)


class IScheduler:
    """Iterative fusing, an optimiser with a time limit, workers by communication."""

    name: ClassVar[str] = "i-scheduler"
    paper: ClassVar[str] = "Eskandari, Mair, Huang, Eyers: I-Scheduler, 2020"
    needs: ClassVar[Needs] = Needs(
        resources=True,
        traffic="used",
        load=True,
        online=True,
        cycles=True,
        ignores="memory, hardware, requested workers",
    )
    rhythm: ClassVar[Rhythm] = Rhythm(50, 1, "mean", first_s=55, ask_s=60)
    Params: ClassVar[type] = ISchedulerParams

    def __init__(self, params: ISchedulerParams) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Place topologies in order."""
        parts: dict[str, Mapping[Executor, Part]] = {}
        failures: dict[str, str] = {}
        details: dict[str, Any] = {"passes": [], "fallback": False, "workers": [], "phi": self._phi, "limit_hit": False}
        sizes: dict[tuple[str, str, int], int] = {}
        so_far = problem
        aim = Aim(self._params.objective, self._params.hops)
        check_aim(problem, aim)
        for topology in problem.topologies:
            instance = instance_of(so_far, [topology])
            reason = why_not(instance, [topology])
            assigned = Assigned(None) if reason else self._first_level(so_far, topology, instance)
            details["passes"].extend(asdict(each) for each in assigned.passes)
            details["fallback"] |= assigned.fallback
            details["limit_hit"] |= assigned.limit_hit
            if assigned.node_of is None:
                failures[topology.id] = reason or not_found(instance)
                continue
            mine = self._second_level(so_far, topology, instance, assigned.node_of)
            parts[topology.id] = mine
            so_far = _with_workers(so_far, topology.id, mine)
        for topology in problem.topologies:
            for node, part in parts.get(topology.id, {}).values():
                key = (topology.id, node, part)
                sizes[key] = sizes.get(key, 0) + 1
        number = {topology.id: at for at, topology in enumerate(problem.topologies)}
        nodes = {node.id: at for at, node in enumerate(problem.cluster.nodes)}
        order = sorted(sizes, key=lambda key: (number[key[0]], nodes[key[1]], key[2]))
        details["workers"] = [sizes[key] for key in order]
        return replace(assemble(problem, parts, failures, details), aim=aim)

    def revise(self, problem: Problem, observation: Observation) -> Revision:
        """Apply the first plan by observed traffic; later ones if they save enough, or if a node is overfull (ours)."""
        rules = ReplanRules(self._params.min_gain_percent, self._params.every_s, first=True, once=self._params.once)
        return by_plan(problem, observation, self.place, rules, {"infeasible": overfull(problem, observation)})

    @property
    def _phi(self) -> int:
        if self._params.theta == 0:
            return 0
        return find_threshold(self._params.theta) if self._params.phi is None else self._params.phi

    def _first_level(self, problem: Problem, topology: Topology, instance: Instance) -> Assigned:
        """Return the better result of the optimiser and the direct mapping."""
        aim = Aim(self._params.objective, self._params.hops)

        def aimed(instance: Instance) -> Aimed:
            return Aimed(problem, {topology.id}, instance, aim)

        def optimise(instance: Instance, over: Callable[[], bool], seed: int) -> Solution | AimedSolution | None:
            return solve(instance, over, seed) if aim.objective == "cut" else aimed(instance).solve(over, seed)

        end = perf_counter() + self._params.theta
        nodes = problem.cluster.nodes
        usable = [node for node, slots in enumerate(instance.slots) if slots]
        order = sorted(usable, key=lambda node: nodes[node].id)
        fusing = Fusing(instance, order, self._params.partitioner, self._params.seed, optimise)
        direct = fusing.run(0, lambda: False)
        whole = aimed(instance)
        if direct.node_of is not None:
            better = whole.improve(direct.node_of, Effort(looks_for(instance), lambda: False), self._params.seed)
            direct = replace(direct, node_of=better)
        if not self._phi:
            return direct
        if direct.node_of is not None and instance.worker is not None and not instance.fits(direct.node_of):
            direct = replace(
                direct, node_of=find(instance, Effort(looks_for(instance), lambda: False), self._params.seed)
            )
        solved = fusing.run(self._phi, lambda: perf_counter() > end)
        if solved.node_of is None or (
            direct.node_of is not None and whole.value(direct.node_of) < whole.value(solved.node_of)
        ):
            return replace(solved, node_of=direct.node_of, fallback=True)
        return solved

    def _second_level(
        self, problem: Problem, topology: Topology, instance: Instance, node_of: Sequence[int]
    ) -> dict[Executor, Part]:
        """Return executor -> node and worker; the workers of a node are ordered by their lowest executor."""
        if instance.worker is not None and not instance.fits(node_of):
            instance = replace(instance, worker=None)  # the direct mapping is the paper's, which has no such limit
        workers = worker_numbers(instance, node_of, self._params.T, self._params.partitioner, self._params.seed)
        return topology_parts(problem, [topology], node_of, workers)[topology.id]


def _with_workers(problem: Problem, topology: str, parts: Mapping[Executor, Part]) -> Problem:
    """Return the problem with the workers of `topology` running as in `parts`."""
    workers: dict[Part, list[str]] = {}
    for executor, part in parts.items():
        workers.setdefault(part, []).append(executor.name)
    others = [worker for worker in problem.existing if worker.topology != topology]
    fresh = [ExistingWorker(topology, node, number, tuple(names)) for (node, number), names in workers.items()]
    return replace(problem, cluster=replaced(problem.cluster, existing=(*others, *fresh)))
