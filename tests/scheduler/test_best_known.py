"""Best known placement of a round, and the gap of each plan to it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from partitioning_problems import cluster, minimum, rounds, w

from inventory.cluster import Cluster, Node
from scheduler.explain.best_known import SEARCH, BestKnown, find_best_known
from scheduler.explain.explanation import MOST_SEARCHED
from scheduler.problem import Placement, Plan, Problem, Slot
from scheduler.registry import make_scheduler
from workloads.example_topologies import layered, linear


def _plan(name: str, problem: Problem) -> tuple[Problem, Plan]:
    return problem, make_scheduler(name).place(problem)


def _on_nodes(problem: Problem, nodes: list[int]) -> Plan:
    (topology,) = problem.topologies
    slots = {e: Slot(problem.cluster.nodes[at].id, 0) for e, at in zip(topology.executors, nodes, strict=True)}
    return Plan({topology.id: Placement(slots)})


@given(rounds(most=6), st.data())
def test_the_gap_of_a_small_round_is_that_to_the_smallest_w_of_all_placements(problem: Problem, data: Any) -> None:
    (topology,) = problem.topologies
    size, nodes = len(topology.executors), problem.cluster.nodes
    drawn = data.draw(st.lists(st.integers(0, len(nodes) - 1), min_size=size, max_size=size))
    plan = _on_nodes(problem, drawn)
    known = find_best_known({"drawn": (problem, plan)}, problem)["drawn"]
    smallest = minimum(problem)
    if smallest is None:
        assert known is None
        return
    assert known is not None
    assert (known.w, known.optimal) == (pytest.approx(smallest), True)
    plan_w = w(problem, plan)
    if any(drawn.count(at) > (node.capacity or 0) for at, node in enumerate(nodes)):
        assert known.gap is None
    elif smallest == 0:
        assert known.gap == (0 if plan_w == 0 else None)
    else:
        assert known.gap == pytest.approx(plan_w / smallest - 1)
    assert (known.by == "drawn") == (known.gap == 0)


@pytest.mark.long
@settings(deadline=None, max_examples=3)
@given(st.integers(0, 50), st.booleans())
def test_in_a_large_round_it_is_the_best_of_all_plans_and_a_search(seed: int, observed: bool) -> None:
    topology, traffic = layered(MOST_SEARCHED + 60, seed)
    problem = Problem(cluster(*[20] * 9), (replace(topology, workers=9),), traffic if observed else None)
    plans = {name: _plan(name, problem) for name in ("even", "local-search")}
    known = find_best_known(plans, problem)
    alone = find_best_known({"even": plans["even"]}, problem)["even"]
    assert alone is not None
    assert alone.by == SEARCH
    assert alone.w < w(*plans["even"])
    for name, plan in plans.items():
        entry = known[name]
        assert entry is not None
        assert entry.gap == pytest.approx(w(*plan) / entry.w - 1, abs=1e-8)
        assert entry.w == pytest.approx(min(alone.w, w(*plans["local-search"])))
        assert not entry.optimal


def test_plans_that_leave_out_executors_or_use_absent_nodes_have_no_gap() -> None:
    topology = linear(4)
    nodes = (*cluster(9, 9).nodes, Node(id="away", capacity=9, available=False))
    problem = Problem(Cluster(nodes), (topology,))
    away = _on_nodes(problem, [2, 2, 2, 2])
    partial = Plan({topology.id: Placement({topology.executors[0]: Slot("n0000", 0)}, "partial", "no slot")})
    plans = {"partial": (problem, partial), "away": (problem, away), "optimal": _plan("optimal", problem)}
    assert find_best_known(plans, problem) == {
        "partial": BestKnown(0, "optimal", True, None),
        "away": BestKnown(0, "optimal", True, None),
        "optimal": BestKnown(0, "optimal", True, 0.0),
    }


def test_equally_good_plans_have_no_gap_and_the_first_is_named() -> None:
    problem = Problem(cluster(*[3] * 4), (linear(10),))
    plans = {name: _plan(name, problem) for name in ("local-search", "optimal")}
    known = find_best_known(plans, problem)
    assert [(each.by, each.gap) for each in known.values() if each is not None] == [("local-search", 0.0)] * 2
