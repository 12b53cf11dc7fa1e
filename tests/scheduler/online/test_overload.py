"""Executors leave overloaded nodes, for reliable nodes with room, preferably those of their neighbours."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import times
from observed_rounds import ObservedCluster, rates_of
from problems import chain

from inventory.cluster import Cluster, ExistingWorker, Node
from scheduler.online.overload import Neighbours, Relief, relieve, vacate
from scheduler.online.predicted_loads import PredictedLoads
from scheduler.problem import Problem
from workloads.topology import Component, Executor, Input, Topology


def nodes(**reliability: float | None) -> Cluster:
    return Cluster(tuple(Node(id=name, cpu=100, slots=8, reliability=r) for name, r in reliability.items()))


def published_scenario(s0: float = 25.0) -> ObservedCluster:
    """Spouts s, bolts b and k; n2 is at 91 %."""
    return ObservedCluster(
        nodes=nodes(n1=0.90, n2=0.95, n3=0.97, n4=0.80),
        topology=chain(2, 2, 2, names="sbk"),
        places={"s[0]": "n1", "b[0]": "n1", "s[1]": "n2", "b[1]": "n2", "k[0]": "n2", "k[1]": "n3"},
        points={"s[0]": s0, "b[0]": 36, "s[1]": 21, "b[1]": 32, "k[0]": 36, "k[1]": 60},
        rates=rates_of(
            {
                "s0-b0": 300,
                "s0-b1": 200,
                "s1-b0": 180,
                "s1-b1": 120,
                "b0-k0": 150,
                "b0-k1": 330,
                "b1-k0": 260,
                "b1-k1": 60,
            }
        ),
    )


def two_at_once() -> ObservedCluster:
    """n1 is at 90 %, n2 at 89 %."""
    parts = [Component(id=name, kind="spout" if name in "ac" else "bolt", inputs=inputs) for name, inputs in (
        ("a", ()), ("b", (Input("a"),)), ("c", ()), ("d", (Input("c"),)), ("e", (Input("a"), Input("c")))
    )]  # fmt: skip
    return ObservedCluster(
        nodes=nodes(n1=0.90, n2=0.90, n3=0.97, n4=0.80),
        topology=Topology(id="t", components=tuple(parts)),
        places={"a[0]": "n1", "b[0]": "n1", "c[0]": "n2", "d[0]": "n2", "e[0]": "n3"},
        points={"a[0]": 50, "b[0]": 38, "c[0]": 46, "d[0]": 41, "e[0]": 30},
        rates=rates_of({"a-e": 200, "a-b": 50, "c-d": 60, "c-e": 100}),
    )


def decide(
    simulated: ObservedCluster, most: int = 1, held: tuple[str, ...] = (), bound: float = 0.85
) -> tuple[list[Relief], PredictedLoads]:
    loads = simulated.predicted(bound)
    held_executors = {Executor.named(name) for name in held}
    return relieve(simulated.topology, loads, simulated.by_number, most, held_executors), loads


def outcome(found: Relief) -> tuple[object, ...]:
    assert found.victim
    assert found.target
    return found.node, found.victim.name, found.local, found.target.stage, found.target.node, found.target.r


def test_the_executor_with_the_least_local_traffic_goes_to_its_neighbours_node() -> None:
    simulated = published_scenario()
    assert simulated.cut == 920
    (found,), loads = decide(simulated)
    assert outcome(found) == ("n2", "s[1]", 120, "local", "n1", 0.90)
    assert found.load == pytest.approx(0.91)
    assert found.target
    assert found.target.load == pytest.approx(0.84)
    assert loads.load["n1"] == pytest.approx(0.84)
    assert loads.load["n2"] == pytest.approx(0.70)
    simulated.places["s[1]"] = "n1"
    assert simulated.cut == 860
    assert found.account == {
        "node": "n2",
        "load": 0.91,
        "bound": 0.85,
        "outcome": "move",
        "executor": "s[1]",
        "to": "n1",
        "stage": "local",
        "local_traffic": 120,
        "tried": 1,
        "skipped": 0,
        "candidates": [
            {"executor": "s[1]", "node": "n1", "stage": "local", "load": 0.84, "bound": 0.85, "r": 0.9, "refusal": ""}
        ],
    }
    assert found.text == "n2 is at 91.0% of its CPU: s[1] moves to n1"


def test_a_target_must_end_below_its_bound_and_the_most_reliable_of_all_nodes_is_next() -> None:
    (found,), _ = decide(published_scenario(s0=26.0))
    assert outcome(found) == ("n2", "s[1]", 120, "global", "n3", 0.97)
    assert [(each["node"], each["load"], each["refusal"]) for each in found.account["candidates"]] == [
        ("n1", 0.85, "its load would reach its bound"),
        ("n3", 0.83, ""),
        ("n4", 0.23, ""),
    ]


def test_relief_of_the_second_node_counts_the_move_of_the_first() -> None:
    first, second = decide(two_at_once())[0]
    assert outcome(first) == ("n1", "a[0]", 50, "local", "n3", 0.97)  # b has as much local traffic, and less load
    assert first.target
    assert first.target.load == pytest.approx(0.82)
    assert outcome(second) == ("n2", "c[0]", 60, "global", "n4", 0.80)
    assert second.target
    assert second.target.load == pytest.approx(0.48)
    refused_loads = {each["node"]: each["load"] for each in second.account["candidates"] if each["refusal"]}
    assert refused_loads == {"n3": 1.28, "n1": 0.86}


def test_a_load_at_its_bound_is_not_overloaded() -> None:
    simulated = published_scenario()
    simulated.points["k[0]"] = 30  # 0.21 + 0.32 + 0.30 + 0.02
    assert decide(simulated)[0] == []


def test_nodes_have_separate_bounds() -> None:
    simulated = published_scenario()
    simulated.nodes = Cluster(
        tuple(
            Node(id=n.id, cpu=100, slots=8, reliability=n.reliability, max_load=0.84 if n.id == "n1" else None)
            for n in simulated.nodes.nodes
        )
    )
    (found,), _ = decide(simulated)
    assert outcome(found)[3:5] == ("global", "n3")


def test_if_a_victim_fits_nowhere_the_next_one_is_tried() -> None:
    simulated = published_scenario()
    simulated.points |= {"s[1]": 50, "b[1]": 10, "k[0]": 36}
    simulated.points["s[0]"] += 20
    simulated.nodes = nodes(n1=0.9, n2=0.9, n3=0.9)
    (found,), _ = decide(simulated)
    assert found.tried > 1
    assert found.victim == Executor("k", 0) or found.victim == Executor("b", 1)


def test_no_room_leaves_everything_as_it_is() -> None:
    simulated = published_scenario()
    simulated.nodes = nodes(n1=0.9, n2=0.9, n3=0.9)
    simulated.points |= {"s[0]": 47, "k[1]": 80}
    before = simulated.predicted().load
    (found,), loads = decide(simulated)
    assert (found.victim, found.target, found.tried) == (None, None, 3)
    assert found.account["outcome"] == "no room"
    assert found.text == "n2 is at 91.0% of its CPU: no room"
    assert loads.load == before


def test_held_executors_stay_and_so_do_those_that_use_no_cpu() -> None:
    simulated = published_scenario()
    (found,), _ = decide(simulated, held=("s[1]",))
    assert found.victim == Executor("k", 0)
    assert found.skipped == 1
    simulated.points |= {"s[1]": 0, "b[1]": 53}
    (found,), _ = decide(simulated)
    assert found.victim == Executor("k", 0)
    (found,), _ = decide(simulated, held=("b[1]", "k[0]"))
    assert found.account["outcome"] == "no executor may leave"


@pytest.mark.parametrize(("most", "left"), [(0, 0), (1, 1), (2, 2), (9, 3)])
def test_at_most_max_moves_executors_leave_and_none_after_the_node_is_relieved(most: int, left: int) -> None:
    simulated = ObservedCluster(
        nodes=nodes(n1=None, n2=None),
        topology=chain(9, names="s"),
        places={f"s[{at}]": "n1" for at in range(9)},
        points={f"s[{at}]": 12.0 for at in range(9)},  # 1.10; three of them leave 0.74
    )
    assert len(decide(simulated, most)[0]) == left


def test_the_default_of_reliability_is_answered_heartbeats_times_headroom() -> None:
    simulated = published_scenario()
    simulated.nodes = nodes(n1=None, n2=None, n3=None, n4=0.4)
    simulated.heartbeats = {"n3": 0.5}
    loads = simulated.predicted()
    assert loads.reliability("n1") == pytest.approx(1 - 0.63 / 0.85)
    assert loads.reliability("n2") == 0  # overloaded
    assert loads.reliability("n3") == pytest.approx(0.5 * (1 - 0.62 / 0.85))
    assert loads.reliability("n4") == 0.4


def test_loads_are_rescaled_by_computing_power() -> None:
    simulated = published_scenario()
    cpus = {"n1": 150.0, "n3": 100.0, "n4": 50.0, "n2": 100.0}
    simulated.nodes = Cluster(tuple(Node(id=name, cpu=cpu, slots=8) for name, cpu in cpus.items()))
    loads = simulated.predicted()
    assert loads.share(Executor("s", 1)) == pytest.approx(0.21)
    assert loads.share(Executor("s", 1), "n1") == pytest.approx(0.14)
    assert loads.share(Executor("s", 1), "n4") == pytest.approx(0.42)
    faster = tuple(
        Node(id=n.id, cpu=n.cpu, slots=8, ghz=4.0 if n.id == "n4" else 2.0, flops_per_cycle=8)
        for n in simulated.nodes.nodes
    )
    simulated.nodes = Cluster(faster)
    assert simulated.predicted().share(Executor("s", 1), "n4") == pytest.approx(0.21)


def test_nodes_without_a_place_a_slot_or_a_measured_load_are_no_targets() -> None:
    simulated = published_scenario()
    first_nodes = Node(id="n1", cpu=100, slots=2), Node(id="n2", cpu=100, slots=8), Node(id="n3", cpu=100, slots=1)
    simulated.nodes = Cluster((*first_nodes, Node(id="n4", cpu=100, slots=1, capacity=9)))
    other = ExistingWorker("u", "n4", 0, ())
    problem = simulated.problem
    problem = Problem(Cluster(problem.cluster.nodes, existing=(*problem.existing, other)), problem.topologies)
    loads = PredictedLoads(problem, simulated.observed(), 0.85)
    (found,) = relieve(simulated.topology, loads, simulated.by_number, 1)
    assert found.victim is None
    refusals = {each["node"]: each["refusal"] for each in found.account["candidates"] if each["executor"] == "s[1]"}
    assert refusals == {"n1": "no place left", "n3": "no place left", "n4": "no free slot"}


def test_neighbours_are_those_of_the_grouping() -> None:
    simulated = published_scenario()
    topology = Topology(
        id="t",
        components=(
            Component(id="s", kind="spout", parallelism=2),
            Component(id="b", kind="bolt", parallelism=2, inputs=(Input("s", "global"),)),
            Component(id="k", kind="bolt", parallelism=2, inputs=(Input("b"),)),
        ),
    )
    place = {Executor.named(name): node for name, node in simulated.places.items()}
    found = Neighbours(topology, place)
    assert found.nodes(Executor("s", 1)) == {"n1"}  # b[0] only
    assert found.nodes(Executor("b", 1)) == {"n2", "n3"}  # no spout sends to it
    assert found.nodes(Executor("b", 0)) == {"n1", "n2", "n3"}
    place[Executor("k", 1)] = "n1"
    found.move(Executor("k", 1), "n3", "n1")
    assert found.nodes(Executor("b", 1)) == {"n1", "n2"}


def test_all_executors_leave_a_node_that_is_vacated() -> None:
    simulated = published_scenario()
    loads = simulated.predicted()
    found = vacate(simulated.topology, loads, simulated.by_number, {"n2"})
    assert [decision.victim.name for decision in found if decision.victim] == ["s[1]", "k[0]", "b[1]"]
    assert loads.on("n2") == []
    assert all(loads.load[node] < 0.85 for node in ("n1", "n3", "n4"))


@st.composite
def clusters(draw: st.DrawFn) -> ObservedCluster:
    """Up to six nodes of different sizes, and up to fifteen executors."""
    names = [f"n{at}" for at in range(draw(st.integers(1, 6)))]
    cluster = Cluster(
        tuple(
            Node(
                id=name,
                cpu=draw(st.sampled_from([50.0, 100.0, 200.0])),
                slots=draw(st.integers(3, 15)),
                max_load=draw(st.none() | st.sampled_from([0.3, 0.5, 0.95])),
                reliability=draw(st.none() | st.sampled_from([0.5, 0.9])),
            )
            for name in names
        )
    )
    topology = chain(
        *(draw(st.integers(1, 5)) for _ in range(3)), grouping=draw(st.sampled_from(["shuffle", "global"]))
    )
    executors = [executor.name for executor in topology.executors]
    pairs = [(one.name, other.name) for one, other in topology.pairs()]
    return ObservedCluster(
        nodes=cluster,
        topology=topology,
        places={name: draw(st.sampled_from(names)) for name in executors},
        points={name: float(draw(st.integers(0, 40))) for name in executors},
        rates={pair: float(draw(st.integers(0, 20))) for pair in pairs},
        base=draw(st.sampled_from([0.0, 0.02, 0.1])),
    )


@given(clusters(), st.integers(0, 4))
def test_no_target_exceeds_its_bound_and_loads_are_updated(simulated: ObservedCluster, most: int) -> None:
    before = simulated.predicted()
    found, loads = decide(simulated, most)
    for decision in found:
        if decision.target:
            assert decision.target.load < decision.target.bound
            assert decision.target.node != decision.node
    moved = [decision for decision in found if decision.victim and decision.target]
    for decision in moved:
        assert decision.victim
        assert decision.target
        simulated.places[decision.victim.name] = decision.target.node
    after = simulated.predicted()
    assert loads.place == after.place
    assert loads.load == pytest.approx(after.load)
    targets = {decision.target.node for decision in moved if decision.target}
    assert all(after.is_below(node, after.load[node]) for node in targets)
    for node in before.load:
        left = sum(decision.node == node for decision in moved)
        assert left <= (most if before.is_overloaded(node) else 0)
        assert before.is_overloaded(node) or not after.is_overloaded(node)


@settings(max_examples=times(8))
@given(clusters())
def test_every_overloaded_node_has_a_decision_and_no_room_is_reported_only_without_room(
    simulated: ObservedCluster,
) -> None:
    found, loads = decide(simulated)
    before = simulated.predicted()
    assert [d.node for d in found] == sorted(
        (n for n in before.load if before.is_overloaded(n) and before.on(n)),
        key=lambda n: (before.bound[n] - before.load[n], n),
    )
    for last in found[-1:]:
        if last.victim is None:  # nothing changed after it
            for executor in loads.on(last.node):
                others = [node for node in loads.nodes if node != last.node]
                assert not loads.work(executor) or all(loads.refusal(executor, node) for node in others)


def test_a_node_without_cpu_is_no_target() -> None:
    simulated = ObservedCluster(
        nodes=Cluster((Node(id="n1", cpu=100), Node(id="n2", cpu=0))),
        topology=chain(2, names="s"),
        places={"s[0]": "n1", "s[1]": "n2"},
        points={"s[0]": 95.0, "s[1]": 5.0},
    )
    simulated.load = lambda node: 0.97 if node == "n1" else 0.0  # type: ignore[method-assign]
    (found,), loads = decide(simulated)
    assert found.account["outcome"] == "no room"
    assert list(loads.nodes) == ["n1"]
    assert loads.share(Executor("s", 1)) == 0
