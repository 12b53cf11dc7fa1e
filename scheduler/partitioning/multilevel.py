"""Multilevel partitioning of a graph among parts with limits of their own: starts, refinement, and cycles of both.

A start divides the vertices by recursive bisection, each half grown and refined on coarser graphs first. Sequences of
moves then refine all parts at once. A cycle joins vertices of the same part into a coarser graph, repeatedly, and
refines the placement on every graph on the way back (Walshaw, 2004: iterated multilevel refinement).

Where whole connected components fit on parts, they are packed whole, so that only what fits nowhere is divided.
"""

from bisect import bisect_left, insort
from collections.abc import Callable

from scheduler.partitioning.jit_cache import compiled_kernels
from scheduler.partitioning.rows import Graph, Ints, blank, ints

COARSEST = 15
"""Cycles end with graphs of at most this number of vertices per part."""

LUMP = 1.5
"""Maximum load of a coarse vertex, in loads that vertices have on average on the coarsest graph of a cycle."""

HARDLY = 0.95
"""A graph that shrinks by less is not coarsened further."""

SPARE = 50
"""Entries that scratch arrays have beyond the sizes of graphs."""


class Multilevel:
    """Partitioning of one graph, on scratch arrays that are allocated once.

    Attributes:
        graph: the graph.
        cap: part -> most load.
        room: part -> most memory.
        state: one number, the random bits; not 0.
    """

    def __init__(self, graph: Graph, cap: Ints, room: Ints, state: Ints) -> None:
        self.graph, self.cap, self.room, self.state = graph, cap, room, state
        self._do = compiled_kernels()
        n, k = len(graph), len(cap)
        self._vertices = [blank(n) for _ in range(7)]
        self._parts = [blank(k) for _ in range(3)]

    def cut(self, graph: Graph, part: Ints) -> int:
        """Return twice the rate between parts."""
        return int(self._do.cut(len(graph), *graph.fields[:3], part))

    def divided(self, parts: int, tries: int, refine: Callable[[Graph, Ints], None]) -> Ints:
        """Return `bisected` of a coarser graph, refined on every graph on the way back but the last.

        Bisections take a fraction of the time where parts hold many vertices.
        """
        levels, graph, _ = self._coarsened(blank(len(self.graph)), parts)
        part = self.bisected(parts, tries, graph)
        while levels:
            refine(graph, part)
            graph, coarse = levels.pop()
            part = ints(part[c] for c in coarse)
        return part

    def bisected(self, parts: int, tries: int, graph: Graph | None = None) -> Ints:
        """Return vertex -> part, among the first `parts`; a part may be overfull.

        Args:
            parts: number of parts to be used.
            tries: halves grown for each bisection, of which the best counts.
            graph: a coarser graph than the whole.
        """
        graph = graph or self.graph
        n, entries = len(graph), len(graph.adj)
        part = blank(n)
        # A graph and its coarser ones, each at most 19/20 of the one before but mostly half of it.
        vertices, all_entries = 4 * n + SPARE, 3 * entries + SPARE
        several = (blank(vertices) for _ in range(4))
        p_xadj, p_adj, p_wgt = blank(vertices + SPARE), blank(all_entries), blank(all_entries)
        stack, level, heap, trial = blank(4 * parts + 8), blank(3 * SPARE), blank(2 * n), blank(n)
        member, local = blank(n), blank(n)
        self._do.bisect(
            *(n, parts, *graph.fields, self.cap, self.room, part, self.state, tries, vertices, all_entries),
            *(stack, level, member, local, p_xadj, p_adj, p_wgt, *several, *self._vertices, heap, trial),
        )
        return part

    def refine(self, graph: Graph, part: Ints, rounds: int, patience: int, over: Callable[[], bool]) -> None:
        """Move vertices off overfull parts and lower the cut of `part`, in place.

        Args:
            graph: the graph or a coarser one.
            part: vertex of `graph` -> part.
            rounds: maximum number of rounds, in which every vertex at a border starts a sequence of moves.
            patience: a sequence ends after this many moves without a new best cut.
            over: returns True when the time is up.
        """
        load, memory, rate = self._parts
        order, heap, place, key, moved, origin, _ = self._vertices
        for turn in range(rounds):
            gained = self._do.refine(
                *(len(graph), len(self.cap), *graph.fields, part, self.cap, self.room, self.state, patience),
                *(load, memory, order, rate, blank(1), heap, place, key, moved, origin),
            )
            if over() or (gained <= 0 and turn > 0):
                break

    def cycle(self, part: Ints, improve: Callable[[Graph, Ints, int], None]) -> Ints:
        """Return the placement after a cycle from the graph through coarser ones and back.

        Args:
            part: vertex -> part.
            improve: improves a placement of a graph in place; the last argument is the number of graphs.
        """
        levels, graph, part = self._coarsened(part, max(1, len(set(part))))
        count = len(levels) + 1
        improve(graph, part, count)
        while levels:
            graph, coarse = levels.pop()
            part = ints(part[c] for c in coarse)
            improve(graph, part, count)
        return part

    def _coarsened(self, part: Ints, used: int) -> tuple[list[tuple[Graph, Ints]], Graph, Ints]:
        """Return graphs with vertex -> coarse vertex, the coarsest graph, and its `part`, which joins no parts."""
        levels: list[tuple[Graph, Ints]] = []
        graph = self.graph
        while len(graph) > COARSEST * used:
            coarser = self._coarser(graph, part, used)
            if coarser is None:
                break
            levels.append((graph, coarser[1]))
            joined = blank(len(coarser[0]))
            for v, c in enumerate(coarser[1]):
                joined[c] = part[v]
            graph, part = coarser[0], joined
        return levels, graph, part

    def _coarser(self, graph: Graph, part: Ints, used: int) -> tuple[Graph, Ints] | None:
        """Return a coarser graph and vertex -> coarse vertex; None when it hardly shrinks."""
        n, entries = len(graph), len(graph.adj)
        heaviest = max(1, int(LUMP * sum(graph.vw) / (COARSEST * used)))
        new = Graph(blank(n + 1), blank(entries), blank(entries), blank(n), blank(n))
        coarse = blank(n)
        largest = max(1, max(self.room) // COARSEST)
        count = self._do.coarsen(
            *(n, *graph.fields, heaviest, largest, self.state, part, coarse, *new.fields), *self._vertices[:6]
        )
        if count > HARDLY * n:
            return None
        end = new.xadj[count]
        return Graph(new.xadj[: count + 1], new.adj[:end], new.wgt[:end], new.vw[:count], new.vm[:count]), coarse


def connected_components(graph: Graph) -> list[list[int]]:
    """Return the vertices of every connected component, ascending, the component with the first vertex first."""
    label = blank(len(graph))
    count = compiled_kernels().reach(len(graph), graph.xadj, graph.adj, label, blank(len(graph)))
    components: list[list[int]] = [[] for _ in range(count)]
    for v, piece in enumerate(label):
        components[piece].append(v)
    return components


def packed(graph: Graph, pieces: list[list[int]], cap: Ints, room: Ints, tight: bool) -> Ints:
    """Return vertex -> part; -1 for the vertices of components that fit on no part as a whole.

    Args:
        graph: the graph.
        pieces: its components; heavier ones are packed first.
        cap: part -> most load, largest first; `room`: most memory.
        tight: each component goes to the fullest part that holds it, otherwise to the first one.
    """
    part = ints([-1] * len(graph))
    left = list(room)
    loads = [sum(graph.vw[v] for v in piece) for piece in pieces]
    free = list(cap)
    order = sorted((free[p], p) for p in range(len(cap)))
    for at in sorted(range(len(pieces)), key=lambda at: (-loads[at], at)):
        load, memory = loads[at], sum(graph.vm[v] for v in pieces[at])
        if tight:
            fitting = (p for _, p in order[bisect_left(order, (load, -1)) :] if left[p] >= memory)
        else:
            fitting = (p for p in range(len(cap)) if free[p] >= load and left[p] >= memory)
        chosen = next(fitting, -1)
        if chosen < 0:
            continue
        if tight:
            del order[bisect_left(order, (free[chosen], chosen))]
            insort(order, (free[chosen] - load, chosen))
        free[chosen] -= load
        left[chosen] -= memory
        for v in pieces[at]:
            part[v] = chosen
    return part


def induced_graph(graph: Graph, vertices: list[int]) -> Graph:
    """Return the graph of `vertices`, in that order; rates to others are left out."""
    number = {v: at for at, v in enumerate(vertices)}
    xadj, adj, wgt = ints([0]), ints([]), ints([])
    for v in vertices:
        for e in range(graph.xadj[v], graph.xadj[v + 1]):
            if graph.adj[e] in number:
                adj.append(number[graph.adj[e]])
                wgt.append(graph.wgt[e])
        xadj.append(len(adj))
    new = Graph(xadj, adj, wgt, blank(len(vertices)), blank(len(vertices)))
    for at, v in enumerate(vertices):
        new.vw[at], new.vm[at] = graph.vw[v], graph.vm[v]
    return new
