"""Frequent routes: both answers are those of the brute-force reference, for any order of events."""

import gzip
from collections import Counter
from unittest import mock

import pytest
from debs2015_brute_force import frequent_changes, frequent_snapshots, lines_of, valid_trips
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in
from scripted_workload import run_with_faults, run_workload
from taxi_rows import at, raw, row, write_rows

from agents.worker.executors.columns import ColumnBoltExecutor
from inventory.errors import InputError
from workloads import columns as column_operators
from workloads.operator_state import OperatorState
from workloads.operators import Batch
from workloads.recordings.schema import CELLS_500_M
from workloads.taxi.layout import CELL, ROUTE
from workloads.taxi.queries import Taxi
from workloads.taxi.routes import CountRoutes, RouteLog
from workloads.taxi.trips import grid_cells
from workloads.taxi.window import RouteWindow
from workloads.workload import load_workload

FEW = {"parse": 2, "route": 2, "count": 3, "rank": 2}
A, B, C = (1, 1), (2, 1), (300, 300)


def taxi(path, **params):
    return load_workload("taxi", {"input": str(path), "parallelism": FEW, "answer": "both", **params})


def answers(tmp_path, rows, **params):
    """Run on several tasks; check against brute force; return snapshots and changes without delays."""
    path = write_rows(tmp_path / "trips.csv", rows)
    answer, verdict = run_workload(taxi(path, **params), tmp_path / "inputs", seed=1)
    assert verdict.passed, verdict.message
    trips, _ = valid_trips(lines_of(path), 300)
    snapshots = sorted(answer["snapshots"])
    changes = [line[:-1] for line in sorted(answer["changes"])]
    assert snapshots == frequent_snapshots(trips, params.get("period_s", 60))
    assert changes == frequent_changes(trips)
    return snapshots, changes


def listed(line, each, ahead):
    """Return the routes or areas of a row that are not null."""
    fields = line[ahead:]
    return [tuple(fields[at : at + each]) for at in range(0, len(fields), each) if fields[at] is not None]


# --- rules ----------------------------------------------------------------------------------------------------


def test_a_trip_leaves_the_window_exactly_after_thirty_minutes(tmp_path):
    snapshots, changes = answers(tmp_path, [row(60, A, B), row(61, B, A), row(1860, C, C)])
    assert listed(snapshots[-1], 3, 1) == [("300.300", "300.300", 1), ("2.1", "1.1", 1)]
    assert listed(changes[-1], 2, 3) == [("300.300", "300.300"), ("2.1", "1.1")]


def test_among_equal_counts_the_route_with_the_newest_row_comes_first_also_within_a_second(tmp_path):
    _, changes = answers(tmp_path, [row(60, A, B), row(60, B, A), row(60, A, A), row(60, B, A)])
    assert [listed(line, 2, 3) for line in changes] == [
        [("1.1", "2.1")],
        [("2.1", "1.1"), ("1.1", "2.1")],
        [("1.1", "1.1"), ("2.1", "1.1"), ("1.1", "2.1")],
        [("2.1", "1.1"), ("1.1", "1.1"), ("1.1", "2.1")],
    ]


def test_a_change_of_order_is_a_change_and_a_change_of_counts_alone_is_not(tmp_path):
    _, changes = answers(tmp_path, [row(60, A, B), row(61, B, A), row(62, B, A), row(63, A, B), row(64, A, B)])
    assert [line[2] for line in changes] == [at(60), at(61), at(63)]
    assert [line[0] for line in changes] == [0, 1, 2]


def test_expired_trips_change_nothing_before_the_next_valid_trip(tmp_path):
    rows = [row(60, A, B), row(61, B, A), raw(dropoff=at(1861), points=("0", "0", "0", "0")), row(1900, C, C)]
    snapshots, changes = answers(tmp_path, rows)
    assert listed(changes[-1], 2, 3) == [("300.300", "300.300")]
    assert [line[2] for line in changes] == [at(60), at(61), at(1900)]
    assert [len(listed(line, 3, 1)) for line in snapshots] == [1, *[2] * 29, 1, 1]


