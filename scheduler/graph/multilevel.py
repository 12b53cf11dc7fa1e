"""The search for large instances: recursive bisection, refinement between parts, rework of a few parts at a time.

Parts are nodes, the largest first. First placements come from bisection, from filling nodes in order (chains)
and from what runs already. The best is refined: neighbouring parts exchange vertices, on graphs coarsened inside
parts (after Sanders and Schulz, 2011). Then, again and again, a few parts that communicate are split anew; what is
better stays (large neighbourhood search, after Shaw, 1998).
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import Literal

from scheduler.graph.halving import split
from scheduler.graph.instance import Instance
from scheduler.graph.rows import Graph, Ints, Rows
from scheduler.graph.tabu import Effort

INTERPRETED = 2_500
"""Up to so many executors compiled code is not worth loading, which takes a second."""

SLACK = 1.02
"""Nodes are taken, the largest first, until they hold the load times this; refinement may use the others too."""

SPARSE = 4
"""With fewer pairs per executor than this, the graph may be a bundle of chains, and is tried as such."""


Depth = Literal["split", "refined", "full"]
"""Only bisection; refinement between parts too; all of it."""


def search_large(instance: Instance, effort: Effort, seed: int = 0, depth: Depth = "full") -> list[int] | None:
    """The best placement found (executor -> node), None when none was found that keeps all limits.

    Args:
        instance: what is to be placed; all its pairs are listed.
        effort: only its clock is used: how much is searched follows from the size.
        seed: of all random choices.
        depth: how far the search goes.
    """
    return _Multilevel(instance, effort, seed, depth).run()


class _Multilevel:
    def __init__(self, instance: Instance, effort: Effort, seed: int, depth: Depth) -> None:
        self._instance = instance
        self._effort = effort
        self._depth: Depth = depth
        self._random = Random(seed)  # noqa: S311 - no secret
        self._rows = Rows(instance.executors > INTERPRETED)
        self._graph = self._rows.listed(instance)
        usable = [node for node, slots in enumerate(instance.slots) if slots]
        self._order = sorted(usable, key=lambda node: -instance.capacity[node])
        self._cap = [instance.capacity[node] for node in self._order]
        self._room = [instance.room[node] for node in self._order]
        self._sparse = instance.pairs <= SPARSE * instance.executors

    def run(self) -> list[int] | None:
        least = 2 * self._least_cut()
        best: Ints = None
        best_key = (False, 0)
        for part in self._candidates():
            key = not self._fits(self._graph, part, self._cap, self._room), self._cut(self._graph, part)
            if best is None or key < best_key:
                best, best_key = part, key
            if self._late() or best_key == (False, least):
                break
        if best is None:
            return None
        if best_key[0]:
            self._repair(best)
        for rounds in self._rounds():
            if self._late() or self._cut(self._graph, best) <= least:
                break
            self._refine(best)
            self._rework(best, self._members(best), rounds)
        if not self._fits(self._graph, best, self._cap, self._room) and not self._repair(best):
            return None
        return [self._order[part] for part in best]

    def _rounds(self) -> Sequence[int]:
        """How many regions are reworked between two refinements."""
        n = self._instance.executors
        if self._depth != "full":
            return () if self._depth == "split" else (0,)
        if not self._rows.fast:
            return (40,)
        return (n // 40, n // 40, 0) if n <= 20_000 else (n // 40, 0)

    def _late(self) -> bool:
        if not self._effort.cut_short and self._effort.over():
            self._effort.cut_short = True
        return self._effort.cut_short

    def _cut(self, graph: Graph, part: Ints) -> int:
        """Twice the rate between parts."""
        return int(self._rows.do.cut(graph.xadj, graph.adj, graph.wgt, part))

    def _least_cut(self) -> int:
        """A bound on the cut from connectedness alone: that many nodes are needed, that many pieces there are."""
        if not self._sparse:
            return 0
        need, nodes = self._instance.total_load, 0
        for capacity in self._cap:
            if need > 0:
                need -= capacity
                nodes += 1
        rates = self._graph.wgt
        return max(0, nodes - self._pieces()) * int(min(rates)) if len(rates) else 0

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

    # --- first placements -----------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Ints]:
        """Placements as part per vertex; part p is the p-th node by capacity."""
        instance, rows, graph = self._instance, self._rows, self._graph
        part_of = {node: part for part, node in enumerate(self._order)}
        if all(node in part_of for node in instance.home):
            yield rows.of([part_of[node] for node in instance.home])
        if self._sparse:
            limits = rows.of(self._cap), rows.of(self._room)
            for order in (range(len(graph)), self._depth_first()):
                part = rows.new(len(graph))
                if rows.do.fill(rows.of(order), graph.vw, graph.vm, *limits, part):
                    yield part
        held = count = 0
        while count < len(self._order) and held < SLACK * instance.total_load:
            held += self._cap[count]
            count += 1
        yield split(rows, graph, self._cap[:count], self._room[:count], self._random)

    def _depth_first(self) -> list[int]:
        """Vertices along paths: from those with the fewest partners, the largest rate first."""
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

    # --- better ones ----------------------------------------------------------------------------------------------

    def _refine(self, part: Ints) -> None:
        """Lower the cut of `part` in place, on graphs coarsened inside parts, from the smallest to the whole one."""
        rows = self._rows
        cap, room = rows.of(self._cap), rows.of(self._room)
        levels: list[tuple[Graph, Ints, Ints]] = []
        small, mine = self._graph, part
        limit = max(1, max(self._cap) // 4)
        while len(small) > 4 * len(self._order):
            coarser = rows.coarsened(small, mine, limit, self._random)
            if coarser is None:
                break
            levels.append((small, mine, coarser[1]))
            above = rows.new(len(coarser[0]))
            for v, c in enumerate(coarser[1]):
                above[c] = mine[v]
            small, mine = coarser[0], above
        while True:
            dirty = rows.new(len(self._order), 1)
            for _ in range(4):
                if not rows.do.refine(*small.fields, mine, cap, room, dirty, 2, 25) or self._late():
                    break
            if not levels:
                return
            small, finer, coarse = levels.pop()
            finer[:] = rows.at(mine, coarse)
            mine = finer

    def _members(self, part: Ints) -> list[list[int]]:
        members: list[list[int]] = [[] for _ in self._order]
        for v, p in enumerate(part):
            members[p].append(v)
        return members

    def _rework(self, part: Ints, members: list[list[int]], rounds: int) -> None:
        """Take a few neighbouring parts, split their vertices anew, and keep what is better; `rounds` times."""
        rows = self._rows
        used = [p for p, mine in enumerate(members) if mine]
        rate_rows = list(self._graph.xadj), self._graph.adj.tolist() if rows.fast else self._graph.adj
        wgt = self._graph.wgt.tolist() if rows.fast else self._graph.wgt
        for _ in range(rounds):
            if self._late():
                return
            region = self._region(part, members, used, *rate_rows, wgt)
            inside = rows.of(sorted(v for p in region for v in members[p]))
            small = rows.inside(self._graph, inside)
            cap, room = [self._cap[p] for p in region], [self._room[p] for p in region]
            place = {p: at for at, p in enumerate(region)}
            old = rows.of([place[int(part[v])] for v in inside])
            new = split(rows, small, cap, room, self._random)
            dirty = rows.new(len(region), 1)
            for _ in range(3):
                if not rows.do.refine(*small.fields, new, rows.of(cap), rows.of(room), dirty, 2, 25):
                    break
            if self._cut(small, new) < self._cut(small, old) and self._fits(small, new, cap, room):
                for p in region:
                    members[p] = []
                for v, at in zip(inside, new, strict=True):
                    part[v] = region[at]
                    members[region[at]].append(int(v))

    def _region(
        self,
        part: Ints,
        members: list[list[int]],
        used: list[int],
        xadj: Sequence[int],
        adj: Sequence[int],
        wgt: Sequence[int],
    ) -> list[int]:
        """Some parts that communicate, drawn by rate."""
        wanted = 3 + self._random.randrange(4)
        region = [used[self._random.randrange(len(used))]]
        while len(region) < wanted:
            rates: dict[int, int] = {}
            for v in members[region[self._random.randrange(len(region))]]:
                for e in range(xadj[v], xadj[v + 1]):
                    p = int(part[adj[e]])
                    if p not in region:
                        rates[p] = rates.get(p, 0) + wgt[e]
            if not rates:
                break
            at = self._random.randrange(sum(rates.values()))
            for p in sorted(rates):
                at -= rates[p]
                if at < 0:
                    region.append(p)
                    break
        return sorted(region)

    # --- limits ---------------------------------------------------------------------------------------------------

    def _used(self, graph: Graph, part: Ints, parts: int) -> tuple[list[int], list[int]]:
        sums = self._rows.sums
        return [int(x) for x in sums(parts, part, graph.vw)], [int(x) for x in sums(parts, part, graph.vm)]

    def _fits(self, graph: Graph, part: Ints, cap: Sequence[int], room: Sequence[int]) -> bool:
        load, memory = self._used(graph, part, len(cap))
        return all(a <= b for a, b in zip(load, cap, strict=True)) and all(
            a <= b for a, b in zip(memory, room, strict=True)
        )

    def _repair(self, part: Ints) -> bool:
        """Move vertices of overfull parts, the heaviest first, to where they fit best; whether that sufficed."""
        graph, cap, room = self._graph, self._cap, self._room
        load, memory = self._used(graph, part, len(cap))
        weights, needs = [int(x) for x in graph.vw], [int(x) for x in graph.vm]
        for v in sorted(range(len(graph)), key=lambda v: (-weights[v], v)):
            p, weight, need = int(part[v]), weights[v], needs[v]
            if load[p] <= cap[p] and memory[p] <= room[p]:
                continue
            fitting = [q for q in range(len(cap)) if load[q] + weight <= cap[q] and memory[q] + need <= room[q]]
            if fitting:
                q = min(fitting, key=lambda q: (cap[q] - load[q], q))
                part[v] = q
                load[p] -= weight
                load[q] += weight
                memory[p] -= need
                memory[q] += need
        return self._fits(graph, part, cap, room)
