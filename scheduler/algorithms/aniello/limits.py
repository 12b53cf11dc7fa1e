"""Limits: executors per worker, workers per node, nodes per topology.

Parameters have the names of the authors' published code.
"""

from math import ceil

from scheduler.toolkit.scaling import decimal


def most_executors(executors: int, workers: int, alfa: float) -> int:
    """Return M, the maximum number of executors in a worker.

    It lies between an even split (`alfa` 0) and one executor in each other worker (`alfa` 1).
    """
    low = -(-executors // workers)
    high = executors - workers + 1
    return low + ceil(decimal(alfa) * (high - low))


def between(fewest: int, most: int, share: float) -> int:
    """Return `fewest` at share 0, `most` at share 1, and the interpolated value, rounded up, in between."""
    return fewest + ceil(decimal(share) * (most - fewest))


def nodes_wanted(workers: int, nodes: int, beta: float) -> int:
    """Return u, the number of nodes that the online scheduler uses for a topology's workers.

    The published "fewest nodes" is in fact workers per node. With many workers and few nodes it exceeds the maximum,
    hence the clamp.
    """
    usable = min(nodes, workers)
    return min(max(between(-(-workers // usable), usable, beta), 1), usable)


def most_workers(workers: int, wanted: int, delta: float) -> int:
    """Return k, the maximum number of workers of a topology on a node when it uses `wanted` nodes."""
    return between(-(-workers // wanted), workers - wanted + 1, delta)
