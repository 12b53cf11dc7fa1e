"""The bolts of `taxi`: trips to routes, routes to counts, counts to listings, and the log of all changes.

Rows with one drop-off time are in the order of their row numbers alone, and rows from different executors come in no
order; so whatever depends on it waits for the tick, and then takes the rows by number.
"""

import time
from collections.abc import Iterable, Mapping
from heapq import nlargest
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
from workloads.taxi.trips import TaxiParams
from workloads.taxi.window import NEWEST_BITS, ONE, RouteWindow
from workloads.topology import DEFAULT_STREAM, FieldType

WINDOW_S = 1800
LOGGED = "logged"
"""The stream of trips to the log."""


class Route(Bolt):
    """Trips to routes, for whoever is there to want them."""

    fields: ClassVar[Mapping[str, FieldType]] = {"route": "int", "seq": "int", "dropoff": "int"}
    logged_fields: ClassVar[Mapping[str, FieldType]] = {
        "seq": "int",
        "route": "int",
        "pickup": "int",
        "dropoff": "int",
        "read_ns": "int",
    }

    def __init__(self, params: TaxiParams) -> None:
        self._snapshots, self._changes = params.snapshots, params.changes

    def process(self, batch: Batch) -> Emitted:
        seqs, pickups, dropoffs, starts, ends, read_ns = zip(*batch.rows, strict=True)
        routes = [start * ROUTE + end for start, end in zip(starts, ends, strict=True)]
        emitted: dict[str, list[Row]] = {}
        if self._snapshots:
            emitted[DEFAULT_STREAM] = list(zip(routes, seqs, dropoffs, strict=True))
        if self._changes:
            emitted[LOGGED] = list(zip(seqs, routes, pickups, dropoffs, read_ns, strict=True))
        return emitted


class Count(Bolt):
    """Its share of the routes in the window; at a tick, the ten of them that were taken most."""

    fields: ClassVar[Mapping[str, FieldType]] = {"count": "int", "newest": "int", "route": "int"}

    def __init__(self) -> None:
        self._window = RouteWindow()
        self._arrived: list[tuple[int, int, int]] = []

    def process(self, batch: Batch) -> Emitted:
        self._arrived += [(seq, route, dropoff) for route, seq, dropoff in batch.rows]
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        if self._arrived:
            self._arrived.sort()
            self._window.add(*map(list, zip(*self._arrived, strict=True)))
            self._arrived = []
        self._window.expire(time_ns // NS - WINDOW_S)
        return {DEFAULT_STREAM: [(rank >> NEWEST_BITS, rank % ONE, route) for rank, route in self._window.top()]}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._window.snapshot(), self._arrived))

    def restore(self, state: bytes) -> None:
        window, self._arrived = msgspec.msgpack.decode(state, type=tuple[object, list[tuple[int, int, int]]])
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
    arrived: list[tuple[int, int, int, int, int]]
    now: int
    printed: list[int]
    changes: int
    rows: list[list[object]]


class Log(Bolt):
    """Every change of the listing: it is looked at after each trip, in the order of their numbers.

    A trip makes the listing another one only if its route's rank is now in it, and trips that leave the window only if
    their routes were in it.
    """

    answer_table = CHANGES
    answer_schema = change_columns({"start": "str", "end": "str"})

    def __init__(self) -> None:
        self._window = RouteWindow()
        self._arrived: list[tuple[int, int, int, int, int]] = []
        self._now = 0
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
        listed, lowest = self._listed()
        for seq, route, pickup, dropoff, read_ns in arrived:
            changed = False
            if dropoff != self._now:
                self._now = dropoff
                expired = window.expire(dropoff - WINDOW_S)
                if not {route for _, route in listed}.isdisjoint(expired):
                    listed, lowest = self._listed()
                    changed = True
            rank = window.add_one(seq, route, dropoff)
            if rank >= lowest:
                listed = [entry for entry in listed if entry[1] != route]
                listed.append((rank, route))
                listed.sort(reverse=True)
                del listed[LISTED:]
                lowest = listed[-1][0] if len(listed) == LISTED else 0
                changed = True
            if changed:
                self._print([route for _, route in listed], pickup, dropoff, read_ns)
        return NOTHING

    def _listed(self) -> tuple[list[tuple[int, int]], int]:
        """The listing, and the rank from which on a route is in it."""
        listed = self._window.top()
        return listed, listed[-1][0] if len(listed) == LISTED else 0

    def _print(self, routes: list[int], pickup: int, dropoff: int, read_ns: int) -> None:
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
        window = self._window.snapshot()
        state = _LogState(window, self._arrived, self._now, self._printed, self._changes, rows)
        return msgspec.msgpack.encode(state)

    def restore(self, state: bytes) -> None:
        kept = msgspec.msgpack.decode(state, type=_LogState)
        self._window.restore(kept.window)
        self._arrived, self._now = kept.arrived, kept.now
        self._printed, self._changes = kept.printed, kept.changes
        self._rows = [tuple(row) for row in kept.rows]