def test_missing_routes_are_null_and_an_empty_window_is_listed(tmp_path):
    snapshots, _ = answers(tmp_path, [row(60, A, B), row(7200, A, B)], period_s=1800)
    assert [line[0] for line in snapshots] == [at(seconds) for seconds in (1800, 3600, 5400, 7200)]
    assert snapshots[1] == (at(3600), *[None] * 30)
    assert snapshots[3] == (at(7200), "1.1", "2.1", 1, *[None] * 27)


def test_a_tick_covers_the_trips_that_end_at_it(tmp_path):
    snapshots, _ = answers(tmp_path, [row(60, A, B), row(120, A, B), row(121, A, B)])
    assert [(line[0], line[3]) for line in snapshots] == [(at(60), 1), (at(120), 2), (at(180), 3)]


def test_bad_rows_are_counted_by_class_and_do_not_advance_time(tmp_path):
    rows = [
        row(60, A, B),
        "not a row",
        raw(medallion="", dropoff=at(9000)),
        raw(licence="", dropoff=at(9000)),
        raw(dropoff="2013-02-30 00:00:00"),
        raw(dropoff=at(9000), fare="nan"),
        raw(dropoff=at(9000), points=("-74", "40.7", "1e999", "40.7")),
        raw(dropoff=at(9000), points=("0", "0", "0", "0")),
        *[row(70, B, A) for _ in range(300)],
        row(69, C, C),
        row(2000, A, C),
    ]
    path = write_rows(tmp_path / "trips.csv", rows)
    (prepared,) = taxi(path).prepare(tmp_path / "inputs")
    assert prepared.quarantined == {"malformed": 6, "outlier": 1, "out_of_order": 1}
    assert prepared.quarantined == valid_trips(lines_of(path), 300)[1]
    snapshots, _ = answers(tmp_path, rows)
    assert snapshots[-1][:4] == (at(2040), "1.1", "300.300", 1)


@pytest.mark.parametrize(
    ("longitude", "latitude", "cell"),
    [
        (-74_913_585_000, 41_474_937_000, (1, 1)),
        (-74_916_578_000, 41_477_182_778, (1, 1)),
        (-74_910_592_001, 41_472_691_223, (1, 1)),
        (-74_910_592_000, 41_472_691_222, (2, 2)),
    ],
)
def test_a_point_on_a_border_belongs_to_the_eastern_and_southern_cell(longitude, latitude, cell):
    assert grid_cells(CELLS_500_M, [longitude], [latitude]) == [cell[0] * CELL + cell[1]]
    assert (CELLS_500_M.x(longitude), CELLS_500_M.y(latitude)) == cell


# --- any course of events -------------------------------------------------------------------------------------

PLACES = st.sampled_from([(1, 1), (1, 2), (2, 1), (150, 160), (300, 300)])
APIS = st.sampled_from(["rows", "columns"])
TRIPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 0, 1, 1, 20, 60, 61, 900, 1799, 1800]), PLACES, PLACES), max_size=80
)


@given(TRIPS, st.integers(0, 2**32), st.sampled_from([250, 60, 1800, 5000]), st.integers(1, 3), APIS)
@settings(max_examples=one_in(2))
def test_any_trips_on_any_tasks_in_any_order_give_the_answers_of_brute_force(
    tmp_path_factory, gaps, seed, period_s, of, api
):
    folder = tmp_path_factory.mktemp("run")
    seconds, rows = 60, [row(60, A, B)]
    for gap, start, end in gaps:
        seconds += gap
        rows.append(row(seconds, start, end))
    path = write_rows(folder / "trips.csv", rows)
    workload = taxi(path, period_s=period_s, parallelism=dict.fromkeys(FEW, of), api=api)
    with mock.patch.object(column_operators, "rows_below", return_value=seed % 3):
        answer, verdict = run_workload(workload, folder / "inputs", seed)
    assert verdict.passed, verdict.message
    trips, _ = valid_trips(lines_of(path), 300)
    assert sorted(answer["snapshots"]) == frequent_snapshots(trips, period_s)
    assert [line[:-1] for line in sorted(answer["changes"])] == frequent_changes(trips)


