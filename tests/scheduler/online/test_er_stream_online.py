"""`er-stream` while a topology runs: moves, new partitions and clocks, window by window."""

import json
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replaced
from observed_rounds import ObservedCluster, rates_of
from problems import chain

from inventory.cluster import Cluster, Node
from inventory.values import EnergyModel
from scheduler.algorithms.er_stream import ErStream, ErStreamParams
from scheduler.online.observation import Change, Observation, PastRevision
from scheduler.online.rescheduling import not_asked
from scheduler.online.revision import OnlineScheduler, Revision
from scheduler.online.validation import CheckedOnline
from scheduler.problem import Move, Slot
from workloads.topology import Component, Executor, Input, Topology

QUICK: dict[str, Any] = {"population": 8, "generations": 20}
TABLE = (800_000_000, 1_600_000_000, 2_000_000_000, 2_400_000_000)
MODEL = EnergyModel(p_s=6.0, p_d=9.0)


def scheduler(**params: Any) -> CheckedOnline:
    return CheckedOnline(ErStream, ErStreamParams(**QUICK | params))


def nodes(names: str, **facts: Any) -> Cluster:
    return Cluster(tuple(Node(id=name, **{"cpu": 100, "slots": 8, **facts}) for name in names.split()))


def overloaded() -> ObservedCluster:
    """n2 is at 91 % (the published scenario)."""
    return ObservedCluster(
        nodes=Cluster(
            tuple(
                Node(id=name, cpu=100, slots=8, reliability=r)
                for name, r in (("n1", 0.90), ("n2", 0.95), ("n3", 0.97), ("n4", 0.80))
            )
        ),
        topology=chain(2, 2, 2, names="sbk"),
        places={"s[0]": "n1", "b[0]": "n1", "s[1]": "n2", "b[1]": "n2", "k[0]": "n2", "k[1]": "n3"},
        points={"s[0]": 25, "b[0]": 36, "s[1]": 21, "b[1]": 32, "k[0]": 36, "k[1]": 60},
        rates=rates_of({"s0-b0": 300, "s0-b1": 200, "s1-b0": 180, "s1-b1": 120})
        | rates_of({"b0-k0": 150, "b0-k1": 330, "b1-k0": 260, "b1-k1": 60}),
    )


def skewed() -> ObservedCluster:
    """a[i] sends to b[i] only, on the other node."""
    return ObservedCluster(
        nodes=nodes("n1 n2", slots=3),
        topology=chain(2, 2),
        places={"a[0]": "n1", "b[0]": "n2", "a[1]": "n2", "b[1]": "n1"},
        points=dict.fromkeys(("a[0]", "a[1]", "b[0]", "b[1]"), 10.0),
        rates=rates_of({"a0-b0": 100, "a1-b1": 90, "a0-b1": 1}),
    )


def revise(simulated: ObservedCluster, er_stream: CheckedOnline) -> Revision:
    revision = er_stream.revise(simulated.problem, simulated.window())
    assert revision is not None
    json.dumps(revision.details, allow_nan=False)
    return revision


def reason_for_no_change(revision: Revision | None) -> str:
    """Return the reason of a revision without changes."""
    assert revision is not None
    assert not revision.changes
    return revision.text


def test_it_is_an_online_scheduler() -> None:
    assert isinstance(ErStream(ErStreamParams()), OnlineScheduler)
    assert ErStream.needs.online


def test_an_executor_leaves_an_overloaded_node_for_the_worker_of_its_topology() -> None:
    simulated, er_stream = overloaded(), scheduler()
    revision = revise(simulated, er_stream)
    assert revision.moves == [Move("t", Executor("s", 1), Slot("n2", 0), Slot("n1", 0))]
    assert revision.reason == "overload"
    assert revision.text == "n2 is at 91.0% of its CPU: s[1] moves to n1"
    assert revision.expects.cut == 860
    assert max(revision.expects.load.values()) == pytest.approx(0.84)
    (decision,) = revision.details["overload"]
    assert (decision["executor"], decision["stage"], decision["to"]) == ("s[1]", "local", "n1")
    assert revision.details["loads"]["n2"] == {"load": 0.91, "bound": 0.85}
    assert revision.details["reschedule"] == not_asked("executors leave nodes first")


