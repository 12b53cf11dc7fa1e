"""`even` against Storm's rules (docs: Storm's EvenScheduler), worked examples first, then properties."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems, topologies
from scheduling_rounds import by_slot

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.algorithms.even import Even, EvenParams, storm_order
from scheduler.problem import Placement, Plan, Problem, Slot
from scheduler.registry import Checked
from workloads.topology import Component, Executor, Input, Topology


def place(problem: Problem, params: EvenParams | None = None) -> Plan:
    return Checked(Even, params or EvenParams()).place(problem)


def test_executors_are_dealt_over_interleaved_slots() -> None:
    plan = place(Problem(nodes_of(s1=2, s2=3, s3=4), (chain(2, 3, workers=4),)))
    assert (
        by_slot(plan)
        == {
            ("s3", 0): ["a[0]", "b[2]"],
            ("s2", 0): ["a[1]"],
            ("s1", 0): ["b[0]"],
            ("s3", 1): ["b[1]"],
        }
        | {}
    )
    assert plan.placements["t"].status == "placed"
    assert plan.placements["t"].message == ""


@given(problems(), st.integers(0, 2**32))
def test_a_shuffle_exchanges_executors_and_keeps_slots_and_sizes(problem: Problem, seed: int) -> None:
    plain, shuffled = place(problem), place(problem, EvenParams(shuffle=seed))
    assert place(problem, EvenParams(shuffle=seed)) == shuffled
    for name, placement in plain.placements.items():
        other = shuffled.placements[name]
        assert (other.status, other.assignments.keys()) == (placement.status, placement.assignments.keys())
        assert Counter(other.assignments.values()) == Counter(placement.assignments.values())


def test_seeds_give_random_placements() -> None:
    problem = Problem(nodes_of(s1=2, s2=3, s3=4), (chain(5, 5, workers=4),))
    found = [place(problem, EvenParams(shuffle=seed)).placements["t"].assignments for seed in range(200)]
    assert len({tuple(sorted((e.name, slot) for e, slot in each.items())) for each in found}) > 150
    first = Executor("a", 0)
    counts = Counter(each[first] for each in found)
    assert len(counts) == 4
    assert min(counts.values()) > 20


def test_executors_are_numbered_by_component_id_in_plain_character_order() -> None:
    topology = Topology(
        id="t",
        components=tuple(Component(id=name, kind="spout") for name in ("b", "_a", "a", "Z", "9", "__acker")),
        workers=6,
    )
    assert [e.component for e in storm_order(topology.executors)] == ["9", "Z", "__acker", "_a", "a", "b"]
    plan = place(Problem(nodes_of(n=6), (topology,)))
    slots = plan.placements["t"].assignments
    assert sorted(slots, key=lambda executor: slots[executor].index) == storm_order(topology.executors)


def test_indices_are_numbers_not_text() -> None:
    assert [executor.index for executor in storm_order(chain(11).executors)] == list(range(11))


def test_the_loopback_demo_uses_one_slot_of_every_node() -> None:
    plan = place(Problem(nodes_of(n1=4, n2=4, n3=4, n4=4, n5=4), (chain(5, 8, 12, workers=5, ackers=3),)))
    assert {slot: len(names) for slot, names in by_slot(plan).items()} == {
        ("n1", 0): 6,
        ("n2", 0): 6,
        ("n3", 0): 6,
        ("n4", 0): 5,
        ("n5", 0): 5,
    }


def test_too_few_slots_pack_everything_into_them() -> None:
    plan = place(Problem(nodes_of(n=2), (chain(5, workers=4),)))
    assert by_slot(plan) == {("n", 0): ["a[0]", "a[2]", "a[4]"], ("n", 1): ["a[1]", "a[3]"]}
    placement = plan.placements["t"]
    assert (placement.status, placement.message) == ("placed", "4 workers were asked for, there are slots for 2")


def test_a_topology_without_a_free_slot_fails_and_the_others_are_placed() -> None:
    first, second = chain(2, workers=2, name="first"), chain(2, workers=1, name="second")
    plan = place(Problem(nodes_of(n=2), (first, second)))
    assert plan.placements["first"].status == "placed"
    assert plan.placements["second"] == Placement({}, "failed", "no free slot: 2 executors wait")


def test_topologies_are_placed_in_the_given_order() -> None:
    first, second = chain(1, name="z"), chain(1, name="a")
    plan = place(Problem(nodes_of(n=2), (first, second)))
    assert plan.placements["z"].assignments == {Executor("a", 0): Slot("n", 0)}
    assert plan.placements["a"].assignments == {Executor("a", 0): Slot("n", 1)}


def test_more_workers_than_executors_leave_slots_free() -> None:
    plan = place(Problem(nodes_of(n=4), (chain(2, workers=4),)))
    assert by_slot(plan) == {("n", 0): ["a[0]"], ("n", 1): ["a[1]"]}


def running(topology: Topology, workers: dict[tuple[str, int], list[str]], **slots: int) -> Problem:
    existing = tuple(ExistingWorker(topology.id, *slot, tuple(names)) for slot, names in workers.items())
    return Problem(Cluster(nodes_of(**slots).nodes, existing=existing), (topology,))


def test_new_executors_never_join_a_running_worker() -> None:
    plan = place(running(chain(4, workers=2), {("n", 1): ["a[1]"]}, n=3))
    assert by_slot(plan) == {("n", 0): ["a[0]", "a[2]", "a[3]"], ("n", 1): ["a[1]"]}


def test_when_all_workers_run_new_executors_wait() -> None:
    plan = place(running(chain(3, workers=1), {("n", 0): ["a[0]"]}, n=3))
    assert by_slot(plan) == {("n", 0): ["a[0]"]}
    placement = plan.placements["t"]
    assert placement.status == "partial"
    assert "all 1 workers run already" in placement.message


def test_a_complete_topology_stays_although_it_requests_more_workers() -> None:
    plan = place(running(chain(2, workers=3), {("n", 0): ["a[0]", "a[1]"]}, n=3))
    assert by_slot(plan) == {("n", 0): ["a[0]", "a[1]"]}
    assert plan.placements["t"].status == "placed"


def test_slots_of_other_topologies_are_not_available() -> None:
    cluster = Cluster(nodes_of(n=2).nodes, existing=(ExistingWorker("other", "n", 0, ("x[0]",)),))
    plan = place(Problem(cluster, (chain(2, workers=2),)))
    assert by_slot(plan) == {("n", 1): ["a[0]", "a[1]"]}


def test_a_topology_with_a_cycle_is_placed() -> None:
    ring = Topology(
        id="t",
        components=(
            Component(id="a", kind="bolt", inputs=(Input("b"),)),
            Component(id="b", kind="bolt", inputs=(Input("a"),)),
        ),
    )
    assert place(Problem(nodes_of(n=1), (ring,))).placements["t"].status == "placed"


def reference_placements(problem: Problem) -> dict[str, dict[str, Slot]]:
    """Return placements by a simple second implementation of the rules, without code of the scheduler."""
    taken = {(w.node, w.slot) for w in problem.existing}
    placements: dict[str, dict[str, Slot]] = {}
    for topology in problem.topologies:
        available: dict[str, list[tuple[int, int]]] = {}
        for node in sorted(problem.cluster.nodes, key=lambda node: node.id):
            if node.available:
                ports = [
                    (node.ports[i] if node.ports else i, i) for i in range(node.slots) if (node.id, i) not in taken
                ]
                available[node.id] = sorted(ports)
        groups = sorted((n for n in available if available[n]), key=lambda n: -len(available[n]))
        deepest = max((len(ports) for ports in available.values()), default=0)
        slots = [(n, available[n][depth][1]) for depth in range(deepest) for n in groups if depth < len(available[n])]
        workers = [w for w in problem.existing if w.topology == topology.id and problem.cluster.by_id[w.node].available]
        placed = {name: Slot(w.node, w.slot) for w in workers for name in w.executors}
        waiting = [
            f"{component}[{index}]"
            for component in sorted(topology.component)
            for index in range(topology.component[component].parallelism)
            if f"{component}[{index}]" not in placed
        ]
        total = min(topology.workers, len(slots) + len(workers))
        chosen = slots[: max(0, min(total - len(workers), len(slots)))]
        for at, name in enumerate(waiting):
            if chosen:
                placed[name] = Slot(*chosen[at % len(chosen)])
                taken.add(chosen[at % len(chosen)])
        placements[topology.id] = placed
    return placements


@given(problems(cycles=True))
def test_agrees_with_the_reference_implementation(problem: Problem) -> None:
    plan = place(problem)
    assert {
        name: {executor.name: slot for executor, slot in placement.assignments.items()}
        for name, placement in plan.placements.items()
    } == reference_placements(problem)
    assert plan.freed == []
    assert plan.migrations == []


@given(topologies(), st.integers(1, 4), st.integers(1, 4))
def test_a_fresh_topology_is_balanced(topology: Topology, nodes: int, slots: int) -> None:
    plan = place(Problem(nodes_of(**{f"n{at}": slots for at in range(nodes)}), (topology,)))
    used = plan.placements[topology.id].assignments.values()
    per_slot, per_node = Counter(used), Counter(slot.node for slot in set(used))
    assert max(per_slot.values()) - min(per_slot.values()) <= 1
    counts = [per_node[f"n{at}"] for at in range(nodes)]
    assert max(counts) - min(counts) <= 1


def place_running(
    topology: Topology, workers: dict[tuple[str, int], list[str]], params: EvenParams, **slots: int
) -> Plan:
    return place(running(topology, workers, **slots), params)


REBALANCE = EvenParams(idle_rebalance=True)


def test_idle_nodes_stay_idle_by_default() -> None:
    workers = {("a", index): [f"a[{index}]"] for index in range(4)}
    assert place_running(chain(4, workers=4), workers, EvenParams(), a=4, b=4).migrations == []


def test_running_workers_move_whole_to_an_idle_node_highest_port_first() -> None:
    workers = {("a", index): [f"a[{index}]"] for index in range(4)}
    plan = place_running(chain(4, workers=4), workers, REBALANCE, a=4, b=4)
    assert by_slot(plan) == {
        ("a", 0): ["a[0]"],
        ("a", 1): ["a[1]"],
        ("b", 0): ["a[3]"],
        ("b", 1): ["a[2]"],
    }
    assert [(m.executor.name, tuple(m.source), tuple(m.target)) for m in plan.migrations] == [
        ("a[2]", ("a", 2), ("b", 1)),
        ("a[3]", ("a", 3), ("b", 0)),
    ]
    assert [(worker.node, worker.slot) for worker in plan.freed] == [("a", 2), ("a", 3)]


def test_the_budget_is_the_share_of_idle_nodes_and_can_be_capped() -> None:
    workers = {("a", index): [f"a[{index}]"] for index in range(4)}
    # floor(4 / 3) * 2
    assert len(place_running(chain(4, workers=4), workers, REBALANCE, a=4, b=4, c=4).freed) == 2
    capped = EvenParams(idle_rebalance=True, idle_max_moves=1)
    assert len(place_running(chain(4, workers=4), workers, capped, a=4, b=4, c=4).freed) == 1
    assert place_running(chain(4, workers=2), workers, REBALANCE, a=4, b=4, c=4).freed == []  # floor(2 / 3) = 0


def test_workers_leave_the_fullest_node_and_a_single_worker_stays() -> None:
    workers = {("a", 0): ["a[0]"], ("b", 0): ["a[1]"], ("b", 1): ["a[2]"]}
    plan = place_running(chain(3, workers=3), workers, REBALANCE, a=4, b=4, c=4)
    assert by_slot(plan) == {("a", 0): ["a[0]"], ("b", 0): ["a[1]"], ("c", 0): ["a[2]"]}
    single = {("a", 0): ["a[0]"]}
    assert place_running(chain(1, workers=3), single, REBALANCE, a=4, b=4, c=4).freed == []


def test_topologies_take_turns_one_move_each_by_id() -> None:
    existing = tuple(
        ExistingWorker(name, node, index, (f"a[{index}]",))
        for name, node in (("u", "x"), ("t", "y"))
        for index in range(3)
    )
    cluster = Cluster(nodes_of(x=3, y=3, z=3).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(3, workers=6, name="u"), chain(3, workers=6, name="t"))), REBALANCE)
    onto_z = {
        slot.index: name for name, p in plan.placements.items() for slot in p.assignments.values() if slot.node == "z"
    }
    assert onto_z == {0: "t", 1: "u", 2: "t"}


@pytest.mark.parametrize(("uptime", "moves"), [(None, 1), (9.0, 1), (8.9, 0)])
def test_an_idle_node_counts_after_three_rounds_of_three_seconds(uptime: float | None, moves: int) -> None:
    nodes = (Node(id="a"), Node(id="b", uptime_s=uptime))
    existing = tuple(ExistingWorker("t", "a", index, (f"a[{index}]",)) for index in range(2))
    plan = place(Problem(Cluster(nodes, existing=existing), (chain(2, workers=2),)), REBALANCE)
    assert len(plan.freed) == moves


def test_a_freed_slot_is_available_to_the_same_round() -> None:
    existing = tuple(ExistingWorker("t", "a", index, (f"a[{index}]",)) for index in range(2))
    cluster = Cluster(nodes_of(a=2, b=1).nodes, existing=existing)
    plan = place(Problem(cluster, (chain(2, workers=2), chain(1, name="u"))), REBALANCE)
    assert plan.placements["u"].assignments == {Executor("a", 0): Slot("a", 1)}


@given(problems(), st.integers(0, 3), st.integers(0, 3))
def test_redistribution_only_fills_idle_nodes_within_its_budget(problem: Problem, cap: int, rounds: int) -> None:
    plan = place(problem, EvenParams(True, cap, rounds))  # the checking wrapper refuses invalid plans
    live = [node for node in problem.cluster.available if node.slots]
    busy = {worker.node for worker in problem.existing}
    idle = {n.id for n in live if n.id not in busy and (n.uptime_s is None or n.uptime_s >= 3 * rounds)}
    assert {move.target.node for move in plan.migrations} <= idle
    for topology in problem.topologies:
        freed = [worker for worker in plan.freed if worker.topology == topology.id]
        budget = topology.workers // len(live) * len(idle) if live else 0
        assert len(freed) <= (min(budget, cap) if cap else budget)