@pytest.mark.long
def test_kills_moves_and_stops_change_no_answer(tmp_path):
    rows = [row(60 + 4 * k, ((k * k) % 7 + 1, 1), (k % 5 + 1, k % 3 + 1)) for k in range(900)]
    path = write_rows(tmp_path / "trips.csv", rows)
    all_events = Counter()
    for seed in range(8):
        api = ("columns", "columns", "rows")[seed % 3]
        rate = {"kind": "replay", "speedup": 9000} if seed % 2 else {"kind": "max"}
        with mock.patch.object(column_operators, "rows_below", return_value=0):
            events, verdict = run_with_faults(taxi(path, api=api), tmp_path / "inputs", seed, rate)
        assert verdict.passed, verdict.message
        all_events.update(events)
    assert all_events.keys() >= {"checkpoint", "recovery", "move"}, all_events


@given(TRIPS, st.integers(0, 2**32), st.sampled_from([60, 1800]), st.sampled_from([(1, 1), (1, 2), (2, 1)]))
@settings(max_examples=one_in(2))
def test_ticks_inside_batches_give_the_answers_of_brute_force(tmp_path_factory, gaps, seed, period_s, of):
    folder = tmp_path_factory.mktemp("run")
    seconds, rows = 60, [row(60, A, B)]
    for gap, start, end in gaps:
        seconds += gap
        rows.append(row(seconds, start, end))
    path = write_rows(folder / "trips.csv", rows)
    parallelism = {"parse": of[0], "route": of[0], "count": of[1], "rank": of[1]}
    workload = taxi(path, period_s=period_s, parallelism=parallelism, api="columns")
    with mock.patch.object(column_operators, "rows_below", return_value=0):
        _, verdict = run_workload(workload, folder / "inputs", seed, workers=1)
    assert verdict.passed, verdict.message


def test_ticks_inside_batches_survive_kills_and_moves(tmp_path):
    rows = [row(60 + 9 * k, ((k * k) % 7 + 1, 1), (k % 5 + 1, k % 3 + 1)) for k in range(600)]
    path = write_rows(tmp_path / "trips.csv", rows)
    batches_with_ticks, all_events = Counter(), Counter()
    process = ColumnBoltExecutor._process_with_ticks

    def counted(self, delivery, ticks):
        batches_with_ticks[self.executor.component] += len(ticks.places) > 1
        process(self, delivery, ticks)

    one = dict.fromkeys(FEW, 1)
    for seed in range(4):
        workload = taxi(path, api="columns", parallelism=one)
        with (
            mock.patch.object(column_operators, "rows_below", return_value=0),
            mock.patch.object(ColumnBoltExecutor, "_process_with_ticks", counted),
        ):
            events, verdict = run_with_faults(
                workload, tmp_path / "inputs", seed, {"kind": "replay", "speedup": 40_000}, workers=1
            )
        assert verdict.passed, verdict.message
        all_events.update(events)
    assert batches_with_ticks.keys() == {"route", "count", "log"}
    assert all_events.keys() >= {"checkpoint", "recovery", "move"}, all_events


def test_gates_change_no_answer_of_columns(tmp_path):
    rows = [row(60 + 7 * k, ((k * k) % 7 + 1, 1), (k % 5 + 1, k % 3 + 1)) for k in range(200)]
    path = write_rows(tmp_path / "trips.csv", rows)
    with mock.patch.object(column_operators, "rows_below", return_value=0):
        rate = {"kind": "replay", "speedup": 9000}
        _, verdict = run_with_faults(taxi(path, api="columns"), tmp_path / "inputs", 3, rate, gated=True)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize("answer", ["snapshots", "changes"])
def test_only_the_requested_answer_is_made(tmp_path, answer):
    path = write_rows(tmp_path / "trips.csv", [row(60, A, B), row(61, B, A)])
    tables, verdict = run_workload(taxi(path, answer=answer), tmp_path / "inputs", 3)
    assert verdict.passed
    assert list(tables) == [answer]


