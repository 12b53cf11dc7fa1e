"""Multilevel kernels: coarser graphs keep rates and loads, refinement keeps limits, compiled code agrees."""

from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.partitioning import jit_cache, large_neighbourhood, multilevel
from scheduler.partitioning.kernels_annealing import DRAWS, STAGES
from scheduler.partitioning.multilevel import Multilevel, connected_components, induced_graph, packed
from scheduler.partitioning.rows import Graph, Ints, blank, floats, ints

INTERPRETED = SimpleNamespace(**{kernel.__name__: kernel for kernel in jit_cache.ENTRIES})


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Graph, int, int]:
    """A graph of up to 120 vertices, some of them isolated; a number of parts, and a seed."""
    n, seed = draw(st.integers(1, 120)), draw(st.integers(0, 2**20))
    k = draw(st.integers(1, 12))
    random = Random(seed)  # noqa: S311 - no secret
    neighbours: list[dict[int, int]] = [{} for _ in range(n)]
    for _ in range(draw(st.integers(0, 4 * n))):
        a, b = random.randrange(n), random.randrange(n)
        if a != b:
            neighbours[a][b] = neighbours[b][a] = random.choice((1, 1, 3, 1000))
    rows = [sorted(row.items()) for row in neighbours]
    xadj = [0]
    for row in rows:
        xadj.append(xadj[-1] + len(row))
    max_load = draw(st.integers(1, 5))
    return (
        Graph(
            ints(xadj),
            ints(other for row in rows for other, _ in row),
            ints(rate for row in rows for _, rate in row),
            ints(random.randint(1, max_load) for _ in range(n)),
            ints(random.randint(0, 3) for _ in range(n)),
        ),
        k,
        seed,
    )


