"""Annealing of a few parts at a time, in the subset of Python that Numba compiles.

Nothing is allocated here, and arrays are passed as pointers (`scheduler.partitioning.jit_cache`): so compilation is
fast, and the code needs no part of Numba at run time. Called on lists without compilation, the functions return the
same results, slowly. Graphs are in compressed rows: the neighbours of vertex v are adj[xadj[v]:xadj[v+1]], with their
rates at the same positions of `wgt`; vertices have a load `vw` and a memory `vm`, parts have limits `cap` and `room`.
All these are integers.
"""

from scheduler.partitioning.rows import Floats, Ints

STAGES = 128
"""Number of temperatures of one annealing."""

DRAWS = 4096
"""Tabled logarithms: -ln(u) for u at equal distances in (0, 1)."""

CLOSED = 8
"""So many vertices in a row without a neighbour outside show that a region may have none."""

MASK = 0xFFFFFFFF
"""Of the 32 random bits."""


def drawn(x: int) -> int:
    """Return the number after x > 0 in a sequence of 32 random bits (xorshift; Marsaglia, 2003)."""
    x ^= (x << 13) & MASK
    x ^= x >> 17
    return x ^ ((x << 5) & MASK)


def tally(n: int, k: int, vw: Ints, vm: Ints, part: Ints, load: Ints, memory: Ints) -> None:
    """Sum up the vertices of each part in `load` and `memory`."""
    for p in range(k):
        load[p] = memory[p] = 0
    for v in range(n):
        load[part[v]] += vw[v]
        memory[part[v]] += vm[v]


def shift(v: int, q: int, vw: Ints, vm: Ints, part: Ints, load: Ints, memory: Ints) -> None:
    """Move vertex v to part q in `part`, `load` and `memory`."""
    p = part[v]
    part[v] = q
    load[p] -= vw[v]
    load[q] += vw[v]
    memory[p] -= vm[v]
    memory[q] += vm[v]


def mark(v: int, outer: Ints, border: Ints, spot: Ints, size: int) -> int:
    """Add v to the `size` vertices of `border` or remove it, as `outer` says. Return how many there are."""
    if outer[v] > 0:
        if spot[v] < 0:
            border[size] = v
            spot[v] = size
            size += 1
    elif spot[v] >= 0:
        size -= 1
        last = border[size]
        border[spot[v]] = last
        spot[last] = spot[v]
        spot[v] = -1
    return size


def switch(
    v: int,
    p: int,
    q: int,
    k: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    part: Ints,
    load: Ints,
    memory: Ints,
    rate: Ints,
    outer: Ints,
    border: Ints,
    spot: Ints,
    size: int,
) -> int:
    """Move v from part p to q, for `anneal`. Return the number of vertices at a border."""
    shift(v, q, vw, vm, part, load, memory)
    outer[v] += rate[v * k + p] - rate[v * k + q]
    size = mark(v, outer, border, spot, size)
    for e in range(xadj[v], xadj[v + 1]):
        u = adj[e]
        rate[u * k + p] -= wgt[e]
        rate[u * k + q] += wgt[e]
        if part[u] == p:
            outer[u] += wgt[e]
            size = mark(u, outer, border, spot, size)
        elif part[u] == q:
            outer[u] -= wgt[e]
            size = mark(u, outer, border, spot, size)
    return size


