"""`ds2`: as many executors as the rate of the sources needs, from what executors process per second of CPU time.

"Three steps is all you need" (Kalavri, Liagouris, Hoffmann, Dimitrova, Forshaw, Roscoe, OSDI 2018) decides about
parallelism only. Ours is where executors run: a worker computes on one core at a time, so that executors get more slots
before components get more executors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import fsum, isfinite
from typing import Annotated, ClassVar

from msgspec import Meta

from scheduler.online.elastic import revision_to, wanted_sizes
from scheduler.online.observation import Expected, Observation, clamped
from scheduler.online.revision import Reason, Revision, Rhythm
from scheduler.online.true_rates import MARGIN, Requirement, requirements
from scheduler.problem import Needs, Placement, Plan, Problem, concluded
from scheduler.toolkit.core_packing import CorePacking
from scheduler.toolkit.slots import assigned, new_workers, running, waiting
from workloads.scaling import resized, sizes_of
from workloads.topology import DEFAULT_CPU_POINTS, Executor, Topology


@dataclass(frozen=True)
class Ds2Params:
    """Parameters of `ds2`.

    Attributes:
        target: share of a core that executors, and that all executors of a worker together, use at most.
        max_nodes: maximum number of nodes in use; None = all.
    """

    target: Annotated[float, Meta(gt=0, le=1)] = 0.8
    max_nodes: Annotated[int, Meta(ge=1)] | None = None


class Ds2:
    """Parallelism by true rates."""

    name: ClassVar[str] = "ds2"
    paper: ClassVar[str] = "Kalavri et al.: Three steps is all you need, OSDI 2018"
    needs: ClassVar[Needs] = Needs(
        traffic="used", load=True, online=True, scales=True, ignores="workers asked for, memory, hardware"
    )
    rhythm: ClassVar[Rhythm] = Rhythm(10, 1, "mean", first_s=10, ask_s=10)
    Params: ClassVar[type] = Ds2Params

    def __init__(self, params: Ds2Params) -> None:
        self._params = params

    def place(self, problem: Problem) -> Plan:
        """Fill few slots of few nodes with the waiting executors of all topologies. Running executors do not move."""
        load = problem.traffic.load if problem.traffic is not None else {}
        workers = running(problem)
        packing = CorePacking(problem, self._params.target, self._params.max_nodes, base=_base(problem, load))
        points = {
            topology.id: {e: load.get(e.name, topology.component[e.component].cpu_points) for e in topology.executors}
            for topology in problem.topologies
        }
        for name, of in points.items():
            for executor, slot in assigned(workers[name]).items():
                packing.keep(slot, of[executor])
        placements: dict[str, Placement] = {}
        over: list[int] = []
        first = 0
        for topology in problem.topologies:
            todo = {executor: points[topology.id][executor] for executor in waiting(topology, workers[topology.id])}
            slots, beyond = packing.place(workers[topology.id], todo, {})
            left = len(todo) - len(slots)
            message = f"no free slot: {left} executors wait" if left else ""
            placements[topology.id] = concluded(topology, assigned(workers[topology.id]) | slots, message)
            over += [first + topology.number_of[executor] for executor in beyond]
            first += len(topology.executors)
        return Plan(placements, details={**new_workers(problem, placements, ()), "over_capacity": over})

    def revise(self, problem: Problem, observation: Observation) -> Revision | None:
        """Give components the executors, and executors the slots, that the rate of the sources needs."""
        (topology,) = problem.topologies
        sizes = sizes_of(observation.executors)
        present = resized(topology, sizes)
        asked = {name: size for name, size in wanted_sizes(topology).items() if size != sizes[name]}
        now = {Executor.named(name): slot for name, slot in observation.places.items()}
        packing = self._packing(problem, observation)
        kept = packing.nodes(now)
        away = {executor for executor, slot in now.items() if slot.node not in kept}
        if not (observation.complete or asked or away):
            return Revision(text="the observation is not complete")
        needs = requirements(present, observation) if observation.complete else {}
        most = packing.slots(now)
        scaled = resized(present, {name: self._size(need, most) for name, need in needs.items()} | asked)
        points = _points(scaled, observation, needs)
        stay = {executor: now[executor] for executor in scaled.executors if executor in now and executor not in away}
        # The smallest stay, so that the fewest move.
        leaving = {
            executor: stay[executor]
            for executor in sorted(stay, key=lambda executor: points[executor])
            if not packing.keep(stay[executor], points[executor], MARGIN)
        }
        todo = {e: points[e] for e in scaled.executors if e not in stay or e in leaving}
        slots, beyond = packing.place(set(stay.values()), todo, leaving)
        before = self._packing(problem, observation)
        for executor, load in _points(present, observation, needs).items():
            if executor not in away:
                before.keep(now[executor], load)
        details = {
            "target": self._params.target,
            "components": {
                name: {**need.account(self._params.target), "wanted": scaled.component[name].parallelism}
                for name, need in needs.items()
            },
            "highest": {"now": _finite(before.highest()), "plan": _finite(packing.highest())},
            "over_capacity": [executor.name for executor in beyond],
        }
        if len(stay | slots) < len(scaled.executors):
            return Revision(text="no plan: there is no free slot", details=details)
        revision = revision_to(scaled, observation, stay | slots)
        if beyond and not (asked or away) and packing.highest() * (1 + MARGIN) > before.highest():
            return Revision(text="there is no room for more", details=details)
        if not revision.changes:
            return Revision(text="every component has what it needs", details=details)
        reason, text = _why(revision, len(away))
        expects = Expected(load=clamped(packing.node_loads()))
        return replace(revision, reason=reason, text=text, expects=expects, details=details)

    def _packing(self, problem: Problem, observation: Observation) -> CorePacking:
        """Return the nodes that may be used, without executors of the topology."""
        nodes = None if observation.schedule is None else observation.schedule.nodes
        base = {
            name: node.base * problem.cluster.by_id[name].cpu_points
            for name, node in observation.nodes.items()
            if node.base is not None
        }
        return CorePacking(problem, self._params.target, self._params.max_nodes, nodes, base)

    def _size(self, need: Requirement, slots: int) -> int:
        """Return the parallelism of a component: no more executors than slots, where each has a core."""
        size = need.wanted(self._params.target)
        return size if size <= need.size else max(need.size, min(size, slots))


def _base(problem: Problem, load: Mapping[str, float]) -> dict[str, float]:
    """Return node -> CPU points of topologies outside the round."""
    mine = {topology.id for topology in problem.topologies}
    base: dict[str, float] = {}
    for worker in problem.existing:
        if worker.topology not in mine:
            points = fsum(load.get(name, DEFAULT_CPU_POINTS) for name in worker.executors)
            base[worker.node] = base.get(worker.node, 0.0) + points
    return base


def _points(topology: Topology, observation: Observation, needs: Mapping[str, Requirement]) -> dict[Executor, float]:
    """Return executor -> CPU points at the rate of the sources; as now where that is unknown."""
    sizes = sizes_of(observation.executors)
    points: dict[Executor, float] = {}
    for component in topology.components:
        need = needs.get(component.id)
        growth = 1.0 if need is None else need.growth
        size = component.parallelism
        ran = [Executor(component.id, index).name for index in range(sizes[component.id])]
        loads = [observation.executors[name].load * growth for name in ran]
        if size != len(loads):
            each = None if need is None else need.points(size)
            loads = [fsum(loads) / size if each is None else each] * size
        points.update(zip(topology.executors_of(component.id), loads, strict=True))
    return points


def _why(revision: Revision, away: int) -> tuple[Reason, str]:
    """Return the reason of a revision, and the same in words."""
    words = [f"{component} to {size}" for component, size in revision.parallelism.items()]
    if away:
        words.append(f"{away} executors had lost their node")
    elif revision.moves:
        words.append(f"{len(revision.moves)} executors leave workers or nodes that are beyond their share")
    return "scale" if revision.parallelism else "nodes" if away else "overload", "; ".join(words)


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None
