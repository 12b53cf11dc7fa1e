"""Smaller partitioning problems derived from one: a subset of its executors, or groups of executors as vertices.

`workers_of` splits the executors of a topology on a node into workers of limited size, by rate: the second level of
I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020); the treatment of nodes with too few slots is our decision.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.solving import SMALL, find
from scheduler.partitioning.tabu import Effort
from scheduler.partitioning.worker_limit import divided_works

Partitioner = Literal["recursive", "kway"]

LOOKS = 100
"""Moves evaluated per executor and part."""

MOST_PARTS = 60
"""Maximum number of parts counted: an executor has reason to go to few of them."""

MORE_WORKERS = 1
"""Workers beyond the fewest with which a division of low rate is searched; then any division will do."""

FEWEST_LOOKS = 3_000
"""Minimum number of moves evaluated."""


def induced_problem(
    instance: Instance, executors: Sequence[int], load: Sequence[int], limits: Sequence[int], works: Sequence[int] = ()
) -> Instance:
    """Return the problem of assigning `executors` to parts.

    Args:
        instance: the whole problem.
        executors: numbers, ascending; in the new instance they are 0, 1, ...
        load: class of `instance` -> load of a member.
        limits: part -> maximum load.
        works: part -> most work, in the unit of the instance's limit of workers; empty: as much as comes.
    """
    limit = instance.worker if works else None
    members: dict[int, list[int]] = {}
    for number, executor in enumerate(executors):
        members.setdefault(instance.class_of[executor], []).append(number)
    number_of = {kind: number for number, kind in enumerate(members)}
    return Instance(
        members=tuple(members.values()),
        load=tuple(load[kind] for kind in members),
        memory=tuple(0 if limit is None else sum(limit.works[kind]) for kind in members),
        topology=(0,) * len(members),
        near=tuple(
            {number_of[other]: rate for other, rate in instance.near[kind].items() if other in number_of}
            for kind in members
        ),
        capacity=tuple(limits),
        room=tuple(works) or (0,) * len(limits),
        slots=(1,) * len(limits),
        rate_scale=instance.rate_scale,
        load_unit=instance.load_unit,
        home=(-1,) * len(executors),
    )


def contracted(instance: Instance, groups: Sequence[Sequence[int]], load: Sequence[int]) -> Instance:
    """Return the problem in which every group of executors is one vertex; nodes stay the same.

    Args:
        instance: the whole problem.
        groups: executors by number; together all executors.
        load: class -> load of a member.
    """
    contents: list[dict[int, int]] = []
    where: dict[int, list[tuple[int, int]]] = {}
    for number, group in enumerate(groups):
        content: dict[int, int] = {}
        for executor in group:
            kind = instance.class_of[executor]
            content[kind] = content.get(kind, 0) + 1
        contents.append(content)
        for kind, count in content.items():
            where.setdefault(kind, []).append((number, count))
    near: list[dict[int, int]] = []
    for number, content in enumerate(contents):
        mine: dict[int, int] = {}
        for kind, count in content.items():
            for other, rate in instance.near[kind].items():
                for vertex, times in where.get(other, ()):
                    if vertex != number:
                        mine[vertex] = mine.get(vertex, 0) + rate * count * times
        near.append(mine)
    weights = [sum(load[kind] * count for kind, count in content.items()) for content in contents]
    limit = instance.worker
    works = [
        () if limit is None else tuple(sorted(w for kind, count in content.items() for w in limit.works[kind] * count))
        for content in contents
    ]
    twins: dict[tuple[object, ...], list[int]] = {}
    for number, weight in enumerate(weights):
        twins.setdefault((weight, works[number], tuple(sorted(near[number].items()))), []).append(number)
    kind_of = {number: kind for kind, together in enumerate(twins.values()) for number in together}
    return Instance(
        members=tuple(twins.values()),
        load=tuple(weights[together[0]] for together in twins.values()),
        memory=(0,) * len(twins),
        topology=(0,) * len(twins),
        near=tuple({kind_of[v]: rate for v, rate in near[together[0]].items()} for together in twins.values()),
        capacity=instance.capacity,
        room=(0,) * len(instance.capacity),
        slots=instance.slots,
        rate_scale=instance.rate_scale,
        load_unit=instance.load_unit,
        home=(-1,) * len(groups),
        worker=None
        if limit is None
        else replace(limit, works=tuple(works[together[0]] for together in twins.values())),
    )


def partition(
    instance: Instance,
    executors: Sequence[int],
    load: Sequence[int],
    limits: Sequence[int],
    partitioner: Partitioner,
    seed: int,
    works: Sequence[int] = (),
) -> list[list[int]] | None:
    """Return `executors` in `len(limits)` parts with little rate between them, or None if limits cannot be met.

    Args:
        instance: where they come from.
        executors: numbers, ascending.
        load: class -> load of a member.
        limits: part -> load that it takes.
        partitioner: recursive bisection (`recursive`), or all parts at once (`kway`); more executors than tabu search
            handles are always split at once.
        seed: seed of the search.
        works: part -> most work, as for `induced_problem`.
    """
    if len(limits) == 1 and not works:
        weight = sum(load[instance.class_of[executor]] for executor in executors)
        return [list(executors)] if weight <= limits[0] else None
    if partitioner == "recursive" and len(executors) <= SMALL and len(limits) > 1:
        middle = (len(limits) + 1) // 2
        both = [sum(works[:middle]), sum(works[middle:])] if works else []
        halves = _dealt(instance, executors, load, [sum(limits[:middle]), sum(limits[middle:])], seed, both)
        if halves is not None:
            left = partition(instance, halves[0], load, limits[:middle], partitioner, seed, works[:middle])
            right = partition(instance, halves[1], load, limits[middle:], partitioner, seed, works[middle:])
            if left is not None and right is not None:
                return left + right
    # Full halves may be impossible to split again when loads differ; all parts at once may work.
    return _dealt(instance, executors, load, limits, seed, works)


def _dealt(
    instance: Instance,
    executors: Sequence[int],
    load: Sequence[int],
    limits: Sequence[int],
    seed: int,
    works: Sequence[int],
) -> list[list[int]] | None:
    smaller = induced_problem(instance, executors, load, limits, works)
    looks = LOOKS * len(executors) * min(len(limits), MOST_PARTS) // 2
    nodes = find(smaller, Effort(max(FEWEST_LOOKS, looks), lambda: False), seed)
    if nodes is None:
        return None
    parts: list[list[int]] = [[] for _ in limits]
    for executor, node in zip(executors, nodes, strict=True):
        parts[node].append(executor)
    return parts


def limited_workers(instance: Instance, node_of: Sequence[int]) -> list[int] | None:
    """Return executor -> number of its worker on its node, as few as the limit allows; None without a limit: one."""
    return None if instance.worker is None else worker_numbers(instance, node_of, None)


def worker_numbers(
    instance: Instance,
    node_of: Sequence[int],
    most: int | None,
    partitioner: Partitioner = "recursive",
    seed: int = 0,
) -> list[int]:
    """Return executor -> number of its worker on its node.

    Per node and topology workers count by their lowest executor. Workers keep to the instance's limit of work.

    Args:
        instance: the problem.
        node_of: executor -> node.
        most: maximum executors per worker, None for any number; a node with too few slots fills its slots evenly.
        partitioner: how executors are split.
        seed: seed of the search.
    """
    here: dict[int, dict[int, list[int]]] = {}
    for executor, node in enumerate(node_of):
        topology = instance.topology[instance.class_of[executor]]
        here.setdefault(node, {}).setdefault(topology, []).append(executor)
    worker = [0] * instance.executors
    for node, topologies in sorted(here.items()):
        slots = instance.slots[node]
        least = {topology: _workers_for(instance, executors) for topology, executors in topologies.items()}
        for topology, executors in sorted(topologies.items()):
            needed = least.pop(topology)
            usable = slots - sum(least.values())  # every topology after this one needs slots too
            filled = sorted(_workers(instance, executors, most, needed, usable, partitioner, seed))
            slots -= len(filled)
            for number, group in enumerate(filled):
                for executor in group:
                    worker[executor] = number
    return worker


def _workers_for(instance: Instance, executors: Sequence[int]) -> int:
    return instance.workers_for(Counter(instance.class_of[executor] for executor in executors))


def _workers(
    instance: Instance,
    executors: list[int],
    most: int | None,
    needed: int,
    usable: int,
    partitioner: Partitioner,
    seed: int,
) -> list[list[int]]:
    """Return the executors of each worker of a topology on a node, of at least `needed` and at most `usable`."""
    ones = [1] * len(instance.load)
    count = max(needed, 1 if most is None else -(-len(executors) // most))
    limit = len(executors) if most is None else most
    if count > usable:
        count = usable
        limit = -(-len(executors) // count)
    worker = instance.worker
    if worker is None or needed == count == 1:
        groups = partition(instance, executors, ones, [limit] * count, partitioner, seed)
        if groups is None:
            raise ValueError(f"{len(executors)} executors do not fit into {count} workers of {limit}")
        return [group for group in groups if group]
    if most is None:
        partitioner = "kway"  # halves filled to their limits can mostly not be halved again
    for parts in range(count, min(count + MORE_WORKERS, usable) + 1):
        groups = partition(instance, executors, ones, [limit] * parts, partitioner, seed, [worker.most] * parts)
        if groups is not None:
            return [group for group in groups if group]
    # The number of executors gives way to their work.
    works = {executor: sum(worker.works[instance.class_of[executor]]) for executor in executors}
    order = sorted(executors, key=lambda executor: (-works[executor], executor))
    numbers = divided_works([works[executor] for executor in order], worker.most, usable)
    if numbers is None:
        raise ValueError(f"{usable} workers cannot do the work of {len(executors)} executors")
    split: dict[int, list[int]] = {}
    for executor, number in zip(order, numbers, strict=True):
        split.setdefault(number, []).append(executor)
    return [sorted(group) for group in split.values()]


def cut_between_workers(instance: Instance, node_of: Sequence[int], worker: Sequence[int]) -> int:
    """Return rate between different workers of one node."""
    number: dict[tuple[int, int, int], int] = {}
    topologies = (instance.topology[kind] for kind in instance.class_of)
    places = [number.setdefault(place, len(number)) for place in zip(node_of, topologies, worker, strict=True)]
    return instance.cut(places) - instance.cut(node_of)