@pytest.mark.parametrize(("bound", "target"), [(0.80, "n4"), (0.85, "n1"), (0.90, "n1")])
def test_the_published_scenario(bound: float, target: str) -> None:
    """Loads of 52, 74, 51 and 2 % at 1000 tuples/s, and 23 % more from 200 s on.

    The paper prints 60, 74, 57 and 6 %, and 2000 tuples/s; but of n2's 74 points, 57 belonged to other processes: its
    load rises to 91 %, not to 146. Here the stream causes all of a node's load beyond 2 %. Any B gives the same victim.
    With 0.80 the neighbour's node would be at 84 %, so that all nodes are examined: n3 would be at 83 %, n4 remains.
    """
    simulated, er_stream = overloaded(), scheduler(B=bound)
    simulated.nodes = Cluster(tuple(replaced(node, reliability=None) for node in simulated.nodes.nodes))
    full, rates = dict(simulated.points), dict(simulated.rates)
    simulated.points = {name: points / 1.23 for name, points in full.items()}
    simulated.rates = {pair: rate / 1.23 for pair, rate in rates.items()}
    while simulated.at_s < 200:
        assert not revise(simulated, er_stream).moves
    simulated.points, simulated.rates = full, rates
    assert simulated.load("n2") == pytest.approx(0.91)
    revision = revise(simulated, er_stream)
    assert simulated.at_s == 205
    (move,) = revision.moves
    assert (move.executor, move.target.node) == (Executor("s", 1), target)
    simulated.apply_revision(revision)
    assert simulated.load("n2") == pytest.approx(0.70)


def test_a_node_without_a_worker_gets_one_in_its_lowest_free_slot() -> None:
    simulated = overloaded()
    simulated.nodes = Cluster(
        tuple(
            Node(id=n.id, cpu=100, slots=2, ports=(6701, 6700), capacity=8, reliability=1.0 if n.id == "n4" else 0.5)
            for n in simulated.nodes.nodes
        )
    )
    simulated.topology = chain(2, names="s")
    simulated.places = {"s[0]": "n1", "s[1]": "n1"}
    simulated.points = {"s[0]": 50.0, "s[1]": 40.0}
    simulated.rates = {}
    revision = revise(simulated, scheduler())
    assert revision.moves == [Move("t", Executor("s", 0), Slot("n1", 0), Slot("n4", 1))]


def test_a_revision_without_changes_gives_its_reason() -> None:
    simulated = overloaded()
    simulated.nodes = nodes("n1 n2 n3")
    simulated.points |= {"s[0]": 47, "k[1]": 80}
    revision = revise(simulated, scheduler(alpha=100))
    assert (revision.reason, revision.changes) == ("", False)
    assert revision.text.startswith("n2 is at 91.0% of its CPU: no room")
    assert revision.details["overload"][0]["tried"] == 3
    assert revision.details["reschedule"]["outcome"] in ("the plan saves too little", "the plan is not better")


def test_executors_are_exchanged_at_30_s_and_every_period() -> None:
    simulated, er_stream = skewed(), scheduler()
    simulated.at_s = 20
    assert revise(simulated, er_stream).details["reschedule"] == not_asked("not due")  # 25 s
    revision = revise(simulated, er_stream)
    assert revision.reason == "cut"
    assert revision.text == "190 -> 1 tuples/s between nodes"
    assert {move.executor.name for move in revision.moves} in ({"a[0]", "a[1]"}, {"b[0]", "b[1]"})
    assert revision.expects.cut == 1
    simulated.apply_revision(revision)
    outcomes = [revise(simulated, er_stream).details["reschedule"]["outcome"] for _ in range(7)]
    assert outcomes == ["not due"] * 5 + ["the plan is not better", "not due"]


def test_a_partition_waits_until_no_executor_has_to_leave_a_node() -> None:
    simulated, er_stream = skewed(), scheduler()
    simulated.points["a[0]"] = 80.0
    revision = revise(simulated, er_stream)
    assert revision.reason == "overload"
    simulated.apply_revision(revision)
    assert revise(simulated, er_stream).details["reschedule"]["outcome"] != "not due"  # 35 s


def test_a_period_without_traffic_changes_nothing() -> None:
    simulated = skewed()
    simulated.rates = {}
    assert revise(simulated, scheduler()).details["reschedule"] == not_asked("no traffic was observed")


def test_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.algorithms.er_stream.MOST_WORK", 1)
    assert revise(skewed(), scheduler()).details["reschedule"] == not_asked("too large for the search")
    monkeypatch.setattr("scheduler.algorithms.er_stream.MOST_WORK", 60_000)
    outcome = revise(skewed(), scheduler()).details["reschedule"]["outcome"]
    assert outcome.endswith("; too large for the whole search: 2 of 20 generations")


