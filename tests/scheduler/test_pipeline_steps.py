"""Algorithms of `pipeline-linear`, against a literal transcription of the paper's loops."""

from collections import Counter, defaultdict
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.pipeline.refinement import Distribution, refine_layer, relabelled
from scheduler.pipeline.timeline import flow_of, round_timeline
from scheduler.toolkit.node_assignment import NodeSpread

Matrix = list[list[int]]
Edges = list[tuple[int, int]]

GRIDS = st.builds(Distribution.padded, st.integers(1, 24), st.integers(1, 30))


def matrix_by_moves(grid: Distribution) -> Matrix:
    """Return M'_inter by the three moves of Algorithm 1."""
    n, t, g = grid.nodes, grid.tasks, gcd(grid.tasks, grid.nodes)
    steps, families = t // g, n // g
    initial = [[(i * n + j) // t for j in range(n)] for i in range(t)]
    by_class: Matrix = [[] for _ in range(t)]
    for i, row in enumerate(initial):
        by_class[i // steps + i % steps * g] = row
    assert all(by_class), "the row move is a permutation"
    blocks: Matrix = [[-1] * n for _ in range(t)]
    for r in range(steps):
        for c in range(families):
            for a in range(g):
                for b in range(g):
                    blocks[(r * families + c) % steps * g + a][c * g + b] = by_class[r * g + a][c * g + b]
    assert all(-1 not in row for row in blocks), "the block move is a permutation within each block column"
    inter: Matrix = [[-1] * n for _ in range(t)]
    for i in range(t):
        for j in range(n):
            inter[i // g * g + (i % g + j % g) % g][j] = blocks[i][j]
    return inter


def printed_exchanges(grid: Distribution, edges: Edges) -> tuple[list[int], list[list[int]]]:
    """Return new labels and the exchanges of Algorithm 2 as printed, with the gain test."""
    g, families = grid.block, grid.families
    lists = [sorted(grid.rows(1)[0][c * g : c * g + g]) for c in range(families)]
    labels = list(range(grid.nodes))
    swaps: list[list[int]] = []

    def adjacent(u: int, v: int) -> bool:
        return (u, v) in edges or (v, u) in edges

    def inside(members: list[int]) -> int:
        return sum(adjacent(u, v) for at, u in enumerate(members) for v in members[:at])

    for i in range(families - 1):
        used = 0
        for j in range(i + 1, families):
            for x in range(g):
                for y in range(g):
                    if used == g // 2:
                        continue
                    source, target = lists[i][x], lists[j][y]
                    if (source, target) not in edges:
                        continue
                    for victim in sorted(lists[i], reverse=True):
                        if victim == source or adjacent(victim, source):
                            continue
                        new_i = [target if label == victim else label for label in lists[i]]
                        new_j = [victim if label == target else label for label in lists[j]]
                        if inside(new_i) + inside(new_j) > inside(lists[i]) + inside(lists[j]):
                            lists[i], lists[j] = new_i, new_j
                            swap = {victim: target, target: victim}
                            labels = [swap.get(label, label) for label in labels]
                            swaps.append([victim, target])
                            used += 1
                            break
    return labels, swaps


@st.composite
def graphs(draw: st.DrawFn, most: int) -> Edges:
    """Edges of a DAG on up to `most` vertices, in any numbering."""
    order = draw(st.permutations(range(most)))
    pairs = [(order[u], order[v]) for u in range(most) for v in range(u + 1, most)]
    return draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


def test_matrices_of_the_worked_example() -> None:
    grid = Distribution.padded(8, 4)
    assert (grid.tasks, grid.block, grid.families) == (4, 4, 2)
    assert grid.rows(4) == [
        [0, 6, 4, 2, 1, 7, 5, 3],
        [2, 0, 6, 4, 3, 1, 7, 5],
        [4, 2, 0, 6, 5, 3, 1, 7],
        [6, 4, 2, 0, 7, 5, 3, 1],
    ]


def test_exchanges_of_the_worked_example() -> None:
    labels, swaps = refine_layer(Distribution(8, 4), [(0, 1), (1, 2), (2, 3)])
    assert swaps == [(6, 1), (4, 3)]
    assert labels == [0, 6, 2, 4, 3, 5, 1, 7]
    assert relabelled(Distribution(8, 4).rows(4), labels) == [
        [0, 1, 3, 2, 6, 7, 5, 4],
        [2, 0, 1, 3, 4, 6, 7, 5],
        [3, 2, 0, 1, 5, 4, 6, 7],
        [1, 3, 2, 0, 7, 5, 4, 6],
    ]


def test_a_label_that_joined_a_family_can_cause_further_exchanges() -> None:
    """No edge leads from the first family to the third before 1 has joined the first."""
    labels, swaps = refine_layer(Distribution(12, 4), [(6, 1), (1, 2)])
    assert swaps == [(9, 1), (3, 2)]
    assert (labels, [list(swap) for swap in swaps]) == printed_exchanges(Distribution(12, 4), [(6, 1), (1, 2)])


@pytest.mark.parametrize(("nodes", "largest", "tasks"), [(1, 7, 7), (8, 4, 4), (8, 3, 4), (7, 8, 14), (6, 1, 2)])
def test_padding_adds_the_fewest_tasks_that_share_a_divisor_with_the_nodes(
    nodes: int, largest: int, tasks: int
) -> None:
    assert Distribution.padded(nodes, largest).tasks == tasks


@given(GRIDS)
def test_the_closed_form_equals_the_moves(grid: Distribution) -> None:
    assert grid.rows(grid.tasks) == matrix_by_moves(grid)


@given(GRIDS)
def test_a_label_is_found_in_the_column_that_holds_it(grid: Distribution) -> None:
    for number, row in enumerate(grid.rows(grid.tasks)):
        assert [row[grid.column(number, label)] for label in range(grid.nodes)] == list(range(grid.nodes))


@given(GRIDS)
def test_every_row_holds_each_label_once_and_every_node_equally_often(grid: Distribution) -> None:
    rows = grid.rows(grid.tasks)
    assert all(sorted(row) == list(range(grid.nodes)) for row in rows)
    for column in zip(*rows, strict=True):
        times = Counter(column)
        assert {times[label] for label in range(grid.nodes)} <= {
            grid.tasks // grid.nodes,
            -(-grid.tasks // grid.nodes),
        }


@given(GRIDS)
def test_the_first_rows_make_a_latin_square_and_repeat(grid: Distribution) -> None:
    all_nodes = list(range(grid.nodes))
    square = grid.rows(grid.nodes)
    assert all(sorted(line) == all_nodes for line in [*square, *zip(*square, strict=True)])
    assert grid.rows(2 * grid.nodes) == [*square, *square]


LARGE_BLOCKS = st.sampled_from([Distribution(12, 4), Distribution(9, 3), Distribution(16, 4), Distribution(8, 4)])


@given((GRIDS | LARGE_BLOCKS).flatmap(lambda grid: st.tuples(st.just(grid), graphs(min(grid.nodes, 16)))))
def test_refinement_equals_the_printed_algorithm(case: tuple[Distribution, Edges]) -> None:
    grid, edges = case
    labels, swaps = refine_layer(grid, edges)
    assert (labels, [list(swap) for swap in swaps]) == printed_exchanges(grid, edges)


@given(GRIDS.flatmap(lambda grid: st.tuples(st.just(grid), graphs(grid.nodes))))
def test_every_exchange_brings_at_least_one_communicating_pair_together(case: tuple[Distribution, Edges]) -> None:
    grid, edges = case
    labels, swaps = refine_layer(grid, edges)
    assert sorted(labels) == list(range(grid.nodes))
    assert len(swaps) <= (grid.families - 1) * (grid.block // 2)

    def pairs_within_families(final: list[int]) -> int:
        family_of = {new: old % grid.families for old, new in enumerate(final)}
        return sum(family_of[u] == family_of[v] for u, v in edges)

    assert pairs_within_families(labels) >= pairs_within_families(list(range(grid.nodes))) + len(swaps)


def test_stages_are_levels_of_the_source_on_the_longest_path() -> None:
    flow = flow_of(5, [(0, 1), (1, 2), (0, 2), (2, 3), (0, 1)])
    assert flow.edges == ((0, 1), (1, 2), (0, 2), (2, 3))
    assert (flow.level, flow.stages) == ((0, 1, 2, 3, 0), 3)
    assert flow_of(2, []).stages == 0


@pytest.mark.parametrize(
    ("from_one", "from_other", "stall"),
    [(3, 2, 2), (2, 1, 1), (1, 1, 0), (0, 0, 0)],
)
def test_the_stall_of_a_slot_is_its_largest_not_the_sum(from_one: int, from_other: int, stall: int) -> None:
    """Three parts for one task and two for another stall by 2h; two for one and nothing worse by h."""
    counts = [{0: from_one} if from_one else {}, {0: from_other} if from_other else {}, {0: 1}, {0: 1}]
    table = round_timeline(flow_of(4, [(0, 2), (1, 3)]), counts, [[0]])
    assert table == [{"slot": 0, "start": 0, "steps": [0], "stall": stall}]


def test_a_stall_delays_the_slots_after_it() -> None:
    counts = [{0: 3}, {1: 1}]
    table = round_timeline(flow_of(2, [(0, 1)]), counts, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    assert table is not None
    assert [(row["start"], row["stall"]) for row in table] == [(0, 0), (1, 2), (4, 0)]


def test_components_that_feed_the_same_one_add_up() -> None:
    counts = [{0: 2}, {0: 3}, {0: 1}]
    assert round_timeline(flow_of(3, [(0, 2), (1, 2)]), counts, [[0]]) == [
        {"slot": 0, "start": 0, "steps": [0], "stall": 4}
    ]


def test_a_table_that_would_be_too_large_is_not_made() -> None:
    components = 1500
    flow = flow_of(components, [(at, at + 1) for at in range(components - 1)])
    assert round_timeline(flow, [{0: 1}] * components, [[0]]) is None


@st.composite
def executions(draw: st.DrawFn) -> tuple[Edges, list[dict[int, int]], Matrix]:
    size = draw(st.integers(1, 6))
    grid = Distribution.padded(draw(st.integers(1, 6)), draw(st.integers(1, 6)))
    nodes = st.integers(0, grid.nodes - 1)
    counts = [draw(st.dictionaries(nodes, st.integers(1, 3))) for _ in range(size)]
    return draw(graphs(size)), counts, grid.rows(grid.nodes)


@given(executions())
def test_stalls_are_those_of_counting_every_part(case: tuple[Edges, list[dict[int, int]], Matrix]) -> None:
    edges, counts, schedule = case
    flow = flow_of(len(counts), edges)
    period = len(schedule)
    table = round_timeline(flow, counts, schedule)
    assert table is not None
    assert len(table) == (period + flow.stages - 1 if edges else 0)
    start = 0
    for slot, row in enumerate(table):
        steps = [(slot - stage) % period if slot >= stage else None for stage in range(flow.stages)]
        parts: dict[tuple[int, int, int], int] = defaultdict(int)
        for u, v in edges:
            step = steps[flow.level[u]]
            if step is None:
                continue
            for sender, executors in counts[u].items():
                receiver = schedule[step][sender]
                for task in range(counts[v].get(receiver, 0)):
                    parts[v, receiver, task] += executors
        stall = max(0, max(parts.values(), default=0) - 1)
        assert row == {"slot": slot, "start": start, "steps": steps, "stall": stall}
        start += 1 + stall


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=8), st.lists(st.integers(0, 12)))
def test_executors_go_where_their_component_is_rarest_then_to_the_emptiest_node(
    nodes: list[tuple[int, int]], groups: list[int]
) -> None:
    loads = [own + others for own, others in nodes]
    spread = NodeSpread(loads, range(len(nodes)))
    first = {node: own for node, (own, _) in enumerate(nodes) if own}
    for number, executors in enumerate(groups):
        counts = dict(first) if number == 0 else {}
        chosen = spread.choose(dict(counts), executors)
        for node in chosen:
            assert node == min(range(len(nodes)), key=lambda at: (counts.get(at, 0), loads[at], at))
            counts[node] = counts.get(node, 0) + 1
            loads[node] += 1
        assert len(chosen) == executors
