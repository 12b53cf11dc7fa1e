"""The best placement that a bounded effort finds, by the method that suits the size."""

from scheduler.graph.dealing import deal
from scheduler.graph.instance import Instance
from scheduler.graph.large import search_large
from scheduler.graph.small import search_small
from scheduler.graph.tabu import Effort
from scheduler.graph.taking_turns import take_turns

SMALL = 128
"""Up to so many executors tabu search looks at every move and swap."""

MOST_PAIRS = 4_000_000
"""More pairs are not listed."""


def looks_for(instance: Instance) -> int:
    """A reasonable effort: 20 ms for some dozen executors, half a second for 1,000, a dozen for 100,000."""
    if instance.executors <= SMALL:
        return 80_000 + 60 * max(0, instance.executors - 32) ** 2
    return 300_000 * int(instance.executors ** (2 / 3))


def find(
    instance: Instance,
    effort: Effort,
    seed: int = 0,
    target: int = 0,
    node_weight: int = 0,
) -> list[int] | None:
    """The best placement found (executor -> node), None when none was found that keeps all limits.

    Args:
        instance: what is to be placed.
        effort: when to stop.
        seed: of all random choices.
        target: a cost known to be the lowest possible.
        node_weight: what a node in use costs, in units of rate; large searches take as few nodes as hold the load
            anyway.
    """
    if instance.executors <= SMALL:
        return search_small(instance, effort, seed, target, node_weight)
    nodes = deal(instance) if instance.pairs > MOST_PAIRS else search_large(instance, effort, seed)
    if nodes is not None and instance.fits(nodes):
        return nodes
    if not instance.scarce:
        return None

    def search(alone: Instance) -> list[int] | None:
        effort.looks = looks_for(alone)
        return find(alone, effort, seed)

    return take_turns(instance, search)
