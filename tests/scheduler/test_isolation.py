"""`isolation` against Storm's rules: whole hosts, good ones kept, the others by `default` or not at all."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of
from scheduling_rounds import Rounds, by_slot, next_round, place_rounds, round_histories

from inventory.cluster import Cluster, ExistingWorker, Node
from inventory.errors import InputError
from scheduler.algorithms.isolation import Isolation, IsolationParams
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked


def place(problem: Problem, machines: Mapping[str, int]) -> Plan:
    return Checked(Isolation, IsolationParams(machines)).place(problem)


def hosts(problem: Problem, plan: Plan, topology: str) -> set[str]:
    return {problem.cluster.by_id[s.node].machine for s in plan.placements[topology].assignments.values()}


def test_six_workers_on_two_machines_are_three_each_on_the_hosts_with_most_slots() -> None:
    problem = Problem(nodes_of(a=2, b=3, c=4), (chain(4, 2, workers=6),))
    plan = place(problem, {"t": 2})
    assert by_slot(plan) == {
        ("b", 0): ["a[3]"],
        ("b", 1): ["b[0]"],
        ("b", 2): ["b[1]"],
        ("c", 0): ["a[0]"],
        ("c", 1): ["a[1]"],
        ("c", 2): ["a[2]"],
    }


def test_executors_are_dealt_component_by_component() -> None:
    plan = place(Problem(nodes_of(a=2), (chain(3, 2, workers=2),)), {"t": 1})
    assert by_slot(plan) == {("a", 0): ["a[0]", "a[2]", "b[1]"], ("a", 1): ["a[1]", "b[0]"]}


def test_other_topologies_are_placed_on_the_remaining_hosts_by_default() -> None:
    plan = place(Problem(nodes_of(a=2, b=2), (chain(4, workers=2, name="u"), chain(1, workers=1))), {"t": 1})
    assert by_slot(plan) == {("a", 0): ["a[0]"]}
    assert by_slot(plan, "u") == {("b", 0): ["a[0]", "a[2]"], ("b", 1): ["a[1]", "a[3]"]}


def test_a_host_with_exactly_the_requested_workers_stays() -> None:
    existing = (ExistingWorker("t", "b", 1, ("a[1]",)), ExistingWorker("t", "b", 0, ("a[0]",)))
    cluster = Cluster(nodes_of(a=4, b=2).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(2, workers=2),)), {"t": 1})
    assert by_slot(plan) == {("b", 0): ["a[0]"], ("b", 1): ["a[1]"]}
    assert plan.freed == []


def test_on_a_shared_host_only_the_isolated_worker_stops() -> None:
    existing = (ExistingWorker("t", "b", 0, ("a[0]",)), ExistingWorker("u", "b", 1, ("a[0]",)))
    cluster = Cluster(nodes_of(a=4, b=2).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(1), chain(1, name="u"))), {"t": 1})
    assert by_slot(plan) == {("a", 0): ["a[0]"]}
    assert by_slot(plan, "u") == {("b", 1): ["a[0]"]}
    assert [(w.topology, w.node, w.slot) for w in plan.freed] == [("t", "b", 0)]


def test_other_topologies_leave_the_largest_host() -> None:
    existing = (ExistingWorker("u", "a", 3, ("a[0]",)),)
    cluster = Cluster(nodes_of(a=4, b=2).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(1), chain(1, name="u"))), {"t": 1})
    assert by_slot(plan) == {("a", 0): ["a[0]"]}
    assert by_slot(plan, "u") == {("b", 0): ["a[0]"]}
    assert [(w.topology, w.node, w.slot) for w in plan.freed] == [("u", "a", 3)]
    assert [(m.topology, tuple(m.target)) for m in plan.migrations] == [("u", ("b", 0))]


def test_equal_hosts_are_ordered_by_free_slots_then_name() -> None:
    existing = (ExistingWorker("other", "a", 0, ("x[0]",)),)
    cluster = Cluster(nodes_of(a=2, c=2, b=2).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(1), chain(1, name="u"))), {"t": 1})
    assert hosts(Problem(cluster, ()), plan, "t") == {"b"}


def test_a_host_too_small_for_a_machine_is_not_passed_over_for_another() -> None:
    plan = place(Problem(nodes_of(a=2, b=1), (chain(3, workers=3, name="t"), chain(1, name="u"))), {"t": 1})
    assert plan.placements["t"].status == "failed"
    assert plan.placements["u"].status == "failed"


def test_if_an_isolated_topology_lacks_a_host_all_others_stop_and_wait() -> None:
    existing = (ExistingWorker("u", "b", 0, ("a[0]",)), ExistingWorker("other", "b", 1, ("x[0]",)))
    cluster = Cluster(nodes_of(a=2, b=2).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(4, workers=4), chain(1, name="u"))), {"t": 1})
    assert plan.placements["t"].status == "failed"
    assert plan.placements["t"].message == "4 workers got no host of their own"
    assert plan.placements["u"].status == "failed"
    assert plan.placements["u"].message == "waits until there are hosts enough for the isolated t"
    assert [(w.topology, w.node, w.slot) for w in plan.freed] == [("u", "b", 0), ("other", "b", 1)]


def test_machines_that_fit_are_kept_while_others_are_missing() -> None:
    plan = place(Problem(nodes_of(a=2, b=1), (chain(4, workers=4),)), {"t": 2})
    assert by_slot(plan) == {("a", 0): ["a[0]"], ("a", 1): ["a[1]"]}
    assert (plan.placements["t"].status, plan.placements["t"].message) == (
        "partial",
        "2 workers got no host of their own",
    )


def test_the_nodes_of_one_host_are_isolated_together() -> None:
    nodes = (Node(id="x", host="h", slots=1), Node(id="y", host="h", slots=1), Node(id="z", slots=1))
    plan = place(Problem(Cluster(nodes), (chain(2, workers=2), chain(1, name="u"))), {"t": 1})
    assert by_slot(plan) == {("x", 0): ["a[0]"], ("y", 0): ["a[1]"]}
    assert by_slot(plan, "u") == {("z", 0): ["a[0]"]}


def test_more_machines_than_workers_are_not_taken() -> None:
    plan = place(Problem(nodes_of(a=2, b=2, c=2), (chain(2, workers=2), chain(1, name="u"))), {"t": 3})
    assert sorted(by_slot(plan)) == [("a", 0), ("b", 0)]
    assert sorted(by_slot(plan, "u")) == [("c", 0)]


def test_an_unknown_topology_is_refused() -> None:
    with pytest.raises(InputError, match=r"machines: unknown topology 'tt'; did you mean 't'"):
        place(Problem(nodes_of(a=2), (chain(2),)), {"tt": 1})


@given(round_histories(), st.integers(1, 3), st.sampled_from(["t", "tu"]))
def test_isolated_hosts_are_never_shared_and_good_hosts_never_change(rounds: Rounds, count: int, isolated: str) -> None:
    known = {topology.id for topology in rounds[1]}

    def place_round(problem: Problem) -> Plan:
        present = {t.id for t in problem.topologies} | {w.topology for w in problem.existing}
        return place(problem, {name: count for name in isolated if name in known & present})

    for problem, plan in place_rounds(rounds, place_round):
        isolated_ids = {t.id for t in problem.topologies if t.id in isolated}
        failed = [name for name in isolated_ids if plan.placements[name].status != "placed"]
        for topology in problem.topologies:
            own_hosts = hosts(problem, plan, topology.id)
            others = {host for t in problem.topologies if t.id != topology.id for host in hosts(problem, plan, t.id)}
            if topology.id in isolated_ids:
                assert not own_hosts & others
                assert len(own_hosts) <= count
            else:
                assert not failed or not own_hosts
        again = place_round(next_round(problem, plan))
        for name in isolated_ids - set(failed):
            assert again.placements[name].assignments == plan.placements[name].assignments
        assert not [worker for worker in again.freed if worker.topology in isolated_ids - set(failed)]
