"""The inner loops of the multilevel search, in the part of Python that Numba compiles too.

For some thousand executors they run as they are, on lists, which starts at once; above they are compiled
(`scheduler.graph.multilevel`) and run on arrays. Graphs come in compressed rows: the neighbours of vertex v are
adj[xadj[v]:xadj[v+1]], the rates to them stand at the same places of `wgt`. All numbers are whole.
"""

from heapq import heappop, heappush
from typing import Any

Ints = Any
"""A list of integers, or an array of them where the code is compiled."""

KERNELS = ("match", "contract", "pick", "cut", "grow", "halve", "refine", "fill")
"""In the order in which they use each other."""


def match(xadj: Ints, adj: Ints, wgt: Ints, vw: Ints, part: Ints, order: Ints, limit: int, coarse: Ints) -> int:
    """Pair vertices of one part that communicate much for their load; fills vertex -> coarse vertex, counts these."""
    count = 0
    for v in order:
        if coarse[v] >= 0:
            continue
        best, chosen = 0.0, -1
        for e in range(xadj[v], xadj[v + 1]):
            u = adj[e]
            if coarse[u] < 0 and u != v and part[u] == part[v] and vw[u] + vw[v] <= limit:
                rating = wgt[e] / (max(vw[u], 1) * max(vw[v], 1))
                if rating > best or (rating == best and u < chosen):
                    best, chosen = rating, u
        coarse[v] = count
        if chosen >= 0:
            coarse[chosen] = count
        count += 1
    return count


def contract(
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    coarse: Ints,
    first: Ints,
    second: Ints,
    count: int,
    new_xadj: Ints,
    new_adj: Ints,
    new_wgt: Ints,
) -> int:
    """The graph of coarse vertices, each made of `first` and `second` (or -1); returns how many entries it has."""
    place = [-1] * count
    end = 0
    for c in range(count):
        start = end
        for side in range(2):
            v = first[c] if side == 0 else second[c]
            if v < 0:
                continue
            for e in range(xadj[v], xadj[v + 1]):
                d = coarse[adj[e]]
                if d == c:
                    continue
                at = place[d]
                if at < start:
                    place[d] = end
                    new_adj[end] = d
                    new_wgt[end] = wgt[e]
                    end += 1
                else:
                    new_wgt[at] += wgt[e]
        new_xadj[c + 1] = end
    return end


def pick(
    xadj: Ints, adj: Ints, wgt: Ints, inside: Ints, local: Ints, new_xadj: Ints, new_adj: Ints, new_wgt: Ints
) -> int:
    """The graph on the vertices `inside`; `local` is -1 everywhere before and after. Returns its entries."""
    end = 0
    for i in range(len(inside)):
        local[inside[i]] = i
    for i in range(len(inside)):
        v = inside[i]
        for e in range(xadj[v], xadj[v + 1]):
            if local[adj[e]] >= 0:
                new_adj[end] = local[adj[e]]
                new_wgt[end] = wgt[e]
                end += 1
        new_xadj[i + 1] = end
    for i in range(len(inside)):
        local[inside[i]] = -1
    return end


def cut(xadj: Ints, adj: Ints, wgt: Ints, part: Ints) -> int:
    """Twice the rate between parts."""
    total = 0
    for v in range(len(part)):
        for e in range(xadj[v], xadj[v + 1]):
            if part[adj[e]] != part[v]:
                total += wgt[e]
    return total


def grow(xadj: Ints, adj: Ints, wgt: Ints, vw: Ints, side: Ints, seed: int, target: int) -> int:
    """Side 0 grows from vertex `seed`, by least new cut, up to load `target`; the others are side 1. Returns it."""
    n = len(xadj) - 1
    gain = [0] * n
    for v in range(n):
        side[v] = 1
    heap = [(0, 0, seed)]
    load = clock = scan = 0
    while True:
        if not heap:
            while scan < n and side[scan] != 1:
                scan += 1
            if scan == n or load >= target:
                break
            heappush(heap, (0, 0, scan))
            side[scan] = 2
        _, _, v = heappop(heap)
        if side[v] == 0:
            continue
        if load + vw[v] > target:
            if side[v] == 2:
                side[v] = 3  # looked at, too heavy
            continue
        side[v] = 0
        load += vw[v]
        for e in range(xadj[v], xadj[v + 1]):
            u = adj[e]
            if side[u] == 1 or side[u] == 2:
                if side[u] == 1:
                    side[u] = 2
                    for f in range(xadj[u], xadj[u + 1]):
                        gain[u] -= wgt[f]
                gain[u] += 2 * wgt[e]
                clock += 1
                heappush(heap, (-gain[u], clock, u))
    for v in range(n):
        if side[v] != 0:
            side[v] = 1
    return load


