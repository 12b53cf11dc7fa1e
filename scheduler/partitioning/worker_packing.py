"""Placements within the limit of workers, from placements that exceed it: for searches that know sums only."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from scheduler.partitioning.bounds import Density
from scheduler.partitioning.exact import search
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.worker_limit import WorkerLimit

ROUNDS = 3
"""Searches with smaller capacities of the nodes whose workers have too much to do."""

MOST_PACKED = 50_000
"""States of an exact search for any placement."""


class SlotFilling:
    """Workers of the nodes while executors are placed one after the other, each in the fullest worker that takes it.

    Attributes:
        node_of: executor -> node, -1 without one.
        load: node -> load of its executors.
    """

    def __init__(self, instance: Instance, worker: WorkerLimit) -> None:
        self._instance, self._worker = instance, worker
        self.node_of = [-1] * instance.executors
        self.load = [0] * len(instance.capacity)
        self._room = list(instance.room)
        self._workers: list[list[tuple[int, int]]] = [[] for _ in instance.capacity]
        self._placed: list[dict[int, int]] = [{} for _ in instance.members]
        self._usable = [node for node, slots in enumerate(instance.slots) if slots]

    def work(self, executor: int) -> int:
        """Return the work of an executor."""
        return sum(self._worker.works[self._instance.class_of[executor]])

    def put(self, executor: int, node: int) -> bool:
        """Place an executor, if one of the node's workers takes it. Return whether it does."""
        instance, kind = self._instance, self._instance.class_of[executor]
        topology, work, workers = instance.topology[kind], self.work(executor), self._workers[node]
        if self.load[node] + instance.load[kind] > instance.capacity[node] or self._room[node] < instance.memory[kind]:
            return False
        fitting = [(left, at) for at, (owner, left) in enumerate(workers) if owner == topology and left >= work]
        if fitting:
            left, at = min(fitting)
            workers[at] = topology, left - work
        elif len(workers) < instance.slots[node] and work <= self._worker.most:
            workers.append((topology, self._worker.most - work))
        else:
            return False
        self.node_of[executor] = node
        self.load[node] += instance.load[kind]
        self._room[node] -= instance.memory[kind]
        self._placed[kind][node] = self._placed[kind].get(node, 0) + 1
        return True

    def put_near(self, executor: int) -> bool:
        """Place an executor with those that it communicates with most, else where there is most room for its load."""
        instance = self._instance
        rates: dict[int, int] = {}
        for other, rate in instance.near[instance.class_of[executor]].items():
            for node, count in self._placed[other].items():
                rates[node] = rates.get(node, 0) + rate * count
        near = sorted(rates, key=lambda node: (-rates[node], node))
        if any(self.put(executor, node) for node in near):
            return True
        rest = sorted(self._usable, key=lambda node: (self.load[node] - instance.capacity[node], node))
        return any(self.put(executor, node) for node in rest)


def _heaviest_first(instance: Instance, filling: SlotFilling) -> list[int]:
    return sorted(range(instance.executors), key=lambda e: (-filling.work(e), -instance.load[instance.class_of[e]], e))


def _filled(instance: Instance, worker: WorkerLimit, node_of: Sequence[int]) -> tuple[SlotFilling, list[int]]:
    """Return the workers that a placement (executor -> node, or -1) fills, and the executors that they cannot take."""
    filling = SlotFilling(instance, worker)
    order = _heaviest_first(instance, filling)
    return filling, [e for e in order if node_of[e] < 0 or not filling.put(e, node_of[e])]


def within_workers(
    instance: Instance, node_of: Sequence[int], again: Callable[[Instance], list[int] | None]
) -> list[int] | None:
    """Return the best of some placements within all limits (executor -> node), or None when none was found.

    Args:
        instance: the problem, with a limit of workers.
        node_of: a placement that may exceed it; -1 without a node.
        again: searches for a placement with smaller capacities, which may exceed the limit too.
    """
    worker = instance.worker
    if worker is None:
        raise ValueError("the instance has no limit of workers")
    best: list[int] | None = None

    def keep(placement: list[int]) -> None:
        nonlocal best
        if instance.fits(placement) and (best is None or instance.cut(placement) < instance.cut(best)):
            best = placement

    capacity = list(instance.capacity)
    current = list(node_of)
    for _ in range(ROUNDS):
        if best is current:
            break
        filling, left = _filled(instance, worker, current)
        narrow = {current[executor] for executor in left if current[executor] >= 0}
        for node in narrow:
            capacity[node] = min(capacity[node], filling.load[node])
        if all(filling.put_near(executor) for executor in left):
            keep(filling.node_of)
        if not narrow or sum(capacity) < instance.total_load:
            break
        searched = again(replace(instance, capacity=tuple(capacity)))
        if searched is None:
            break
        current = searched
        keep(current)
    if best is None:
        filling = SlotFilling(instance, worker)
        if all(filling.put_near(executor) for executor in _heaviest_first(instance, filling)):
            keep(filling.node_of)
    return best


def packed_exactly(instance: Instance, over: Callable[[], bool]) -> list[int] | None:
    """Return any placement within all limits (executor -> node), whatever its rates; None: not found."""
    apart = replace(instance, near=tuple({} for _ in instance.near))
    return search(apart, Density(apart), -1, over, states=MOST_PACKED).node_of
