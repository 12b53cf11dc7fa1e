"""`pmod`: plans after changes of tasks or nodes."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems

from inventory.cluster import Cluster, ExistingWorker, Node, cluster_from_document
from inventory.documents import parse_document
from inventory.errors import InputError
from scheduler.algorithms import pmod
from scheduler.algorithms.even import Even
from scheduler.algorithms.pmod import Pmod, PmodParams
from scheduler.problem import Plan, Problem, Slot, load_problem
from scheduler.registry import Checked
from scheduler.toolkit.node_assignment import MOST_NODES
from workloads.topology import Executor, Topology, topology_of

SIX = nodes_of(**{f"n{at}": 1 for at in range(6)})


def place(problem: Problem, params: PmodParams | None = None) -> Plan:
    return Checked(Pmod, params or PmodParams()).place(problem)


def by_node(plan: Plan, topology: str = "t") -> dict[str, list[str]]:
    nodes: dict[str, list[str]] = {}
    for executor, slot in plan.placements[topology].assignments.items():
        nodes.setdefault(slot.node, []).append(executor.name)
    return {node: sorted(names) for node, names in sorted(nodes.items())}


def after_plan(cluster: Cluster, plan: Plan, *others: ExistingWorker) -> Cluster:
    """Return the cluster on which `plan` runs."""
    workers: dict[tuple[str, Slot], list[str]] = {}
    for name, placement in plan.placements.items():
        for executor, slot in placement.assignments.items():
            workers.setdefault((name, slot), []).append(executor.name)
    placed = tuple(ExistingWorker(t, s.node, s.index, tuple(names)) for (t, s), names in workers.items())
    return Cluster(cluster.nodes, existing=(*others, *placed))


def test_the_worked_example() -> None:
    plan = place(Problem(SIX, (chain(3, 5),)), PmodParams(old_nodes=6, old_tasks=4, v=3.5, w=1))
    details = plan.details
    assert details["g"] == 6
    assert [entry["k"] for entry in details["class_table"]] == list(range(6))
    assert [entry["c"] for entry in details["class_table"]] == [4, 4, 3, 3, 3, 3]
    assert details["class_table"][4]["pairs"] == [(1, 0), (4, 0), (2, 2), (5, 2), (0, 4), (3, 4)]
    assert details["sim"][5] == {"k": 5, "cells": [[5], [1], [3], [5], [1], [3]]}
    assert details["sm"][0] == [0, 2, 4, 1, 3, 5]
    assert details["costs"] == [2, 3, 4, 5, 4, 5]
    assert (details["total_cost"], details["prop2"]) == (23, 23)
    assert details["timing"] == {
        "v": 3.5,
        "w": 1,
        "makespan": 27.5,
        "finish_times": [6.5, 10, 13.5, 18.5, 22.5, 27.5],
    }
    assert plan.schedule is not None
    assert [list(step) for step in plan.schedule.steps] == details["sm"]
    assert plan.schedule.stages == 1


def test_a_fresh_topology_is_spread_and_its_steps_rotate() -> None:
    plan = place(Problem(nodes_of(a=2, b=2, c=2), (chain(4, 2),)))
    assert by_node(plan) == {"a": ["a[0]", "a[3]"], "b": ["a[1]", "b[0]"], "c": ["a[2]", "b[1]"]}
    assert plan.details["sm"] == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    assert plan.details["prop2"] is None  # three nodes: the proposition starts at four


def test_added_tasks_go_where_their_component_is_rarest() -> None:
    cluster = nodes_of(a=1, b=1, c=1)
    before = place(Problem(cluster, (chain(2),)))
    after = place(Problem(after_plan(cluster, before), (chain(4, 1),)))
    assert by_node(before) == {"a": ["a[0]"], "b": ["a[1]"]}
    assert by_node(after) == {"a": ["a[0]", "a[3]"], "b": ["a[1]", "b[0]"], "c": ["a[2]"]}
    assert (after.freed, after.migrations) == ([], ())
    # From two nodes with two tasks of a component to three nodes with four.
    assert after.details["g"] == 4
    assert all(len(step) == 2 for step in after.details["sm"])
    assert len(after.details["sm"]) == 3


def test_tasks_of_a_lost_node_are_placed_on_others() -> None:
    existing = tuple(ExistingWorker("t", name, 0, (f"a[{at}]",)) for at, name in enumerate("abc"))
    nodes = tuple(Node(id=name, available=name != "b") for name in "abc")
    plan = place(Problem(Cluster(nodes, existing=existing), (chain(3),)))
    assert by_node(plan) == {"a": ["a[0]", "a[1]"], "c": ["a[2]"]}
    assert plan.schedule is not None
    assert plan.schedule.nodes == ("a", "c")
    # Three old senders, two new receivers: in every step one sender is idle. Afterwards both nodes send in every step.
    assert [sum(receiver is None for receiver in step) for step in plan.details["sm"]] == [1, 1, 1]
    assert [sorted(step) for step in plan.schedule.steps] == [[0, 1], [0, 1]]  # type: ignore[type-var]


CLUSTER = """
nodes: [{id: x}, {id: y}]
existing:
  - {topology: t, node: x, slot: 1, executors: ["a[0]", "a[2]"]}
  - {topology: t, node: y, slot: 0, executors: ["a[1]"]}