def halve(
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    side: Ints,
    cap0: int,
    cap1: int,
    room0: int,
    room1: int,
    passes: int,
    patience: int,
) -> int:
    """Move vertices between two sides to lower the cut (Fiduccia and Mattheyses); returns by how much it fell.

    Limits on load and memory of both sides are first restored, where they are broken, then kept; on the way a side may
    be above them by one vertex.
    """
    n = len(xadj) - 1
    gain, stamp, moved = [0] * n, [0] * n, [0] * n
    load, memory = [0, 0], [0, 0]
    heaviest = most = 0
    for v in range(n):
        heaviest, most = max(heaviest, vw[v]), max(most, vm[v])
        load[side[v]] += vw[v]
        memory[side[v]] += vm[v]
    total = 0
    for turn in range(1, passes + 1):
        heap0 = [(0, 0, 0)]
        heap1 = [(0, 0, 0)]
        heap0.pop()
        heap1.pop()
        excess = max(load[0] - cap0, 0) + max(load[1] - cap1, 0) + max(memory[0] - room0, 0) + max(memory[1] - room1, 0)
        for v in range(n):
            inner = outer = 0
            for e in range(xadj[v], xadj[v + 1]):
                if side[adj[e]] == side[v]:
                    inner += wgt[e]
                else:
                    outer += wgt[e]
            gain[v] = outer - inner
            if outer > 0 or excess > 0 or inner == 0:
                heappush(heap0 if side[v] == 0 else heap1, (-gain[v], v, stamp[v]))
        trail = [0]
        trail.pop()
        change = best_change = best_length = idle = 0
        best_excess = excess
        while idle < patience:
            while heap0 and (moved[heap0[0][1]] == turn or side[heap0[0][1]] != 0 or stamp[heap0[0][1]] != heap0[0][2]):
                heappop(heap0)
            while heap1 and (moved[heap1[0][1]] == turn or side[heap1[0][1]] != 1 or stamp[heap1[0][1]] != heap1[0][2]):
                heappop(heap1)
            over0 = load[0] > cap0 or memory[0] > room0
            over1 = load[1] > cap1 or memory[1] > room1
            source = -1
            if over0 and heap0:
                source = 0
            elif over1 and heap1 and not over0:
                source = 1
            elif not over0 and not over1:
                fits0 = fits1 = False
                if heap0:
                    v = heap0[0][1]
                    fits0 = load[1] + vw[v] <= cap1 + heaviest and memory[1] + vm[v] <= room1 + most
                if heap1:
                    v = heap1[0][1]
                    fits1 = load[0] + vw[v] <= cap0 + heaviest and memory[0] + vm[v] <= room0 + most
                if fits0 and fits1:
                    if heap0[0][0] != heap1[0][0]:
                        source = 0 if heap0[0][0] < heap1[0][0] else 1
                    else:
                        source = 0 if load[0] - cap0 >= load[1] - cap1 else 1
                elif fits0:
                    source = 0
                elif fits1:
                    source = 1
                elif heap0 or heap1:
                    heappop(heap0 or heap1)
                    continue
            if source < 0:
                break
            _, v, _ = heappop(heap0 if source == 0 else heap1)
            moved[v] = turn
            side[v] = 1 - source
            load[source] -= vw[v]
            load[1 - source] += vw[v]
            memory[source] -= vm[v]
            memory[1 - source] += vm[v]
            change -= gain[v]
            trail.append(v)
            for e in range(xadj[v], xadj[v + 1]):
                u = adj[e]
                if side[u] == source:
                    gain[u] += 2 * wgt[e]
                else:
                    gain[u] -= 2 * wgt[e]
                if moved[u] != turn:
                    stamp[u] += 1
                    heappush(heap0 if side[u] == 0 else heap1, (-gain[u], u, stamp[u]))
            excess = 0  # written out: calls of max cost more than all the rest where this is interpreted
            if load[0] > cap0:
                excess += load[0] - cap0
            if load[1] > cap1:
                excess += load[1] - cap1
            if memory[0] > room0:
                excess += memory[0] - room0
            if memory[1] > room1:
                excess += memory[1] - room1
            idle += 1
            if excess < best_excess or (excess == best_excess and change < best_change):
                best_change, best_excess, best_length, idle = change, excess, len(trail), 0
        while len(trail) > best_length:
            v = trail.pop()
            back = 1 - side[v]
            load[side[v]] -= vw[v]
            load[back] += vw[v]
            memory[side[v]] -= vm[v]
            memory[back] += vm[v]
            side[v] = back
        total -= best_change
        if best_change == 0:
            break
    return total


