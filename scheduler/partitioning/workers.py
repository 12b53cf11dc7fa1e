"""From nodes to workers: executors of a topology on a node are split into workers of limited size, by rate.

The second level of I-Scheduler (Eskandari, Mair, Huang, Eyers, 2020); the treatment of nodes with too few slots is our
decision.
"""

from collections.abc import Sequence

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.parts import Partitioner, partition


def workers_of(
    instance: Instance, node_of: Sequence[int], most: int, partitioner: Partitioner = "recursive", seed: int = 0
) -> list[int]:
    """Return executor -> number of its worker on its node.

    Per node and topology workers count by their lowest executor.

    Args:
        instance: the problem.
        node_of: executor -> node.
        most: maximum executors per worker; a node with too few slots fills its slots evenly.
        partitioner: how executors are split.
        seed: seed of the search.
    """
    ones = [1] * len(instance.load)
    here: dict[int, dict[int, list[int]]] = {}
    for executor, node in enumerate(node_of):
        topology = instance.topology[instance.class_of[executor]]
        here.setdefault(node, {}).setdefault(topology, []).append(executor)
    worker = [0] * instance.executors
    for node, topologies in sorted(here.items()):
        slots = instance.slots[node]
        for left, (_, executors) in zip(range(len(topologies), 0, -1), sorted(topologies.items()), strict=True):
            count, limit = -(-len(executors) // most), most
            if count > slots - (left - 1):  # every topology after this one needs a slot too
                count = slots - (left - 1)
                limit = -(-len(executors) // count)
            groups = partition(instance, executors, ones, [limit] * count, partitioner, seed)
            if groups is None:
                raise ValueError(f"{len(executors)} executors do not fit into {count} workers of {limit}")
            filled = sorted(group for group in groups if group)
            slots -= len(filled)
            for number, group in enumerate(filled):
                for executor in group:
                    worker[executor] = number
    return worker


def cut_between_workers(instance: Instance, node_of: Sequence[int], worker: Sequence[int]) -> int:
    """Return rate between different workers of one node."""
    number: dict[tuple[int, int, int], int] = {}
    topologies = (instance.topology[kind] for kind in instance.class_of)
    places = [number.setdefault(place, len(number)) for place in zip(node_of, topologies, worker, strict=True)]
    return instance.cut(places) - instance.cut(node_of)
