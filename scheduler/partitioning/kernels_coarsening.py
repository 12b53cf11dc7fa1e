"""Clusters of vertices and coarser graphs, in the subset of Python that Numba compiles.

See `scheduler.partitioning.kernels_annealing` for the format of graphs and for why nothing is allocated. Here several
graphs share one set of arrays: vertex v of a graph is at `vo + v` in arrays of vertices, its row begins at
`xadj[xo + v]`, and `adj` has numbers of vertices within the graph.
"""

from scheduler.partitioning.kernels_annealing import drawn
from scheduler.partitioning.rows import Ints

ROUNDS = 2
"""Rounds of label propagation."""


def cluster(
    n: int,
    vo: int,
    xo: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    heaviest: int,
    largest: int,
    x: int,
    label: Ints,
    held: Ints,
    kept: Ints,
    order: Ints,
    rate: Ints,
    touched: Ints,
    within: Ints,
) -> int:
    """Join vertices that communicate much into clusters (label propagation). Return the next random bits.

    Labels are numbers of vertices (after Meyerhenke, Sanders and Schulz, 2014). A cluster's load is at most `heaviest`,
    its memory `largest`, and all its vertices have the same value in `within`. If many vertices stay alone, as those
    around a hub do, pairs that prefer the same cluster are joined. `rate` is 0 everywhere, before and afterwards.
    """
    for v in range(n):
        label[v] = v
        held[v] = vw[vo + v]
        kept[v] = vm[vo + v]
        order[v] = v
    for i in range(n - 1, 0, -1):
        x = drawn(x)
        j = (x * (i + 1)) >> 32
        v = order[i]
        order[i] = order[j]
        order[j] = v
    clusters = n
    for turn in range(ROUNDS + 1):
        pairing = turn == ROUNDS
        if pairing:
            if 2 * clusters < n:
                break
            for v in range(n):
                touched[v] = -1  # cluster -> a vertex alone that prefers it
        for i in range(n):
            v = order[i]
            own = label[v]
            load, memory = vw[vo + v], vm[vo + v]
            if pairing and (own != v or held[v] != load):
                continue
            begin, end = xadj[xo + v], xadj[xo + v + 1]
            mine = within[v]
            for e in range(begin, end):
                if within[adj[e]] == mine:
                    rate[label[adj[e]]] += wgt[e]
            chosen, highest = own, 0 if pairing else rate[own]
            x = drawn(x)
            for e in range(begin, end):
                c = label[adj[e]]
                r = rate[c]
                rate[c] = 0
                if (
                    c != own
                    and (r > highest or (r == highest and r > 0 and (x >> (e & 15)) & 1))
                    and (pairing or (held[c] + load <= heaviest and kept[c] + memory <= largest))
                ):
                    highest = r
                    chosen = c
            if pairing:
                # Vertices without neighbours prefer their own cluster; they are joined under one name.
                name = chosen if chosen != v else order[0]
                other = touched[name]
                if (
                    other >= 0
                    and within[other] == mine
                    and held[label[other]] + load <= heaviest
                    and kept[label[other]] + memory <= largest
                ):
                    chosen = label[other]
                    touched[name] = -1
                else:
                    touched[name] = v
                    chosen = own
            if chosen != own:
                held[own] -= load
                kept[own] -= memory
                if held[own] == 0:
                    clusters -= 1
                held[chosen] += load
                kept[chosen] += memory
                label[v] = chosen
    return x


def contract(
    n: int,
    vo: int,
    xo: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    label: Ints,
    coarse: Ints,
    new_vo: int,
    new_xo: int,
    new_end: int,
    new_xadj: Ints,
    new_adj: Ints,
    new_wgt: Ints,
    new_vw: Ints,
    new_vm: Ints,
    number: Ints,
    start: Ints,
    member: Ints,
    place: Ints,
) -> int:
    """Build the graph of the clusters, and vertex -> coarse vertex at `coarse[vo + v]`. Return how many there are.

    Its entries begin at `new_end`. The arrays from `number` on are scratch space.
    """
    for v in range(n):
        number[v] = -1
        start[v] = 0
    count = 0
    for v in range(n):
        c = label[v]
        if number[c] < 0:
            number[c] = count
            count += 1
        coarse[vo + v] = number[c]
        start[number[c]] += 1
    end = 0
    for c in range(count):
        size = start[c]
        start[c] = end
        end += size
        place[c] = -1
    for v in range(n):
        c = coarse[vo + v]
        member[start[c]] = v
        start[c] += 1
    at = 0
    end = new_end
    new_xadj[new_xo] = end
    for c in range(count):
        begin = end
        load = memory = 0
        while at < start[c]:
            v = member[at]
            at += 1
            load += vw[vo + v]
            memory += vm[vo + v]
            for e in range(xadj[xo + v], xadj[xo + v + 1]):
                d = coarse[vo + adj[e]]
                if d == c:
                    continue
                here = place[d]
                if here < begin:
                    place[d] = end
                    new_adj[end] = d
                    new_wgt[end] = wgt[e]
                    end += 1
                else:
                    new_wgt[here] += wgt[e]
        new_vw[new_vo + c] = load
        new_vm[new_vo + c] = memory
        new_xadj[new_xo + c + 1] = end
    return count


def coarsen(
    n: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    heaviest: int,
    largest: int,
    state: Ints,
    within: Ints,
    coarse: Ints,
    new_xadj: Ints,
    new_adj: Ints,
    new_wgt: Ints,
    new_vw: Ints,
    new_vm: Ints,
    label: Ints,
    held: Ints,
    kept: Ints,
    order: Ints,
    rate: Ints,
    touched: Ints,
) -> int:
    """Build a coarser graph, and vertex -> coarse vertex. Return the number of coarse vertices.

    Args:
        heaviest: most load of a coarse vertex; `largest`: most memory.
        state: one number, the random bits; updated.
        within: vertex -> a number; only vertices with the same are joined.
    The arrays from `label` on are scratch space.
    """
    for v in range(n):
        rate[v] = 0
    state[0] = cluster(
        n, 0, 0, xadj, adj, wgt, vw, vm, heaviest, largest, state[0], label, held, kept, order, rate, touched, within
    )
    return contract(
        n,
        0,
        0,
        xadj,
        adj,
        wgt,
        vw,
        vm,
        label,
        coarse,
        0,
        0,
        0,
        new_xadj,
        new_adj,
        new_wgt,
        new_vw,
        new_vm,
        held,
        kept,
        order,
        touched,
    )


def reach(n: int, xadj: Ints, adj: Ints, label: Ints, queue: Ints) -> int:
    """Number the connected components, the one with the first vertex first. Return how many there are.

    `label` becomes vertex -> its component; `queue` is scratch space.
    """
    for v in range(n):
        label[v] = -1
    count = 0
    for first in range(n):
        if label[first] >= 0:
            continue
        label[first] = count
        queue[0] = first
        head, tail = 0, 1
        while head < tail:
            v = queue[head]
            head += 1
            for e in range(xadj[v], xadj[v + 1]):
                u = adj[e]
                if label[u] < 0:
                    label[u] = count
                    queue[tail] = u
                    tail += 1
        count += 1
    return count
