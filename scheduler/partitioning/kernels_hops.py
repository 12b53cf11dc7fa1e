"""Annealing of all parts at once by cost of hops or by loads of links, in the subset of Python that Numba compiles.

The rules and names are those of `scheduler.partitioning.kernels_annealing`. Parts belong to groups; `between` has the
value of two different parts of groups a and b at a * groups + b.
"""

from scheduler.partitioning.kernels_annealing import DRAWS, STAGES, drawn, tally
from scheduler.partitioning.rows import Floats, Ints


def hop_rise(
    v: int, p: int, q: int, xadj: Ints, adj: Ints, wgt: Ints, part: Ints, group: Ints, groups: int, between: Ints
) -> int:
    """Return by how much the cost rises when vertex v goes from part p to q."""
    rise = 0
    here, there = group[p] * groups, group[q] * groups
    for e in range(xadj[v], xadj[v + 1]):
        other = part[adj[e]]
        far = group[other]
        if other != p:
            rise -= wgt[e] * between[here + far]
        if other != q:
            rise += wgt[e] * between[there + far]
    return rise


def link_shift(
    v: int,
    p: int,
    q: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    part: Ints,
    group: Ints,
    groups: int,
    between: Ints,
    k: int,
    carried: Ints,
    unit: float,
) -> float:
    """Move vertex v from part p to q in `carried`, the rates between parts.

    Return by how much the sum over links of the fourth power of their load rises. A link's load is its rate times its
    value, divided by `unit`.
    """
    rise = 0.0
    for e in range(xadj[v], xadj[v + 1]):
        other = part[adj[e]]
        if other != p:
            scale = between[group[p] * groups + group[other]] / unit
            before = carried[p * k + other] * scale
            carried[p * k + other] -= wgt[e]
            carried[other * k + p] -= wgt[e]
            after = carried[p * k + other] * scale
            rise += after * after * after * after - before * before * before * before
        if other != q:
            scale = between[group[q] * groups + group[other]] / unit
            before = carried[q * k + other] * scale
            carried[q * k + other] += wgt[e]
            carried[other * k + q] += wgt[e]
            after = carried[q * k + other] * scale
            rise += after * after * after * after - before * before * before * before
    part[v] = q
    return rise


def busiest(k: int, group: Ints, groups: int, between: Ints, carried: Ints) -> int:
    """Return the largest rate times value between two parts."""
    most = 0
    for p in range(k):
        for q in range(p):
            most = max(most, carried[p * k + q] * between[group[p] * groups + group[q]])
    return most


def link(v: int, p: int, head: Ints, after: Ints, ahead: Ints) -> None:
    """Add vertex v to the ring of the vertices of part p."""
    u = head[p]
    if u < 0:
        after[v] = ahead[v] = v
    else:
        after[v] = u
        ahead[v] = ahead[u]
        after[ahead[u]] = v
        ahead[u] = v
    head[p] = v


def anneal_hops(
    links: int,
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
    group: Ints,
    groups: int,
    between: Ints,
    cooling: Floats,
    draws: Floats,
    hot: float,
    unit: float,
    block: int,
    x: int,
    best: Ints,
    load: Ints,
    memory: Ints,
    head: Ints,
    after: Ints,
    ahead: Ints,
    carried: Ints,
) -> int:
    """Lower the cost of `part` by annealing, or the load of its busiest link. Return the random bits at the end.

    A step moves a vertex to the part of a neighbour or to any part or, if that is full, swaps it with a vertex there.
    On return `best` holds the best placement found, and `part` is arbitrary. Limits that hold at the start still hold.

    Args:
        links: 0 for the cost, 1 for the busiest link.
        hot: the first temperature, in units of the cost, or of the sum of fourth powers.
        unit: see `link_shift`.
        block: steps at each temperature.
        x: random bits, not 0.
    The arrays after `best` are scratch space; `carried` has k * k entries for links.
    """
    tally(n, k, vw, vm, part, load, memory)
    for p in range(k):
        head[p] = -1
    for v in range(n):
        best[v] = part[v]
        link(v, part[v], head, after, ahead)
    lowest_load = 0
    if links:
        for at in range(k * k):
            carried[at] = 0
        for v in range(n):
            for e in range(xadj[v], xadj[v + 1]):
                if part[v] != part[adj[e]]:
                    carried[part[v] * k + part[adj[e]]] += wgt[e]
        lowest_load = busiest(k, group, groups, between, carried)
    change = lowest = 0.0
    for stage in range(STAGES):
        heat = hot * cooling[stage]
        for _ in range(block):
            x = drawn(x)
            v = (x * n) >> 32
            degree = xadj[v + 1] - xadj[v]
            if degree == 0:
                continue
            p = part[v]
            x = drawn(x)
            q = part[adj[xadj[v] + ((x >> 2) * degree >> 30)]] if x & 3 else (x >> 2) * k >> 30
            if p == q:
                continue
            u = -1
            heavier, larger = vw[v], vm[v]
            if load[q] + heavier > cap[q] or memory[q] + larger > room[q]:
                if head[q] < 0:
                    continue
                u = head[q]
                head[q] = after[u]
                heavier -= vw[u]
                larger -= vm[u]
                if load[q] + heavier > cap[q] or load[p] - heavier > cap[p]:
                    continue
                if memory[q] + larger > room[q] or memory[p] - larger > room[p]:
                    continue
            x = drawn(x)
            rise = 0.0
            if links:
                rise += link_shift(v, p, q, xadj, adj, wgt, part, group, groups, between, k, carried, unit)
                if u >= 0:
                    rise += link_shift(u, q, p, xadj, adj, wgt, part, group, groups, between, k, carried, unit)
            else:
                rise += hop_rise(v, p, q, xadj, adj, wgt, part, group, groups, between)
                part[v] = q
                if u >= 0:
                    rise += hop_rise(u, q, p, xadj, adj, wgt, part, group, groups, between)
                    part[u] = p
            if rise > heat * draws[x & (DRAWS - 1)]:
                if links:
                    if u >= 0:
                        link_shift(u, p, q, xadj, adj, wgt, part, group, groups, between, k, carried, unit)
                    link_shift(v, q, p, xadj, adj, wgt, part, group, groups, between, k, carried, unit)
                else:
                    part[v] = p
                    if u >= 0:
                        part[u] = q
                continue
            load[p] -= heavier
            load[q] += heavier
            memory[p] -= larger
            memory[q] += larger
            change += rise
            for at in range(2):
                w, source, target = (v, p, q) if at == 0 else (u, q, p)
                if w < 0:
                    continue
                if after[w] == w:
                    head[source] = -1
                else:
                    after[ahead[w]] = after[w]
                    ahead[after[w]] = ahead[w]
                    if head[source] == w:
                        head[source] = after[w]
                link(w, target, head, after, ahead)
        better = change < lowest
        if links:
            now = busiest(k, group, groups, between, carried)
            better = now < lowest_load or (now == lowest_load and better)
            lowest_load = min(now, lowest_load)
        if better:
            lowest = change
            for v in range(n):
                best[v] = part[v]
    return x
