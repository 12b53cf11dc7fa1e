"""Column bolts of `taxi` have the state and answers of row bolts, to the last bit."""

from contextlib import ExitStack
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from inventory.times import NS
from workloads.arrays import batch_of
from workloads.columns import ColumnBatch
from workloads.key_groups import KEY_GROUPS
from workloads.operator_state import OperatorState
from workloads.operators import Batch
from workloads.taxi import route_arrays
from workloads.taxi.layout import ROUTE
from workloads.taxi.route_columns import ColumnCountRoutes, ColumnLog, ColumnMerge
from workloads.taxi.routes import CountRoutes, MergeRoutes, Route, RouteLog

START = 1356998520

TRIPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 20, 60, 900, 1799, 1800]), st.integers(0, 300)), max_size=60
)
EVENTS = st.lists(
    st.one_of(st.just("tick"), st.just("snapshot"), st.just("groups"), st.just("settle"), TRIPS), max_size=14
)
SIZES = st.fixed_dictionaries(
    {
        "_MOST_WATCHED": st.sampled_from([10, 60]),
        "BLOCK": st.sampled_from([3, 512]),
        "_SLOT_BITS": st.sampled_from([2, 5, 15]),
    }
)


def _route(drawn: int) -> int:
    # Some routes are frequent, most are not.
    return drawn**2 % 61 * ROUTE + drawn % 3


@given(EVENTS, st.sampled_from([CountRoutes, RouteLog]), st.integers(0, 2), SIZES)
def test_column_routes_are_those_of_rows(events: list[Any], kind: Any, mixed: int, sizes: dict[str, int]) -> None:
    by_columns: Any = ColumnCountRoutes if kind is CountRoutes else ColumnLog
    with ExitStack() as stack:
        for name, size in sizes.items():
            stack.enter_context(mock.patch.object(route_arrays, name, size))
        stack.enter_context(mock.patch("workloads.taxi.window.time.time_ns", return_value=5 * NS))
        rows, columns = kind(), by_columns()
        seq, now, tick = 0, START, START
        for number, event in enumerate([*events, "tick", "snapshot"]):
            if event == "tick":
                tick = now = max(now, tick + 60)
                assert rows.on_tick(tick * NS) == columns.on_tick(tick * NS)
            elif event == "snapshot":
                assert OperatorState(rows).snapshot() == OperatorState(columns).snapshot()
                columns = by_columns()
                OperatorState(columns).restore(OperatorState(rows).snapshot())
            elif event == "groups" and kind is CountRoutes:
                state = OperatorState(columns).snapshot()
                rows, columns = CountRoutes(), ColumnCountRoutes()
                for bolt in (rows, columns):
                    for first in range(3):
                        OperatorState(bolt).put_groups(state, range(first, KEY_GROUPS, 3), 1)
                    OperatorState(bolt).loaded()
            elif event == "settle":
                assert list(rows.settled()) == list(columns.settled())
            elif isinstance(event, list) and event:
                trips = []
                for gap, drawn in event:
                    now += gap
                    trips.append((seq, _route(drawn), now, now - 300, 4 * NS + seq))
                    seq += 1
                # Trips of different executors are not in order.
                for part in (trips[::2], trips[1::2]) if number % 2 else (trips,):
                    rows.process(Batch("route", "default", part))
                    if (number + len(part)) % 3 >= mixed:
                        columns.process_columns(ColumnBatch("route", "default", batch_of(Route.fields, part)))
                    else:
                        columns.process(Batch("route", "default", part))
        assert list(rows.answer()) == list(columns.answer())


LISTINGS = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 99), st.integers(0, 80)), max_size=14))


@given(LISTINGS, st.integers(0, 3))
def test_column_listings_are_those_of_rows_whether_complete_or_not(
    listings: list[list[tuple[int, int, int]]], remainder: int
) -> None:
    rows, columns = MergeRoutes(), ColumnMerge()
    for number, candidates in enumerate(listings):
        for bolt in (rows, columns):
            bolt.process(Batch("rank", "default", [(count, seq, _route(drawn)) for count, seq, drawn in candidates]))
            bolt.on_tick((START + 60 * number) * NS)
        if number % 4 == remainder:
            assert OperatorState(rows).snapshot() == OperatorState(columns).snapshot()
        elif number % 4 == 3:
            assert list(rows.settled()) == list(columns.settled())
    assert list(columns.settled()) == list(rows.settled())
