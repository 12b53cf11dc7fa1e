"""The bolts of `taxi`: trips to routes, routes to counts, counts to listings, and the log of all changes."""

from collections.abc import Mapping, Sequence
from heapq import nlargest
from itertools import groupby
from typing import ClassVar

import msgspec

from inventory.times import NS
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.taxi.layout import LISTED, ROUTE, change_columns, listing_fields, route_names, snapshot_columns
from workloads.taxi.route_arrays import Whole, by_route, rows_of_trips, trips_of_bytes, trips_of_rows
from workloads.taxi.window import (
    DROPOFF,
    Candidates,
    ChangeWriter,
    KeyedTrips,
    Ranked,
    RouteWindow,
    SnapshotWriter,
    Trip,
)
from workloads.topology import DEFAULT_STREAM, FieldType

WINDOW_S = 1800


class Route(Bolt):
    """Trips to routes."""

    fields: ClassVar[Mapping[str, FieldType]] = {
        "seq": "int",
        "route": "int",
        "dropoff": "int",
        "pickup": "int",
        "read_ns": "int",
    }

    def process(self, batch: Batch) -> Emitted:
        seqs, pickups, dropoffs, starts, ends, read_ns = zip(*batch.rows, strict=True)
        routes = [start * ROUTE + end for start, end in zip(starts, ends, strict=True)]
        return {DEFAULT_STREAM: list(zip(seqs, routes, dropoffs, pickups, read_ns, strict=True))}


class CountRoutes(KeyedTrips):
    """Counts of a share of the routes in the window; emits the ten most frequent on a tick."""

    fields: ClassVar[Mapping[str, FieldType]] = {"count": "int", "newest": "int", "route": "int"}

    key = 1

    kept = KeyedState(bytes)  # type: ignore[assignment]  # the same trips
    """Trips in the window, as `by_route` packs them: a tenth of the time that lists of rows take."""

    def __init__(self) -> None:
        super().__init__()
        self._window = RouteWindow()

    def on_tick(self, time_ns: int) -> Emitted:
        arrived = self.in_order()
        self._window.add(arrived)
        self._window.keep(arrived)
        self._window.expire(time_ns // NS - WINDOW_S)
        return {DEFAULT_STREAM: self._window.top()}

    def trips(self) -> list[Trip]:
        return self._window.trips

    def continue_with(self, trips: list[Trip]) -> None:
        self._window = RouteWindow(trips)

    def trip_array(self) -> Whole:
        """Return the trips in the window, by number."""
        return trips_of_rows(self.trips())

    def store_window(self) -> None:
        self.kept.update(by_route(self.trip_array()))

    def stored_window(self) -> list[Trip]:
        return rows_of_trips(trips_of_bytes(self.kept.values()))


class RankRoutes(Candidates):
    """The best ten of the routes received for a tick."""

    key = 2

    def on_tick(self, time_ns: int) -> Emitted:
        return {DEFAULT_STREAM: nlargest(LISTED, self.taken())}


class MergeRoutes(SnapshotWriter):
    """The best ten of all routes, on every tick."""

    answer_schema = snapshot_columns({"start": "str", "end": "str", "count": "int"})
    key = 2

    def best(self, candidates: list[Ranked]) -> list[Ranked]:
        return nlargest(LISTED, candidates)

    def fields(self, listed: Sequence[Ranked]) -> Row:
        return listing_fields([(*route_names(route), count) for count, _, route in listed], 3)


class RouteLog(ChangeWriter):
    """Every change of the listing, evaluated after each trip in the order of trip numbers.

    A trip changes the listing only if its route's count is at least that of the last listed route. Trips that leave the
    window change it only if their routes were listed.
    """

    answer_schema = change_columns({"start": "str", "end": "str"})

    def __init__(self) -> None:
        super().__init__()
        self._window = RouteWindow()

    def on_tick(self, time_ns: int) -> Emitted:
        window = self._window
        listed = window.top()
        for dropoff, together in groupby(self.in_order(), DROPOFF):
            expired = window.expire(dropoff - WINDOW_S)
            least = least_of(listed)
            if not {route for *_, route in listed}.isdisjoint(expired):
                # The listing may have changed, which is recorded at the next trip of any route.
                listed, least = window.top(), 0
            trips = list(together)
            window.keep(trips)
            coming = iter(trips)
            while (trip := window.add(coming, least)) is not None:
                listed = with_trip(window.ranked(trip), listed)
                self.note([route for *_, route in listed], *trip[2:])
                least = least_of(listed)
        return NOTHING

    def fields(self, listed: Sequence[int]) -> Row:
        return listing_fields(map(route_names, listed), 2)

    def kept(self) -> object:
        return self._window.trips

    def bring_back(self, kept: object) -> None:
        self._window = RouteWindow(msgspec.convert(kept, list[Trip]))


def least_of(listed: list[Ranked]) -> int:
    """Return the count required for the route of a new trip to be listed."""
    return listed[-1][0] if len(listed) == LISTED else 0


def with_trip(new: Ranked, listed: list[Ranked]) -> list[Ranked]:
    """Return the listing after a trip."""
    entries = [entry for entry in listed if entry[2] != new[2]]
    entries.append(new)
    entries.sort(reverse=True)
    return entries[:LISTED]