def refine(
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    part: Ints,
    cap: Ints,
    room: Ints,
    dirty: Ints,
    passes: int,
    patience: int,
) -> int:
    """Let every two parts that communicate exchange vertices; returns by how much the cut fell.

    `dirty` marks the parts that changed since their pairs were looked at; it is brought up to date.
    """
    n = len(xadj) - 1
    k = len(cap)
    head = [-1] * k
    after = [-1] * n
    for v in range(n - 1, -1, -1):
        after[v] = head[part[v]]
        head[part[v]] = v
    local = [-1] * n
    seen = [-1] * k
    was = [0] * k
    for a in range(k):
        was[a] = dirty[a]
        dirty[a] = 0
    total = 0
    for a in range(k):
        others = [0]
        others.pop()
        v = head[a]
        while v >= 0:
            for e in range(xadj[v], xadj[v + 1]):
                b = part[adj[e]]
                if b > a and seen[b] != a:
                    seen[b] = a
                    if was[a] or was[b] or dirty[a] or dirty[b]:
                        others.append(b)
            v = after[v]
        for b in others:
            vertices = [0]
            vertices.pop()
            for p in (a, b):
                v = head[p]
                while v >= 0:
                    local[v] = len(vertices)
                    vertices.append(v)
                    v = after[v]
            m = len(vertices)
            sub_xadj = [0] * (m + 1)
            sub_adj = [0]
            sub_wgt = [0]
            sub_adj.pop()
            sub_wgt.pop()
            sub_vw = [0] * m
            sub_vm = [0] * m
            side = [0] * m
            for i in range(m):
                v = vertices[i]
                sub_vw[i] = vw[v]
                sub_vm[i] = vm[v]
                side[i] = 0 if part[v] == a else 1
                for e in range(xadj[v], xadj[v + 1]):
                    u = local[adj[e]]
                    if u >= 0:
                        sub_adj.append(u)
                        sub_wgt.append(wgt[e])
                sub_xadj[i + 1] = len(sub_adj)
            gained = halve(
                sub_xadj, sub_adj, sub_wgt, sub_vw, sub_vm, side, cap[a], cap[b], room[a], room[b], passes, patience
            )
            changed = False
            for i in range(m):
                v = vertices[i]
                local[v] = -1
                now = a if side[i] == 0 else b
                if part[v] != now:
                    part[v] = now
                    changed = True
            if changed:
                total += gained
                if gained:
                    dirty[a] = dirty[b] = 1
                head[a] = head[b] = -1
                for i in range(m - 1, -1, -1):
                    v = vertices[i]
                    after[v] = head[part[v]]
                    head[part[v]] = v
    return total


def fill(order: Ints, vw: Ints, vm: Ints, cap: Ints, room: Ints, part: Ints) -> bool:
    """Fill the parts one after the other with vertices in `order`, each part as far as the next vertices fit.

    A part that the next vertex does not fit into is closed. Returns whether all vertices found a part.
    """
    k = len(cap)
    at = 0
    load = memory = 0
    for v in order:
        while at < k and (load + vw[v] > cap[at] or memory + vm[v] > room[at]):
            at += 1
            load = memory = 0
        if at == k:
            return False
        part[v] = at
        load += vw[v]
        memory += vm[v]
    return True
