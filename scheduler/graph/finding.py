"""The best placement that a bounded effort finds, by the method that suits the size."""

from scheduler.graph.instance import Instance
from scheduler.graph.small import search_small
from scheduler.graph.tabu import Effort


def looks_for(instance: Instance) -> int:
    """A reasonable effort: 30 ms of looks for some dozen executors, more for more."""
    size = min(instance.executors, 300)
    return 100_000 + 60 * max(0, size - 32) ** 2


def find(instance: Instance, effort: Effort, seed: int = 0, target: int = 0, node_weight: int = 0) -> list[int] | None:
    """The best placement found (executor -> node), None when none was found that keeps all limits."""
    return search_small(instance, effort, seed, target, node_weight)
