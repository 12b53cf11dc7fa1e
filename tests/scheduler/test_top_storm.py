"""`top-storm` against the paper's algorithms: worked examples, configurations 1-6, and properties."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import chain, nodes_of, problems, topologies

from inventory.cluster import Cluster, ExistingWorker, Node, cluster_from_document
from inventory.documents import read
from inventory.errors import InputError
from inventory.power_index import power_index
from inventory.reading import find_inventory
from scheduler.algorithms.top_storm import TopStorm, TopStormParams
from scheduler.problem import Plan, Problem, Slot
from scheduler.registry import Checked
from workloads.topology import Component, Executor, Input, Topology
from workloads.traffic import Edge, Traffic


def place(problem: Problem, params: TopStormParams | None = None) -> Plan:
    return Checked(TopStorm, params or TopStormParams()).place(problem)


def groups(problem: Problem, params: TopStormParams | None = None) -> list[list[int]]:
    return place(problem, params).details["groups"]


def hardware(*slots: int) -> Cluster:
    """Return nodes of decreasing power with these numbers of slots, listed weakest first."""
    nodes = [
        Node(id=f"n{at}", slots=count, ghz=float(len(slots) - at), flops_per_cycle=4) for at, count in enumerate(slots)
    ]
    return Cluster(tuple(nodes[::-1]))


def test_the_worked_example() -> None:
    plan = place(Problem(hardware(1, 1), (chain(2, 3, workers=2, ackers=1),)))
    assert plan.details["groups"] == [[0, 2, 1], [3, 4, 5]]
    assert plan.details["slot_nodes"] == [1, 0]  # n0, listed last, is the most powerful


WORD_COUNT = chain(5, 8, 12, ackers=3)


@pytest.mark.parametrize(
    ("slots", "required", "nodes"),
    [(5, 5, [5]), (4, 5, [4, 1]), (3, 5, [3, 2]), (4, 4, [4]), (3, 4, [3, 1]), (3, 3, [3])],
    ids=[f"configuration {number}" for number in range(1, 7)],
)
def test_the_papers_configurations_use_the_most_powerful_nodes(slots: int, required: int, nodes: list[int]) -> None:
    topology = Topology(id="wc", components=WORD_COUNT.components, workers=required)
    plan = place(Problem(hardware(slots, slots, slots, slots, slots), (topology,)))
    used = Counter(slot.node for slot in set(plan.placements["wc"].assignments.values()))
    assert used == {f"n{at}": count for at, count in enumerate(nodes)}


def test_on_the_shipped_loopback_cluster_d_fills_before_e() -> None:
    cluster = cluster_from_document(read(find_inventory("loopback"))).value
    plan = place(Problem(cluster, (Topology(id="wc", components=WORD_COUNT.components, workers=5),)))
    sizes = [len(group) for group in plan.details["groups"]]
    assert sizes == [6, 6, 6, 5, 5]
    assert [cluster.nodes[at].id for at in plan.details["slot_nodes"]] == ["n4", "n4", "n4", "n4", "n5"]
    assert plan.details["flops"] == "config"


def test_a_slot_per_executor_has_no_seeds_and_starts_at_slot_1() -> None:
    assert groups(Problem(hardware(3), (chain(1, 2, workers=3),))) == [[2], [0], [1]]


def test_the_number_of_workers_is_limited_by_executors_and_slots() -> None:
    assert len(groups(Problem(hardware(9), (chain(1, 1, workers=9),)))) == 2
    plan = place(Problem(hardware(1, 1), (chain(2, 2, workers=9),)))
    assert len(plan.details["groups"]) == 2
    assert plan.placements["t"].message == "9 workers were asked for, there are slots for 2"


def test_left_overs_skip_full_slots_and_never_exceed_the_cap() -> None:
    # 2 -> 2, 5 ackers, 3 slots of at most 3: pair (0,2) takes 1, and no free pair is left.
    assert groups(Problem(hardware(3), (chain(2, 2, workers=3, ackers=5),))) == [[0, 2, 1], [3, 5, 7], [4, 6, 8]]


def test_a_pair_with_one_placed_end_is_skipped() -> None:
    # Slot 0 takes (0,1) of a -> b, slot 1 starts at c -> d although b -> c comes first.
    topology = Topology(
        id="t",
        components=(
            Component(id="a", kind="spout"),
            Component(id="b", kind="bolt", inputs=(Input("a"),)),
            Component(id="c", kind="bolt", inputs=(Input("b"),)),
            Component(id="d", kind="bolt", inputs=(Input("c"),)),
        ),
        workers=2,
    )
    assert groups(Problem(hardware(2), (topology,))) == [[0, 1], [2, 3]]


FAN = Topology(
    id="t",
    components=(
        Component(id="a", kind="spout"),
        Component(id="b", kind="bolt", inputs=(Input("a"),)),
        Component(id="c", kind="bolt", inputs=(Input("b"),)),
        Component(id="d", kind="bolt", inputs=(Input("c"),)),
        Component(id="lone", kind="spout", parallelism=4),
    ),
    workers=2,
)


def test_group_affinity_follows_the_slot_seed_affinity_only_its_pair() -> None:
    # 8 executors, 4 per slot: from (a, b) the slot reaches c, and through c also d.
    assert groups(Problem(hardware(2), (FAN,)))[0] == [0, 1, 2, 3]
    # The seed pair does not communicate with d: d is left over and starts in slot 1.
    assert groups(Problem(hardware(2), (FAN,)), TopStormParams(affinity="seed")) == [[0, 1, 2, 4], [3, 5, 6, 7]]


def test_a_slot_closes_when_no_executor_communicates_with_it() -> None:
    topology = Topology(
        id="t",
        components=(
            Component(id="a", kind="spout"),
            Component(id="b", kind="bolt", inputs=(Input("a"),)),
            Component(id="c", kind="spout"),
            Component(id="d", kind="bolt", inputs=(Input("c"),)),
            Component(id="e", kind="spout", parallelism=2),
        ),
        workers=2,
    )
    assert groups(Problem(hardware(2), (topology,))) == [[0, 1, 5], [2, 3, 4]]


def test_a_global_grouping_only_pulls_index_0() -> None:
    topology = Topology(
        id="t",
        components=(
            Component(id="a", kind="spout", parallelism=2),
            Component(id="b", kind="bolt", parallelism=2, inputs=(Input("a", "global"),)),
        ),
    )
    # One slot of 4: (0, 2), then 1 communicates with 2; executor 3 has no partner and is left over.
    assert groups(Problem(hardware(1), (topology,))) == [[0, 2, 1, 3]]


def test_observed_rates_decide_which_executor_joins() -> None:
    traffic = Traffic(
        (Edge("a[0]", "b[0]", 1), Edge("a[1]", "b[0]", 2), Edge("a[2]", "b[0]", 9), Edge("b[1]", "a[0]", 4))
    )
    problem = Problem(hardware(2), (chain(3, 2, workers=2, ackers=1),), traffic)
    assert groups(problem)[0] == [0, 3, 2]
    # Directions add up: with 10 from the acker to a[0] the acker joins first.
    more = Traffic((*traffic.edges, Edge("__acker[0]", "a[0]", 5), Edge("a[0]", "__acker[0]", 5)))
    assert groups(Problem(hardware(2), problem.topologies, more))[0] == [0, 3, 5]


def test_an_observed_rate_of_0_is_0_and_an_unobserved_topology_counts_pairs() -> None:
    zero_rate = Traffic((Edge("a[0]", "b[0]", 0),))
    assert groups(Problem(hardware(2), (chain(2, 3, workers=2, ackers=1),), zero_rate)) == [[0, 2, 5], [1, 3, 4]]
    of_others = Traffic((Edge("x[0]", "x[1]", 7),))
    assert groups(Problem(hardware(2), (chain(2, 3, workers=2, ackers=1),), of_others)) == [[0, 2, 1], [3, 4, 5]]


def test_alpha_normalise_and_flops_decide_the_order_of_nodes() -> None:
    cluster = Cluster(
        (
            Node(id="fast", slots=1, cores=1, ghz=4, flops_per_cycle=1, ram_gb=1),
            Node(id="big", slots=1, cores=1, ghz=1, flops_per_cycle=1, ram_gb=64),
        )
    )

    def first(params: TopStormParams) -> list[int]:
        return place(Problem(cluster, (chain(1),)), params).details["slot_nodes"]

    assert first(TopStormParams()) == [1]  # 64 GB outweigh 3 GFLOPs when they are added as they are
    assert first(TopStormParams(alpha=1.0)) == [0]
    assert first(TopStormParams(normalise=True)) == [0]
    with pytest.raises(InputError, match=r"'fast'.*facts.bogomips"):
        first(TopStormParams(flops="bogomips"))


def test_a_topology_with_a_cycle_is_refused() -> None:
    ring = Topology(
        id="ring",
        components=(
            Component(id="a", kind="bolt", inputs=(Input("b"),)),
            Component(id="b", kind="bolt", inputs=(Input("a"),)),
        ),
    )
    with pytest.raises(InputError, match=r"'ring' has a cycle: (a -> b -> a|b -> a -> b)"):
        place(Problem(hardware(1), (ring,)))


def test_each_topology_lowers_the_free_slots_of_the_next() -> None:
    first, second, third = (chain(1, 1, workers=2, name=name) for name in ("x", "y", "z"))
    plan = place(Problem(hardware(3, 1), (first, second, third)))
    assert {slot.node for slot in plan.placements["x"].assignments.values()} == {"n0"}
    assert {slot.node for slot in plan.placements["y"].assignments.values()} == {"n0", "n1"}
    assert (plan.placements["z"].status, plan.placements["z"].message) == ("failed", "no free slot: 2 executors wait")
    assert plan.details["groups"] == [[1], [0], [3], [2]]  # executors are numbered over all topologies


def test_running_executors_stay_and_others_get_the_remaining_workers() -> None:
    cluster = Cluster(hardware(4).nodes, existing=(ExistingWorker("t", "n0", 2, ("a[0]", "b[1]")),))
    plan = place(Problem(cluster, (chain(2, 2, workers=2),)))
    assert plan.placements["t"].assignments == {
        Executor("a", 0): Slot("n0", 2),
        Executor("b", 1): Slot("n0", 2),
        Executor("a", 1): Slot("n0", 0),
        Executor("b", 0): Slot("n0", 0),
    }
    full = place(Problem(cluster, (chain(2, 2, workers=1),))).placements["t"]
    assert full.status == "partial"
    assert "all 1 workers run already" in full.message


def listing_groups(
    topology: Topology, waiting: list[int], omega: int, affinity: str, rates: dict[tuple[int, int], float]
) -> list[list[int]]:
    """Return groups by a literal transcription of Algorithm 2, without code of the scheduler."""
    cap = math.ceil(len(waiting) / omega)
    slots: list[list[int]] = [[] for _ in range(omega)]
    unassigned = list(waiting)
    pairs = [(topology.number_of[s], topology.number_of[d]) for s, d in topology.pairs()]
    current = 0
    if cap >= 2:
        for source, destination in pairs:
            if current == omega:
                break
            if source in unassigned and destination in unassigned:
                slots[current] += [source, destination]
                unassigned = [v for v in unassigned if v not in (source, destination)]
                while len(slots[current]) < cap:
                    near = slots[current] if affinity == "group" else [source, destination]
                    rate = {v: sum(rates.get((min(v, u), max(v, u)), 0) for u in near) for v in unassigned}
                    best = max(rate.values(), default=0)
                    if best <= 0:
                        break
                    chosen = min(v for v in unassigned if rate[v] == best)
                    slots[current].append(chosen)
                    unassigned.remove(chosen)
                current += 1
    counter = 1
    for v in unassigned:
        while len(slots[counter % omega]) == cap:
            counter += 1
        slots[counter % omega].append(v)
        counter += 1
    return [slot for slot in slots if slot]


@given(topologies(), st.integers(1, 6), st.sampled_from(["group", "seed"]), st.data())
def test_agrees_with_the_published_listing(topology: Topology, slots: int, affinity: str, data: st.DataObject) -> None:
    number = topology.number_of
    rates = {tuple(sorted((number[s], number[d]))): 1.0 for s, d in topology.pairs()}
    traffic = None
    if data.draw(st.booleans()):
        names = st.sampled_from([executor.name for executor in topology.executors])
        edges = data.draw(st.lists(st.builds(Edge, names, names, st.integers(0, 3).map(float)), max_size=12))
        different = [edge for edge in edges if edge.source != edge.destination]
        traffic = Traffic(tuple(edges))
        if different:
            rates = {}
            for edge in different:
                ends = (number[topology.executor_named[e]] for e in (edge.source, edge.destination))
                key = tuple(sorted(ends))
                rates[key] = rates.get(key, 0.0) + edge.tuples_per_s
    problem = Problem(hardware(slots), (topology,), traffic)
    size = len(topology.executors)
    expected = listing_groups(topology, list(range(size)), min(topology.workers, slots, size), affinity, rates)
    assert groups(problem, TopStormParams(affinity=affinity)) == expected


@given(problems(observed=True), st.floats(0, 1), st.sampled_from(["group", "seed"]), st.booleans())
def test_slots_and_nodes_are_filled_as_the_paper_states(
    problem: Problem, alpha: float, affinity: str, normalise: bool
) -> None:
    if {len(topology.id) for topology in problem.topologies} != {1}:
        raise AssertionError("executor names must differ between topologies")
    params = TopStormParams(alpha, affinity, normalise)
    plan = place(problem, params)  # the checking wrapper refuses double executors and taken slots
    ranked = [entry.node for entry in power_index(problem.cluster.nodes, alpha, normalise).ranked]
    taken = {(w.node, w.slot) for w in problem.existing}
    free = {node.id: sum((node.id, i) not in taken for i in range(node.slots)) for node in problem.cluster.available}
    running = {(w.topology, name): Slot(w.node, w.slot) for w in problem.existing for name in w.executors}
    for topology in problem.topologies:
        placed = plan.placements[topology.id].assignments
        new = {executor: slot for executor, slot in placed.items() if running.get((topology.id, executor.name)) != slot}
        workers = sum(w.topology == topology.id and problem.cluster.by_id[w.node].available for w in problem.existing)
        waiting = len(topology.executors) - (len(placed) - len(new))
        omega = max(0, min(topology.workers - workers, sum(free.values()), waiting))
        sizes = Counter(new.values())
        assert len(sizes) <= omega
        assert not new or max(sizes.values()) <= math.ceil(waiting / omega)
        assert (len(new) == waiting) == (omega > 0 or waiting == 0)
        used = Counter(slot.node for slot in sizes)
        assert all(used[node] <= free[node] for node in used)
        weakest = max((ranked.index(node) for node in used), default=0)
        assert all(used[node] == free[node] for node in ranked[:weakest])
        # In the order of power, the sizes of slots do not increase.
        by_power = [
            sorted((size for slot, size in sizes.items() if slot.node == node), reverse=True) for node in ranked
        ]
        flat = [size for node in by_power for size in node]
        assert flat == sorted(flat, reverse=True)
        for node, count in used.items():
            free[node] -= count
            taken |= {(node, slot.index) for slot in sizes}


def test_nodes_without_hardware_are_named() -> None:
    with pytest.raises(InputError, match=r"'bare'.*'ghz'"):
        place(Problem(Cluster((*nodes_of(n=1).nodes, Node(id="bare", flops_per_cycle=4))), (chain(1),)))
