"""Traffic and observations of finished runs, from traces of constant rates."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as replace_struct
from observed_rounds import SKEWED_RATES, SPREAD_PLACEMENT, chain, nodes
from scripted_reports import ScriptedReports, pass_time, started
from traced_runs import NAME, TracedRun

from analysis.measure.finished_run import FinishedRun
from analysis.measure.observed import observe_run, traffic_of_run
from analysis.records.accounts import ComponentScaling
from analysis.records.file_types import RevisionRecord
from campaign.results.selected_run import select_run
from inventory.cluster import Cluster, Node
from inventory.documents import parse_document
from inventory.errors import InputError
from scheduler.online.observation import (
    KeyFigures,
    Observation,
    Outcome,
    check_observed,
    observation_json,
    observation_of,
)
from scheduler.problem import CommunicationSchedule, Problem, Slot
from workloads.traffic import Traffic

RUN = TracedRun(nodes(cores=2), SPREAD_PLACEMENT, SKEWED_RATES)


def finished(run: TracedRun, folder: Path) -> FinishedRun:
    return select_run(run.write(folder / "campaign"), NAME).finished()


def observe(run: FinishedRun, at_s: float, window_s: float | None = None) -> Observation:
    return observe_run(run, at_s, window_s, lambda _share: None)


def traffic(run: FinishedRun, since_s: float, until_s: float) -> Traffic:
    return traffic_of_run(run, since_s, until_s, lambda _share: None)


@settings(max_examples=15, deadline=None)
@given(
    since_s=st.floats(1, 8),
    length_s=st.floats(1.1, 10),
    offsets=st.fixed_dictionaries({"n1": st.floats(-40, 40), "n2": st.floats(-40, 40)}),
)
def test_constant_rates_are_found_in_any_part_of_a_run_with_any_clocks(
    tmp_path_factory: pytest.TempPathFactory, since_s: float, length_s: float, offsets: dict[str, float]
) -> None:
    run = finished(replace(RUN, offsets=offsets), tmp_path_factory.mktemp("run"))
    found = traffic(run, since_s, since_s + length_s)
    assert found.rate == pytest.approx(SKEWED_RATES, abs=0.01)
    assert found.node_load == pytest.approx({"n1": 0.3, "n2": 0.3, "n3": 0.05}, abs=1e-4)
    assert {edge.source for edge in found.edges if not edge.bytes_per_s} == {"s[0]", "b[0]", "s[1]", "b[1]"}
    window = observe(run, since_s + length_s, length_s)
    assert window.as_traffic.rate == pytest.approx(SKEWED_RATES, abs=0.01)
    assert window.source.due_per_s == pytest.approx(200, abs=0.01)
    assert window.source.emitted_per_s == pytest.approx(200, abs=0.01)
    assert (window.sink.per_s, window.sink.p50_ms, window.sink.p99_ms) == (pytest.approx(200, abs=0.01), 3, 3)


@settings(max_examples=15, deadline=None)
@given(
    busy=st.fixed_dictionaries({name: st.floats(0, 30) for name in SPREAD_PLACEMENT}),
    worker=st.floats(0, 150),
    base=st.floats(0, 50),
)
def test_loads_of_executors_and_the_base_add_up_to_the_nodes_cpu(
    tmp_path_factory: pytest.TempPathFactory, busy: dict[str, float], worker: float, base: float
) -> None:
    # A worker uses no less than its executors do.
    least = max(
        sum(busy[name] for name, slot in SPREAD_PLACEMENT.items() if slot == place) for place in ("n1/0", "n2/0")
    )
    run = finished(replace(RUN, busy=busy, worker=worker + least, base=base), tmp_path_factory.mktemp("run"))
    window = observe(run, 12, 6)
    for name in ("n1", "n2"):
        node = window.nodes[name]
        assert node.load is not None
        assert node.base is not None
        loads = sum(executor.load for executor in window.executors.values() if executor.node == name)
        assert loads / 200 + node.base == pytest.approx(node.load, abs=1e-4)
    assert all(each.load >= each.busy for each in window.executors.values())


def test_transport_is_divided_by_the_tuples_that_leave_or_reach_the_worker(tmp_path: Path) -> None:
    cluster = Cluster((Node(id="n1", cores=1), Node(id="n2", cores=1)))
    places = {"a[0]": "n1/0", "b[0]": "n1/0", "c[0]": "n2/0"}
    rates = {("a[0]", "c[0]"): 200.0, ("c[0]", "a[0]"): 100.0, ("b[0]", "c[0]"): 100.0, ("a[0]", "b[0]"): 900.0}
    run = finished(TracedRun(cluster, places, rates, {"a[0]": 20, "b[0]": 10}), tmp_path)
    window = observe(run, 12, 6)
    assert {name: (each.busy, each.load) for name, each in window.executors.items() if each.node == "n1"} == {
        "a[0]": (20, 35),
        "b[0]": (10, 15),
    }
    assert (window.nodes["n1"].load, window.nodes["n1"].base) == (0.6, 0.1)


def test_a_window_begins_two_seconds_after_a_move_and_has_the_new_place(tmp_path: Path) -> None:
    run = finished(replace(RUN, moves=[(8.25, "b[0]", "n2/1")]), tmp_path)
    before, after = observe(run, 8, 6), observe(run, 15, 8)
    assert (before.since_s, before.complete, before.version) == (2, True, 0)
    assert (before.executors["b[0]"].node, before.executors["b[0]"].moved_s) == ("n1", None)
    assert (after.since_s, after.complete, after.version, after.samples) == (10.25, False, 1, 5)
    moved = after.executors["b[0]"]
    assert (moved.node, moved.slot, moved.moved_s) == ("n2", 1, 8.25)
    assert after.as_traffic.rate == pytest.approx(SKEWED_RATES, abs=0.01)
    # b[0] and k[0] are on one node now, but in different workers, so that bytes are counted.
    assert next(e for e in after.traffic.edges if (e.source, e.destination) == ("b[0]", "k[0]")).bytes_per_s == 700
    with pytest.raises(InputError, match=r"no window ends at 9 s.*\(move of b\[0\]\) was at 8\.25 s.*--at"):
        observe(run, 9, 5)


@settings(max_examples=20, deadline=None)
@given(
    moves=st.lists(
        st.tuples(
            st.integers(12, 60),
            st.sampled_from(sorted(SPREAD_PLACEMENT)),
            st.sampled_from(["n1/0", "n1/1", "n2/1", "n3/0"]),
        ),
        unique_by=lambda move: move[0],
        max_size=4,
    )
)
def test_windows_after_any_moves_have_the_new_places_and_the_constant_rates(
    tmp_path_factory: pytest.TempPathFactory, moves: list[tuple[int, str, str]]
) -> None:
    ordered = [(quarter / 4, executor, target) for quarter, executor, target in sorted(moves)]
    run = finished(replace(RUN, moves=ordered), tmp_path_factory.mktemp("run"))
    window = observe(run, 19)
    assert window.since_s == max([2, *(at_s + 2 for at_s, _, _ in ordered)])
    places = SPREAD_PLACEMENT | {executor: target for _, executor, target in ordered}
    assert {name: f"{each.node}/{each.slot}" for name, each in window.executors.items()} == places
    assert window.as_traffic.rate == pytest.approx(SKEWED_RATES, abs=0.01)
    encoded = {(edge.source, edge.destination) for edge in window.traffic.edges if edge.bytes_per_s is not None}
    assert encoded == {(source, target) for source, target in SKEWED_RATES if places[source] != places[target]}
    for name in {slot.partition("/")[0] for slot in places.values()}:
        node = window.nodes[name]
        loads = sum(executor.load for executor in window.executors.values() if executor.node == name)
        assert loads / 200 + (node.base or 0) == pytest.approx(node.load, abs=1e-4)
    # Reports before moves cover parts of seconds, and their numbers of tuples are whole.
    assert traffic(run, 2, 19).rate == pytest.approx(SKEWED_RATES, abs=0.1 * len(ordered) + 0.01)


def test_without_a_length_a_window_begins_at_the_last_change(tmp_path: Path) -> None:
    run = finished(replace(RUN, recoveries=[7.5]), tmp_path)
    assert [(window.since_s, window.complete) for window in (observe(run, 7), observe(run, 19))] == [
        (2, True),
        (9.5, True),
    ]
    window = observe(run, 19, 15)
    assert (window.since_s, window.complete, window.epoch) == (9.5, False, 2)
    assert [(change.at_s, change.kind) for change in window.changes] == [(7.5, "recovered")]
    # Between the failure and the recovery nothing runs.
    with pytest.raises(InputError, match=r"no window ends at 7\.45 s"):
        observe(run, 7.45)


def test_added_executors_exist_until_they_are_removed(tmp_path: Path) -> None:
    scalings = [
        ComponentScaling(component="b", before=2, after=3, added={"b[2]": "n3/1"}, at_s=8, pause_s=0.5),
        ComponentScaling(component="b", before=3, after=1, at_s=12, pause_s=0.5),
    ]
    run = finished(replace(RUN, scalings=scalings), tmp_path)
    assert run.placed_at(8.4) == run.placed
    assert run.placed_at(8.5) == {**run.placed, "b[2]": Slot("n3", 1)}
    assert run.placed_at(20).keys() == run.placed.keys() - {"b[1]"}
    executors = observe(run, 11, 2).executors
    assert (executors["b[2]"].node, executors["b[2]"].slot) == ("n3", 1)
    assert "b[1]" not in observe(run, 16, 2).executors


def test_earlier_revisions_are_the_history_and_cut_windows(tmp_path: Path) -> None:
    def decided(
        number: int, at_s: float, outcome: Outcome | Literal["shadow"], ended_s: float | None
    ) -> RevisionRecord:
        begun_s = None if ended_s is None else ended_s - 0.5
        return RevisionRecord(
            number=number, at_s=at_s, decided_s=0.25, reason="cut", outcome=outcome, begun_s=begun_s, ended_s=ended_s,
            moves=2, expects=KeyFigures(cut=90), before=KeyFigures(cut=310), after=KeyFigures(cut=100),
        )  # fmt: skip

    revisions = [
        decided(1, 3, "stale", None),
        decided(2, 4, "no", None),
        decided(3, 5, "done", 6),
        decided(4, 16, "done", 17),
    ]
    run = finished(replace(RUN, revisions=[*revisions, decided(5, 7, "shadow", None)]), tmp_path)
    assert [(past.at_s, past.outcome) for past in observe(run, 5).history] == [(3.25, "stale")]
    window = observe(run, 12)
    assert [(past.at_s, past.outcome, past.moves) for past in window.history] == [(3.25, "stale", 2), (6, "done", 2)]
    assert (window.history[1].expects.cut, window.history[1].effect) == (90, KeyFigures(cut=100))
    assert (window.since_s, window.complete) == (8, True)
    # The revision has started and ends after the window.
    with pytest.raises(InputError, match=r"no window ends at 16\.75 s.*\(revision of 4\)"):
        observe(run, 16.75)


def test_traffic_of_a_part_with_a_move_is_the_mean_over_all_of_it(tmp_path: Path) -> None:
    run = finished(replace(RUN, moves=[(10.0, "b[0]", "n2/1")]), tmp_path)
    found = traffic(run, 5, 15)
    assert found.rate == pytest.approx(SKEWED_RATES, abs=0.01)
    rates = {(edge.source, edge.destination): edge.bytes_per_s for edge in found.edges}
    # Half of the time inside a worker.
    assert rates["b[0]", "k[1]"] == pytest.approx(100, abs=1)


def test_a_worker_that_stops_reporting_is_missing(tmp_path: Path) -> None:
    run = finished(replace(RUN, silent={"n2/0": 10.0}), tmp_path)
    assert [observe(run, at_s, 5).missing for at_s in (12, 13)] == [(), ("n2/0",)]
    assert not observe(run, 13, 5).complete


def test_queues_blocking_and_cpu_time_per_tuple_are_those_of_the_window(tmp_path: Path) -> None:
    window = observe(finished(replace(RUN, busy={"k[0]": 22.0}), tmp_path), 12, 6)
    k = window.executors["k[0]"]
    assert (k.queued, k.blocked, k.processed_per_s, k.emitted_per_s) == (11, 0.25, 110, 0)
    assert k.delay_s == pytest.approx(0.002)
    # Of a spout, per tuple that it emits.
    assert window.executors["s[0]"].delay_s == pytest.approx(0.0001)
    assert window.source.late_s == 0.002


def test_traces_show_what_the_online_scheduler_was_given(tmp_path: Path) -> None:
    running = ScriptedReports(busy=dict.fromkeys(SPREAD_PLACEMENT, 10.0), transport=20.0, others=15.0, watts=None)
    monitor = started(running)
    for second in range(12):
        pass_time(monitor, running, 1)
        for node in ("n1", "n2"):
            # The second node answers every other heartbeat.
            if node == "n1" or second % 2:
                monitor.answered(node, running.at_s)
        if second == 5:
            monitor.stored("b[0]", 4_096)
    live = replace_struct(
        monitor.conclude(monitor.window(12.0).observe()),
        schedule=CommunicationSchedule(("n1", "n2"), ((1, 0), (None, None)), 1),
    )
    assert live.complete
    assert 0 < (live.nodes["n2"].heartbeats or 0) < 1
    busy = {name: each.busy for name, each in live.executors.items()}
    recorded = TracedRun(nodes(), SPREAD_PLACEMENT, SKEWED_RATES, busy, worker=50.0, base=15.0, observed=[live])
    run = finished(recorded, tmp_path)
    found = observe(run, 12, 5)
    assert (found.at_s, found.since_s, found.samples) == (live.at_s, live.since_s, live.samples)
    assert found.as_traffic.rate == pytest.approx(live.as_traffic.rate)
    for name, each in live.executors.items():
        same = found.executors[name]
        assert (same.node, same.slot, same.state_bytes) == (each.node, each.slot, each.state_bytes)
        for key in ("busy", "load", "processed_per_s", "emitted_per_s", "delay_s"):
            assert getattr(same, key) == pytest.approx(getattr(each, key), rel=1e-6), (name, key)
    for node in ("n1", "n2"):
        one, other = found.nodes[node], live.nodes[node]
        assert (one.hz, one.load, one.base) == (other.hz, pytest.approx(other.load), pytest.approx(other.base))
        assert one.heartbeats == pytest.approx(other.heartbeats)
    assert (found.source.due_per_s, found.source.emitted_per_s) == (live.source.due_per_s, live.source.emitted_per_s)
    assert found.sink.per_s == pytest.approx(live.sink.per_s)
    assert found.schedule == live.schedule
    # Before it was given them, nothing of this was known.
    early = observe(run, 11, 5)
    assert (early.executors["b[0]"].state_bytes, early.nodes["n1"].heartbeats, early.schedule) == (None, None, None)


def test_an_observation_is_valid_input_of_revise(tmp_path: Path) -> None:
    window = observe(finished(RUN, tmp_path), 12, 6)
    located = observation_of(parse_document(observation_json(window)))
    assert located.value == window
    check_observed(located, Problem(RUN.cluster, (chain(),)))


def test_without_the_sensor_cpu_there_are_rates_and_no_loads(tmp_path: Path) -> None:
    run = finished(replace(RUN, has_cpu=False), tmp_path)
    found = traffic(run, 4, 10)
    assert found.rate == pytest.approx(SKEWED_RATES, abs=0.01)
    assert (found.load, found.node_load) == ({}, {})
    with pytest.raises(InputError, match="loads are unknown: it was made without the sensor 'cpu'"):
        observe(run, 12, 6)
