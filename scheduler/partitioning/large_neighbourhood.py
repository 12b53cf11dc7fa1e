"""Search for large instances: multilevel starts, then annealing of a few nodes at a time, on graphs of several sizes.

Parts are nodes, largest first. The best of some multilevel placements is refined (`scheduler.partitioning.multilevel`);
connected components that fit are also tried as a whole (`scheduler.partitioning.multilevel`). Then a few communicating
parts are annealed at a time, and improvements are kept (large neighbourhood search after Shaw, 1998; simulated
annealing after Kirkpatrick, Gelatt and Vecchi, 1983). Chains and the running placement are further starting points.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log, sqrt
from random import Random

from scheduler.partitioning.instance import Instance
from scheduler.partitioning.jit_cache import compiled_kernels
from scheduler.partitioning.kernels_annealing import DRAWS, STAGES
from scheduler.partitioning.multilevel import Multilevel, connected_components, induced_graph, packed
from scheduler.partitioning.rows import Floats, Graph, Ints, blank, floats, ints, listed_pairs, ones
from scheduler.partitioning.tabu import Effort

SPARSE = 4
"""Below this number of pairs per executor the graph may be a set of chains and is also tried as such."""

SIZE, FEWEST = 60, 3
"""Minimum numbers of vertices and parts of a region."""

HEAT, COLDEST, STEPS = 4.0, 1000, 100
"""Annealing: first temperature in mean rates per vertex, ratio of first to last temperature, steps per vertex."""

BATCHES, PER_VERTEX = 8, 4
"""Batches of the steps on a graph, which end with one that gains nothing; least steps of one for each vertex, as the
kernel goes over all at its start."""

TABLE = 2**18
"""Vertices times parts that a region may have, beside 8 times all vertices."""


@dataclass(frozen=True)
class Preset:
    """Distribution of the effort over starts, refinement and annealing.

    Attributes:
        tries: halves grown for each bisection.
        rounds: rounds of refinement; 1 of short ones.
        patience: `patience` of their sequences; `SHORT` of short ones.
        looks, each: maximum number of steps of annealing, whatever the effort: the larger of `looks` and `each` per
            vertex.
        brief: whether `BRIEF` rounds take less time.
        by_cut: whether the pairs that a start cuts decide on further starts, refinement (`LONG`) and steps (`EACH`).
    """

    tries: int
    rounds: int
    patience: int
    looks: int
    each: int = 0
    brief: bool = False
    by_cut: bool = False


SHORT = 3
"""Sequences of moves end after so many without a new best cut, where there is little time for refinement."""

SLACKS, SEVERAL = (1.03, 1.01, 1.06, 1.03, 0.95), 4_000
"""One multilevel start each, on the fewest nodes, largest first, that hold this multiple of the load; graphs with more
vertices have only the first. With less than 1, what fits least goes to further nodes: where a few hubs have most
partners, that is little rate. So presets with `by_cut`, which may have one start only, begin at the end."""

SEVERAL_BELOW = 0.5
"""Cut pairs per vertex of the first start below which there are several: they take little time there. So they do where
annealing takes all steps that the effort allows."""

LONG_BELOW, LONG = 0.2, (2, 100)
"""Cut pairs per vertex below which a placement is refined in more rounds, with more patience. Annealing gains less in
the same time there."""

EACH, LEAST = 1_750_000, 165
"""Steps per vertex: `EACH` times the 3/2 power of pairs cut per vertex, times the square of pairs per vertex over
vertices per part, but not fewer than `LEAST`. So graphs that are soon divided well do not take much longer."""

HUGE = 200_000
"""Graphs with more vertices have short rounds of refinement, and are divided by their coarser graphs."""

BRIEF, UNCYCLED = (8_000, 200, 3), 20_000
"""A round is brief that has more than so many vertices, so many on each part, and so many pairs per vertex: it moves
single vertices, as sequences would take half as long again. With more than `UNCYCLED` vertices it has no cycle, which
would double the time there, or take several times as long, for 2 % of the cut."""

FAST = Preset(tries=6, rounds=1, patience=SHORT, looks=1_000_000, each=80, brief=True)
BEST = Preset(tries=8, rounds=1, patience=6, looks=2**62, by_cut=True)


@cache
def annealing_tables() -> tuple[Floats, Floats]:
    """Return the factor of each temperature, and the tabled logarithms (`DRAWS`)."""
    # Rounded, so that they do not depend on the machine's logarithm.
    draws = floats(round(-log((at + 0.5) / DRAWS) * 2**20) / 2**20 for at in range(DRAWS))
    return floats(COLDEST ** (-stage / (STAGES - 1)) for stage in range(STAGES)), draws


def search_large(
    instance: Instance, effort: Effort, seed: int = 0, preset: Preset = BEST, start: Sequence[int] | None = None
) -> list[int] | None:
    """Return the best placement found (executor -> node), or None when none was found that respects all limits.

    A running placement is replaced only by a better one.

    Args:
        instance: the problem; all its pairs are listed.
        effort: when to stop, in steps of annealing.
        seed: seed of all random choices.
        preset: where the effort goes.
        start: executor -> node, to be improved; None: use generated starting points.
    """
    return _Large(instance, effort, seed, preset, start).run()


class _Large:
    def __init__(
        self, instance: Instance, effort: Effort, seed: int, preset: Preset, start: Sequence[int] | None
    ) -> None:
        self._instance = instance
        self._start = start
        self._effort = effort
        self._preset = preset
        self._do = compiled_kernels()
        self._graph = listed_pairs(instance)
        self._huge = len(self._graph) > HUGE
        self._moves = (1, SHORT) if self._huge else (preset.rounds, preset.patience)
        usable = [node for node, slots in enumerate(instance.slots) if slots]
        self._order = sorted(usable, key=lambda node: -instance.capacity[node])
        self._cap = ints(instance.capacity[node] for node in self._order)
        self._room = ints(instance.room[node] for node in self._order)
        self._sparse = instance.pairs <= SPARSE * instance.executors
        vertices, on_each, pairs = BRIEF
        self._brief = preset.brief and (
            len(self._graph) > max(vertices, on_each * self._holding(SLACKS[0]))
            and instance.pairs > pairs * len(self._graph)
        )
        random = Random(seed)  # noqa: S311 - no secret
        self._state = ints([1 + random.randrange(2**32 - 1)])
        self._levels = Multilevel(self._graph, self._cap, self._room, self._state)
        self._pieces = connected_components(self._graph)
        self._least = 2 * self._least_cut()
        self._scratch = _scratch(len(self._graph), len(self._order), len(self._graph.adj))
        space = min(len(self._graph) * len(self._order), 8 * len(self._graph) + TABLE)
        self._table = space, blank(space)

    def run(self) -> list[int] | None:
        best: Ints | None = None
        best_key = (False, 0)
        home: list[int] | None = None
        for part in self._starts():
            key = self._key(part)
            if best is None:
                home = list(part) if min(self._instance.home) >= 0 else None
            if best is None or key < best_key:
                best, best_key = part, key
            if best_key == (False, self._least) or self._over():
                break
        if best is None or (best_key[0] and not self._repaired(best)):
            return None
        best = self._cycled(best)
        if home is not None and self._key(ints(home)) <= self._key(best):
            best = ints(home)
        return [self._order[part] for part in best]

    def _key(self, part: Ints) -> tuple[bool, int]:
        """Return whether a limit is exceeded, and twice the cut; placements with a lower key are better."""
        return not self._fits(part), self._levels.cut(self._graph, part)

    def _over(self) -> bool:
        return not self._effort.spend(0)

    def _cycled(self, part: Ints) -> Ints:
        """Return the placement, or a better one after a cycle through coarser graphs."""
        key = self._key(part)
        uncycled = self._brief and len(part) > UNCYCLED
        if key == (False, self._least) or (uncycled and not key[0]) or self._over():
            return part
        looks = min(self._effort.looks, max(self._preset.looks, self._preset.each * len(part)))
        if self._preset.by_cut:
            cut = self._cut_pairs(part)
            looks = min(looks, self._worth(cut, part))
            if cut < LONG_BELOW and not self._huge:
                self._moves = LONG
                self._refine(self._graph, part)
                key = self._key(part)

        def improve(graph: Graph, part: Ints, levels: int) -> None:
            if not self._over():
                self._refine(graph, part)
                self._anneal(graph, part, looks // levels)

        better = self._levels.cycle(part, improve)
        return better if self._key(better) <= key else part

    def _worth(self, cut: float, part: Ints) -> int:
        """Return the number of steps that `EACH` and `LEAST` give for `cut` pairs per vertex."""
        vertices = len(self._graph)
        close = len(self._graph.adj) / 2 / vertices * len(set(part)) / vertices
        return int(vertices * max(LEAST, EACH * cut * sqrt(cut) * close**2))

    def _cut_pairs(self, part: Ints) -> float:
        """Return the number of cut pairs per vertex."""
        graph = self._graph
        cut = int(self._do.cut(len(graph), graph.xadj, graph.adj, ones(len(graph.adj)), part))
        return cut / 2 / len(graph)

    def _refine(self, graph: Graph, part: Ints) -> None:
        """Refine `part` in place."""
        rounds, patience = self._moves
        self._levels.refine(graph, part, rounds, 1 if self._brief else patience, self._over)

    def _anneal(self, graph: Graph, part: Ints, looks: int) -> None:
        """Lower the cut of `part` in place, with at most `looks` steps."""
        cut = self._levels.cut(graph, part)
        most = max(looks // BATCHES, PER_VERTEX * len(graph))
        while looks > 0 and cut > self._least and not self._over():
            batch = min(looks, most)
            looks -= batch
            shape = len(graph), len(self._order), *graph.fields, part, self._cap, self._room
            how = *annealing_tables(), self._state, SIZE, FEWEST, HEAT, STEPS, batch
            gained = self._do.rework(*shape, *how, *self._scratch, *self._table)
            self._effort.spend(batch)
            if gained == 0:
                break
            cut -= 2 * gained

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
            for order in (ints(range(len(self._graph))), self._depth_first()):
                part = self._filled(order)
                if part is not None:
                    yield part
        preset = self._preset
        slacks = SLACKS if len(self._graph) <= SEVERAL else SLACKS[:1]
        for slack in reversed(slacks) if preset.by_cut else slacks:
            parts = self._holding(slack)
            if self._huge:
                part = self._levels.divided(parts, preset.tries, self._refine)
            else:
                part = self._levels.bisected(parts, preset.tries)
            self._refine(self._graph, part)
            yield part
            if preset.by_cut and self._fits(part):
                cut = self._cut_pairs(part)
                if cut >= SEVERAL_BELOW and self._worth(cut, part) < self._effort.looks:
                    break
        for tight in (True, False):
            packing = self._packed(tight)
            if packing is None:
                return
            self._refine(self._graph, packing)
            yield packing

    def _packed(self, tight: bool) -> Ints | None:
        """Return connected components on parts as a whole, the rest divided; None if that is more than half."""
        part = packed(self._graph, self._pieces, self._cap, self._room, tight)
        left = [v for v, p in enumerate(part) if p < 0]
        if 2 * len(left) > len(part):
            return None
        if left:
            load, memory = self._used(self._graph, part)
            free = [limit - used for limit, used in zip(self._cap, load, strict=True)]
            room = [limit - used for limit, used in zip(self._room, memory, strict=True)]
            parts = sorted((p for p in range(len(free)) if free[p] > 0), key=lambda p: (-free[p], p)) or [0]
            rest = induced_graph(self._graph, left)
            levels = Multilevel(rest, ints(free[p] for p in parts), ints(room[p] for p in parts), self._state)
            for v, p in zip(left, levels.bisected(len(parts), self._preset.tries), strict=True):
                part[v] = parts[p]
        return part

    def _holding(self, slack: float) -> int:
        """Return the number of nodes, largest first, that hold the load and the memory `slack` times; at most all."""
        load, memory = slack * sum(self._graph.vw), slack * sum(self._graph.vm)
        count = 0
        while count < len(self._cap) and (count == 0 or load > 0 or memory > 0):
            load -= self._cap[count]
            memory -= self._room[count]
            count += 1
        return count

    def _filled(self, order: Ints) -> Ints | None:
        """Return a placement that fills the parts one after the other with vertices in `order`, or None."""
        graph, part = self._graph, blank(len(self._graph))
        limits = self._cap, self._room
        return part if self._do.fill(len(graph), len(self._order), order, graph.vw, graph.vm, *limits, part) else None

    def _depth_first(self) -> Ints:
        """Return the vertices along paths: from those with the fewest partners, largest rate first."""
        graph, n = self._graph, len(self._graph)
        order = blank(n)
        self._do.walk(n, *graph.fields[:3], blank(n + 1), blank(n), blank(n), blank(len(graph.adj)), order)
        return order

    # --- limits ---------------------------------------------------------------------------------------------------

    def _used(self, graph: Graph, part: Ints) -> tuple[Ints, Ints]:
        """Return load and memory per part; vertices without a part do not count."""
        load, memory = blank(len(self._order)), blank(len(self._order))
        self._do.total(len(graph), graph.vw, graph.vm, part, load, memory)
        return load, memory

    def _fits(self, part: Ints) -> bool:
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
        return max(0, nodes - len(self._pieces)) * min(rates) if len(rates) else 0


def _scratch(n: int, k: int, entries: int) -> list[Ints]:
    """Return the scratch arrays of `rework`, from `head` to `spot`."""
    sizes = (k, n, n, n, k, k, n + 1, entries, entries, n, n, n, k, k, n, k, k, k, k + 1, 5 * n + 8 * k, n, n, n, n)
    return [blank(size) for size in sizes]
