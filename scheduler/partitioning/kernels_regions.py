"""Choice of the parts that are annealed together, in the subset of Python that Numba compiles.

See `scheduler.partitioning.kernels_annealing` for the format of graphs and for why nothing is allocated.
"""

from scheduler.partitioning.kernels_annealing import STAGES, anneal, drawn
from scheduler.partitioning.rows import Floats, Ints

CLOSED = 8
"""So many vertices in a row without a neighbour outside show that a region may have none."""


def rework(
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
    cooling: Floats,
    draws: Floats,
    state: Ints,
    size: int,
    fewest: int,
    heat: float,
    steps: int,
    looks: int,
    head: Ints,
    after: Ints,
    local: Ints,
    vertex: Ints,
    number: Ints,
    region: Ints,
    r_xadj: Ints,
    r_adj: Ints,
    r_wgt: Ints,
    r_vw: Ints,
    r_vm: Ints,
    r_part: Ints,
    r_cap: Ints,
    r_room: Ints,
    best: Ints,
    load: Ints,
    memory: Ints,
    count: Ints,
    start: Ints,
    member: Ints,
    place: Ints,
    outer: Ints,
    border: Ints,
    spot: Ints,
    space: int,
    rate: Ints,
) -> int:
    """Anneal a few communicating parts and keep improvements, repeatedly. Return by how much the cut fell.

    Parts are drawn by rate, and at random where those drawn communicate with no others; one or two empty parts are
    added. Annealing starts at `heat` times the region's mean rate per vertex, or at a quarter, 1/16 or 1/64 of that.

    Args:
        state: one number, the random bits; updated.
        size: minimum number of vertices of a region.
        fewest: minimum number of parts of a region.
        steps: steps per vertex of a region, if all were at a border.
        looks: total number of steps.
        space: size of `rate`; regions of more vertices times parts are passed over.
    The arrays from `head` on are scratch space.
    """
    x = state[0]
    for p in range(k):
        head[p] = number[p] = -1
    for i in range(n):
        v = n - 1 - i
        after[v] = head[part[v]]
        head[part[v]] = v
        local[v] = -1
    lowest = 0  # no part below is empty and has capacity
    total = 0
    while looks > 0:
        x = drawn(x)
        v = (x * n) >> 32
        m = parts = tries = idle = apart = 0
        p = part[v]
        while True:
            if number[p] < 0:
                number[p] = parts
                region[parts] = p
                parts += 1
                v = head[p]
                while v >= 0:
                    local[v] = m
                    vertex[m] = v
                    m += 1
                    v = after[v]
            tries += 1
            if (m >= size and parts >= fewest) or tries > 40 or parts == k:
                break
            x = drawn(x)
            if idle == CLOSED:
                idle = 0
                apart = 1
                p = part[(x * n) >> 32]
                continue
            v = vertex[(x * m) >> 32]
            outside = 0
            for e in range(xadj[v], xadj[v + 1]):
                if local[adj[e]] < 0:
                    outside += wgt[e]
            if outside == 0:
                idle += 1
                continue
            idle = 0
            x = drawn(x)
            at = int(outside * (x / 4294967296.0))
            for e in range(xadj[v], xadj[v + 1]):
                if local[adj[e]] < 0:
                    p = part[adj[e]]
                    at -= wgt[e]
                    if at < 0:
                        break
        # the largest empty part, and another empty one
        x = drawn(x)
        while lowest < k and (head[lowest] >= 0 or cap[lowest] <= 0):
            lowest += 1
        if lowest < k:
            number[lowest] = parts
            region[parts] = lowest
            parts += 1
            first = (x * k) >> 32
            for i in range(k - lowest):
                p = max(first, lowest) + i
                if p >= k:
                    p += lowest - k
                if head[p] < 0 and number[p] < 0 and cap[p] > 0:
                    number[p] = parts
                    region[parts] = p
                    parts += 1
                    break
        end = 0
        r_xadj[0] = 0
        for i in range(m):
            v = vertex[i]
            r_vw[i] = vw[v]
            r_vm[i] = vm[v]
            r_part[i] = number[part[v]]
            for e in range(xadj[v], xadj[v + 1]):
                if local[adj[e]] >= 0:
                    r_adj[end] = local[adj[e]]
                    r_wgt[end] = wgt[e]
                    end += 1
            r_xadj[i + 1] = end
        rates = 0
        for e in range(end):
            rates += r_wgt[e]
        for a in range(parts):
            r_cap[a] = cap[region[a]]
            r_room[a] = room[region[a]]
        x = drawn(x)
        hot = heat * rates / m / (1 << 2 * (x & 3))
        x = drawn(x)
        block = 1 + m * steps // STAGES
        gained = 0
        looks -= m
        if parts > 1 and end > 0 and m * parts <= space:
            gained = anneal(
                m,
                parts,
                r_xadj,
                r_adj,
                r_wgt,
                r_vw,
                r_vm,
                r_part,
                r_cap,
                r_room,
                cooling,
                draws,
                hot,
                block,
                apart,
                x,
                best,
                load,
                memory,
                count,
                start,
                member,
                place,
                outer,
                border,
                spot,
                rate,
            )
            looks -= count[0]
        for a in range(parts):
            number[region[a]] = -1
            if gained > 0:
                head[region[a]] = -1
                lowest = min(lowest, region[a])
        for i in range(m):
            j = m - 1 - i
            v = vertex[j]
            local[v] = -1
            if gained > 0:
                part[v] = region[best[j]]
                after[v] = head[part[v]]
                head[part[v]] = v
        total += gained
    state[0] = x
    return total
