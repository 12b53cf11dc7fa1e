"""Refinement of many parts at once, in the subset of Python that Numba compiles.

Sequences of moves start from a vertex at a border and go on among neighbours, through placements that are worse (after
Fiduccia and Mattheyses, 1982, and Sanders and Schulz, 2011). See `scheduler.partitioning.kernels_annealing` for the
format of graphs and limits.
"""

from scheduler.partitioning.kernels_annealing import drawn, shift, tally
from scheduler.partitioning.kernels_halving import drop, lift, sink
from scheduler.partitioning.rows import Ints

HUB = 400
"""Vertices with more neighbours only start sequences; neighbours' moves do not include them."""


def cut(n: int, xadj: Ints, adj: Ints, wgt: Ints, part: Ints) -> int:
    """Return twice the rate between parts."""
    total = 0
    for v in range(n):
        for e in range(xadj[v], xadj[v + 1]):
            if part[adj[e]] != part[v]:
                total += wgt[e]
    return total


def best_move(
    v: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    part: Ints,
    cap: Ints,
    room: Ints,
    load: Ints,
    memory: Ints,
    rate: Ints,
    chosen: Ints,
) -> int:
    """Return by how much the cut falls with the best move of v that limits allow; its part is `chosen[0]`, or -1.

    Of equal moves, that to the part with most room. `rate` is 0 everywhere, before and afterwards.
    """
    p = part[v]
    begin, end = xadj[v], xadj[v + 1]
    for e in range(begin, end):
        rate[part[adj[e]]] += wgt[e]
    inner = rate[p]
    q, highest, free = -1, 0, 0
    for e in range(begin, end):
        other = part[adj[e]]
        r = rate[other]
        rate[other] = 0
        if r >= highest and r > 0 and other != p:
            left = cap[other] - load[other] - vw[v]
            if left >= 0 and memory[other] + vm[v] <= room[other] and (r > highest or left > free):
                q, highest, free = other, r, left
    chosen[0] = q
    return highest - inner


def refine(
    n: int,
    k: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    part: Ints,
    cap: Ints,
    room: Ints,
    state: Ints,
    patience: int,
    load: Ints,
    memory: Ints,
    order: Ints,
    rate: Ints,
    chosen: Ints,
    heap: Ints,
    place: Ints,
    key: Ints,
    moved: Ints,
    origin: Ints,
) -> int:
    """Move vertices off overfull parts, then lower the cut by sequences of moves. Return by how much it fell.

    Every vertex at a border starts a sequence, unless it has moved already.

    Args:
        state: one number, the random bits; updated.
        patience: a sequence ends after this many moves without a new best cut.
    The arrays from `load` on are scratch space.
    """
    x = state[0]
    tally(n, k, vw, vm, part, load, memory)
    for p in range(k):
        rate[p] = 0
    # Overfull parts: the vertices that lose least leave first.
    size = total = 0
    for v in range(n):
        p = part[v]
        place[v] = -1
        if load[p] > cap[p] or memory[p] > room[p]:
            key[v] = best_move(v, xadj, adj, wgt, vw, vm, part, cap, room, load, memory, rate, chosen)
            heap[size] = v
            size += 1
            lift(heap, place, key, 0, size - 1)
    while size > 0:
        v = heap[0]
        p = part[v]
        gain = best_move(v, xadj, adj, wgt, vw, vm, part, cap, room, load, memory, rate, chosen)
        q = chosen[0]
        if gain < key[v]:
            key[v] = gain
            sink(heap, place, key, 0, size, 0)
            if heap[0] != v:
                continue
        drop(heap, place, key, 0, size, 0)
        size -= 1
        if load[p] <= cap[p] and memory[p] <= room[p]:
            continue
        if q < 0:
            free = -1
            for other in range(k):
                left = cap[other] - load[other] - vw[v]
                if left > free and memory[other] + vm[v] <= room[other]:
                    q, free = other, left
        if q >= 0:
            shift(v, q, vw, vm, part, load, memory)
            total += gain
    m = gained = 0
    for v in range(n):
        place[v] = -1
        p = part[v]
        for e in range(xadj[v], xadj[v + 1]):
            if part[adj[e]] != p:
                order[m] = v
                m += 1
                break
    for i in range(m - 1, 0, -1):
        x = drawn(x)
        j = (x * (i + 1)) >> 32
        v = order[i]
        order[i] = order[j]
        order[j] = v
    for i in range(m):
        v = order[i]
        if place[v] == -2:
            continue
        key[v] = best_move(v, xadj, adj, wgt, vw, vm, part, cap, room, load, memory, rate, chosen)
        if chosen[0] < 0:
            continue
        heap[0] = v
        place[v] = 0
        size = 1
        change = highest = best = count = idle = 0
        while size > 0:
            v = heap[0]
            p = part[v]
            gain = best_move(v, xadj, adj, wgt, vw, vm, part, cap, room, load, memory, rate, chosen)
            q = chosen[0]
            if q < 0:
                drop(heap, place, key, 0, size, 0)
                size -= 1
                place[v] = -1
                continue
            if gain < key[v]:
                key[v] = gain
                sink(heap, place, key, 0, size, 0)
                if heap[0] != v:
                    continue
            drop(heap, place, key, 0, size, 0)
            size -= 1
            shift(v, q, vw, vm, part, load, memory)
            moved[count] = v
            origin[count] = p
            count += 1
            change += gain
            if change > highest:
                highest, best, idle = change, count, 0
            else:
                idle += 1
                if idle > patience:
                    break
            for e in range(xadj[v], xadj[v + 1]):
                u = adj[e]
                at = place[u]
                if at >= 0:
                    # an upper bound of its gain, made exact when it is the first
                    key[u] += 2 * wgt[e] if part[u] == p else wgt[e]
                    lift(heap, place, key, 0, at)
                elif at == -1 and xadj[u + 1] - xadj[u] <= HUB:
                    key[u] = best_move(u, xadj, adj, wgt, vw, vm, part, cap, room, load, memory, rate, chosen)
                    if chosen[0] >= 0:
                        heap[size] = u
                        size += 1
                        lift(heap, place, key, 0, size - 1)
        for at in range(size):
            place[heap[at]] = -1
        while count > best:
            count -= 1
            v = moved[count]
            place[v] = -1
            shift(v, origin[count], vw, vm, part, load, memory)
        gained += highest
    total += gained
    state[0] = x
    return total
