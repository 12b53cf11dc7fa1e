"""Connected components packed whole on parts, so that only what fits nowhere is divided."""

from bisect import bisect_left, insort

from scheduler.partitioning.jit_cache import compiled_kernels
from scheduler.partitioning.rows import Graph, Ints, blank, ints


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