def levels_of(graph: Graph, k: int, seed: int, spare: int = 0) -> Multilevel:
    """Return levels with `k` parts of about equal capacity: the graph's load in total, plus `spare` each."""
    cap = ints([-(-sum(graph.vw) // k) + spare + p % 3 for p in range(k)])
    return Multilevel(graph, cap, ints([sum(graph.vm)] * k), ints([seed + 1]))


def loads(graph: Graph, part: Ints, k: int) -> list[int]:
    load = [0] * k
    for v, p in enumerate(part):
        load[p] += graph.vw[v]
    return load


@given(graphs())
def test_refinement_keeps_limits_and_never_raises_the_cut(case: tuple[Graph, int, int]) -> None:
    graph, k, seed = case
    levels = levels_of(graph, k, seed, spare=sum(graph.vw))
    random = Random(seed)  # noqa: S311 - no secret
    part = ints(random.randrange(k) for _ in range(len(graph)))
    levels.cap[:] = ints(max(1, load) for load in loads(graph, part, k))
    before = levels.cut(graph, part)
    levels.refine(graph, part, rounds=3, patience=10, over=lambda: False)
    assert levels.cut(graph, part) <= before
    assert all(load <= limit for load, limit in zip(loads(graph, part, k), levels.cap, strict=True))


@given(graphs())
def test_vertices_of_load_1_always_fit_after_bisections_and_refinement(case: tuple[Graph, int, int]) -> None:
    graph, k, seed = case
    graph.vw[:] = ints([1] * len(graph))
    levels = levels_of(graph, k, seed)
    part = levels.bisected(k, tries=3)
    levels.refine(graph, part, rounds=2, patience=10, over=lambda: False)
    assert all(load <= limit for load, limit in zip(loads(graph, part, k), levels.cap, strict=True))


@given(graphs())
def test_a_cycle_keeps_load_memory_rates_and_parts_on_every_graph(case: tuple[Graph, int, int]) -> None:
    graph, k, seed = case
    levels = levels_of(graph, k, seed)
    random = Random(seed)  # noqa: S311 - no secret
    part = ints(random.randrange(min(k, 3)) for _ in range(len(graph)))
    totals: list[tuple[int, int, int, list[int]]] = []

    def record(coarser: Graph, placed: Ints, count: int) -> None:
        assert count >= 1
        totals.append((sum(coarser.vw), sum(coarser.vm), levels.cut(coarser, placed), loads(coarser, placed, k)))

    assert levels.cycle(part, record) == part
    assert set(map(repr, totals)) == {
        repr((sum(graph.vw), sum(graph.vm), levels.cut(graph, part), loads(graph, part, k)))
    }


@given(graphs())
def test_annealing_lowers_the_cut_by_what_it_returns_and_exceeds_no_limit(case: tuple[Graph, int, int]) -> None:
    graph, k, seed = case
    levels = levels_of(graph, k, seed)
    random = Random(seed)  # noqa: S311 - no secret
    part = ints(random.randrange(k) for _ in range(len(graph)))
    cap = ints(max(1, load) for load in loads(graph, part, k))
    before = levels.cut(graph, part)
    cooling, draws = floats(0.95**stage for stage in range(STAGES)), floats([1.0] * DRAWS)
    n, space = len(graph), len(graph) * k
    gained = jit_cache.compiled_kernels().rework(
        *(n, k, *graph.fields, part, cap, levels.room, cooling, draws, levels.state, 30, 3, 4.0, 100, 20_000),
        *(*large_neighbourhood._scratch(n, k, len(graph.adj)), space, blank(space)),
    )
    assert gained >= 0
    assert levels.cut(graph, part) == before - 2 * gained
    assert all(load <= limit for load, limit in zip(loads(graph, part, k), cap, strict=True))


def partitions(case: tuple[Graph, int, int]) -> list[list[int]]:
    """Return initial partitions, the refined one, and the generator state."""
    graph, k, seed = case
    levels = levels_of(graph, k, seed)

    def improve(coarser: Graph, part: Ints, _: int) -> None:
        levels.refine(coarser, part, rounds=2, patience=5, over=lambda: False)

    divided = levels.divided(k, 2, lambda coarser, part: improve(coarser, part, 0))
    start = levels.bisected(k, tries=2)
    return [list(divided), list(start), list(levels.cycle(start, improve)), list(levels.state)]


@given(graphs())
def test_compiled_and_interpreted_kernels_agree(case: tuple[Graph, int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        compiled = partitions(case)
        patch.setattr(multilevel, "compiled_kernels", lambda: INTERPRETED)
        assert partitions(case) == compiled


def depth_first_order(graph: Graph) -> list[int]:
    """Return the vertices in depth-first order; vertices with the fewest neighbours come first."""
    rows = [range(graph.xadj[v], graph.xadj[v + 1]) for v in range(len(graph))]
    order: list[int] = []
    stack = sorted(range(len(graph)), key=lambda v: (-len(rows[v]), -v))
    while stack:
        v = stack.pop()
        if v not in order:
            order.append(v)
            stack += sorted((graph.adj[e] for e in rows[v]), key=lambda u: (rate_of(graph, v, u), -u))
    return order


def rate_of(graph: Graph, v: int, u: int) -> int:
    return next(graph.wgt[e] for e in range(graph.xadj[v], graph.xadj[v + 1]) if graph.adj[e] == u)


@pytest.mark.parametrize("kernels", [INTERPRETED, None], ids=["interpreted", "compiled"])
@given(case=graphs())
def test_parts_are_filled_one_after_the_other_along_paths(
    case: tuple[Graph, int, int], kernels: SimpleNamespace | None
) -> None:
    graph, k, seed = case
    functions, n = kernels or jit_cache.compiled_kernels(), len(graph)
    levels = levels_of(graph, k, seed, spare=seed % 4)
    order, part = blank(n), ints([-1] * n)
    functions.walk(n, *graph.fields[:3], blank(n + 1), blank(n), blank(n), blank(len(graph.adj)), order)
    assert list(order) == depth_first_order(graph)
    fits = functions.fill(n, k, order, graph.vw, graph.vm, levels.cap, levels.room, part)
    placed = [v for v in order if part[v] >= 0]
    assert placed == list(order[: len(placed)])
    assert [part[v] for v in placed] == sorted(part[v] for v in placed)
    load, memory = blank(k), blank(k)
    assert functions.total(n, graph.vw, graph.vm, part, load, memory) == len(placed)
    assert list(load) == loads(induced_graph(graph, placed), ints(part[v] for v in placed), k)
    assert all(used <= limit for used, limit in zip(load, levels.cap, strict=True))
    assert bool(fits) == (len(placed) == n)


def test_two_groups_joined_by_one_edge_are_cut_at_that_edge() -> None:
    rows: list[list[tuple[int, int]]] = [[] for _ in range(60)]

    def join(a: int, b: int) -> None:
        rows[a].append((b, 1))
        rows[b].append((a, 1))

    for group in (range(30), range(30, 60)):
        for a in group:
            for b in group:
                if a < b:
                    join(a, b)
    join(0, 59)
    xadj = [0]
    for row in rows:
        xadj.append(xadj[-1] + len(row))
    graph = Graph(ints(xadj), ints(b for row in rows for b, _ in row), ints([1] * xadj[-1]), ints([1] * 60), blank(60))
    levels = Multilevel(graph, ints([31, 31]), ints([0, 0]), ints([7]))
    part = levels.bisected(2, tries=4)
    assert levels.cut(graph, part) == 2


@given(graphs(), st.booleans())
def test_components_are_packed_whole_within_limits(case: tuple[Graph, int, int], tight: bool) -> None:
    graph, k, seed = case
    levels = levels_of(graph, k, seed)
    cap = ints(sorted(levels.cap, reverse=True))
    pieces = connected_components(graph)
    assert sorted(v for piece in pieces for v in piece) == list(range(len(graph)))
    part = packed(graph, pieces, cap, levels.room, tight)
    for piece in pieces:
        assert len({part[v] for v in piece}) == 1
        assert all(graph.adj[e] in piece for v in piece for e in range(graph.xadj[v], graph.xadj[v + 1]))
    whole = [v for v in range(len(graph)) if part[v] >= 0]
    load = loads(induced_graph(graph, whole), ints(part[v] for v in whole), k)
    assert all(used <= limit for used, limit in zip(load, cap, strict=True))
    for piece in pieces:
        if part[piece[0]] < 0:
            assert all(load[p] + sum(graph.vw[v] for v in piece) > cap[p] for p in range(k))
