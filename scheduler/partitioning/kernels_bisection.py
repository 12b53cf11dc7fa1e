"""Recursive bisection by the multilevel method, in the subset of Python that Numba compiles.

Vertices are divided among half of the parts and the other half, and so on. Each time the graph is coarsened, halved by
growing a half from a vertex, and refined at every level (Karypis and Kumar, 1998). See
`scheduler.partitioning.kernels_coarsening` for the format of graphs.
"""

from scheduler.partitioning.kernels_annealing import drawn
from scheduler.partitioning.kernels_coarsening import cluster, contract
from scheduler.partitioning.kernels_halving import halve
from scheduler.partitioning.rows import Ints

COARSEST = 60
"""Graphs with at most this number of vertices are halved without being coarsened further."""

PIECES = 24
"""Maximum load of a coarse vertex, as a fraction of the load to be halved."""

PASSES = 3
"""Maximum number of passes of refinement at each level."""

MOST_LEVELS = 40
"""Maximum number of levels of one bisection."""


def bisect(
    n: int,
    k: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    cap: Ints,
    room: Ints,
    part: Ints,
    state: Ints,
    tries: int,
    vertices: int,
    entries: int,
    stack: Ints,
    level: Ints,
    member: Ints,
    local: Ints,
    p_xadj: Ints,
    p_adj: Ints,
    p_wgt: Ints,
    p_vw: Ints,
    p_vm: Ints,
    p_side: Ints,
    p_coarse: Ints,
    label: Ints,
    held: Ints,
    kept: Ints,
    order: Ints,
    rate: Ints,
    touched: Ints,
    same: Ints,
    heap: Ints,
    trial: Ints,
) -> int:
    """Divide the vertices among all parts, by bisections. Return how many there were.

    Slack is divided evenly among the bisections above a part. Heavy vertices may leave parts overfull.

    Args:
        state: one number, the random bits; updated.
        tries: halves grown for each bisection.
        vertices: size of the `p_` arrays of vertices, `entries` that of the arrays of entries; they hold the graphs of
            one bisection, so their sizes are multiples of the graph's.
    The arrays from `stack` on are scratch space.
    """
    x = state[0]
    for v in range(n):
        member[v] = v
        rate[v] = same[v] = 0
    stack[0] = 0
    stack[1] = n
    stack[2] = 0
    stack[3] = k
    depth = 1
    done = 0
    while depth > 0:
        depth -= 1
        lo, hi, first, last = stack[4 * depth], stack[4 * depth + 1], stack[4 * depth + 2], stack[4 * depth + 3]
        if last - first == 1:
            for i in range(lo, hi):
                part[member[i]] = first
            continue
        done += 1
        size = hi - lo
        # the graph of these vertices
        load = end = 0
        for i in range(lo, hi):
            local[member[i]] = i - lo
        p_xadj[0] = 0
        for i in range(size):
            v = member[lo + i]
            p_vw[i] = vw[v]
            p_vm[i] = vm[v]
            load += vw[v]
            for e in range(xadj[v], xadj[v + 1]):
                u = local[adj[e]]
                if 0 <= u < size and member[lo + u] == adj[e]:
                    p_adj[end] = u
                    p_wgt[end] = wgt[e]
                    end += 1
            p_xadj[i + 1] = end
        # limits of the sides: parts are divided into halves of about equal capacity
        whole = 0
        for p in range(first, last):
            whole += cap[p]
        most0 = room0 = room1 = 0
        middle = first
        while middle < last - 1 and (middle == first or 2 * (most0 + cap[middle]) <= whole):
            most0 += cap[middle]
            middle += 1
        for p in range(first, last):
            if p < middle:
                room0 += room[p]
            else:
                room1 += room[p]
        most1 = whole - most0
        ways = 0
        while (1 << ways) < last - first:
            ways += 1
        fill = load / whole if whole > 0 else 1.0
        wanted = int(most0 * fill)
        if fill < 1.0:
            fill += (1.0 - fill) / ways
            if middle - first > 1:
                most0 = min(most0, int(most0 * fill) + 1)
            if last - middle > 1:
                most1 = min(most1, int(most1 * fill) + 1)
        wanted = min(max(wanted, load - most1), most0)
        # coarsen
        levels = 1
        level[2] = level[3] = 0  # after the sizes of two heaps
        level[4] = size
        while levels < MOST_LEVELS:
            vo, xo, m = level[3 * levels - 1], level[3 * levels], level[3 * levels + 1]
            from_end = p_xadj[xo + m]
            if m <= COARSEST or vo + 2 * m + levels + 1 > vertices or 2 * from_end - p_xadj[xo] > entries:
                break
            heaviest = max(1, load // PIECES)
            x = cluster(
                m,
                vo,
                xo,
                p_xadj,
                p_adj,
                p_wgt,
                p_vw,
                p_vm,
                heaviest,
                1 << 62,
                x,
                label,
                held,
                kept,
                order,
                rate,
                touched,
                same,
            )
            count = contract(
                m,
                vo,
                xo,
                p_xadj,
                p_adj,
                p_wgt,
                p_vw,
                p_vm,
                label,
                p_coarse,
                vo + m,
                xo + m + 1,
                from_end,
                p_xadj,
                p_adj,
                p_wgt,
                p_vw,
                p_vm,
                held,
                kept,
                order,
                touched,
            )
            if 20 * count > 19 * m:
                break
            level[3 * levels + 2] = vo + m
            level[3 * levels + 3] = xo + m + 1
            level[3 * levels + 4] = count
            levels += 1
        # halve the coarsest graph, and refine
        at = levels - 1
        attempt = 0
        best_over = best_cut = -1
        while at >= 0:
            vo, xo, m = level[3 * at + 2], level[3 * at + 3], level[3 * at + 4]
            coarsest = at == levels - 1
            seed = 0
            if coarsest and m > 0:
                x = drawn(x)
                seed = (x * m) >> 32
            elif not coarsest:
                for v in range(m):
                    p_side[vo + v] = p_side[vo + m + p_coarse[vo + v]]
            lowest = halve(
                m,
                vo,
                xo,
                p_xadj,
                p_adj,
                p_wgt,
                p_vw,
                p_vm,
                p_side,
                most0,
                most1,
                room0,
                room1,
                max(wanted, 1) if coarsest else 0,
                seed,
                PASSES,
                label,
                heap,
                held,
                kept,
                level,
            )
            if coarsest:
                load0 = 0
                for v in range(m):
                    if p_side[vo + v] == 0:
                        load0 += p_vw[vo + v]
                over = max(0, load0 - most0) + max(0, load - load0 - most1)
                if best_cut < 0 or over < best_over or (over == best_over and lowest < best_cut):
                    best_over, best_cut = over, lowest
                    for v in range(m):
                        trial[v] = p_side[vo + v]
                attempt += 1
                if attempt < tries:
                    continue
                for v in range(m):
                    p_side[vo + v] = trial[v]
            at -= 1
        # the next two
        cut = lo
        for i in range(size):
            order[i] = member[lo + i]
            if p_side[i] == 0:
                cut += 1
        a, b = lo, cut
        for i in range(size):
            if p_side[i] == 0:
                member[a] = order[i]
                a += 1
            else:
                member[b] = order[i]
                b += 1
        stack[4 * depth] = lo
        stack[4 * depth + 1] = cut
        stack[4 * depth + 2] = first
        stack[4 * depth + 3] = middle
        stack[4 * depth + 4] = cut
        stack[4 * depth + 5] = hi
        stack[4 * depth + 6] = middle
        stack[4 * depth + 7] = last
        depth += 2
    state[0] = x
    return done