def test_executors_wait_for_six_windows_until_they_move_again() -> None:
    simulated, er_stream = overloaded(), scheduler(max_moves=9)
    simulated.moved_s = {"s[1]": 5.0}
    assert simulated.window().at_s == 30
    assert revise(simulated, er_stream).moves[0].executor == Executor("s", 1)  # 35 s: seven windows
    simulated = overloaded()
    simulated.moved_s = {"s[1]": 5.5}
    revision = revise(simulated, scheduler())
    assert revision.moves[0].executor == Executor("k", 0)
    assert revision.details["overload"][0]["skipped"] == 1


def test_own_decisions_count_until_they_fail() -> None:
    simulated, er_stream = overloaded(), scheduler()
    assert revise(simulated, er_stream).moves[0].executor == Executor("s", 1)
    assert revise(simulated, er_stream).moves[0].executor == Executor("k", 0)  # the first move is not finished yet
    simulated, er_stream = overloaded(), scheduler()
    first = revise(simulated, er_stream)
    earlier = PastRevision(at_s=12.0, reason="overload", outcome="stale")
    done = PastRevision(at_s=30.4, reason="overload", outcome="done")
    observation = simulated.window()
    again = er_stream.revise(simulated.problem, replaced(observation, history=(earlier, done)))
    assert again
    assert again.moves[0].executor == Executor("k", 0)
    # The outcome is reported some time after the window of the decision.
    simulated, er_stream = overloaded(), scheduler()
    assert revise(simulated, er_stream).moves == first.moves
    failed = PastRevision(at_s=30.4, reason="overload", outcome="abandoned")
    again = er_stream.revise(simulated.problem, replaced(simulated.window(), history=(earlier, failed)))
    assert again
    assert again.moves == first.moves


def test_an_incomplete_observation_decides_nothing() -> None:
    simulated = overloaded()
    observation = replaced(simulated.window(), complete=False, missing=("n1/0",))
    assert scheduler().revise(simulated.problem, observation) == Revision(text="the observation is not complete")


def test_waiting_executors_are_left_to_the_runtime() -> None:
    simulated = overloaded()
    observation = simulated.window()
    running = {name: executor for name, executor in observation.executors.items() if name != "k[1]"}
    assert reason_for_no_change(
        scheduler().revise(simulated.problem, replaced(observation, executors=running))
    ).startswith("executors wait")


def test_all_executors_leave_a_drained_node() -> None:
    simulated = overloaded()
    observation = simulated.window()
    drained = {**observation.nodes, "n2": replaced(observation.nodes["n2"], available=False)}
    observation = replaced(observation, nodes=drained, changes=(Change.of(28.0, "node_down", "n2"),))
    revision = scheduler().revise(simulated.problem, observation)
    assert revision
    assert revision.reason == "nodes"
    assert {move.executor.name for move in revision.moves} == {"b[1]", "k[0]", "s[1]"}
    assert all(move.target.node != "n2" for move in revision.moves)
    assert (
        reason_for_no_change(scheduler().revise(simulated.problem, replaced(observation, complete=False)))
        == "no room for the executors of n2"
    )


def test_executors_of_a_drained_node_stay_when_no_other_node_has_room() -> None:
    simulated = ObservedCluster(nodes("n1"), chain(1, names="s"), {"s[0]": "n1"}, {"s[0]": 10.0})
    observation = simulated.window()
    observation = replaced(observation, nodes={"n1": replaced(observation.nodes["n1"], available=False)})
    assert reason_for_no_change(scheduler().revise(simulated.problem, observation)).startswith(
        "no room for the executors of"
    )


def noncritical_n2() -> ObservedCluster:
    """s[0] on n1 is critical; n2 has slack."""
    return ObservedCluster(
        nodes=nodes("n1 n2", frequencies_hz=TABLE, power=MODEL),
        topology=chain(2, names="s"),
        places={"s[0]": "n1", "s[1]": "n2"},
        points={"s[0]": 30.0, "s[1]": 57.0},
        delays={"s[0]": 0.1, "s[1]": 0.012},
        base=0.0,
    )


def test_clocks_alone_are_a_revision() -> None:
    simulated, er_stream = noncritical_n2(), scheduler()
    assert [revise(simulated, er_stream).changes for _ in range(2)] == [False, False]
    revision = revise(simulated, er_stream)
    assert (revision.reason, revision.text, dict(revision.frequencies)) == (
        "clocks",
        "n2 to 2 GHz",
        {"n2": 2_000_000_000},
    )
    assert revision.expects.watts == pytest.approx(6 + 9 * 0.3 + 9.5625)
    assert max(revision.expects.load.values()) == pytest.approx(0.684)
    assert revision.details["clocks"]["n2"]["binding"] == "y_min"


