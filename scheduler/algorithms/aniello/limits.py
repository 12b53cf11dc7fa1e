"""How many executors a worker, how many workers a node, how many nodes a topology may take.

The parameters bear the names of the authors' published code.
"""

from math import ceil

from scheduler.toolkit.scaling import decimal


def most_executors(executors: int, workers: int, alfa: float) -> int:
    """M, the most executors in a worker: from an even split (`alfa` 0) to one worker with all but one each (1)."""
    low = -(-executors // workers)
    high = executors - workers + 1
    return low + ceil(decimal(alfa) * (high - low))


def between(fewest: int, most: int, share: float) -> int:
    """`fewest` at share 0, `most` at 1, rounded up in between."""
    return fewest + ceil(decimal(share) * (most - fewest))


def nodes_wanted(workers: int, nodes: int, beta: float) -> int:
    """u, the nodes that a topology's workers shall use, by the online scheduler.

    The published "fewest nodes" is really workers per node; where there are many workers and few nodes it exceeds
    the most, hence the clamp.
    """
    usable = min(nodes, workers)
    return min(max(between(-(-workers // usable), usable, beta), 1), usable)


def most_workers(workers: int, wanted: int, delta: float) -> int:
    """k, the most workers of a topology on a node when it shall use `wanted` nodes."""
    return between(-(-workers // wanted), workers - wanted + 1, delta)
