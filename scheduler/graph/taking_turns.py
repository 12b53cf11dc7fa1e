"""Topologies one after the other, for rounds in which large searches put more of them on a node than it has slots."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from scheduler.graph.instance import Instance


def take_turns(instance: Instance, search: Callable[[Instance], list[int] | None]) -> list[int] | None:
    """Every topology by itself, on what those before it leave; None when one of them finds no place.

    Args:
        instance: what is to be placed.
        search: places one topology (executor -> node), or says None.
    """
    free, room, slots = list(instance.capacity), list(instance.room), list(instance.slots)
    nodes = [-1] * instance.executors
    for topology in sorted(set(instance.topology)):
        kinds = [kind for kind, owner in enumerate(instance.topology) if owner == topology]
        executors = sorted(executor for kind in kinds for executor in instance.members[kind])
        left = replace(instance, capacity=tuple(free), room=tuple(room), slots=tuple(slots))
        found = search(_alone(left, kinds, executors))
        if found is None:
            return None
        for executor, node in zip(executors, found, strict=True):
            nodes[executor] = node
            free[node] -= instance.load[instance.class_of[executor]]
            room[node] -= instance.memory[instance.class_of[executor]]
        for node in set(found):
            slots[node] -= 1
    return nodes


def _alone(instance: Instance, kinds: Sequence[int], executors: Sequence[int]) -> Instance:
    """The problem of placing the members of `kinds`, which are `executors` and communicate with nobody else."""
    number = {executor: at for at, executor in enumerate(executors)}
    kind_of = {kind: at for at, kind in enumerate(kinds)}
    return replace(
        instance,
        members=tuple([number[executor] for executor in instance.members[kind]] for kind in kinds),
        load=tuple(instance.load[kind] for kind in kinds),
        memory=tuple(instance.memory[kind] for kind in kinds),
        topology=(0,) * len(kinds),
        near=tuple({kind_of[other]: rate for other, rate in instance.near[kind].items()} for kind in kinds),
        home=tuple(instance.home[executor] for executor in executors),
    )
