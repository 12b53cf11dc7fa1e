"""`default` against Storm's rules: keep workers of a right size, release the others, then `even`."""

from collections import Counter

import msgspec
from hypothesis import given
from problems import chain, nodes_of, problems
from scheduling_rounds import Rounds, by_slot, next_round, place_rounds, round_histories

from inventory.cluster import Cluster, ExistingWorker
from scheduler.algorithms.default import Default
from scheduler.algorithms.even import Even, EvenParams
from scheduler.problem import NoParams, Plan, Problem
from scheduler.registry import Checked
from workloads.topology import Topology


def place(problem: Problem) -> Plan:
    return Checked(Default, NoParams()).place(problem)


def running(topology: Topology, workers: dict[tuple[str, int], list[str]], **slots: int) -> Problem:
    existing = tuple(ExistingWorker(topology.id, *slot, tuple(names)) for slot, names in workers.items())
    return Problem(Cluster(nodes_of(**slots).nodes, existing=existing), (topology,))


def freed(plan: Plan) -> list[tuple[str, int]]:
    return [(worker.node, worker.slot) for worker in plan.freed]


def test_a_complete_topology_never_moves_when_nodes_join() -> None:
    plan = place(running(chain(4, workers=2), {("a", 0): ["a[0]", "a[2]"], ("a", 1): ["a[1]", "a[3]"]}, a=2, b=4, c=4))
    assert by_slot(plan) == {("a", 0): ["a[0]", "a[2]"], ("a", 1): ["a[1]", "a[3]"]}
    assert freed(plan) == []


def test_too_few_workers_are_split_again_when_slots_appear_and_right_sizes_stay() -> None:
    # 7 executors over 3 workers: sizes 3, 2, 2. The worker of 2 stays, the one of 5 does not.
    workers = {("a", 0): ["a[0]", "a[1]"], ("a", 1): ["a[2]", "a[3]", "a[4]", "a[5]", "a[6]"]}
    plan = place(running(chain(7, workers=3), workers, a=2, b=2))
    assert by_slot(plan) == {
        ("a", 0): ["a[0]", "a[1]"],
        ("b", 0): ["a[2]", "a[4]", "a[6]"],
        ("a", 1): ["a[3]", "a[5]"],
    }
    assert freed(plan) == [("a", 1)]
    assert {(m.executor.name, tuple(m.source), tuple(m.target)) for m in plan.migrations} == {
        (name, ("a", 1), ("b", 0)) for name in ("a[2]", "a[4]", "a[6]")
    }


def test_a_worker_size_is_kept_only_as_often_as_it_is_needed() -> None:
    # 5 over 3 workers: 2, 2, 1. Three workers of 1 run: one stays.
    workers = {("a", 0): ["a[0]"], ("a", 1): ["a[1]"], ("a", 2): ["a[2]"]}
    plan = place(running(chain(5, workers=3), workers, a=3))
    assert by_slot(plan)["a", 0] == ["a[0]"]
    assert freed(plan) == [("a", 1), ("a", 2)]
    assert sorted(map(len, by_slot(plan).values())) == [1, 2, 2]


def test_a_released_slot_goes_to_an_earlier_topology_that_waits() -> None:
    # As in Storm, where placing one topology places all that need it.
    problem = running(chain(4, workers=2), {("a", 0): ["a[0]", "a[1]", "a[2]"]}, a=1)
    earlier = msgspec.structs.replace(chain(1), id="earlier")
    plan = place(Problem(problem.cluster, (earlier, *problem.topologies)))
    assert by_slot(plan, "earlier") == {("a", 0): ["a[0]"]}
    assert by_slot(plan) == {}


def test_the_remaining_worker_takes_all_executors_when_no_other_slot_is_free() -> None:
    plan = place(running(chain(4, workers=2), {("a", 0): ["a[0]", "a[2]"]}, a=1))
    assert by_slot(plan) == {("a", 0): ["a[0]", "a[1]", "a[2]", "a[3]"]}
    assert freed(plan) == [("a", 0)]
    assert plan.migrations == []
    assert plan.placements["t"].status == "placed"


def test_workers_on_a_dead_node_are_replaced_and_not_released() -> None:
    problem = running(chain(4, workers=2), {("a", 0): ["a[0]", "a[2]"], ("b", 0): ["a[1]", "a[3]"]}, a=2)
    nodes = (*problem.cluster.nodes, *nodes_of(b=2).nodes)
    cluster = Cluster((nodes[0], type(nodes[1])(id="b", slots=2, available=False)), existing=problem.existing)
    plan = place(Problem(cluster, problem.topologies))
    assert by_slot(plan) == {("a", 0): ["a[0]", "a[2]"], ("a", 1): ["a[1]", "a[3]"]}
    assert freed(plan) == []


def test_workers_of_other_topologies_stay() -> None:
    cluster = Cluster(nodes_of(a=1).nodes, existing=(ExistingWorker("other", "a", 0, ("x[0]",)),))
    plan = place(Problem(cluster, (chain(2),)))
    assert plan.placements["t"].status == "failed"
    assert freed(plan) == []


@given(problems(cycles=True))
def test_without_running_workers_it_is_even(problem: Problem) -> None:
    fresh = Problem(Cluster(problem.cluster.nodes), problem.topologies)
    assert place(fresh).placements == Checked(Even, EvenParams()).place(fresh).placements


@given(round_histories())
def test_complete_topologies_stay_and_none_is_placed_in_part(rounds: Rounds) -> None:
    for problem, plan in place_rounds(rounds, place):
        live = {node.id for node in problem.cluster.available}
        for topology in problem.topologies:
            placement = plan.placements[topology.id]
            assert len(placement.assignments) in (0, len(topology.executors))
            assert len(set(placement.assignments.values())) <= topology.workers
            before = [w for w in problem.existing if w.topology == topology.id and w.node in live]
            if len(before) >= topology.workers and sum(len(w.executors) for w in before) == len(topology.executors):
                assert not [worker for worker in plan.freed if worker.topology == topology.id]
        again = place(next_round(problem, plan))
        complete = {
            t.id for t in problem.topologies if len(set(plan.placements[t.id].assignments.values())) == t.workers
        }
        assert not complete & {worker.topology for worker in again.freed}


@given(round_histories())
def test_a_single_topology_is_split_evenly_when_it_is_placed_again(rounds: Rounds) -> None:
    cluster, topologies, steps = rounds
    for problem, plan in place_rounds((cluster, topologies[:1], [(away, 1) for away, _ in steps]), place):
        slots = Counter(plan.placements[topologies[0].id].assignments.values())
        free = sum(node.slots for node in problem.cluster.available)
        others = sum(w.topology == "other" and problem.cluster.by_id[w.node].available for w in problem.existing)
        if slots and len(slots) == min(topologies[0].workers, free - others):
            assert max(slots.values()) - min(slots.values()) <= 1
