"""`r-storm` against a reference implementation, the differences between paper and code, and invariants."""

from fractions import Fraction
from math import sqrt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from scheduling_rounds import Rounds, next_round, place_rounds, round_histories, shared_clusters, tenant_topologies

from inventory.cluster import Cluster, ExistingWorker, Network, Node
from scheduler.algorithms.r_storm import RStorm, RStormParams, breadth_first
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from workloads.topology import Component, Input, Topology

VARIANTS = ("rstorm_paper", "780a472ad", "rstorm_1_0")


def place(problem: Problem, variant: str = "rstorm_paper", **weights: float) -> Plan:
    return Checked(RStorm, RStormParams(variant, **weights)).place(problem)


def chain(*sizes: int, **demands: float) -> Topology:
    ids = [chr(ord("a") + at) for at in range(len(sizes))]
    return Topology(
        id="t",
        components=tuple(
            Component(ids[at], "bolt" if at else "spout", size, inputs=(Input(ids[at - 1]),) if at else (), **demands)
            for at, size in enumerate(sizes)
        ),
    )


def nodes_used(plan: Plan, topology: str = "t") -> dict[str, int]:
    used: dict[str, int] = {}
    for slot in plan.placements[topology].assignments.values():
        used[slot.node] = used.get(slot.node, 0) + 1
    return used


def test_tasks_go_breadth_first_in_rounds_of_one_per_component() -> None:
    topology = Topology(
        id="t",
        components=(
            Component("__acker", "bolt", 1),
            Component("z", "spout", 1),
            Component("s", "spout", 2),
            Component("m", "bolt", 3, inputs=(Input("s"), Input("z"))),
            Component("b", "bolt", 1, inputs=(Input("s"),)),
            Component("lost", "bolt", 1),
        ),
    )
    # s: children b, m; m's parents s, z. Then rounds; ackers and what no spout reaches come last.
    assert [executor.name for executor in breadth_first(topology, topology.executors)] == [
        *("s[0]", "b[0]", "m[0]", "z[0]", "s[1]", "m[1]", "m[2]"),
        *("__acker[0]", "lost[0]"),
    ]


def test_raw_distances_prefer_the_node_with_least_left_and_relative_ones_too() -> None:
    nodes = (Node(id="a", memory_mb=4096.0), Node(id="b", memory_mb=1024.0))
    for variant in VARIANTS:
        assert nodes_used(place(Problem(Cluster(nodes), (chain(1),)), variant, wn=0.0)) == {"b": 1}


@pytest.mark.parametrize(("variant", "node"), [("rstorm_paper", "a"), ("780a472ad", "b"), ("rstorm_1_0", "b")])
def test_memory_in_mb_outweighs_cpu_in_points_unless_distances_are_relative(variant: str, node: str) -> None:
    # Remaining: on a 90 points and no memory, on b no points and 200 MB. Relative: 90 / 100 against 200 / 1200.
    nodes = (Node(id="a", cpu=100.0, memory_mb=1000.0), Node(id="b", cpu=10.0, memory_mb=1200.0))
    topology = replace(chain(1, memory_mb=1000.0), worker_max_heap_mb=2000.0)
    assert nodes_used(place(Problem(Cluster(nodes), (topology,)), variant, wn=0.0)) == {node: 1}


def test_cpu_is_soft_in_the_paper_and_hard_in_the_code() -> None:
    problem = Problem(Cluster((Node(id="a", cpu=10.0),)), (chain(2, cpu=10.0),))
    assert place(problem).placements["t"].status == "placed"
    for variant in VARIANTS[1:]:
        placement = place(problem, variant).placements["t"]
        assert placement.status == "failed"
        assert placement.message == "not enough resources: a[1] fits on no node that may be used"


def test_a_node_beyond_its_cpu_counts_as_one_without_cpu_left() -> None:
    # a has no CPU left from the second executor on: 10 points short. b has 20 points more than an executor needs.
    nodes = (Node(id="a", cpu=10.0, memory_mb=1e4), Node(id="b", cpu=30.0, memory_mb=1e4))
    problem = Problem(Cluster(nodes), (chain(5, cpu=10.0),))
    assert nodes_used(place(problem, wm=0.0, wn=0.0)) == {"a": 5}


