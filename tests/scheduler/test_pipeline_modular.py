"""Arithmetic of `pmod`: the worked example cell by cell, then classes, steps and times for any sizes."""

from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.pipeline.modular import LayoutChange, Step, estimated_cost, finish_times, step_cost

EXAMPLE = LayoutChange(6, 4, 6, 5)
CHANGES = st.builds(LayoutChange, st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))
TIMES = st.integers(0, 12).map(lambda quarters: quarters / 4)


def test_classes_of_the_worked_example() -> None:
    assert (EXAMPLE.classes, EXAMPLE.spacing) == (6, 1)
    assert EXAMPLE.pairs() == [
        [(0, 0), (3, 0), (1, 2), (4, 2), (2, 4), (5, 4)],
        [(0, 1), (3, 1), (1, 3), (4, 3), (2, 5), (5, 5)],
        [(2, 0), (5, 0), (0, 2), (3, 2), (1, 4), (4, 4)],
        [(2, 1), (5, 1), (0, 3), (3, 3), (1, 5), (4, 5)],
        [(1, 0), (4, 0), (2, 2), (5, 2), (0, 4), (3, 4)],
        [(1, 1), (4, 1), (2, 3), (5, 3), (0, 5), (3, 5)],
    ]
    assert EXAMPLE.common().tolist() == [4, 4, 3, 3, 3, 3]
    assert EXAMPLE.groups().tolist() == [[0, 1], [2, 3], [4, 5]]


def test_single_index_matrix_of_the_worked_example() -> None:
    assert [EXAMPLE.receivers(pairs) for pairs in EXAMPLE.pairs()] == [
        [[0], [2], [4], [0], [2], [4]],
        [[1], [3], [5], [1], [3], [5]],
        [[2], [4], [0], [2], [4], [0]],
        [[3], [5], [1], [3], [5], [1]],
        [[4], [0], [2], [4], [0], [2]],
        [[5], [1], [3], [5], [1], [3]],
    ]


def test_steps_and_costs_of_the_worked_example() -> None:
    steps = EXAMPLE.steps()
    assert steps == [
        [0, 2, 4, 1, 3, 5],
        [1, 3, 5, 0, 2, 4],
        [2, 4, 0, 3, 5, 1],
        [3, 5, 1, 2, 4, 0],
        [4, 0, 2, 5, 1, 3],
        [5, 1, 3, 4, 0, 2],
    ]
    assert [step_cost(step) for step in steps] == [2, 3, 4, 5, 4, 5]
    assert estimated_cost(6) == 23


@pytest.mark.parametrize(("nodes", "total"), [(4, 10), (5, 16), (6, 23), (7, 34), (12, 108)])
def test_the_estimated_cost_of_steps(nodes: int, total: int) -> None:
    """6: 2*5 + 2*4, two remain: 1*3 and 1*2. 12: 2*11 + 2*10 + 3*9 + 4*8, one remains: 1*7."""
    assert estimated_cost(nodes) == total


@pytest.mark.parametrize(
    ("costs", "v", "w", "makespan"),
    [
        ((2, 3, 4, 5, 4, 5), 3.5, 1, 27.5),
        ((5, 5, 4, 4, 3, 2), 3.5, 1, 29.5),
        ((2, 3, 4, 5, 4, 5), 6, 1, 39),
        ((5, 5, 4, 4, 3, 2), 6, 1, 42),
    ],
)
def test_times_of_the_worked_example(costs: tuple[int, ...], v: float, w: float, makespan: float) -> None:
    assert finish_times(costs, v, w)[-1] == makespan


def test_every_step_has_its_finish_time() -> None:
    assert finish_times((2, 3, 4, 5, 4, 5), 3.5, 1) == [6.5, 10, 13.5, 18.5, 22.5, 27.5]


