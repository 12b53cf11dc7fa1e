"""Search for large instances: greedy growth on a coarse graph, then annealing of a few parts at a time.

Parts are nodes, largest first. Where parts have many vertices, pairs with a high rate are contracted repeatedly (after
Hendrickson and Leland, 1995). Parts grow on the coarsest graph, and every finer graph is improved in turn: a few
communicating parts are annealed, and improvements are kept (large neighbourhood search after Shaw, 1998; simulated
annealing after Kirkpatrick, Gelatt and Vecchi, 1983). Chains and the running placement are further starting points.
"""

from collections.abc import Iterator, Sequence
from math import log
from random import Random

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.jit_cache import compiled
from scheduler.partitioning.kernels_annealing import DRAWS, STAGES
from scheduler.partitioning.rows import Graph, Ints, blank, floats, ints, listed
from scheduler.partitioning.tabu import Effort

SPARSE = 4
"""Below this number of pairs per executor the graph may be a set of chains and is also tried as such."""

COARSEST = 40
"""Graphs with at most this number of vertices per part are not coarsened further."""

COARSE_SHARE = 0.3
"""Share of the effort for the coarsest graph; the others divide the rest."""

PIECES = 8
"""Maximum load and memory of a coarse vertex, as a fraction of the largest part's."""

SIZE, FEWEST = 60, 3
"""Minimum numbers of vertices and parts of a region."""

HEAT, COLDEST, STEPS = 4.0, 1000, 100
"""Annealing: first temperature in mean rates per vertex, ratio of first to last temperature, steps per vertex."""

BATCH = 2_000_000
"""Steps between two checks of the clock."""


def search_large(
    instance: Instance, effort: Effort, seed: int = 0, start: Sequence[int] | None = None
) -> list[int] | None:
    """Return the best placement found (executor -> node), or None when none was found that respects all limits.

    A running placement is replaced only by a better one.

    Args:
        instance: the problem; all its pairs are listed.
        effort: when to stop, in steps of annealing.
        seed: seed of all random choices.
        start: executor -> node, to be improved; None: use generated starting points.
    """
    return _Large(instance, effort, seed, start).run()


