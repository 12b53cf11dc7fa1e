"""`er-stream` under any traffic: it converges, executors rarely move, and no move overloads a node."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from observed_rounds import ObservedCluster
from problems import chain

from inventory.cluster import Cluster, Node
from inventory.values import EnergyModel
from scheduler.algorithms.er_stream import ErStream, ErStreamParams
from scheduler.online.revision import Revision
from scheduler.online.validation import CheckedOnline

TABLE = (800_000_000, 1_600_000_000, 2_000_000_000, 2_400_000_000)
MODEL = EnergyModel(p_s=6.0, p_d=9.0)


def scheduler(**params: Any) -> CheckedOnline:
    return CheckedOnline(ErStream, ErStreamParams(**{"population": 8, "generations": 20, **params}))


def revise(simulated: ObservedCluster, er_stream: CheckedOnline) -> Revision:
    revision = er_stream.revise(simulated.problem, simulated.window())
    assert revision is not None
    return revision


@st.composite
def clusters(draw: st.DrawFn) -> ObservedCluster:
    """Up to four nodes, some with clocks, and up to twelve executors with traffic and delays of any kind."""
    names = [f"n{at}" for at in range(draw(st.integers(2, 4)))]
    cluster = Cluster(
        tuple(
            Node(
                id=name,
                cpu=draw(st.sampled_from([100.0, 200.0])),
                slots=draw(st.integers(3, 12)),
                frequencies_hz=draw(st.sampled_from([None, TABLE, TABLE, TABLE])),
                power=draw(st.sampled_from([None, MODEL, MODEL, MODEL])),
            )
            for name in names
        )
    )
    topology = chain(*(draw(st.integers(1, 4)) for _ in range(3)))
    executors = [executor.name for executor in topology.executors]
    return ObservedCluster(
        nodes=cluster,
        topology=topology,
        places={name: draw(st.sampled_from(names)) for name in executors},
        points={name: float(draw(st.integers(0, 40))) for name in executors},
        rates={(one.name, other.name): float(draw(st.integers(0, 20))) for one, other in topology.pairs()},
        delays={name: draw(st.integers(1, 50)) / 1000 for name in executors},
    )


@pytest.mark.long
@given(clusters(), st.sampled_from([0.0, 1.2]), st.sampled_from(["stream", "batch"]), st.integers(1, 3))
def test_it_converges_under_constant_traffic(simulated: ObservedCluster, alpha: float, save: str, most: int) -> None:
    er_stream = scheduler(alpha=alpha, save=save, max_moves=most)
    moved_at_s: dict[str, float] = {}
    revisions: list[Revision] = []
    # Every executor may leave a node in a different window and then wait for six; partitions follow, then clocks.
    for _ in range(120):
        before = dict(simulated.places)
        revision = revise(simulated, er_stream)
        simulated.apply_revision(revision)
        revisions.append(revision)
        cut = simulated.cut
        assert revision.expects.cut == pytest.approx(cut)
        for move in revision.moves:
            assert simulated.at_s - moved_at_s.get(move.executor.name, -1e9) >= 6 * 5
            moved_at_s[move.executor.name] = simulated.at_s
        received = {move.target.node for move in revision.moves}
        bounds = simulated.predicted()
        assert all(bounds.is_below(node, bounds.load[node]) for node in received)
        for node, account in revision.details["clocks"].items():
            if revision.frequencies.get(node, 9e9) < account.get("now_hz", 0):
                assert account["feasible"]
                assert not received
                assert not account["critical"]
                assert simulated.load(node) <= 0.85 + 1e-9
                full = simulated.load(node) * simulated.ratio(node)
                assert simulated.ratio(node) * full + 1 - full >= account["p_req"] - 1e-6
        assert before == simulated.places or revision.moves
    assert not any(revision.changes for revision in revisions[-40:])


@settings(deadline=None, max_examples=25)
@given(clusters(), st.lists(st.integers(1, 9), min_size=40, max_size=40), st.integers(1, 8))
def test_under_any_traffic_an_executor_moves_once_in_six_windows(
    simulated: ObservedCluster, scales: list[int], cool: int
) -> None:
    er_stream = scheduler(alpha=0, cool=cool, max_moves=2)
    points, rates = dict(simulated.points), dict(simulated.rates)
    moved_at_s: dict[str, float] = {}
    for at, scale in enumerate(scales):
        simulated.points = {name: value * scale / 4 for name, value in points.items()}
        shift = at // 8  # every eight windows, traffic shifts to other pairs
        simulated.rates = dict(zip(rates, [*rates.values()][shift:] + [*rates.values()][:shift], strict=True))
        revision = revise(simulated, er_stream)
        simulated.apply_revision(revision)
        loads = simulated.predicted()
        for move in revision.moves:
            assert simulated.at_s - moved_at_s.get(move.executor.name, -1e9) >= cool * 5
            moved_at_s[move.executor.name] = simulated.at_s
            assert loads.is_below(move.target.node, loads.load[move.target.node])
        overloaded = [node for node in loads.load if simulated.load(node) > loads.bound[node] + 1e-9]
        raised = {node: simulated.ratio(node) for node in overloaded if node in revision.details["clocks"]}
        chosen = {node: revision.details["clocks"][node] for node in raised}
        assert all(raised[node] == 1 for node, account in chosen.items() if "now_hz" in account)
