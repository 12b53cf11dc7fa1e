"""Profitable areas: both answers are those of the brute-force reference, for any order of events."""

import gzip
from collections import Counter
from fractions import Fraction
from unittest import mock

import pytest
from debs2015_brute_force import lines_of, profitable_changes, profitable_snapshots, valid_trips
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in
from scripted_workload import run_with_faults, run_workload
from taxi_rows import at, raw, row, write_rows

from workloads import columns as column_operators
from workloads.taxi.areas import best_areas, shown
from workloads.workload import load_workload

FEW = {"parse": 2, "amount": 2, "profit": 3, "taxi": 3, "value": 2}
STEP = (2993, 2245.778)
A, B, C, D = (1, 1), (2, 1), (3, 1), (600, 600)


def ride(dropoff, start, end, medallion="M", fare="1.00", tip="0.00"):
    return row(dropoff, start, end, medallion, fare, tip, STEP)


def taxi_profit(path, **params):
    return load_workload("taxi-profit", {"input": str(path), "parallelism": FEW, "answer": "both", **params})


def answers(tmp_path, rows, **params):
    """Run on several tasks; check against brute force; return snapshots and changes without delays."""
    path = write_rows(tmp_path / "trips.csv", rows)
    answer, verdict = run_workload(taxi_profit(path, **params), tmp_path / "inputs", seed=1)
    assert verdict.passed, verdict.message
    trips, _ = valid_trips(lines_of(path), 600)
    snapshots = sorted(answer["snapshots"], key=lambda line: line[0])
    changes = [line[:-1] for line in sorted(answer["changes"], key=lambda line: line[0])]
    assert snapshots == profitable_snapshots(trips, params.get("period_s", 60))
    assert changes == profitable_changes(trips)
    return snapshots, changes


def listed(line, ahead):
    """Return the areas of a row that are not null."""
    fields = line[ahead:]
    return [tuple(fields[place : place + 4]) for place in range(0, len(fields), 4) if fields[place] is not None]


# --- rules ----------------------------------------------------------------------------------------------------


def test_profit_is_the_median_of_fare_and_tip_and_value_is_profit_per_empty_taxi(tmp_path):
    rows = [
        ride(60, A, A, "M", "10.00", "1.00"),
        ride(61, A, A, "N", "2.00", "0.50"),
        ride(62, A, B, "O", "3.00", "0.00"),
        ride(63, A, A, "P", "3.50", "0.25"),
    ]
    snapshots, changes = answers(tmp_path, rows)
    assert listed(snapshots[-1], 1) == [("1.1", 3, 3.375, 1.125)]
    assert [listed(line, 3) for line in changes] == [
        [("1.1", 1, 11.0, 11.0)],
        [("1.1", 2, 6.75, 3.375)],
        [("1.1", 2, 3.0, 1.5)],
        [("1.1", 3, 3.375, 1.125)],
    ]


def test_cells_without_profit_or_without_an_empty_taxi_are_not_listed(tmp_path):
    snapshots, changes = answers(tmp_path, [ride(60, A, B)])
    assert snapshots == [(at(60), *[None] * 40)]
    assert changes == []


def test_a_taxi_counts_only_where_it_was_last_reported(tmp_path):
    snapshots, _ = answers(tmp_path, [ride(60, A, A), ride(61, B, B, "N"), ride(120, A, B)])
    assert [listed(line, 1) for line in snapshots] == [
        [("1.1", 1, 1.0, 1.0)],
        [("2.1", 2, 1.0, 0.5)],
    ]


