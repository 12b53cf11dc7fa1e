"""Multilevel recursive bisection onto nodes of different capacities.

Every halving coarsens the graph by pairing vertices that communicate much, grows a side on the smallest graph and
refines it on the way back (after Hendrickson and Leland, 1995, and Karypis and Kumar, 1998). The nodes are halved
too, in the order given, so that sides have the capacities of their nodes and no others; slack is freedom for the
cut, not something to be spread.
"""

from collections.abc import Sequence
from random import Random

from scheduler.graph.rows import Graph, Ints, Rows

COARSEST = 40
"""A graph of so many vertices is not coarsened further before it is halved."""

TRIES = 2
"""Sides grown on the smallest graph."""


def split(rows: Rows, graph: Graph, cap: Sequence[int], room: Sequence[int], random: Random) -> Ints:
    """Vertex -> part, with little rate between parts; limits are kept where the search manages to.

    Args:
        rows: how to make graphs.
        graph: what to split.
        cap: part -> load that it holds.
        room: part -> memory that it holds.
        random: of all choices.
    """
    part = rows.new(len(graph))
    work = [(graph, rows.of(range(len(graph))), 0, len(cap))]
    while work:
        whole, ids, first, end = work.pop()
        if not len(whole):
            continue
        if end - first == 1:
            for v in ids:
                part[v] = first
            continue
        middle = (first + end + 1) // 2
        limits = sum(cap[first:middle]), sum(cap[middle:end]), sum(room[first:middle]), sum(room[middle:end])
        side = _halved(rows, whole, limits, random)
        for which, begin, stop in ((0, first, middle), (1, middle, end)):
            vertices = rows.where(side, which)
            work.append((rows.inside(whole, vertices), rows.at(ids, vertices), begin, stop))
    return part


def _halved(rows: Rows, graph: Graph, limits: tuple[int, int, int, int], random: Random) -> Ints:
    """Vertex -> side 0 or 1; `limits` are the loads, then the memory, of both."""
    cap0, cap1, _, _ = limits
    total = int(sum(graph.vw))
    levels: list[tuple[Graph, Ints]] = []
    small = graph
    while len(small) > COARSEST:
        coarser = rows.coarsened(small, rows.new(len(small)), max(1, total // 20), random)
        if coarser is None:
            break
        levels.append((small, coarser[1]))
        small = coarser[0]
    target = min(cap0, max(total - cap1, total * cap0 // max(1, cap0 + cap1)))
    best: Ints = None
    best_key = (0, 0)
    for _ in range(TRIES):
        side = rows.new(len(small))
        rows.do.grow(small.xadj, small.adj, small.wgt, small.vw, side, random.randrange(len(small)), target)
        rows.do.halve(*small.fields, side, *limits, 4, 50)
        load = int(sum(w for w, s in zip(small.vw, side, strict=True) if s == 0))
        cut = int(rows.do.cut(small.xadj, small.adj, small.wgt, side))
        key = max(load - cap0, 0) + max(total - load - cap1, 0), cut
        if best is None or key < best_key:
            best, best_key = side, key
    for finer, coarse in reversed(levels):
        best = rows.at(best, coarse)
        rows.do.halve(*finer.fields, best, *limits, 3, 40 + len(finer) // 100)
    return best