def test_memory_is_hard_in_all_variants() -> None:
    problem = Problem(Cluster((Node(id="a", memory_mb=150.0),)), (chain(2),))
    assert {place(problem, variant).placements["t"].status for variant in VARIANTS} == {"failed"}


def test_the_first_task_tries_one_rack_only_in_the_code() -> None:
    # r1 has most in sum, but no node of it takes 700 MB.
    nodes = (
        *(Node(id=f"a{at}", rack="r1", memory_mb=600.0) for at in range(4)),
        Node(id="b", rack="r2", memory_mb=800.0),
    )
    problem = Problem(Cluster(nodes), (chain(1, memory_mb=700.0),))
    assert nodes_used(place(problem)) == {"b": 1}
    assert {place(problem, variant).placements["t"].status for variant in VARIANTS[1:]} == {"failed"}


def test_the_reference_node_stays_in_the_paper_and_follows_the_last_task_in_the_code() -> None:
    # Nodes for one executor each. a is the largest, in the largest rack; b, m, z fit alike, b and z share a rack.
    nodes = tuple(
        Node(id=name, rack=rack, slots=1, memory_mb=mb)
        for name, rack, mb in (("a", "r1", 2200.0), ("b", "r2", 700.0), ("m", "r3", 700.0), ("z", "r2", 700.0))
    )
    problem = Problem(Cluster(nodes), (chain(2, memory_mb=700.0),))
    assert nodes_used(place(problem)) == {"b": 1, "m": 1}  # both one rack away from a
    code = Problem(Cluster(nodes), (chain(3, memory_mb=700.0),))
    assert nodes_used(place(code, "rstorm_1_0")) == {"a": 1, "b": 1, "z": 1}  # first in a's rack, then near b


def test_the_clusters_network_distances_count_half() -> None:
    # From node a: b in its rack lacks 3 MB more than c in another one. 0.5 ^ 2 + 9 > 1, but not with racks 8 apart.
    nodes = (
        Node(id="a", rack="r1", slots=1, memory_mb=100.0, cpu=400.0),
        Node(id="b", rack="r1", slots=1, memory_mb=103.0, cpu=400.0),
        Node(id="c", rack="r2", slots=1, memory_mb=100.0, cpu=400.0),
    )
    topology = chain(2, memory_mb=100.0)
    assert nodes_used(place(Problem(Cluster(nodes), (topology,)), "rstorm_1_0")) == {"a": 1, "b": 1}
    raw = Problem(Cluster(nodes), (topology,))
    assert nodes_used(place(raw)) == {"a": 1, "c": 1}
    far = Problem(Cluster(nodes, Network(other_rack=8.0)), (topology,))
    assert nodes_used(place(far)) == {"a": 1, "b": 1}


def test_a_topology_is_placed_whole_or_not_at_all_and_running_executors_stay() -> None:
    cluster = Cluster((Node(id="a", memory_mb=300.0),), existing=(ExistingWorker("t", "a", 0, ("a[0]",)),))
    placement = place(Problem(cluster, (chain(3),))).placements["t"]
    assert placement.status == "partial"
    assert [executor.name for executor in placement.assignments] == ["a[0]"]


def test_a_topology_without_a_spout_fails() -> None:
    bolts = Topology(id="t", components=(Component("b", "bolt"),))
    assert (
        place(Problem(Cluster((Node(id="a"),)), (bolts,))).placements["t"].message == "there is no spout to begin with"
    )