def test_amounts_expire_after_fifteen_minutes_and_taxis_after_thirty(tmp_path):
    rows = [ride(60, A, A, "M"), *[ride(60 + 60 * k, A, D, f"T{k}", fare=f"{k}") for k in range(1, 40)]]
    snapshots, _ = answers(tmp_path, rows)
    by_time = {line[0]: listed(line, 1) for line in snapshots}
    assert by_time[at(60 + 899 // 60 * 60)][0] == ("1.1", 1, 7.0, 7.0)
    assert by_time[at(960)] == [("1.1", 1, 8.0, 8.0)]
    assert by_time[at(1800)][0][:2] == ("1.1", 1)
    assert by_time[at(1860)] == []


def test_taxis_expire_exactly_after_thirty_minutes_and_amounts_after_fifteen(tmp_path):
    rows = [ride(60, A, A, "M"), ride(61, B, B, "N"), ride(959, C, D, "O"), ride(960, C, D, "P")]
    _, changes = answers(tmp_path, rows)
    assert [(line[2], [area[0] for area in listed(line, 3)]) for line in changes] == [
        (at(60), ["1.1"]),
        (at(61), ["2.1", "1.1"]),
        (at(960), ["2.1"]),
    ]
    rows = [ride(60, A, A, "M"), *[ride(60 + k, A, D, "N") for k in (800, 1600, 1799, 1800)]]
    _, changes = answers(tmp_path, rows)
    assert (changes[-1][2], listed(changes[-1], 3)) == (at(1860), [])


def test_among_equal_values_the_area_with_the_newest_profit_or_taxi_comes_first(tmp_path):
    _, changes = answers(tmp_path, [ride(60, A, A, "M"), ride(60, B, B, "N"), ride(60, A, D, "O"), ride(60, D, B, "N")])
    assert [[area[0] for area in listed(line, 3)] for line in changes] == [
        ["1.1"],
        ["2.1", "1.1"],
        ["1.1", "2.1"],
        ["2.1", "600.600", "1.1"],
    ]


def test_any_printed_field_makes_a_change_and_nothing_else_does(tmp_path):
    rows = [
        ride(60, A, A, "M", "1.00"),
        ride(61, A, A, "M", "1.00"),
        ride(62, A, D, "N", "1.00"),
        ride(63, A, D, "N", "1.0000001"),
        ride(64, A, D, "N", "3.00"),
        ride(65, A, A, "O", "1.00"),
    ]
    _, changes = answers(tmp_path, rows)
    assert [line[2] for line in changes] == [at(60), at(65)]


def test_values_are_compared_exactly_and_shown_to_the_nearest_millionth(tmp_path):
    close = [(1, 3, 10**18, 1), (2, 3, 10**18 + 1, 0)]
    assert best_areas(close) == [close[1], close[0]]
    assert shown((5, 16, 10_000_000, 0)) == (5, 16, 0.005, 0.000313)
    assert shown((5, 16, -10_000_000, 0)) == (5, 16, -0.005, -0.000313)
    assert shown((5, 1, 1000, 0))[2] == 0.000001
    assert shown((5, 1, 999, 0))[2] == 0.0


def test_losses_are_listed_last(tmp_path):
    snapshots, _ = answers(
        tmp_path, [ride(60, A, A, "M", "-2.50"), ride(60, B, B, "N", "0.00"), ride(60, C, C, "O", "1.00")]
    )
    assert [(area[0], area[3]) for area in listed(snapshots[-1], 1)] == [("3.1", 1.0), ("2.1", 0.0), ("1.1", -2.5)]


def test_the_grids_of_250_m_and_500_m_leave_different_trips_out(tmp_path):
    # The origin is the centre of the first cell, so that the last of 600 small cells ends after the last of 300.
    beyond = raw(points=(f"{-74.913585 + 599.25 * 0.002993:.6f}", "40.7", "-74.0", "40.7"))
    path = write_rows(tmp_path / "trips.csv", [ride(60, A, A), beyond])
    prepared = {
        name: load_workload(name, {"input": str(path)}).prepare(tmp_path / "inputs")[0]
        for name in ("taxi", "taxi-profit")
    }
    assert {name: entry.quarantined["outlier"] for name, entry in prepared.items()} == {"taxi": 1, "taxi-profit": 0}


# --- any course of events -------------------------------------------------------------------------------------

PLACES = st.sampled_from([*[(k, 1) for k in range(1, 14)], (600, 600)])
APIS = st.sampled_from(["rows", "columns"])
TRIPS = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 0, 0, 0, 1, 1, 20, 60, 61, 899, 900, 1799, 1800]),
        PLACES,
        PLACES,
        st.sampled_from("MNOPQRSTUVWXYZ"),
        st.sampled_from(["1", "2", "2.5", "-1", "0.333333333", "1e9"]),
    ),
    max_size=60,
)


