"""Search for placements of low cost by hops, or with little on the busiest link.

Starting points are a placement of low W, and one that divides executors between sets of near nodes first, then within
each set. What lies on a node is then moved to other nodes as a whole, then executors alone, both by annealing
(`scheduler.partitioning.kernels_hops`), at several temperatures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from scheduler.partitioning.counts import counts_of
from scheduler.partitioning.hops import HopTable, levels_of
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.jit_cache import compiled_kernels
from scheduler.partitioning.kernels_annealing import STAGES
from scheduler.partitioning.large_neighbourhood import BEST, Preset, annealing_tables
from scheduler.partitioning.parts import contracted, induced_problem
from scheduler.partitioning.rows import blank, ints, listed_pairs
from scheduler.partitioning.solving import MOST_PAIRS, SMALL, find, looks_for
from scheduler.partitioning.tabu import Effort, settled

HEATS = (2.0, 0.5, 4.0, 1.0)
"""First temperatures of small searches, in mean rates times the dearest hop, or in loads of the busiest link."""

GENTLE = (0.25, 0.06)
"""The same for large ones, whose starting points are good."""

STEPS = 600
"""Steps per vertex and temperature."""

FEWEST_STEPS = 2_000

MOST_LINKS = 2_000
"""Maximum number of nodes for which all links are counted."""

LARGEST = 2**58
"""Limit of sums in the kernel; above it values are rounded there, not in the result."""


def search_hops(
    instance: Instance, table: HopTable, links: bool, effort: Effort, seed: int = 0, preset: Preset = BEST
) -> list[int] | None:
    """Return the best placement found (executor -> node), or None when none was found that respects all limits.

    A running placement is replaced only by a better one.

    Args:
        instance: the problem.
        table: costs of hops, or what multiplies the rates of links.
        links: whether the busiest link counts, not the cost.
        effort: when to stop.
        seed: seed of all random choices.
        preset: how large searches use their effort.
    """
    starts = _starts(instance, table, effort, seed, preset)
    best = improve_hops(instance, table, links, effort, seed, starts)
    return None if best is None else settled(instance, counts_of(instance, best))


def improve_hops(
    instance: Instance, table: HopTable, links: bool, effort: Effort, seed: int, starts: Iterable[list[int]]
) -> list[int] | None:
    """Return the best placement found from starting points (executor -> node); None if none respects all limits."""
    judge = busiest_of(instance, table) if links else lambda nodes: (table.cost(instance, nodes), 0)
    random = Random(seed)  # noqa: S311 - no secret
    best: list[int] | None = None
    key = (0, 0)
    for start in starts:
        if not instance.fits(start):
            continue
        for nodes in _improved(instance, table, links, effort, random, start):
            if instance.fits(nodes) and (best is None or judge(nodes) < key):
                best, key = nodes, judge(nodes)
        if effort.cut_short:
            break
    return best


def busiest_of(instance: Instance, table: HopTable) -> Callable[[Sequence[int]], tuple[int, int]]:
    """Return a function from placements to the load of the busiest link, and the load of all links."""

    def judge(node_of: Sequence[int]) -> tuple[int, int]:
        loads = link_loads(instance, node_of)
        values = [rate * table.of(*pair) for pair, rate in loads.items()]
        return max(values, default=0), sum(values)

    return judge


def link_loads(instance: Instance, node_of: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return pairs of nodes, the lower first -> rate between them."""
    counts: list[dict[int, int]] = []
    for members in instance.members:
        mine: dict[int, int] = {}
        for executor in members:
            mine[node_of[executor]] = mine.get(node_of[executor], 0) + 1
        counts.append(mine)
    loads: dict[tuple[int, int], int] = {}
    for one, others in enumerate(instance.near):
        for other, rate in others.items():
            if other < one:
                continue
            for a, times in counts[one].items():
                for b, more in counts[other].items():
                    if (a < b) if other == one else (a != b):
                        pair = (a, b) if a < b else (b, a)
                        loads[pair] = loads.get(pair, 0) + rate * times * more
    return loads


