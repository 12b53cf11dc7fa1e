"""The bolts of `taxi`: trips to routes, routes to counts, counts to listings, and the log of all changes.

Rows with one drop-off time are in the order of their row numbers alone, and rows from different executors come in no
order; so whatever depends on it waits for the tick, and then takes the rows by number.
"""

import time
from collections.abc import Iterable, Mapping
from heapq import nlargest
from itertools import groupby
from typing import ClassVar

import msgspec

from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.rates import NS
from workloads.taxi.layout import (
    CHANGES,
    LISTED,
    ROUTE,
    SNAPSHOTS,
    change_columns,
    listing,
    route_names,
    snapshot_columns,
    time_text,
)
from workloads.taxi.window import DROPOFF, Ranked, RouteWindow, Trip
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


class Count(Bolt):
    """Its share of the routes in the window; at a tick, the ten of them that were taken most."""

    fields: ClassVar[Mapping[str, FieldType]] = {"count": "int", "newest": "int", "route": "int"}

    def __init__(self) -> None:
        self._window = RouteWindow()
        self._arrived: list[Trip] = []

    def process(self, batch: Batch) -> Emitted:
        self._arrived += batch.rows
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        arrived, self._arrived = self._arrived, []
        arrived.sort()
        self._window.add(arrived)
        self._window.keep(arrived)
        self._window.expire(time_ns // NS - WINDOW_S)
        return {DEFAULT_STREAM: self._window.top()}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._window.snapshot(), self._arrived))

    def restore(self, state: bytes) -> None:
        window, self._arrived = msgspec.msgpack.decode(state, type=tuple[object, list[Trip]])
        self._window.restore(window)


class Rank(Bolt):
    """The best ten of the routes that have come for a tick."""

    def __init__(self) -> None:
        self._counted: list[Row] = []

    def process(self, batch: Batch) -> Emitted:
        self._counted += batch.rows
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        return {DEFAULT_STREAM: self.best()}

    def best(self) -> list[Row]:
        """The best ten, best first; what has come is forgotten."""
        counted, self._counted = self._counted, []
        return nlargest(LISTED, counted)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._counted)

    def restore(self, state: bytes) -> None:
        self._counted = msgspec.msgpack.decode(state, type=list[tuple[int, int, int]])


class Merge(Rank):
    """The best ten of all, at every tick."""

    answer_table = SNAPSHOTS
    answer_schema = snapshot_columns({"start": "str", "end": "str", "count": "int"})

    def __init__(self) -> None:
        super().__init__()
        self._listings: list[Row] = []

    def on_tick(self, time_ns: int) -> Emitted:
        listed = [(*route_names(route), count) for count, _, route in self.best()]
        self._listings.append((time_text(time_ns // NS), *listing(listed, 3)))
        return NOTHING

    def settled(self) -> Iterable[Row]:
        rows, self._listings = self._listings, []
        return rows

    def answer(self) -> Iterable[Row]:
        return self._listings

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((super().snapshot(), self._listings))

    def restore(self, state: bytes) -> None:
        counted, listings = msgspec.msgpack.decode(state, type=tuple[bytes, list[list[object]]])
        super().restore(counted)
        self._listings = [tuple(row) for row in listings]


class _LogState(msgspec.Struct, array_like=True):
    window: object
    arrived: list[Trip]
    printed: list[int]
    changes: int
    rows: list[list[object]]


class Log(Bolt):
    """Every change of the listing: it is looked at after each trip, in the order of their numbers.

    A trip makes the listing another one only if its route's count is that of the last one listed or more, and trips
    that leave the window only if their routes were listed.
    """

    answer_table = CHANGES
    answer_schema = change_columns({"start": "str", "end": "str"})

    def __init__(self) -> None:
        self._window = RouteWindow()
        self._arrived: list[Trip] = []
        self._printed: list[int] = []
        self._changes = 0
        self._rows: list[Row] = []

    def process(self, batch: Batch) -> Emitted:
        self._arrived += batch.rows
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        arrived, self._arrived = self._arrived, []
        arrived.sort()
        window = self._window
        listed = window.top()
        for dropoff, together in groupby(arrived, DROPOFF):
            expired = window.expire(dropoff - WINDOW_S)
            least = _least(listed)
            if not {route for *_, route in listed}.isdisjoint(expired):
                # It may be another one now, which shows at the next trip, whatever its route.
                listed, least = window.top(), 0
            trips = list(together)
            window.keep(trips)
            coming = iter(trips)
            while (trip := window.add(coming, least)) is not None:
                listed = _with(window.ranked(trip), listed)
                self._print([route for *_, route in listed], *trip[2:])
                least = _least(listed)
        return NOTHING

    def _print(self, routes: list[int], dropoff: int, pickup: int, read_ns: int) -> None:
        if routes != self._printed:
            self._printed = routes
            delay_ms = (time.time_ns() - read_ns) // 1_000_000
            names = listing(map(route_names, routes), 2)
            self._rows.append((self._changes, time_text(pickup), time_text(dropoff), *names, delay_ms))
            self._changes += 1

    def settled(self) -> Iterable[Row]:
        rows, self._rows = self._rows, []
        return rows

    def answer(self) -> Iterable[Row]:
        return self._rows

    def snapshot(self) -> bytes:
        rows = [list(row) for row in self._rows]
        state = _LogState(self._window.snapshot(), self._arrived, self._printed, self._changes, rows)
        return msgspec.msgpack.encode(state)

    def restore(self, state: bytes) -> None:
        kept = msgspec.msgpack.decode(state, type=_LogState)
        self._window.restore(kept.window)
        self._arrived, self._printed, self._changes = kept.arrived, kept.printed, kept.changes
        self._rows = [tuple(row) for row in kept.rows]


def _least(listed: list[Ranked]) -> int:
    """The count with which the route of a new trip is listed."""
    return listed[-1][0] if len(listed) == LISTED else 0


def _with(new: Ranked, listed: list[Ranked]) -> list[Ranked]:
    """The listing after a trip."""
    entries = [entry for entry in listed if entry[2] != new[2]]
    entries.append(new)
    entries.sort(reverse=True)
    return entries[:LISTED]
