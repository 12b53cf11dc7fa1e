"""Balanced partitions with small cuts: known graphs, limits, and local optimality."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from scheduler.algorithms.p_scheduler import cut_between_parts, partition_graph

Graph = tuple[list[int], list[dict[int, int]]]


def graph_of(weight: list[int], edges: dict[tuple[int, int], int]) -> Graph:
    neighbours: list[dict[int, int]] = [{} for _ in weight]
    for (one, other), rate in edges.items():
        neighbours[one][other] = neighbours[other][one] = rate
    return weight, neighbours


def cliques(count: int, size: int) -> Graph:
    """Cliques of rate 10 in a ring of rate 1, with members that are not adjacent by number."""
    edges = {}
    for c in range(count):
        members = [c + count * k for k in range(size)]
        edges.update({(a, b): 10 for a in members for b in members if a < b})
        edges[min(c, (c + 1) % count), max(c, (c + 1) % count)] = 1
    return graph_of([5] * (count * size), edges)


def test_cliques_stay_together() -> None:
    for count in (2, 3, 4):
        weight, neighbours = cliques(count, 6)
        part = partition_graph(weight, neighbours, count)
        assert cut_between_parts(neighbours, part) == (1 if count == 2 else count)
        assert all(part[v] == part[v % count] for v in range(len(weight)))


def test_a_path_is_cut_once() -> None:
    weight, neighbours = graph_of([1] * 40, {(v, v + 1): 3 for v in range(39)})
    assert cut_between_parts(neighbours, partition_graph(weight, neighbours, 2)) == 3


def test_vertices_are_exchanged_where_no_part_has_room_for_one_more() -> None:
    # Four equal vertices in two parts: any single move breaks the balance.
    weight, neighbours = graph_of([1] * 4, {(0, 3): 5, (1, 2): 5, (0, 1): 1, (2, 3): 1})
    part = partition_graph(weight, neighbours, 2)
    assert cut_between_parts(neighbours, part) == 2
    assert part[0] == part[3]


def test_vertices_without_weight_are_counted() -> None:
    part = partition_graph([0] * 6, [{} for _ in range(6)], 3)
    assert sorted(part.count(p) for p in range(3)) == [2, 2, 2]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 6))
    weight = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    edges = {}
    for one in range(size):
        for other in range(one + 1, size):
            rate = draw(st.sampled_from([0, 0, 1, 2, 9]))
            if rate:
                edges[one, other] = rate
    return graph_of(weight, edges)


@given(graphs(), st.integers(1, 3))
def test_parts_are_balanced_and_never_empty(graph: Graph, parts: int) -> None:
    weight, neighbours = graph
    parts = min(parts, len(weight))
    part = partition_graph(weight, neighbours, parts)
    assert set(part) == set(range(parts))
    counted = weight if any(weight) else [1] * len(weight)
    heaviest = max(sum(w for w, p in zip(counted, part, strict=True) if p == q) for q in range(parts))
    best = min(
        max(sum(w for w, p in zip(counted, other, strict=True) if p == q) for q in range(parts))
        for other in product(range(parts), repeat=len(weight))
    )
    # Assigning the heaviest first is within 4/3 of the optimal balance.
    assert heaviest <= max(1.05 * sum(counted) / parts, 4 / 3 * best)


@given(graphs())
def test_no_move_and_no_exchange_lowers_the_cut_within_the_balance_that_was_reached(graph: Graph) -> None:
    weight, neighbours = graph
    if len(weight) < 2:
        return
    part = partition_graph(weight, neighbours, 2)
    counted = weight if any(weight) else [1] * len(weight)

    def heaviest(other: tuple[int, ...] | list[int]) -> int:
        return max(sum(w for w, p in zip(counted, other, strict=True) if p == q) for q in (0, 1))

    for v, u in product(range(len(weight)), repeat=2):
        other = list(part)
        other[v], other[u] = (part[u], part[v]) if v != u else (1 - part[v], 1 - part[v])
        if len(set(other)) == 2 and heaviest(other) <= heaviest(part):
            assert cut_between_parts(neighbours, other) >= cut_between_parts(neighbours, part)
