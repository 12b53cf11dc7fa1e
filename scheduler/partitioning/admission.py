"""Topologies of a round that are placed together, and reasons why the others cannot be placed."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from scheduler.partitioning.instance import Instance, instance_of
from scheduler.problem import Problem
from workloads.topology import Topology

S = TypeVar("S")


def placeable(
    problem: Problem, attempt: Callable[[Instance, Sequence[Topology]], S | None], memory_counts: bool = False
) -> tuple[list[Topology], dict[str, str], S | None]:
    """Return the topologies that are placed, why each of the others is not, and the solution for the former.

    If not all fit together, topologies are admitted one after the other, in order of submission.

    Args:
        problem: the round.
        attempt: solves an instance of some topologies; returns None if it finds no placement within all limits.
        memory_counts: respect memory limits.
    """
    together = list(problem.topologies)
    instance = instance_of(problem, together, memory_counts)
    reason = why_not(instance, together)
    solution = None if reason else attempt(instance, together)
    if solution is not None:
        return together, {}, solution
    admitted: list[Topology] = []
    failures: dict[str, str] = {}
    for topology in together:
        if len(together) > 1:
            instance = instance_of(problem, [*admitted, topology], memory_counts)
            reason = why_not(instance, [*admitted, topology])
            attempted = None if reason else attempt(instance, [*admitted, topology])
            if attempted is not None:
                admitted, solution = [*admitted, topology], attempted
                continue
        beside = f" beside {', '.join(other.id for other in admitted)}" if admitted else ""
        failures[topology.id] = reason or f"{not_found(instance)}{beside}"
    return admitted, failures, solution


def not_found(instance: Instance) -> str:
    """Return that a search found no placement, with the limits that it kept."""
    worker = instance.worker
    limit = "" if worker is None else f" and to {worker.in_points(worker.most)} CPU points per worker"
    return f"no placement was found that keeps to all capacities{limit}"


def why_not(instance: Instance, topologies: list[Topology]) -> str:
    """Return why the instance has no placement, where a simple count shows it; otherwise an empty text."""
    if reason := _why_no_workers(instance, topologies):
        return reason
    if instance.total_load > sum(instance.capacity):
        return (
            f"the executors weigh {_per_unit(instance, instance.total_load)} in all, "
            f"the usable nodes hold {_per_unit(instance, sum(instance.capacity))}"
        )
    names = [(topology, executor) for topology in topologies for executor in topology.executors]
    hosts = [node for node, slots in enumerate(instance.slots) if slots]
    if not hosts:
        return "no node has a free slot"
    for kind, members in enumerate(instance.members):
        load, memory = instance.load[kind], instance.memory[kind]
        if not any(load <= instance.capacity[node] and memory <= instance.room[node] for node in hosts):
            topology, executor = names[members[0]]
            what = "memory" if any(load <= instance.capacity[node] for node in hosts) else "load"
            return f"no usable node holds the {what} of {executor.name} of {topology.id!r}"
    if sum(memory * len(members) for memory, members in zip(instance.memory, instance.members, strict=True)) > sum(
        instance.room[node] for node in hosts
    ):
        return "the executors ask for more memory than the usable nodes have"
    return ""


def _why_no_workers(instance: Instance, topologies: list[Topology]) -> str:
    worker = instance.worker
    if worker is None:
        return ""
    total = sum(sum(works) * len(members) for works, members in zip(worker.works, instance.members, strict=True))
    slots, each = sum(instance.slots), worker.in_points(worker.most)
    if total > slots * worker.most:
        return (
            f"the executors use {worker.in_points(total)} CPU points in all, "
            f"the usable slots hold {slots} workers, which can compute {each} each"
        )
    kind = max(range(len(worker.works)), key=lambda kind: sum(worker.works[kind]))
    heaviest = sum(worker.works[kind])
    if heaviest > worker.most:
        names = [(topology, executor) for topology in topologies for executor in topology.executors]
        topology, executor = names[instance.members[kind][0]]
        return (
            f"{executor.name} of {topology.id!r} uses {worker.in_points(heaviest)} CPU points, and a worker, which is "
            f"one thread, can compute {each}"
        )
    return ""


def _per_unit(instance: Instance, load: int) -> str:
    return f"{load * instance.load_unit:g}"