def test_clocks_stay_where_nothing_is_to_be_saved() -> None:
    simulated, er_stream = noncritical_n2(), scheduler(save="off")
    revision = [revise(simulated, er_stream) for _ in range(4)][-1]
    assert not revision.changes
    assert revision.details["clocks"] == {}


def test_a_slowed_node_is_raised_before_anything_leaves_it() -> None:
    simulated, er_stream = noncritical_n2(), scheduler()
    simulated.requested_hz = {"n2": 2_000_000_000}
    simulated.points["s[1]"] = 74.0
    assert simulated.load("n2") == pytest.approx(0.888)
    revision = revise(simulated, er_stream)
    assert (revision.reason, list(revision.moves), dict(revision.frequencies)) == ("clocks", [], {"n2": 2_400_000_000})
    revision = revise(simulated, scheduler(save="off"))  # a clock that it did not set stays
    assert revision.text == "n2 is at 88.8% of its CPU: no room"


def test_a_slowed_node_that_receives_an_executor_is_raised_with_the_move() -> None:
    simulated, er_stream = noncritical_n2(), scheduler()
    simulated.topology = chain(4, names="s")
    simulated.places |= {"s[2]": "n1", "s[3]": "n1"}
    simulated.points |= {"s[1]": 30.0, "s[2]": 30.0, "s[3]": 50.0}
    simulated.delays = {**simulated.delays, "s[2]": 0.01, "s[3]": 0.01}
    simulated.requested_hz = {"n2": 1_600_000_000}
    revision = revise(simulated, er_stream)
    assert [move.target.node for move in revision.moves] == ["n2"]
    assert dict(revision.frequencies) == {"n2": 2_400_000_000}
    assert max(revision.expects.load.values()) == pytest.approx(0.80)


def test_revisions_depend_on_past_observations_only() -> None:
    def run() -> list[str]:
        simulated, er_stream = noncritical_n2(), scheduler()
        simulated.rates = {}
        details = []
        for _ in range(8):
            revision = revise(simulated, er_stream)
            simulated.apply_revision(revision)
            details.append(json.dumps(revision.details))
        return details

    assert run() == run()


def test_a_cycle_has_no_longest_path() -> None:
    parts = (
        Component(id="a", kind="bolt", inputs=(Input("b"),)),
        Component(id="b", kind="bolt", inputs=(Input("a"),)),
    )
    simulated = noncritical_n2()
    simulated.topology = Topology(id="t", components=parts)
    simulated.places, simulated.points = {"a[0]": "n1", "b[0]": "n2"}, {"a[0]": 10.0, "b[0]": 10.0}
    simulated.delays = {"a[0]": 0.1, "b[0]": 0.01}
    revision = revise(simulated, scheduler())
    reason = {"left_alone": "there is no longest path: the topology has a cycle"}
    assert revision.details["clocks"] == {"n1": reason, "n2": reason}


def test_problems_may_contain_unavailable_nodes() -> None:
    simulated = overloaded()
    cluster = simulated.nodes.nodes
    simulated.nodes = Cluster((replaced(cluster[0], available=False), *cluster[1:]))
    simulated.places = {name: "n2" if node == "n1" else node for name, node in simulated.places.items()}
    revision = scheduler().revise(replace(simulated.problem), simulated.window())
    assert revision
    assert revision.moves
    assert all(move.target.node != "n1" for move in revision.moves)


def test_a_node_whose_executors_were_measured_above_its_own_load_is_expected_at_zero() -> None:
    """CPU times of executors and of their node are read at different moments: their sum may exceed the node's."""
    simulated = ObservedCluster(
        nodes=Cluster(tuple(Node(id=name, cpu=100, slots=3) for name in ("n1", "n2"))),
        topology=chain(2, 2),
        places={"a[0]": "n1", "b[0]": "n2", "a[1]": "n2", "b[1]": "n1"},
        points={"a[0]": 10.0, "b[0]": 10.0, "a[1]": 10.0, "b[1]": 10.0},
        rates=rates_of({"a0-b0": 100, "a1-b1": 90, "a0-b1": 1}),
    )
    er_stream = CheckedOnline(ErStream, ErStreamParams(population=8, generations=20))

    def window() -> Observation:
        observation = simulated.window()
        executors = {
            name: replaced(executor, load=15.0 if name in ("b[1]", "a[1]") else 0.1)
            for name, executor in observation.executors.items()
        }
        nodes = {name: replaced(node, load=0.1) for name, node in observation.nodes.items()}
        return replaced(observation, executors=executors, nodes=nodes)

    found = None
    while simulated.at_s < 60 and (found is None or not found.moves):
        found = er_stream.revise(simulated.problem, window())
    assert found is not None
    assert found.moves
    assert min(found.expects.load.values()) == 0.0
