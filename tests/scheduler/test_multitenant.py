"""`multitenant` against Storm's rules: pools of whole nodes, most nodes per user, packing, status words."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from problems import chain, nodes_of
from scheduling_rounds import Rounds, by_slot, place_rounds, round_histories

from inventory.cluster import Cluster, ExistingWorker
from inventory.errors import InputError
from scheduler.algorithms.multitenant import Multitenant, MultitenantParams
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from workloads.topology import Topology


def place(problem: Problem, pools: Mapping[str, int] | None = None, spread: Mapping[str, tuple[str, ...]] = {}) -> Plan:
    return Checked(Multitenant, MultitenantParams(pools or {}, spread)).place(problem)


def topology(*sizes: int, workers: int, name: str = "t", user: str = "alice", isolated: int | None = None) -> Topology:
    return replace(chain(*sizes, workers=workers, name=name), user=user, isolated_nodes=isolated)


def test_the_default_pool_fills_a_node_before_the_next() -> None:
    plan = place(Problem(nodes_of(a=2, b=2), (topology(3, 1, workers=3),)))
    assert by_slot(plan) == {("a", 0): ["a[0]", "b[0]"], ("a", 1): ["a[1]"], ("b", 0): ["a[2]"]}
    assert plan.placements["t"].message == "Fully Scheduled"


def test_the_default_pool_shares_nodes_before_it_borrows() -> None:
    plan = place(Problem(nodes_of(a=4, b=4), (topology(2, workers=2), topology(2, workers=2, name="u"))))
    assert sorted(by_slot(plan, "u")) == [("a", 2), ("a", 3)]


def test_fewer_slots_than_requested_are_reported() -> None:
    plan = place(Problem(nodes_of(a=2), (topology(4, workers=3),)))
    assert plan.placements["t"].status == "placed"
    assert plan.placements["t"].message == "Running with fewer slots than requested (2/3)"


def test_more_workers_than_executors_could_not_be_used() -> None:
    plan = place(Problem(nodes_of(a=4), (topology(2, workers=3),)))
    assert plan.placements["t"].message == "Fully Scheduled (requested 3 slots, but could only use 2)"


def test_no_free_slot_leaves_executors_waiting() -> None:
    plan = place(Problem(nodes_of(a=2), (topology(2, workers=2), topology(3, workers=1, name="u"))))
    assert plan.placements["u"].status == "failed"
    assert plan.placements["u"].message == (
        "Not fully scheduled (No free slots in default pool) 3 executors not scheduled"
    )


def test_a_complete_topology_that_requests_more_slots_is_placed_again() -> None:
    existing = (ExistingWorker("t", "a", 0, ("a[0]", "a[1]", "a[2]", "a[3]")),)
    plan = place(Problem(Cluster(nodes_of(a=2).nodes, existing=existing), (topology(4, workers=2),)))
    assert by_slot(plan) == {("a", 0): ["a[0]", "a[2]"], ("a", 1): ["a[1]", "a[3]"]}
    assert [(w.node, w.slot) for w in plan.freed] == [("a", 0)]


def test_waiting_executors_get_new_workers_beside_the_running_ones() -> None:
    existing = (ExistingWorker("t", "a", 0, ("a[0]",)),)
    plan = place(Problem(Cluster(nodes_of(a=3).nodes, existing=existing), (topology(3, workers=3),)))
    assert by_slot(plan) == {("a", 0): ["a[0]"], ("a", 1): ["a[1]"], ("a", 2): ["a[2]"]}
    assert plan.freed == []


def test_an_isolated_topology_gets_separate_nodes_and_balanced_workers() -> None:
    isolated = topology(6, workers=4, isolated=2)
    plan = place(
        Problem(nodes_of(a=4, b=4, c=4), (topology(1, workers=1, name="u", user="bob"), isolated)), {"alice": 2}
    )
    assert sorted(by_slot(plan)) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert sorted(by_slot(plan, "u")) == [("c", 0)]
    assert plan.placements["t"].message == "Scheduled Isolated on 2 Nodes"


def test_a_user_gets_at_most_the_allowed_nodes() -> None:
    plan = place(Problem(nodes_of(a=4, b=4, c=4), (topology(6, workers=4, isolated=3),)), {"alice": 2})
    assert plan.placements["t"].status == "failed"
    assert plan.placements["t"].message == (
        "Max Nodes(2) for this user would be exceeded. 1 more nodes needed to run topology."
    )


def test_a_topology_that_asks_for_no_nodes_borrows_what_it_needs_up_to_the_limit() -> None:
    fits = place(Problem(nodes_of(a=2, b=2, c=2), (topology(4, workers=4),)), {"alice": 2})
    assert fits.placements["t"].message == "Scheduled Isolated on 2 Nodes"
    not_so = place(Problem(nodes_of(a=2, b=2, c=2), (topology(5, workers=5),)), {"alice": 2})
    assert not_so.placements["t"].message == (
        "Max Nodes(2) for this user would be exceeded. 1 more nodes needed to run topology."
    )


def test_a_full_default_pool_empties_and_lends_its_least_used_node() -> None:
    existing = (
        ExistingWorker("u", "a", 0, ("a[0]",)),
        ExistingWorker("u", "a", 1, ("a[1]",)),
        ExistingWorker("u", "b", 0, ("a[2]",)),
    )
    cluster = Cluster(nodes_of(a=3, b=3).nodes, existing=existing)
    other = topology(3, workers=3, name="u", user="bob")
    plan = place(Problem(cluster, (other, topology(1, workers=1, isolated=1))), {"alice": 1})
    assert by_slot(plan) == {("b", 0): ["a[0]"]}
    assert by_slot(plan, "u") == {("a", 0): ["a[0]"], ("a", 1): ["a[1]"], ("a", 2): ["a[2]"]}
    assert [(w.topology, w.node, w.slot) for w in plan.freed] == [("u", "b", 0)]


def test_isolated_topologies_take_nodes_of_other_topologies_of_the_user_last() -> None:
    shared, alone = topology(2, workers=2, name="s"), topology(1, workers=1, isolated=1)
    plan = place(Problem(nodes_of(a=1, b=1), (shared, alone)), {"alice": 2})
    assert by_slot(plan) == {("a", 0): ["a[0]"]}
    assert by_slot(plan, "s") == {("b", 0): ["a[1]"]}
    assert plan.placements["s"].message == "Not fully scheduled: nodes were given to the isolated 't'"


def test_a_topology_that_shares_a_node_stays_in_the_default_pool() -> None:
    existing = (ExistingWorker("t", "a", 0, ("a[0]",)), ExistingWorker("u", "a", 1, ("a[0]",)))
    cluster = Cluster(nodes_of(a=4, b=4).nodes, existing=existing)
    plan = place(Problem(cluster, (topology(1, workers=1), topology(1, workers=1, name="u", user="bob"))), {"alice": 2})
    assert plan.placements["t"].message == "Fully Scheduled"
    assert plan.freed == []


def test_spread_components_go_one_to_a_node_and_the_last_worker_takes_the_rest() -> None:
    plan = place(Problem(nodes_of(a=2, b=2), (topology(4, 3, workers=4),)), spread={"t": ("b",)})
    assert by_slot(plan) == {
        ("a", 0): ["a[0]", "b[0]"],
        ("a", 1): ["a[1]"],
        ("b", 0): ["a[2]", "b[1]"],
        ("b", 1): ["a[3]", "b[2]"],
    }
    with pytest.raises(InputError, match="no component 'bb'"):
        place(Problem(nodes_of(a=2), (topology(4, workers=1),)), spread={"t": ("bb",)})


def test_a_node_with_a_running_executor_of_a_spread_component_gets_no_other_one() -> None:
    existing = (ExistingWorker("t", "a", 0, ("a[0]", "b[0]")),)
    cluster = Cluster(nodes_of(a=2, b=2).nodes, existing=existing)
    plan = place(Problem(cluster, (topology(3, 2, workers=3),)), spread={"t": ("b",)})
    assert by_slot(plan) == {("a", 0): ["a[0]", "b[0]"], ("a", 1): ["a[1]"], ("b", 0): ["a[2]", "b[1]"]}


@given(round_histories(), st.integers(0, 3))
def test_pools_keep_their_limits_and_user_nodes_are_never_shared(rounds: Rounds, most: int) -> None:
    def place_round(problem: Problem) -> Plan:
        return place(problem, {"alice": most}, {"t": ("s",)})

    for problem, plan in place_rounds(rounds, place_round):
        nodes = {t.id: {slot.node for slot in plan.placements[t.id].assignments.values()} for t in problem.topologies}
        pooled = [t for t in problem.topologies if plan.placements[t.id].message.startswith("Scheduled Isolated")]
        assert len(set().union(*(nodes[t.id] for t in pooled))) <= most
        for t in pooled:
            assert t.user == "alice"
            assert not any(nodes[t.id] & nodes[other] for other in nodes if other != t.id)
        for t in problem.topologies:
            message = plan.placements[t.id].message
            if message.startswith(("Fully Scheduled", "Running with")):
                assert plan.placements[t.id].status == "placed"
            if message == "Fully Scheduled":
                assert len(set(plan.placements[t.id].assignments.values())) >= t.workers