# --- the window -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40)), max_size=400), st.randoms())
def test_the_window_lists_the_routes_of_a_full_count_at_any_time(gaps, random):
    window, now, in_window = RouteWindow(), 0, []
    for seq, (gap, route) in enumerate(gaps):
        now += gap
        window.keep([(seq, route, now)])
        window.add([(seq, route, now)])
        window.expire(now - 1800)
        in_window = [trip for trip in [*in_window, (seq, route, now)] if trip[2] > now - 1800]
        if random.random() < 0.1:
            window = RouteWindow(window.trips)
        if random.random() < 0.5:
            counts, newest = Counter(route for _, route, _ in in_window), {route: seq for seq, route, _ in in_window}
            best = sorted(((counts[route], newest[route], route) for route in counts), reverse=True)[:10]
            assert window.top() == best


def test_a_state_does_not_grow_with_the_input():
    count, log, sizes = CountRoutes(), RouteLog(), []
    for tick in range(1, 400):
        trips = [(tick * 50 + at, at % 7 * ROUTE + at % 3, tick * 60, 0, 0) for at in range(50)]
        for bolt in (count, log):
            bolt.process(Batch("route", "default", trips))
            bolt.on_tick(tick * 60_000_000_000)
        list(log.settled())
        sizes.append((len(OperatorState(count).snapshot()), len(log.snapshot())))
    assert max(sizes[100:]) < (1.1 * sizes[99][0], 1.1 * sizes[99][1])


# --- real and generated trips -----------------------------------------------------------------------------------


@pytest.mark.long
def test_real_trips_give_the_answers_of_brute_force(shared_data, tmp_path):
    source = shared_data / "debs2015" / "trips-first-56min.csv.gz"
    trips, quarantined = valid_trips(lines_of(source), 300)
    workload = taxi(source)
    inputs = workload.prepare(tmp_path)
    assert inputs[0].quarantined == quarantined == {"malformed": 0, "outlier": 178, "out_of_order": 0}
    reference = workload.reference([len(trips) // 2] * 2, inputs)
    assert reference["snapshots"] == frequent_snapshots(trips)
    assert len(reference["changes"]) == 589
    with gzip.open(source, "rt") as file:
        first = write_rows(tmp_path / "first.csv", [next(file).rstrip() for _ in range(2000)])
    answer, verdict = run_workload(taxi(first), tmp_path, 5)
    assert verdict.passed, verdict.message
    trips, _ = valid_trips(lines_of(first), 300)
    assert [line[:-1] for line in sorted(answer["changes"])] == frequent_changes(trips)


def test_without_an_input_trips_are_generated(tmp_path):
    workload = load_workload("taxi", {"answer": "both"})
    (prepared,) = workload.prepare(tmp_path)
    assert prepared.records > 190_000
    assert prepared.quarantined["outlier"] > 1_000
    assert workload.prepare(tmp_path) == [prepared]


# --- parameters and verdicts ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"answer": "snapshot"}, "snapshot"),
        ({"period_s": 0}, "period_s"),
        ({"parallelism": {"counts": 2}}, "unknown component 'counts'; did you mean 'count'"),
        ({"parallelism": {"count": 0}}, "parallelism.count: got 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(params, said):
    with pytest.raises(InputError, match=said):
        load_workload("taxi", params)


def test_a_missing_input_is_refused(tmp_path):
    with pytest.raises(InputError, match="not there"):
        taxi(tmp_path / "nothing.csv").prepare(tmp_path / "inputs")


def test_a_wrong_row_of_either_table_is_found_and_another_delay_is_accepted(tmp_path):
    path = write_rows(tmp_path / "trips.csv", [row(60, A, B), row(61, B, A)])
    workload = taxi(path)
    reference = workload.reference([1, 1], workload.prepare(tmp_path / "inputs"))
    assert workload.compare(reference, reference).passed
    first, second = reference["changes"]
    assert workload.compare({**reference, "changes": [(*second[:-1], 17), first]}, reference).passed
    for wrong in (
        {**reference, "changes": [first]},
        {**reference, "changes": [first, (*second[:3], "9.9", *second[4:])]},
        {**reference, "snapshots": [(at(60), *[None] * 30)]},
        {"changes": reference["changes"]},
    ):
        assert not workload.compare(wrong, reference).passed


def test_the_default_topology_is_that_of_the_paper():
    topology = Taxi(Taxi.Params()).topology()
    assert [component.parallelism for component in topology.components] == [16, 16, 8, 4, 1]
