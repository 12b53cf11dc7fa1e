"""The most valuable set of executors for one node, in the subset of Python that Numba compiles.

Rows are those of a graph of classes (`scheduler.partitioning.lagrange`). A set is a count per class. Branch and bound:
a branch has one member more of a class, or no further one. Bound: a member's value is its profit, its rate to the
chosen ones, and half of the largest rate that it can have with others in what is left of the room; the members that
are worth most per load fill the room, the last one by a fraction. A member that is worth nothing even with its best
partners is in no set, and no partner of others.
"""

from scheduler.partitioning.rows import Ints

USELESS = 2
"""In `closed`: not in the best set of this branch; 1: not in any of the branch."""


def price(
    n: int,
    xadj: Ints,
    adj: Ints,
    wgt: Ints,
    load: Ints,
    have: Ints,
    profit: Ints,
    room: int,
    limit: int,
    left: Ints,
    conn: Ints,
    closed: Ints,
    offer: Ints,
    path: Ints,
    done: Ints,
    chosen: Ints,
) -> int:
    """Return an upper bound on the value of a set that fits: profits of its members, and rates between them.

    The bound is attained unless the limit is hit. The empty set is worth 0.

    Args:
        n: number of classes.
        xadj: with `adj` and `wgt` the partners of each class, those with the largest rate per load first.
        adj: a class itself is among its partners if its members communicate.
        wgt: rates.
        load: load of one member of each class.
        have: members of each class.
        profit: value of one member of each class, which may be negative.
        room: capacity of the node.
        limit: sets that are examined; branches beyond it count with their bounds.
        left: n, scratch.
        conn: n, scratch.
        closed: n, scratch.
        offer: n, scratch.
        path: number of executors and n, scratch.
        done: as `path`, scratch.
        chosen: n; receives the members of each class in the best set found.
    """
    for k in range(n):
        left[k] = have[k]
        conn[k] = 0
        closed[k] = 0
        chosen[k] = 0
    best = value = depth = steps = 0
    while True:
        steps += 1
        if value > best:
            best = value
            for k in range(n):
                chosen[k] = have[k] - left[k]
        for k in range(n):
            if closed[k] == USELESS:
                closed[k] = 0
        useless = 1
        while useless > 0:
            useless = 0
            for k in range(n):
                offer[k] = 0
                if closed[k] != 0 or left[k] == 0 or load[k] > room:
                    continue
                rest = room - load[k]
                fits = rest
                alone = profit[k] + conn[k]
                shared = 0
                for e in range(xadj[k], xadj[k + 1]):
                    other = adj[e]
                    count = left[other]
                    if other == k:
                        count -= 1
                    if closed[other] != 0 or count <= 0 or load[other] > fits:
                        continue
                    if count * load[other] <= rest:
                        shared += wgt[e] * count
                        rest -= count * load[other]
                    else:
                        shared += -(-wgt[e] * rest // load[other])
                        break
                if alone + shared <= 0:
                    closed[k] = USELESS
                    useless += 1
                elif 2 * alone + shared > 0:
                    offer[k] = 2 * alone + shared
        promise = 2 * value
        branch = -1
        rest = room
        while True:
            top = -1
            for k in range(n):
                if offer[k] > 0 and (top < 0 or offer[k] * load[top] > offer[top] * load[k]):
                    top = k
            if top < 0:
                break
            if branch < 0:
                branch = top
            if left[top] * load[top] <= rest:
                promise += offer[top] * left[top]
                rest -= left[top] * load[top]
            else:
                promise += -(-offer[top] * rest // load[top])
                break
            offer[top] = 0
        if branch >= 0 and promise // 2 > best:
            if steps <= limit:
                path[depth] = branch
                done[depth] = 0
                depth += 1
                value += profit[branch] + conn[branch]
                left[branch] -= 1
                room -= load[branch]
                for e in range(xadj[branch], xadj[branch + 1]):
                    conn[adj[e]] += wgt[e]
                continue
            best = promise // 2
        while depth > 0 and done[depth - 1] != 0:
            depth -= 1
            closed[path[depth]] = 0
        if depth == 0:
            return best
        branch = path[depth - 1]
        done[depth - 1] = 1
        closed[branch] = 1
        for e in range(xadj[branch], xadj[branch + 1]):
            conn[adj[e]] -= wgt[e]
        room += load[branch]
        left[branch] += 1
        value -= profit[branch] + conn[branch]