def anneal(
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
    hot: float,
    block: int,
    apart: int,
    x: int,
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
    rate: Ints,
) -> int:
    """Run simulated annealing (Kirkpatrick, Gelatt, Vecchi, 1983). Return by how much the cut fell.

    A step moves a vertex to the part of a neighbour or, if that is full, swaps it with any vertex there. Only vertices
    at a border are drawn: the others' neighbours are all in the same part. On return `best` holds the best placement
    found, `count[0]` the number of steps, and `part` is arbitrary. Limits that hold at the start still hold.
    The rates of vertex v with part p are kept at v * k + p of `rate`, those with all other parts at v of `outer`, as
    most steps are rejected: so a step takes the same time whatever the number of neighbours.

    Args:
        hot: the first temperature, in units of rate; `cooling` has the factors of all temperatures.
        block: steps at each temperature, if all vertices were at a border.
        apart: not 0: an eighth of the steps are to any part, as some parts do not communicate.
        x: random bits, not 0.
        draws: see `DRAWS`.
    The arrays after `best` are scratch space.
    """
    tally(n, k, vw, vm, part, load, memory)
    for p in range(k):
        count[p] = 0
    for v in range(n):
        count[part[v]] += 1
        best[v] = part[v]
    for at in range(n * k):
        rate[at] = 0
    size = 0
    for v in range(n):
        outer[v] = 0
        spot[v] = -1
        for e in range(xadj[v], xadj[v + 1]):
            rate[v * k + part[adj[e]]] += wgt[e]
            if part[adj[e]] != part[v]:
                outer[v] += wgt[e]
        size = mark(v, outer, border, spot, size)
    end = 0
    for p in range(k):
        start[p] = end
        end += count[p] + (n - count[p]) // k + 8
        count[p] = 0
    start[k] = end
    for v in range(n):
        p = part[v]
        place[v] = start[p] + count[p]
        member[place[v]] = v
        count[p] += 1
    change = lowest = used = 0
    for stage in range(STAGES):
        heat = hot * cooling[stage]
        times = 1 + block * size // n
        used += times
        for _ in range(times):
            if size == 0:
                break
            x = drawn(x)
            v = border[(x * size) >> 32]
            p = part[v]
            x = drawn(x)
            e = xadj[v] + ((x * (xadj[v + 1] - xadj[v])) >> 32)
            q = (x * k) >> 32 if apart != 0 and x & 7 == 0 else part[adj[e]]
            if p == q:
                continue
            rise = rate[v * k + p] - rate[v * k + q]
            x = drawn(x)
            accepted = heat * draws[x & (DRAWS - 1)]
            if load[q] + vw[v] <= cap[q] and memory[q] + vm[v] <= room[q]:
                if rise <= accepted and start[q] + count[q] < start[q + 1]:
                    count[p] -= 1
                    last = member[start[p] + count[p]]
                    member[place[v]] = last
                    place[last] = place[v]
                    place[v] = start[q] + count[q]
                    member[place[v]] = v
                    count[q] += 1
                    size = switch(
                        v, p, q, k, xadj, adj, wgt, vw, vm, part, load, memory, rate, outer, border, spot, size
                    )
                    change += rise
            elif count[q] > 0:
                u = member[start[q] + (((x >> 12) * count[q]) >> 20)]
                heavier, larger = vw[v] - vw[u], vm[v] - vm[u]
                if heavier > 0 and load[q] + heavier > cap[q]:
                    continue
                if heavier < 0 and load[p] - heavier > cap[p]:
                    continue
                if larger > 0 and memory[q] + larger > room[q]:
                    continue
                if larger < 0 and memory[p] - larger > room[p]:
                    continue
                rise += rate[u * k + q] - rate[u * k + p]
                if rise > accepted:
                    continue
                for e in range(xadj[u], xadj[u + 1]):
                    if adj[e] == v:
                        rise += 2 * wgt[e]
                if rise <= accepted:
                    member[place[v]] = u
                    member[place[u]] = v
                    here = place[v]
                    place[v] = place[u]
                    place[u] = here
                    size = switch(
                        v, p, q, k, xadj, adj, wgt, vw, vm, part, load, memory, rate, outer, border, spot, size
                    )
                    size = switch(
                        u, q, p, k, xadj, adj, wgt, vw, vm, part, load, memory, rate, outer, border, spot, size
                    )
                    change += rise
        if change < lowest:
            lowest = change
            for v in range(n):
                best[v] = part[v]
    count[0] = used
    return -lowest


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