"""
TOPOLOGY = "{id: t, components: [{id: a, kind: spout, parallelism: 2}]}"


def test_removed_tasks_are_dropped() -> None:
    problem = load_problem(
        Pmod.needs, cluster_from_document(parse_document(CLUSTER)), [topology_of(parse_document(TOPOLOGY))]
    )
    plan = place(problem)
    assert plan.placements["t"].assignments == {Executor("a", 0): Slot("x", 1), Executor("a", 1): Slot("y", 0)}
    assert [(worker.node, worker.slot) for worker in plan.freed] == [("x", 1)]
    assert plan.details["g"] == 2  # from two nodes with three tasks to two with two


def test_running_executors_beyond_the_parallelism_are_refused_unless_the_scheduler_defines_them() -> None:
    with pytest.raises(InputError, match=r"has no executor 'a\[2\]'"):
        load_problem(
            Even.needs, cluster_from_document(parse_document(CLUSTER)), [topology_of(parse_document(TOPOLOGY))]
        )
    with pytest.raises(InputError, match=r"has no executor 'b\[2\]'"):
        load_problem(
            Pmod.needs,
            cluster_from_document(parse_document(CLUSTER.replace("a[2]", "b[2]"))),
            [topology_of(parse_document(TOPOLOGY))],
        )


def test_parameters_override_the_running_topology() -> None:
    cluster = Cluster(SIX.nodes, existing=(ExistingWorker("t", "n0", 0, ("a[0]",)),))
    assert place(Problem(cluster, (chain(5),))).details["g"] == 1
    assert place(Problem(cluster, (chain(5),)), PmodParams(old_nodes=6)).details["g"] == 6
    assert place(Problem(cluster, (chain(5),)), PmodParams(old_nodes=6, old_tasks=5)).details["g"] == 30


def test_without_a_slot_nothing_is_placed_and_details_are_null() -> None:
    plan = place(Problem(nodes_of(full=0), (chain(2, 1),)))
    assert plan.placements["t"].status == "failed"
    assert plan.placements["t"].message == "no free slot: 3 executors wait"
    assert plan.schedule is None
    assert plan.details["sm"] is None
    assert plan.details["timing"]["makespan"] is None


def test_a_topology_without_a_slot_fails_and_the_others_are_placed() -> None:
    plan = place(Problem(nodes_of(a=1), (chain(2, name="t"), chain(1, name="u"))))
    assert {name: placement.status for name, placement in plan.placements.items()} == {"t": "placed", "u": "failed"}


def test_too_many_nodes_are_refused() -> None:
    many = tuple(Node(id=f"n{at}") for at in range(MOST_NODES + 1))
    with pytest.raises(InputError, match=f"at most {MOST_NODES}"):
        place(Problem(Cluster(many), (chain(1),)))
    lost = tuple(Node(id=node.id, available=False) for node in many)
    existing = tuple(ExistingWorker("t", node.id, 0, (f"a[{at}]",)) for at, node in enumerate(lost))
    with pytest.raises(InputError, match=f"at most {MOST_NODES}"):
        place(Problem(Cluster((*lost, Node(id="x")), existing=existing), (chain(len(lost)),)))


def test_tables_too_large_to_write_are_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmod, "MOST_CELLS", 500)
    details = place(Problem(nodes_of(a=1, b=1), (chain(600),))).details
    assert (details["class_table"], details["sim"]) == (None, None)
    assert details["sm"] == [[0, 1], [1, 0]]


@st.composite
def rounds(draw: st.DrawFn) -> tuple[Problem, Topology]:
    """A topology that `pmod` placed, now with other parallelism and other available nodes."""
    names = "abcdef"
    slots = {name: draw(st.integers(1, 2)) for name in names}
    before = chain(*draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    after = chain(*(draw(st.integers(1, 7)) for _ in before.components))
    alive = draw(st.lists(st.booleans(), min_size=6, max_size=6))
    kept = draw(st.lists(st.booleans(), min_size=6, max_size=6).filter(any))
    first = Cluster(tuple(Node(id=n, slots=slots[n], available=up) for n, up in zip(names, alive, strict=True)))
    plan = place(Problem(first, (before,)))
    second = Cluster(tuple(Node(id=n, slots=slots[n], available=up) for n, up in zip(names, kept, strict=True)))
    return Problem(after_plan(second, plan), (after,)), before


@given(rounds())
def test_a_change_moves_no_surviving_task_and_every_task_has_a_live_node(
    case: tuple[Problem, Topology],
) -> None:
    problem, _ = case
    (topology,) = problem.topologies
    plan = place(problem)
    placed = plan.placements["t"].assignments
    live = {node.id for node in problem.cluster.available}
    assert set(placed) == set(topology.executors)
    for worker in problem.existing:
        for name in worker.executors:
            executor = Executor.named(name)
            if worker.node in live and executor in topology.number_of:
                assert placed[executor] == Slot(worker.node, worker.slot)
    assert {slot.node for slot in placed.values()} <= live
    assert plan.migrations == ()


@given(rounds())
def test_unplaced_tasks_are_placed_one_by_one(case: tuple[Problem, Topology]) -> None:
    problem, _ = case
    (topology,) = problem.topologies
    plan = place(problem)
    placed = plan.placements["t"].assignments
    live = [node.id for node in problem.cluster.available]
    total: Counter[str] = Counter()
    per_component: Counter[tuple[str, str]] = Counter()
    running_tasks = set()
    for worker in problem.existing:
        for executor in map(Executor.named, worker.executors):
            if worker.node in live and executor in topology.number_of:
                running_tasks.add(executor)
                total[worker.node] += 1
                per_component[executor.component, worker.node] += 1
    for executor in topology.executors:
        if executor not in running_tasks:
            best = min(live, key=lambda node: (per_component[executor.component, node], total[node], live.index(node)))
            assert placed[executor].node == best
            total[best] += 1
            per_component[executor.component, best] += 1


@given(problems(cycles=True), st.none() | st.integers(1, 9), st.none() | st.integers(1, 9))
def test_without_changes_every_node_sends_to_every_node_once_a_round(
    problem: Problem, old_nodes: int | None, old_tasks: int | None
) -> None:
    plan = place(problem, PmodParams(old_nodes, old_tasks))
    if plan.schedule is None:
        return
    size = len(plan.schedule.nodes)
    all_nodes = list(range(size))
    steps = plan.schedule.steps
    assert len(steps) == size
    assert all(sorted(line) == all_nodes for line in [*steps, *zip(*steps, strict=True)])  # type: ignore[type-var]
    senders = len(plan.details["sm"][0])
    assert old_nodes is None or senders == old_nodes
    assert len(plan.details["sm"]) == max(senders, size)
    assert plan.details["total_cost"] == sum(plan.details["costs"])
    times = plan.details["timing"]["finish_times"]
    assert len(times) == len(plan.details["costs"])
    assert all(later > earlier for earlier, later in pairwise(times))
    assert plan.details["timing"]["makespan"] == times[-1]


@given(problems(cycles=True))
def test_a_second_round_changes_nothing(problem: Problem) -> None:
    plan = place(problem)
    others = [w for w in problem.existing if w.topology not in plan.placements]
    again = place(Problem(after_plan(problem.cluster, plan, *others), problem.topologies))
    assert {n: p.assignments for n, p in again.placements.items()} == {
        n: p.assignments for n, p in plan.placements.items()
    }
