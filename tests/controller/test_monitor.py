"""Observations for online schedulers: rates and loads of windows, from totals in reports, any of which may be lost."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, nodes
from scripted_reports import SETTLE_S, ScriptedReports, observe, pass_time, slot, started

from agents.protocol import PairSent, Progress
from controller.coordinator.monitor import Monitor
from scheduler.online.observation import Change, KeyFigures, Observation, ObservedSource, PastRevision
from scheduler.online.revision import Rhythm


def rates(observation: Observation) -> dict[tuple[str, str], float]:
    return {(edge.source, edge.destination): edge.tuples_per_s for edge in observation.traffic.edges}


def one_pair(rhythm: Rhythm, totals: Sequence[int | None]) -> Observation:
    """Return the observation after these totals of s[0] -> b[0], one per second; None is a lost report."""
    run = ScriptedReports(rates={})
    monitor = started(run, rhythm, settle_s=0)
    for at, total in enumerate(totals):
        if at:
            run.advance(1.0)
        for node, report in run.reports():
            if isinstance(report, Progress) and total is None:
                continue
            if isinstance(report, Progress) and node == "n1":
                report = with_pairs(report, [(0, 2, total)])
            monitor.record(node, report, run.at_s)
    return observe(monitor, run.at_s)


def with_pairs(report: Progress, pairs: Sequence[tuple[int, int, int | None]]) -> Progress:
    return replace(report, pairs=tuple(PairSent(a, b, total or 0, None) for a, b, total in pairs))


TOTALS = (0, 100, None, 300, 700, 800)


@pytest.mark.parametrize(
    ("kind", "rate"), [("mean", 160.0), ("trimmed", 100.0), ("ewma", (100 / 2 + 400 / 2) / 2 + 100 / 2)]
)
def test_a_lost_report_counts_as_two_equal_samples(kind: Any, rate: float) -> None:
    rhythm = Rhythm(window_s=1 if kind == "ewma" else 5, sample_s=1, average=kind, newest=0.5)
    found = one_pair(rhythm, TOTALS)
    assert rates(found) == {("s[0]", "b[0]"): pytest.approx(rate)}
    assert found.complete


def test_a_full_window_has_the_rates_loads_and_power_of_the_run() -> None:
    run = ScriptedReports(due={"s[0]": 120.0, "s[1]": 100.0})
    monitor = started(run)
    pass_time(monitor, run, 8)
    found = observe(monitor, run.at_s)
    assert found.complete
    assert (found.samples, found.sample_s, found.epoch, found.version) == (5, 1.0, 1, 1)
    assert found.since_s == 3
    assert rates(found) == pytest.approx(SKEWED_RATES)
    assert {(edge.source, edge.destination) for edge in found.traffic.edges if edge.bytes_per_s is None} == {
        ("s[0]", "b[0]"),
        ("b[0]", "k[1]"),
        ("s[1]", "b[1]"),
        ("b[1]", "k[0]"),
    }
    assert found.source == ObservedSource(220.0, 200.0, 0.002)
    assert (found.sink.per_s, found.sink.p50_ms, found.sink.p99_ms) == (pytest.approx(200), 5.0, 9.0)
    b = found.executors["b[0]"]
    assert (b.node, b.slot, b.queued, b.busy) == ("n1", 0, 3, pytest.approx(10))
    assert (b.processed_per_s, b.emitted_per_s) == (pytest.approx(90), pytest.approx(90))
    assert b.delay_s == pytest.approx(0.1 / 90)
    assert found.executors["s[0]"].delay_s == pytest.approx(0.1 / 100)
    n1 = found.nodes["n1"]
    assert (n1.load, n1.base) == (pytest.approx(0.58 / 4), pytest.approx(0.2 / 4))
    assert (n1.hz, n1.watts, n1.source, n1.saturated) == (2.4e9, pytest.approx(30), "rapl", False)
    assert found.nodes["n3"].load is None
    monitor.answered("n1", run.at_s)
    assert observe(monitor, run.at_s).nodes["n1"].heartbeats == 1.0
    # The power of n3 is unknown, and therefore that of all nodes.
    assert found.measured == KeyFigures(cut=pytest.approx(310), load=pytest.approx(0.145), watts=None)
    nodes = found.nodes | {"n3": replace(found.nodes["n3"], watts=5.0)}  # type: ignore[operator]
    assert replace(found, nodes=nodes).measured.watts == pytest.approx(65)


def test_the_transport_of_a_worker_is_charged_to_executors_with_traffic_between_workers() -> None:
    run = ScriptedReports(rates={("s[0]", "b[0]"): 30.0, ("s[0]", "b[1]"): 10.0}, transport=8.0)
    monitor = started(run)
    pass_time(monitor, run, 8)
    found = observe(monitor, run.at_s).executors
    assert {name: found[name].load for name in ("s[0]", "b[0]", "k[1]")} == {
        "s[0]": pytest.approx(18),
        "b[0]": pytest.approx(10),
        "k[1]": pytest.approx(10),
    }
    assert found["b[1]"].load == pytest.approx(18)


def test_a_window_is_not_complete_before_it_is_full() -> None:
    run = ScriptedReports()
    monitor = started(run)
    complete = []
    for _ in range(8):
        pass_time(monitor, run, 1)
        complete.append(observe(monitor, run.at_s).complete)
    # Settled at 2 s, and five samples later.
    assert complete == [False] * 6 + [True] * 2


@given(
    lost=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=20, max_size=20),
    kind=st.sampled_from(["mean", "trimmed", "ewma"]),
    jitter=st.lists(st.floats(0, 0.2), min_size=22, max_size=22),
)
def test_constant_rates_are_observed_exactly_although_reports_are_lost(
    lost: list[list[bool]], kind: Any, jitter: list[float]
) -> None:
    run = ScriptedReports(rates={pair: 1e6 * rate for pair, rate in SKEWED_RATES.items()})
    monitor = started(run, Rhythm(window_s=1 if kind == "ewma" else 5, sample_s=1, average=kind))
    losses = [[False] * 4, *lost, [False] * 4]
    for number, flags in enumerate(losses):
        run.advance(max(0.5, number + 3 + jitter[number] - run.at_s))
        for (node, report), is_lost in zip(run.reports(), flags, strict=True):
            if not is_lost:
                monitor.record(node, report, run.at_s)
    found = observe(monitor, run.at_s)
    assert found.complete
    assert rates(found) == pytest.approx(run.rates, rel=1e-6)
    for name, executor in found.executors.items():
        assert executor.busy == pytest.approx(run.points(name), rel=1e-6)
    assert found.nodes["n1"].watts == pytest.approx(30)


@example(  # reports have whole nanoseconds
    busy=dict.fromkeys(SPREAD_PLACEMENT, 0.0) | {"k[0]": 6e-8},
    others=0.0,
    transport=0.0,
    places=dict.fromkeys(SPREAD_PLACEMENT, "n1/0"),
    kind="mean",
)
@given(
    busy=st.fixed_dictionaries({name: st.floats(0, 60) for name in SPREAD_PLACEMENT}),
    others=st.floats(0, 100),
    transport=st.floats(0, 50),
    places=st.fixed_dictionaries(
        {name: st.sampled_from(["n1/0", "n1/1", "n2/0", "n3/1"]) for name in SPREAD_PLACEMENT}
    ),
    kind=st.sampled_from(["mean", "trimmed", "ewma"]),
)
def test_loads_and_base_add_up_to_the_cpu_of_the_node(
    busy: dict[str, float], others: float, transport: float, places: dict[str, str], kind: Any
) -> None:
    run = ScriptedReports(places=places, busy=busy, others=others, transport=transport)
    monitor = started(run, Rhythm(window_s=5, sample_s=1, average=kind))
    pass_time(monitor, run, 9)
    found = observe(monitor, run.at_s)
    for node in nodes().nodes:
        used = [e.load for e in found.executors.values() if e.node == node.id]
        if used:
            cores = run.vitals(node.id).cores or 0.0
            observed = found.nodes[node.id]
            assert observed.load == pytest.approx(min(2.0, cores * 100 / node.cpu_points))
            assert (observed.base or 0.0) + sum(used) / node.cpu_points == pytest.approx(observed.load, abs=1e-9)


@given(change_at=st.integers(9, 30), asked_after=st.integers(0, 14), kind=st.sampled_from(["mean", "trimmed", "ewma"]))
def test_no_sample_is_older_than_the_last_change(change_at: int, asked_after: int, kind: Any) -> None:
    run = ScriptedReports()
    monitor = started(run, Rhythm(window_s=5, sample_s=1, average=kind))
    pass_time(monitor, run, change_at)
    before = observe(monitor, run.at_s)
    run.move("b[0]", "n3/0")
    monitor.placed({"b[0]": slot("n3/0")}, run.at_s)
    run.rates = {pair: 3 * rate for pair, rate in SKEWED_RATES.items()}
    pass_time(monitor, run, asked_after)
    found = observe(monitor, run.at_s)
    assert found.version == before.version + 1
    assert found.executors["b[0]"].moved_s == change_at
    assert found.executors["b[0]"].node == "n3"
    if found.samples:
        assert found.since_s >= change_at + SETTLE_S
        assert rates(found) == pytest.approx(run.rates)
    else:
        assert not found.complete
        assert rates(found) == rates(before)
    assert found.complete == (asked_after >= SETTLE_S + (1 if kind == "ewma" else 5))


def test_a_change_of_rate_does_not_end_a_window() -> None:
    run = ScriptedReports(rates={("s[0]", "b[0]"): 100.0})
    monitor = started(run, Rhythm(window_s=4, sample_s=1))
    pass_time(monitor, run, 8)
    run.rates = {("s[0]", "b[0]"): 200.0, ("s[0]", "b[1]"): 40.0}
    pass_time(monitor, run, 2)
    found = observe(monitor, run.at_s)
    assert found.complete
    assert rates(found) == pytest.approx({("s[0]", "b[0]"): 150, ("s[0]", "b[1]"): 20})


def clock_change(monitor: Monitor, at_s: float) -> None:
    monitor.changed(at_s, "clock", "n1")


def revision_of_clocks(monitor: Monitor, at_s: float) -> None:
    monitor.asked_clocks({"n1": 1_200_000_000}, at_s)


@pytest.mark.parametrize("change", [clock_change, revision_of_clocks])
def test_nothing_is_measured_while_a_change_settles(change: Callable[[Monitor, float], None]) -> None:
    run = ScriptedReports()
    monitor = started(run)
    pass_time(monitor, run, 8)
    change(monitor, run.at_s)
    run.rates, run.others = {}, 300.0
    pass_time(monitor, run, 2)
    run.rates, run.others = SKEWED_RATES, 20.0
    pass_time(monitor, run, 3)
    found = observe(monitor, run.at_s)
    assert (found.samples, found.since_s) == (3, 10)
    assert found.nodes["n1"].load == pytest.approx(0.145)
    assert rates(found) == pytest.approx(SKEWED_RATES)


def test_traffic_of_a_moved_sender_is_counted_in_its_new_slot() -> None:
    run = ScriptedReports()
    monitor = started(run)
    pass_time(monitor, run, 10)
    run.move("s[0]", "n3/1")
    monitor.placed({"s[0]": slot("n3/1")}, run.at_s)
    pass_time(monitor, run, 7)
    run.move("s[0]", "n1/0")
    monitor.placed({"s[0]": slot("n1/0")}, run.at_s)
    pass_time(monitor, run, 7)
    found = observe(monitor, run.at_s)
    assert found.complete
    assert rates(found) == pytest.approx(SKEWED_RATES)


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(sorted(SPREAD_PLACEMENT)),
            st.sampled_from(["n1/0", "n1/1", "n2/0", "n3/1"]),
            st.lists(st.sampled_from(["n1", "n2", "n3", ""]), max_size=9),
        ),
        max_size=6,
    ),
    kind=st.sampled_from(["mean", "trimmed", "ewma"]),
)
def test_rates_and_loads_are_right_after_any_moves_and_lost_reports(steps: Sequence[Any], kind: Any) -> None:
    run = ScriptedReports(busy={"s[0]": 30.0, "b[1]": 55.0})
    monitor = started(run, Rhythm(window_s=5, sample_s=1, average=kind))
    for name, to, silent in steps:
        run.move(name, to)
        monitor.placed({name: slot(to)}, run.at_s)
        for lost in silent:
            pass_time(monitor, run, 1, lambda node, _report, lost=lost: node != lost)  # type: ignore[misc]
    pass_time(monitor, run, 8)
    found = observe(monitor, run.at_s)
    assert found.complete
    assert rates(found) == pytest.approx(SKEWED_RATES)
    assert {name: f"{e.node}/{e.slot}" for name, e in found.executors.items()} == run.places
    assert {name: e.busy for name, e in found.executors.items()} == pytest.approx(
        {n: run.points(n) for n in SPREAD_PLACEMENT}
    )


def test_a_window_stays_as_it_was_while_further_reports_are_recorded() -> None:
    run = ScriptedReports()
    monitor = started(run)
    pass_time(monitor, run, 8)
    before = observe(monitor, run.at_s)
    window = monitor.window(run.at_s)
    run.rates = {}
    pass_time(monitor, run, 3)
    monitor.answered("n1", run.at_s)
    monitor.stored("b[0]", 7)
    monitor.available("n3", False)
    monitor.placed({"b[0]": slot("n3/0")}, run.at_s)
    pass_time(monitor, run, 3)
    assert monitor.conclude(window.observe()) == before


def test_changes_are_listed_until_the_scheduler_was_asked_with_a_full_window() -> None:
    run = ScriptedReports()
    monitor = started(run, Rhythm(window_s=5, sample_s=1, ask_s=3))
    pass_time(monitor, run, 8)
    version = monitor.version
    monitor.available("n3", False)
    monitor.available("n3", False)
    monitor.changed(run.at_s, "node_down", "n3")
    assert monitor.version == version + 2
    listed = []
    for _ in range(11):
        pass_time(monitor, run, 1)
        found = observe(monitor, run.at_s)
        assert not found.nodes["n3"].available
        listed.append((found.complete, found.changes == (Change.of(8.0, "node_down", "n3"),)))
    assert listed == [(False, True)] * 6 + [(True, True)] * 3 + [(True, False)] * 2


def test_history_has_the_last_64_revisions() -> None:
    run = ScriptedReports()
    monitor = started(run)
    for at in range(70):
        monitor.remember(PastRevision(at_s=float(at), reason="cut", outcome="no"))
    assert [past.at_s for past in observe(monitor, 0).history] == list(range(6, 70))


def test_a_new_epoch_begins_with_its_own_totals_and_placement() -> None:
    run = ScriptedReports()
    monitor = started(run)
    pass_time(monitor, run, 10)
    late = run.progress("n1/0")
    after = ScriptedReports(places={**SPREAD_PLACEMENT, "b[0]": "n3/0"}, epoch=2, at_s=run.at_s)
    monitor.start_epoch(after.spec, run.at_s)
    monitor.record("n1", late, run.at_s + 3)
    pass_time(monitor, after, 4)
    assert rates(observe(monitor, after.at_s)) == pytest.approx(SKEWED_RATES)
    pass_time(monitor, after, 3)
    found = observe(monitor, after.at_s)
    assert (found.complete, found.epoch) == (True, 2)
    assert (found.executors["b[0]"].moved_s, found.executors["s[0]"].moved_s) == (10.0, None)
    assert rates(found) == pytest.approx(SKEWED_RATES)


@pytest.mark.parametrize(("cores", "is_saturated"), [(3.92, True), (3.91, False)])
def test_a_node_without_idle_time_is_saturated(cores: float, is_saturated: bool) -> None:
    run = ScriptedReports(others=cores * 100 - 38)
    monitor = started(run)
    pass_time(monitor, run, 8)
    assert observe(monitor, run.at_s).nodes["n1"].saturated is is_saturated


def test_many_pairs_make_samples_longer() -> None:
    run = ScriptedReports(rates={})
    monitor = started(run, Rhythm(window_s=6, sample_s=1))
    many = [(0, at, 5) for at in range(30_001)]
    for _ in range(12):
        run.advance(1.0)
        for node, report in run.reports():
            is_first = isinstance(report, Progress) and node == "n1"
            monitor.record(node, with_pairs(report, many) if is_first else report, run.at_s)  # type: ignore[arg-type]
    found = observe(monitor, run.at_s)
    assert (found.complete, found.samples, found.sample_s) == (True, 3, 2.0)


def test_figures_without_a_source_are_unknown() -> None:
    run = ScriptedReports(watts=None)
    monitor = started(run)
    monitor.stored("b[0]", 77)
    monitor.asked_clocks({"n1": 1_200_000_000}, run.at_s)
    pass_time(monitor, run, 8)
    found = observe(monitor, run.at_s)
    assert (found.nodes["n1"].watts, found.nodes["n1"].source) == (None, None)
    assert (found.nodes["n1"].asked_hz, found.nodes["n2"].asked_hz) == (1.2e9, None)
    assert found.source.due_per_s == found.source.emitted_per_s == pytest.approx(200)
    assert (found.executors["b[0]"].state_bytes, found.executors["b[1]"].state_bytes) == (77, None)
    assert found.measured.watts is None
