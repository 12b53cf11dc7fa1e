"""Halves of a graph, grown and refined, in the subset of Python that Numba compiles.

A half is grown from a vertex; passes of moves then refine both (Fiduccia and Mattheyses, 1982), the best move first,
taken from heaps. See `scheduler.partitioning.kernels_coarsening` for the format of graphs.
"""

from scheduler.partitioning.rows import Ints


def lift(heap: Ints, place: Ints, key: Ints, base: int, at: int) -> None:
    """Move the vertex at `heap[base + at]` up to where no key above is smaller."""
    v = heap[base + at]
    while at > 0:
        above = (at - 1) >> 1
        u = heap[base + above]
        if key[u] >= key[v]:
            break
        heap[base + at] = u
        place[u] = at
        at = above
    heap[base + at] = v
    place[v] = at


def sink(heap: Ints, place: Ints, key: Ints, base: int, size: int, at: int) -> None:
    """Move the vertex at `heap[base + at]` down to where no key below is larger."""
    v = heap[base + at]
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        u = heap[base + below]
        if below + 1 < size and key[heap[base + below + 1]] > key[u]:
            below += 1
            u = heap[base + below]
        if key[u] <= key[v]:
            break
        heap[base + at] = u
        place[u] = at
        at = below
    heap[base + at] = v
    place[v] = at


def drop(heap: Ints, place: Ints, key: Ints, base: int, size: int, at: int) -> None:
    """Remove the vertex at `heap[base + at]` from a heap of `size`."""
    last = heap[base + size - 1]
    place[heap[base + at]] = -2
    if at < size - 1:
        heap[base + at] = last
        place[last] = at
        lift(heap, place, key, base, at)
        sink(heap, place, key, base, size - 1, place[last])


def halve(
    n: int,
    vo: int,
    xo: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    vw: Ints,
    vm: Ints,
    side: Ints,
    most0: int,
    most1: int,
    room0: int,
    room1: int,
    grown: int,
    seed: int,
    passes: int,
    key: Ints,
    heap: Ints,
    place: Ints,
    moved: Ints,
    size: Ints,
) -> int:
    """Refine two sides by passes of moves, the best first, each vertex once. Return the rate between them.

    A pass is undone back to its best state: the least load above the limits first, then the lowest rate. If `grown` is
    positive, side 0 is first grown from the vertex `seed` to that load.
    """
    heaviest = largest = load0 = load1 = memory0 = memory1 = 0
    for v in range(n):
        heaviest = max(heaviest, vw[vo + v])
        largest = max(largest, vm[vo + v])
    lowest = 0
    for turn in range(passes + 1):
        growing = turn == 0
        if growing and grown <= 0:
            continue
        size[0] = size[1] = total = 0
        load0 = load1 = memory0 = memory1 = 0
        for v in range(n):
            if growing:
                side[vo + v] = 1
            if side[vo + v] == 0:
                load0 += vw[vo + v]
                memory0 += vm[vo + v]
            else:
                load1 += vw[vo + v]
                memory1 += vm[vo + v]
        over = max(0, load0 - most0) + max(0, load1 - most1) + max(0, memory0 - room0) + max(0, memory1 - room1)
        for v in range(n):
            mine = side[vo + v]
            inner = outer = 0
            for e in range(xadj[xo + v], xadj[xo + v + 1]):
                if side[vo + adj[e]] == mine:
                    inner += wgt[e]
                else:
                    outer += wgt[e]
            key[v] = outer - inner
            place[v] = -1
            total += outer
            if not growing and (outer > 0 or over > 0):
                heap[mine * n + size[mine]] = v
                size[mine] += 1
                lift(heap, place, key, mine * n, size[mine] - 1)
        total //= 2
        first_over, first_total = over, total
        least_over, lowest, best, count, idle = over, total, 0, 0, 0
        patience = 40 + n // 16
        while True:
            over0 = load0 > most0 or memory0 > room0
            over1 = load1 > most1 or memory1 > room1
            if growing:
                source = 1
                if load0 >= grown:
                    break
            elif over0 != over1:
                source = 0 if over0 else 1
            elif size[0] == 0 or (size[1] > 0 and key[heap[n]] > key[heap[0]]):
                source = 1
            else:
                source = 0
            if size[source] > 0:
                v = heap[source * n]
                drop(heap, place, key, source * n, size[source], 0)
                size[source] -= 1
            elif not growing:
                break
            else:
                steps = 0
                v = seed
                while steps < n and place[v] == -2:
                    v = v + 1 if v + 1 < n else 0
                    steps += 1
                if steps == n:
                    break
                place[v] = -2
            load, memory = vw[vo + v], vm[vo + v]
            if source == 1:
                if growing:
                    if load0 + load > most0 or memory0 + memory > room0:
                        continue
                elif not over1 and (load0 + load > most0 + heaviest or memory0 + memory > room0 + largest):
                    continue
                load1 -= load
                load0 += load
                memory1 -= memory
                memory0 += memory
            else:
                if not over0 and (load1 + load > most1 + heaviest or memory1 + memory > room1 + largest):
                    continue
                load0 -= load
                load1 += load
                memory0 -= memory
                memory1 += memory
            side[vo + v] = 1 - source
            total -= key[v]
            key[v] = -key[v]
            for e in range(xadj[xo + v], xadj[xo + v + 1]):
                u = adj[e]
                mine = side[vo + u]
                key[u] += 2 * wgt[e] if mine == source else -2 * wgt[e]
                at = place[u]
                if at == -2:
                    continue
                if at == -1:
                    at = size[mine]
                    size[mine] += 1
                    heap[mine * n + at] = u
                    place[u] = at
                lift(heap, place, key, mine * n, at)
                if mine != source:
                    sink(heap, place, key, mine * n, size[mine], place[u])
            if growing:
                continue
            moved[count] = v
            count += 1
            over = max(0, load0 - most0) + max(0, load1 - most1) + max(0, memory0 - room0) + max(0, memory1 - room1)
            if over < least_over or (over == least_over and total < lowest):
                least_over, lowest, best, idle = over, total, count, 0
            else:
                idle += 1
                if idle > patience and over == 0:
                    break
        if growing:
            continue
        while count > best:
            count -= 1
            v = moved[count]
            side[vo + v] = 1 - side[vo + v]
        if least_over == first_over and lowest == first_total:
            break
    return lowest