class _Large:
    def __init__(self, instance: Instance, effort: Effort, seed: int, start: Sequence[int] | None) -> None:
        self._instance = instance
        self._start = start
        self._effort = effort
        self._random = Random(seed)  # noqa: S311 - no secret
        self._do = compiled()
        self._graph = listed(instance)
        usable = [node for node, slots in enumerate(instance.slots) if slots]
        self._order = sorted(usable, key=lambda node: -instance.capacity[node])
        self._cap = ints(instance.capacity[node] for node in self._order)
        self._room = ints(instance.room[node] for node in self._order)
        self._sparse = instance.pairs <= SPARSE * instance.executors
        self._state = ints([1 + self._random.randrange(2**32 - 1)])
        self._cooling = floats(COLDEST ** (-stage / (STAGES - 1)) for stage in range(STAGES))
        # Rounded, so that they do not depend on the machine's logarithm.
        self._draws = floats(round(-log((at + 0.5) / DRAWS) * 2**20) / 2**20 for at in range(DRAWS))
        self._scratch = _scratch(len(self._graph), len(self._order), len(self._graph.adj))
        self._least = 2 * self._least_cut()

    def run(self) -> list[int] | None:
        best: Ints | None = None
        best_key = (False, 0)
        home: list[int] | None = None
        for part in self._starts():
            key = not self._fits(part), self._cut(self._graph, part)
            if best is None:
                home = list(part) if min(self._instance.home) >= 0 else None
            if best is None or key < best_key:
                best, best_key = part, key
            if best_key == (False, self._least):
                break
        if best is None or (best_key[0] and not self._repaired(best)):
            return None
        self._improve(self._graph, best, self._effort.looks)
        if home is not None and self._fits(home) and self._cut(self._graph, ints(home)) <= self._cut(self._graph, best):
            best = ints(home)
        return [self._order[part] for part in best]

    def _cut(self, graph: Graph, part: Ints) -> int:
        """Return twice the rate between parts."""
        return int(self._do.cut(len(graph), graph.xadj, graph.adj, graph.wgt, part))

    def _improve(self, graph: Graph, part: Ints, looks: int) -> None:
        """Lower the cut of `part` in place, with at most `looks` steps."""
        cut = self._cut(graph, part)
        while looks > 0 and cut > self._least and self._effort.looks > 0 and not self._effort.cut_short:
            batch = min(looks, BATCH)
            looks -= batch
            shape = len(graph), len(self._order), *graph.fields, part, self._cap, self._room
            how = self._cooling, self._draws, self._state, SIZE, FEWEST, HEAT, STEPS, batch
            cut -= 2 * self._do.rework(*shape, *how, *self._scratch)
            self._effort.spend(batch)

    # --- starts ---------------------------------------------------------------------------------------------------

    def _starts(self) -> Iterator[Ints]:
        """Yield starting points as part per vertex; the running placement is the first."""
        part_of = {node: part for part, node in enumerate(self._order)}
        if self._start is not None:
            yield ints(part_of[node] for node in self._start)
            return
        if all(node in part_of for node in self._instance.home):
            yield ints(part_of[node] for node in self._instance.home)
        if self._sparse:
            for order in (list(range(len(self._graph))), self._depth_first()):
                part = self._filled(order)
                if part is not None:
                    yield part
        yield self._grown()

    def _filled(self, order: list[int]) -> Ints | None:
        """Return a placement that fills the parts one after the other with vertices in `order`, or None."""
        graph, parts = self._graph, len(self._order)
        part = blank(len(graph))
        at = load = memory = 0
        for v in order:
            while at < parts and (load + graph.vw[v] > self._cap[at] or memory + graph.vm[v] > self._room[at]):
                at += 1
                load = memory = 0
            if at == parts:
                return None
            part[v] = at
            load += graph.vw[v]
            memory += graph.vm[v]
        return part

    def _depth_first(self) -> list[int]:
        """Return the vertices along paths: from those with the fewest partners, largest rate first."""
        graph = self._graph
        xadj, adj, wgt = list(graph.xadj), list(graph.adj), list(graph.wgt)
        seen = [False] * len(graph)
        order: list[int] = []
        for start in sorted(range(len(graph)), key=lambda v: (xadj[v + 1] - xadj[v], v)):
            stack = [start]
            while stack:
                v = stack.pop()
                if seen[v]:
                    continue
                seen[v] = True
                order.append(v)
                row = [(wgt[e], -adj[e]) for e in range(xadj[v], xadj[v + 1]) if not seen[adj[e]]]
                stack.extend(-u for _, u in sorted(row))
        return order

    def _grown(self) -> Ints:
        """Return parts grown on the coarsest graph and improved on all graphs but the full one."""
        levels: list[tuple[Graph, Ints]] = []
        graph = self._graph
        while len(graph) > COARSEST * len(self._order):
            coarser = self._coarsened(graph)
            if coarser is None:
                break
            levels.append((graph, coarser[1]))
            graph = coarser[0]
        part = self._grown_on(graph)
        looks = self._effort.looks
        share = COARSE_SHARE
        fine = (1 - COARSE_SHARE) / max(1, len(levels))
        while levels:
            self._improve(graph, part, int(share * looks))
            graph, coarse = levels.pop()
            part = ints(part[c] for c in coarse)
            share = fine
        return part

    def _grown_on(self, graph: Graph) -> Ints:
        """Return parts grown where the rates are largest; vertices without room go to the part with most room."""
        n, parts = len(graph), len(self._order)
        rates = [sum(graph.wgt[graph.xadj[v] : graph.xadj[v + 1]]) for v in range(n)]
        order = ints(sorted(range(n), key=lambda v: (-rates[v], v)))
        part = blank(n)
        scratch = blank(n), blank(n), blank(n)
        if self._do.grow(n, parts, *graph.fields, self._cap, self._room, order, part, *scratch):
            load, _ = self._used(graph, part)
            for v in sorted(range(n), key=lambda v: (-graph.vw[v], v)):
                if part[v] < 0:
                    part[v] = max(range(parts), key=lambda p: (self._cap[p] - load[p], -p))
                    load[part[v]] += graph.vw[v]
        return part

    def _coarsened(self, graph: Graph) -> tuple[Graph, Ints] | None:
        """Return the graph with pairs contracted, and vertex -> coarse vertex; None when it hardly shrinks."""
        n = len(graph)
        order = list(range(n))
        self._random.shuffle(order)
        coarse, first, second = blank(n), blank(n), blank(n)
        limits = max(1, max(self._cap) // PIECES), max(self._room) // PIECES
        count = self._do.match(n, *graph.fields, ints(order), *limits, coarse, first, second)
        if count > 0.93 * n:
            return None
        new = Graph(blank(count + 1), blank(len(graph.adj)), blank(len(graph.adj)), blank(count), blank(count))
        end = self._do.contract(count, *graph.fields, coarse, first, second, blank(count), *new.fields)
        return Graph(new.xadj, new.adj[:end], new.wgt[:end], new.vw, new.vm), coarse

    # --- limits ---------------------------------------------------------------------------------------------------

    def _used(self, graph: Graph, part: Ints | list[int]) -> tuple[list[int], list[int]]:
        """Return load and memory per part; vertices without a part do not count."""
        load, memory = [0] * len(self._order), [0] * len(self._order)
        for v, p in enumerate(part):
            if p >= 0:
                load[p] += graph.vw[v]
                memory[p] += graph.vm[v]
        return load, memory

    def _fits(self, part: Ints | list[int]) -> bool:
        load, memory = self._used(self._graph, part)
        return all(a <= b for a, b in zip(load, self._cap, strict=True)) and all(
            a <= b for a, b in zip(memory, self._room, strict=True)
        )

    def _repaired(self, part: Ints) -> bool:
        """Move vertices off overfull parts, heaviest first, to where they fit best; if that fails, pack all anew."""
        graph, cap, room = self._graph, self._cap, self._room
        order = sorted(range(len(graph)), key=lambda v: (-graph.vw[v], -graph.vm[v], v))
        for anew in (False, True):
            if anew:
                part[:] = ints([-1] * len(graph))
            load, memory = self._used(graph, part)
            for v in order:
                p, weight, need = part[v], graph.vw[v], graph.vm[v]
                if p >= 0 and load[p] <= cap[p] and memory[p] <= room[p]:
                    continue
                fitting = [q for q in range(len(cap)) if load[q] + weight <= cap[q] and memory[q] + need <= room[q]]
                if not fitting:
                    continue
                q = min(fitting, key=lambda q: (cap[q] - load[q], q))
                if p >= 0:
                    load[p] -= weight
                    memory[p] -= need
                part[v] = q
                load[q] += weight
                memory[q] += need
            if min(part) >= 0 and self._fits(part):
                return True
        return False

    def _least_cut(self) -> int:
        """Return a lower bound on the cut from the number of nodes needed and of connected components."""
        if not self._sparse:
            return 0
        need, nodes = self._instance.total_load, 0
        for capacity in self._cap:
            if need > 0:
                need -= capacity
                nodes += 1
        rates = self._graph.wgt
        return max(0, nodes - self._pieces()) * min(rates) if len(rates) else 0

    def _pieces(self) -> int:
        roots = list(range(len(self._graph)))

        def root(v: int) -> int:
            while roots[v] != v:
                roots[v] = roots[roots[v]]
                v = roots[v]
            return v

        xadj, adj = list(self._graph.xadj), list(self._graph.adj)
        pieces = len(roots)
        for v in range(len(roots)):
            for e in range(xadj[v], xadj[v + 1]):
                a, b = root(v), root(adj[e])
                if a != b:
                    roots[a] = b
                    pieces -= 1
        return pieces


def _scratch(n: int, k: int, entries: int) -> list[Ints]:
    """Return the scratch arrays of `rework`, from `head` on."""
    sizes = (k, n, n, n, k, k, n + 1, entries, entries, n, n, n, k, k, n, k, k, k, k + 1, 5 * n + 8 * k, n)
    return [blank(size) for size in sizes]