def _starts(instance: Instance, table: HopTable, effort: Effort, seed: int, preset: Preset) -> Iterator[list[int]]:
    if min(instance.home, default=-1) >= 0:
        yield list(instance.home)
    flat = _low_w_placement(instance, effort, seed, preset)
    if flat is not None:
        yield flat
    if instance.scarce or instance.memory_counts:
        return
    levels = levels_of(instance, table)
    if len(levels) > 1 and len(levels[-1].sets) > 1:
        sets = levels[-1].sets
        divided = _low_w_placement(levels[-1].instance(instance), effort, seed, preset)
        nodes = [-1] * instance.executors
        for at, mine in enumerate(sets):
            executors = [executor for executor, where in enumerate(divided or ()) if where == at]
            if not executors:
                continue
            inner = induced_problem(instance, executors, instance.load, [instance.capacity[node] for node in mine])
            placed = _low_w_placement(inner, effort, seed, preset)
            for executor, node in zip(executors, placed or (), strict=False):
                nodes[executor] = mine[node]
        if min(nodes, default=-1) >= 0:
            yield nodes


def _low_w_placement(instance: Instance, effort: Effort, seed: int, preset: Preset) -> list[int] | None:
    """Return a placement of low W."""
    mine = Effort(looks_for(instance), effort.over)
    nodes = find(instance, mine, seed, preset=preset)
    effort.cut_short |= mine.cut_short
    return nodes


def _improved(
    instance: Instance, table: HopTable, links: bool, effort: Effort, random: Random, start: list[int]
) -> Iterator[list[int]]:
    """Yield the starting point and what it becomes."""
    yield start
    usable = [node for node, slots in enumerate(instance.slots) if slots]
    if len(usable) < 2 or (links and len(usable) > MOST_LINKS):
        return
    groups: dict[int, list[int]] = {}
    for executor, node in enumerate(start):
        groups.setdefault(node, []).append(executor)
    vertices = [groups[node] for node in sorted(groups)]
    nodes = start
    small = instance.executors <= SMALL
    heats = HEATS if small else GENTLE
    if len(vertices) > 1:
        whole = contracted(instance, vertices, instance.load)
        for heat in heats if small else heats[:1]:
            if not effort.spend(0):
                return
            moved = _annealed(whole, table, links, random, sorted(groups), heat)
            nodes = [-1] * instance.executors
            for vertex, node in zip(vertices, moved, strict=True):
                for executor in vertex:
                    nodes[executor] = node
            yield nodes
    if instance.pairs > MOST_PAIRS:
        return
    for heat in heats:
        if not effort.spend(0):
            return
        nodes = _annealed(instance, table, links, random, nodes, heat)
        yield nodes


def _annealed(
    instance: Instance, table: HopTable, links: bool, random: Random, start: Sequence[int], heat: float
) -> list[int]:
    """Return the best placement of one annealing, which may break limits that only `fits` knows."""
    graph = listed_pairs(instance)
    usable = [node for node, slots in enumerate(instance.slots) if slots]
    place = {node: at for at, node in enumerate(usable)}
    n, k = len(graph), len(usable)
    dearest = max((max(row) for row in table.between), default=0)
    shift = 0
    while (2 * instance.total_rate * dearest) >> shift > LARGEST:
        shift += 1
    between = ints(value >> shift for row in table.between for value in row)
    limit = max(1, sum(graph.wgt) // max(1, len(graph.adj)))
    hot = heat * limit * max(1, dearest >> shift)
    unit = 1.0
    if links:
        hot, unit = heat, float(max(1, busiest_of(instance, table)(start)[0] >> shift))
    part, best = ints(place[node] for node in start), blank(n)
    steps = max(FEWEST_STEPS, STEPS * n)
    compiled_kernels().anneal_hops(
        int(links),
        n,
        k,
        *graph.fields,
        part,
        ints(instance.capacity[node] for node in usable),
        ints(instance.room[node] for node in usable),
        ints(table.group[node] for node in usable),
        len(table.between),
        between,
        *annealing_tables(),
        hot,
        unit,
        max(1, steps // STAGES),
        1 + random.randrange(2**32 - 1),
        best,
        blank(k),
        blank(k),
        blank(k),
        blank(n),
        blank(n),
        blank(k * k if links else 1),
    )
    return [usable[at] for at in best]