@given(CHANGES)
def test_classes_partition_the_pairs_into_equal_parts(change: LayoutChange) -> None:
    table = change.pairs()
    n, q, e, g = change.old_nodes, change.nodes, change.spacing, change.classes
    assert sorted(pair for pairs in table for pair in pairs) == [(s, r) for s in range(n) for r in range(q)]
    for number, pairs in enumerate(table):
        assert pairs == sorted(pairs, key=lambda pair: pair[::-1])
        assert len(pairs) == (n * q * e // g if number % e == 0 else 0)


@given(CHANGES)
def test_common_tasks_are_those_that_both_layouts_give_a_pair(change: LayoutChange) -> None:
    n, t, q, s = change.old_nodes, change.old_tasks, change.nodes, change.tasks
    period = lcm(n * t, q * s)
    shared = [[0] * q for _ in range(n)]
    for item in range(period):
        shared[item // t % n][item // s % q] += 1
    common = change.common().tolist()
    for sender in range(n):
        for receiver in range(q):
            assert common[change.class_of(sender, receiver)] == shared[sender][receiver]
    assert sum(common) == t * s
    assert change.common(change.spacing).tolist() == common[:: change.spacing]
    assert common == [
        sum((y - x) % change.classes == k for x in range(t) for y in range(s)) for k in range(change.classes)
    ]


@given(CHANGES)
def test_cells_have_one_receiver_exactly_under_the_assumptions_of_the_paper(change: LayoutChange) -> None:
    e, g = change.spacing, change.classes
    rows = [change.receivers(pairs) for pairs in change.pairs() if pairs]
    is_assumed = g == change.nodes * e and lcm(change.tasks // e, g // e) == change.tasks // e * (g // e)
    assert all(len(cell) == 1 for row in rows for cell in row) == is_assumed
    assert all(cell == sorted(cell) for row in rows for cell in row)


@given(CHANGES)
def test_steps_serve_every_pair_once_and_no_receiver_twice(change: LayoutChange) -> None:
    steps = change.steps()
    n, q = change.old_nodes, change.nodes
    assert len(steps) == max(n, q)
    served: list[tuple[int, int]] = []
    for step in steps:
        busy = [(sender, receiver) for sender, receiver in enumerate(step) if receiver is not None]
        assert len(busy) == len({receiver for _, receiver in busy}) == min(n, q)
        served += busy
    assert sorted(served) == [(s, r) for s in range(n) for r in range(q)]


@given(CHANGES)
def test_a_step_is_made_of_one_groups_classes(change: LayoutChange) -> None:
    groups = change.groups().tolist()
    numbers = [k * change.spacing for group in groups for k in group]
    assert sorted(numbers) == [k for k, pairs in enumerate(change.pairs()) if pairs]
    steps = change.steps()
    each = len(steps) // len(groups)
    for number, step in enumerate(steps):
        classes = {change.class_of(sender, receiver) for sender, receiver in enumerate(step) if receiver is not None}
        assert classes <= {k * change.spacing for k in groups[number // each]}


@given(CHANGES)
def test_groups_take_the_classes_with_most_common_tasks_first(change: LayoutChange) -> None:
    common = change.common(change.spacing).tolist()
    for column in change.groups().T.tolist():
        assert column == sorted(column, key=lambda k: (-common[k], k))
        assert len({k % len(change.groups()[0]) for k in column}) == 1


def segment_steps(change: LayoutChange) -> list[Step]:
    """The paper's scheduling matrix where cells have one receiver: segments of SIM rows, from class to class."""
    rows = {k: [cell[0] for cell in change.receivers(pairs)] for k, pairs in enumerate(change.pairs()) if pairs}
    steps: list[Step] = []
    for group in change.groups().tolist():
        classes = [rows[k * change.spacing] for k in group]
        alpha = change.nodes // len(classes)
        for m in range(len(classes)):
            step: Step = []
            for sender in range(change.old_nodes):
                step.append(classes[(m + sender // alpha) % len(classes)][sender])
            steps.append(step)
    return steps


@pytest.mark.parametrize(
    "change", [EXAMPLE, LayoutChange(4, 2, 4, 3), LayoutChange(9, 3, 9, 4), LayoutChange(12, 6, 12, 7)]
)
def test_steps_are_the_papers_segments_where_its_assumptions_hold(change: LayoutChange) -> None:
    assert change.steps() == segment_steps(change)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), TIMES, TIMES)
def test_the_pipelines_time_lies_between_its_bounds(costs: list[int], one: float, other: float) -> None:
    v, w = max(one, other), min(one, other)
    times = finish_times(costs, v, w)
    assert times == sorted(times)
    total = times[-1]
    assert total >= max(sum(costs) + v + w, costs[0] + len(costs) * v + w)
    assert total <= costs[0] + sum(max(cost, v) for cost in costs[1:]) + v + w
    assert total <= sum(costs) + len(costs) * (v + w)
    if v > max(costs):
        assert total == costs[0] + len(costs) * v + w