def reference_placement(problem: Problem, params: RStormParams) -> dict[str, tuple[str, int]] | None:
    """Place one topology, none of which runs, by a second implementation that computes every distance anew."""
    topology = problem.topologies[0]
    nodes = sorted(problem.cluster.available, key=lambda node: node.id)
    taken = {(w.node, w.slot): len(w.executors) for w in problem.existing}
    workers: dict[tuple[str, int], Fraction] = {}
    cpu = {n.id: Fraction(repr(n.cpu_points)) for n in nodes}
    memory = {n.id: Fraction(repr(n.memory_mb)) for n in nodes}
    for (name, _), count in taken.items():
        if name in cpu:
            cpu[name] = max(cpu[name] - 10 * count, Fraction(0))
            memory[name] = max(memory[name] - 128 * count, Fraction(0))
    racks: dict[str, list[Node]] = {}
    for node in nodes:
        racks.setdefault(node.rack, []).append(node)
    total = {rack: sum(cpu[n.id] + memory[n.id] for n in group) for rack, group in racks.items()}
    first = min(racks, key=lambda rack: (-total[rack], rack))
    paper = params.variant == "rstorm_paper"
    ref = min(racks[first], key=lambda n: (-cpu[n.id] - memory[n.id], n.id)) if paper else None
    answer: dict[str, tuple[str, int]] = {}
    for task in breadth_first(topology, topology.executors):
        component = topology.component[task.component]
        points = Fraction(repr(component.cpu_points))
        mb = Fraction(repr(component.onheap)) + Fraction(repr(component.offheap))

        def difference(wanted: Fraction, left: Fraction) -> Fraction:
            if paper:
                return wanted - left
            if params.variant == "rstorm_1_0":
                return (wanted - left) / (left + 1)
            return (wanted - left) / left if left else Fraction(0)

        options = []
        for node in nodes if ref is not None else racks[first]:
            place = next(
                (
                    (node.id, index)
                    for index in node.slot_order
                    if (node.id, index) not in taken
                    and workers.get((node.id, index), 0) + mb <= Fraction(repr(topology.worker_max_heap_mb))
                ),
                None,
            )
            if place is None or mb > memory[node.id] or (points > cpu[node.id] and not paper):
                continue
            net = 0.0
            if ref is not None and node.id != ref.id:
                net = 0.5 if node.rack == ref.rack else 1.0
            dc, dm = difference(points, max(cpu[node.id], Fraction(0))), difference(mb, memory[node.id])
            options.append((sqrt(dc * dc + dm * dm + Fraction(net) ** 2), node.id, place, node))
        if not options:
            return None
        _, _, place, node = min(options, key=lambda option: (round(option[0], 9), option[1]))
        answer[task.name] = place
        workers[place] = workers.get(place, Fraction(0)) + mb
        cpu[node.id] -= points
        memory[node.id] -= mb
        ref = ref if paper else node
    return answer


@settings(deadline=None)
@given(shared_clusters(), tenant_topologies("t"), st.sampled_from(VARIANTS), st.booleans())
def test_agrees_with_the_reference_implementation(
    cluster: Cluster, topology: Topology, variant: str, busy: bool
) -> None:
    places = [(node.id, index) for node in cluster.nodes for index in range(node.slots)]
    existing = tuple(ExistingWorker("other", *slot, ("x[0]", "x[1]")) for slot in places[: 1 if busy else 0])
    problem = Problem(replace(cluster, existing=existing), (topology,))
    params = RStormParams(variant)
    expected = reference_placement(problem, params)
    placement = Checked(RStorm, params).place(problem).placements["t"]
    assert placement.status == ("failed" if expected is None else "placed")
    assert {executor.name: tuple(slot) for executor, slot in placement.assignments.items()} == (expected or {})


@pytest.mark.parametrize("variant", VARIANTS)
@given(rounds=round_histories())
@settings(deadline=None)
def test_memory_and_the_cpu_of_the_code_hold_in_any_round_sequence(variant: str, rounds: Rounds) -> None:
    for problem, plan in place_rounds(rounds, lambda problem: place(problem, variant)):
        assert plan.freed == []
        cpu: dict[str, Fraction] = {}
        memory: dict[str, Fraction] = {}
        for t in problem.topologies:
            for executor, slot in plan.placements[t.id].assignments.items():
                component = t.component[executor.component]
                cpu[slot.node] = cpu.get(slot.node, Fraction(0)) + Fraction(repr(component.cpu_points))
                memory[slot.node] = memory.get(slot.node, Fraction(0)) + Fraction(repr(component.memory))
        by_id = problem.cluster.by_id
        assert all(total <= Fraction(repr(by_id[node].memory_mb)) for node, total in memory.items())
        assert variant == "rstorm_paper" or all(
            total <= Fraction(repr(by_id[node].cpu_points)) for node, total in cpu.items()
        )
        again = place(next_round(problem, plan), variant)
        placed = {name for name, placement in plan.placements.items() if placement.status == "placed"}
        assert all(again.placements[name].assignments == plan.placements[name].assignments for name in placed)