@given(TRIPS, st.integers(0, 2**32), st.sampled_from([250, 60, 1800, 5000]), st.integers(1, 3), APIS)
@settings(max_examples=one_in(2))
def test_any_trips_on_any_tasks_in_any_order_give_the_answers_of_brute_force(
    tmp_path_factory, drawn, seed, period_s, of, api
):
    folder = tmp_path_factory.mktemp("run")
    seconds, rows = 60, [ride(60, A, A)]
    for gap, start, end, medallion, fare in drawn:
        seconds += gap
        rows.append(ride(seconds, start, end, medallion, fare))
    path = write_rows(folder / "trips.csv", rows)
    workload = taxi_profit(path, period_s=period_s, parallelism=dict.fromkeys(FEW, of), api=api)
    with mock.patch.object(column_operators, "rows_below", return_value=seed % 3):
        # In one worker, ticks travel inside batches.
        answer, verdict = run_workload(workload, folder / "inputs", seed, workers=1 if seed % 2 else None)
    assert verdict.passed, verdict.message
    trips, _ = valid_trips(lines_of(path), 600)
    assert sorted(answer["snapshots"], key=lambda line: line[0]) == profitable_snapshots(trips, period_s)
    changes = sorted(answer.get("changes", ()), key=lambda line: line[0])
    assert [line[:-1] for line in changes] == profitable_changes(trips)


@pytest.mark.long
def test_kills_moves_and_stops_change_no_answer(tmp_path):
    rows = [
        ride(60 + 6 * k, ((k * k) % 17 + 1, 1), (k % 15 + 1, 1), f"T{k * k % 23}", fare=str(k % 7)) for k in range(700)
    ]
    path = write_rows(tmp_path / "trips.csv", rows)
    all_events = Counter()
    for seed in range(8):
        api = ("columns", "columns", "rows")[seed % 3]
        rate = {"kind": "replay", "speedup": 10_000} if seed % 2 else {"kind": "max"}
        with mock.patch.object(column_operators, "rows_below", return_value=0):
            events, verdict = run_with_faults(taxi_profit(path, api=api), tmp_path / "inputs", seed, rate)
        assert verdict.passed, verdict.message
        all_events.update(events)
    assert all_events.keys() >= {"checkpoint", "recovery", "move"}, all_events


AREAS = st.lists(
    st.tuples(st.integers(1, 99), st.integers(1, 5), st.integers(-(10**19), 10**19), st.integers(0, 10**6)),
    unique_by=lambda area: area[3],
    max_size=40,
)


@given(AREAS)
def test_the_listing_is_the_first_ten_by_exact_value(areas):
    expected = sorted(areas, key=lambda area: (Fraction(area[2], area[1]), area[3]), reverse=True)[:10]
    assert best_areas(areas) == expected


# --- real trips -----------------------------------------------------------------------------------------------


@pytest.mark.long
def test_real_trips_give_the_answers_of_brute_force(shared_data, tmp_path):
    source = shared_data / "debs2015" / "trips-first-56min.csv.gz"
    trips, _ = valid_trips(lines_of(source), 600)
    workload = taxi_profit(source, answer="snapshots")
    inputs = workload.prepare(tmp_path)
    assert workload.reference([len(trips) // 2] * 2, inputs)["snapshots"] == profitable_snapshots(trips)
    with gzip.open(source, "rt") as file:
        first = write_rows(tmp_path / "first.csv", [next(file).rstrip() for _ in range(600)])
    answer, verdict = run_workload(taxi_profit(first), tmp_path, 5)
    assert verdict.passed, verdict.message
    trips, _ = valid_trips(lines_of(first), 600)
    assert [line[:-1] for line in sorted(answer["changes"], key=lambda line: line[0])] == profitable_changes(trips)


def test_the_default_topology_has_the_sizes_of_frequent_routes():
    topology = load_workload("taxi-profit", {}).topology()
    sizes = {component.id: component.parallelism for component in topology.components}
    assert sizes == {"parse": 16, "amount": 16, "profit": 8, "taxi": 8, "value": 4, "merge": 1}


@pytest.mark.parametrize("answer", ["snapshots", "changes"])
def test_only_the_requested_answer_is_made(tmp_path, answer):
    path = write_rows(tmp_path / "trips.csv", [ride(60, A, A), ride(61, B, B)])
    tables, verdict = run_workload(taxi_profit(path, answer=answer), tmp_path / "inputs", 3)
    assert verdict.passed
    assert list(tables) == [answer]
