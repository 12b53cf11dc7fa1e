"""Cuts, coarser graphs and growing parts, in the subset of Python that Numba compiles.

See `scheduler.partitioning.kernels_annealing` for the format of graphs and limits, and for why nothing is allocated.
"""

from scheduler.partitioning.rows import Ints

LOOK_AHEAD = 1000
"""Number of waiting vertices tried as the first of a part."""


def cut(n: int, xadj: Ints, adj: Ints, wgt: Ints, part: Ints) -> int:
    """Return twice the rate between parts."""
    total = 0
    for v in range(n):
        for e in range(xadj[v], xadj[v + 1]):
            if part[adj[e]] != part[v]:
                total += wgt[e]
    return total


def grow(
    n: int,
    k: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    cap: Ints,
    room: Ints,
    order: Ints,
    part: Ints,
    inner: Ints,
    waiting: Ints,
    border: Ints,
) -> int:
    """Fill the parts one after the other with communicating vertices. Return how many have no room (part -1).

    A part starts with the first waiting vertex in `order`; the next is the one with the largest (rate to the part)^2 /
    (1 + rate to other waiting vertices).
    """
    for v in range(n):
        part[v] = inner[v] = -1
        waiting[v] = 0
        for e in range(xadj[v], xadj[v + 1]):
            waiting[v] += wgt[e]
    first = placed = 0
    for p in range(k):
        load = memory = m = 0
        while True:
            chosen, highest, i = -1, -1.0, 0
            while i < m:
                v = border[i]
                if part[v] >= 0:
                    m -= 1
                    border[i] = border[m]
                    continue
                i += 1
                if load + vw[v] <= cap[p] and memory + vm[v] <= room[p]:
                    worth = 1.0 * inner[v] * inner[v] / (1.0 + waiting[v])
                    if worth > highest:
                        highest = worth
                        chosen = v
            if chosen < 0:
                while first < n and part[order[first]] >= 0:
                    first += 1
                i = first
                while i < n and i < first + LOOK_AHEAD and chosen < 0:
                    v = order[i]
                    if part[v] < 0 and load + vw[v] <= cap[p] and memory + vm[v] <= room[p]:
                        chosen = v
                    i += 1
            if chosen < 0:
                break
            part[chosen] = p
            placed += 1
            load += vw[chosen]
            memory += vm[chosen]
            for e in range(xadj[chosen], xadj[chosen + 1]):
                u = adj[e]
                waiting[u] -= wgt[e]
                if part[u] < 0:
                    if inner[u] < 0:
                        inner[u] = 0
                        border[m] = u
                        m += 1
                    inner[u] += wgt[e]
        for i in range(m):
            inner[border[i]] = -1
    return n - placed


def match(
    n: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    order: Ints,
    heaviest: int,
    largest: int,
    coarse: Ints,
    first: Ints,
    second: Ints,
) -> int:
    """Pair vertices with a high rate for their load. Return the number of coarse vertices.

    Fills vertex -> coarse vertex, and coarse vertex -> its `first` and `second` (or -1). A pair's load is at most
    `heaviest`, its memory `largest`.
    """
    for v in range(n):
        coarse[v] = -1
    count = 0
    for i in range(n):
        v = order[i]
        if coarse[v] >= 0:
            continue
        highest, chosen = 0.0, -1
        for e in range(xadj[v], xadj[v + 1]):
            u = adj[e]
            if coarse[u] < 0 and vw[u] + vw[v] <= heaviest and vm[u] + vm[v] <= largest:
                rating = wgt[e] / (1.0 + vw[u])
                if rating > highest or (rating == highest and u < chosen):
                    highest = rating
                    chosen = u
        coarse[v] = count
        first[count] = v
        second[count] = chosen
        if chosen >= 0:
            coarse[chosen] = count
        count += 1
    return count


def contract(
    count: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    coarse: Ints,
    first: Ints,
    second: Ints,
    place: Ints,
    new_xadj: Ints,
    new_adj: Ints,
    new_wgt: Ints,
    new_vw: Ints,
    new_vm: Ints,
) -> int:
    """Build the graph of coarse vertices. Return its number of entries."""
    for c in range(count):
        place[c] = -1
    end = 0
    new_xadj[0] = 0
    for c in range(count):
        begin = end
        new_vw[c] = new_vm[c] = 0
        for side in range(2):
            v = first[c] if side == 0 else second[c]
            if v < 0:
                continue
            new_vw[c] += vw[v]
            new_vm[c] += vm[v]
            for e in range(xadj[v], xadj[v + 1]):
                d = coarse[adj[e]]
                if d == c:
                    continue
                at = place[d]
                if at < begin:
                    place[d] = end
                    new_adj[end] = d
                    new_wgt[end] = wgt[e]
                    end += 1
                else:
                    new_wgt[at] += wgt[e]
        new_xadj[c + 1] = end
    return end
