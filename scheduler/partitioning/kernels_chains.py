"""Vertices along paths, parts filled in an order, and what parts hold, in the subset of Python that Numba compiles.

See `scheduler.partitioning.kernels_coarsening` for the format of graphs.
"""

from scheduler.partitioning.rows import Ints


def rank(n: int, xadj: Ints, tally: Ints, ranked: Ints) -> None:
    """List the vertices in `ranked`, those with the fewest partners first; `tally` is scratch of n + 1."""
    for at in range(n + 1):
        tally[at] = 0
    for v in range(n):
        tally[xadj[v + 1] - xadj[v] + 1] += 1
    for at in range(1, n + 1):
        tally[at] += tally[at - 1]
    for v in range(n):
        degree = xadj[v + 1] - xadj[v]
        ranked[tally[degree]] = v
        tally[degree] += 1


def arrange(low: int, high: int, stack: Ints, adj: Ints, wgt: Ints) -> None:
    """Sort the pairs in `stack[low:high]`, the largest rate last, of equal ones that with the first vertex (Shell)."""
    gap = 1
    while 3 * gap + 1 < high - low:
        gap = 3 * gap + 1
    while gap > 0:
        for at in range(low + gap, high):
            pair = stack[at]
            to = at
            while to - gap >= low:
                other = stack[to - gap]
                if wgt[other] < wgt[pair] or (wgt[other] == wgt[pair] and adj[other] > adj[pair]):
                    break
                stack[to] = other
                to -= gap
            stack[to] = pair
        gap //= 3


def walk(
    n: int, xadj: Ints, adj: Ints, wgt: Ints, tally: Ints, ranked: Ints, seen: Ints, stack: Ints, order: Ints
) -> int:
    """List the vertices in `order` along paths: from those with the fewest partners, the largest rate first.

    `seen` is 0 everywhere. Return their number.
    """
    rank(n, xadj, tally, ranked)
    count = 0
    for at in range(n):
        v = ranked[at]
        size = 0
        while True:
            if seen[v] == 0:
                seen[v] = 1
                order[count] = v
                count += 1
                low = size
                for back in range(xadj[v + 1] - xadj[v]):
                    pair = xadj[v + 1] - 1 - back
                    if seen[adj[pair]] == 0:
                        stack[size] = pair
                        size += 1
                arrange(low, size, stack, adj, wgt)
            if size == 0:
                break
            size -= 1
            v = adj[stack[size]]
    return count


def fill(n: int, k: int, order: Ints, vw: Ints, vm: Ints, cap: Ints, room: Ints, part: Ints) -> int:
    """Fill the parts one after the other with the vertices in `order`. Return 1, or 0 where they do not all fit."""
    at = 0
    load = 0
    memory = 0
    for position in range(n):
        v = order[position]
        while at < k and (load + vw[v] > cap[at] or memory + vm[v] > room[at]):
            at += 1
            load = 0
            memory = 0
        if at == k:
            return 0
        part[v] = at
        load += vw[v]
        memory += vm[v]
    return 1


def total(n: int, vw: Ints, vm: Ints, part: Ints, load: Ints, memory: Ints) -> int:
    """Add load and memory of the vertices to their parts'; those in part -1 do not count. Return how many do."""
    count = 0
    for v in range(n):
        p = part[v]
        if p >= 0:
            load[p] += vw[v]
            memory[p] += vm[v]
            count += 1
    return count
