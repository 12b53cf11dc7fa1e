"""The bolts of `taxi-profit`: trips to amounts, amounts to profits and moves of taxis, both to values, and the log.

As in `routes`, what depends on the order of rows waits for the tick. Profits and empty taxis travel as changes since
the tick before.
"""

import time
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import add
from typing import Any, ClassVar

import msgspec

from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.rates import NS
from workloads.taxi.areas import Area, Areas, Profits, Ride, Taxis, best, shown
from workloads.taxi.layout import (
    CHANGES,
    SNAPSHOTS,
    cell_name,
    change_columns,
    listing,
    snapshot_columns,
    time_text,
)
from workloads.taxi.window import DROPOFF
from workloads.topology import DEFAULT_STREAM, FieldType

_LISTED: Mapping[str, FieldType] = {"cell": "str", "empty": "int", "profit": "float", "value": "float"}


class Amount(Bolt):
    """Trips to what they earned."""

    fields: ClassVar[Mapping[str, FieldType]] = {
        "seq": "int",
        "start": "int",
        "dropoff": "int",
        "amount": "int",
        "end": "int",
        "medallion": "str",
        "pickup": "int",
        "read_ns": "int",
    }

    def process(self, batch: Batch) -> Emitted:
        seq, pickup, dropoff, start, end, read_ns, medallion, fare, tip = zip(*batch.rows, strict=True)
        amount = map(add, fare, tip)
        return {DEFAULT_STREAM: list(zip(seq, start, dropoff, amount, end, medallion, pickup, read_ns, strict=True))}


class _Waiting(Bolt):
    """Keeps rides until the tick, and then has them in the order of their numbers."""

    def __init__(self) -> None:
        self._arrived: list[Ride] = []

    def process(self, batch: Batch) -> Emitted:
        self._arrived += batch.rows
        return NOTHING

    def _in_order(self) -> list[Ride]:
        arrived, self._arrived = self._arrived, []
        arrived.sort()
        return arrived


class Profit(_Waiting):
    """Its share of the start cells; at a tick, the profits that are others now."""

    fields: ClassVar[Mapping[str, FieldType]] = {"cell": "int", "trips": "int", "middle": "int", "newest": "int"}

    def __init__(self) -> None:
        super().__init__()
        self._profits = Profits()

    def on_tick(self, time_ns: int) -> Emitted:
        touched = {self._profits.add(ride) for ride in self._in_order()}
        touched |= self._profits.expire(time_ns // NS)
        return {DEFAULT_STREAM: [(cell, *self._profits.of(cell)) for cell in touched]}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._profits.window.trips, self._arrived))

    def restore(self, state: bytes) -> None:
        rides, self._arrived = msgspec.msgpack.decode(state, type=tuple[list[Ride], list[Ride]])
        self._profits = Profits(rides)


class Taxi(_Waiting):
    """Its share of the taxis; at a tick, which are empty where none of them was before, and which are not any more."""

    fields: ClassVar[Mapping[str, FieldType]] = {"cell": "int", "seq": "int", "taxis": "int"}

    def __init__(self) -> None:
        super().__init__()
        self._taxis = Taxis()

    def on_tick(self, time_ns: int) -> Emitted:
        before: dict[str, tuple[int, int] | None] = {}
        for ride in self._in_order():
            before.setdefault(ride[5], self._taxis.add(ride))
        for medallion, last in self._taxis.expire(time_ns // NS).items():
            before.setdefault(medallion, last)
        moves: list[Row] = []
        for medallion, was in before.items():
            now = self._taxis[medallion]
            if was is not None:
                moves.append((*was, -1))
            if now is not None:
                moves.append((*now, 1))
        return {DEFAULT_STREAM: moves}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._taxis.window.trips, self._arrived))

    def restore(self, state: bytes) -> None:
        rides, self._arrived = msgspec.msgpack.decode(state, type=tuple[list[Ride], list[Ride]])
        self._taxis = Taxis(rides)


class Value(Bolt):
    """Its share of the cells; at a tick, the ten that are worth most."""

    fields: ClassVar[Mapping[str, FieldType]] = {"cell": "int", "empty": "int", "middle": "int", "newest": "int"}

    def __init__(self) -> None:
        self._areas = Areas()

    def process(self, batch: Batch) -> Emitted:
        areas = self._areas
        if batch.source == "profit":
            for profit in batch.rows:
                areas.earn(*profit)
        else:
            for cell, seq, taxis in batch.rows:
                (areas.arrive if taxis > 0 else areas.leave)(cell, seq)
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        return {DEFAULT_STREAM: self._areas.top()}

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._areas.snapshot())

    def restore(self, state: bytes) -> None:
        kept = msgspec.msgpack.decode(state, type=tuple[dict[int, tuple[int, int]], dict[int, list[int]]])
        self._areas = Areas.restored(*kept)


class Merge(Bolt):
    """The best ten of all areas, at every tick."""

    answer_table = SNAPSHOTS
    answer_schema = snapshot_columns(_LISTED)

    def __init__(self) -> None:
        self._areas: list[Area] = []
        self._listings: list[Row] = []

    def process(self, batch: Batch) -> Emitted:
        self._areas += batch.rows
        return NOTHING

    def on_tick(self, time_ns: int) -> Emitted:
        listed = map(shown, best(self._areas))
        self._areas = []
        self._listings.append((time_text(time_ns // NS), *_listing(listed)))
        return NOTHING

    def settled(self) -> Iterable[Row]:
        rows, self._listings = self._listings, []
        return rows

    def answer(self) -> Iterable[Row]:
        return self._listings

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self._areas, self._listings))

    def restore(self, state: bytes) -> None:
        self._areas, rows = msgspec.msgpack.decode(state, type=tuple[list[Area], list[list[Any]]])
        self._listings = [tuple(row) for row in rows]


class _LogState(msgspec.Struct, array_like=True):
    earning: list[Ride]
    driving: list[Ride]
    arrived: list[Ride]
    printed: list[tuple[int, int, float, float]]
    changes: int
    rows: list[list[Any]]


class Log(_Waiting):
    """Every change of a field of the listing: it is looked at after each trip, in the order of their numbers."""

    answer_table = CHANGES
    answer_schema = change_columns(_LISTED)

    def __init__(self) -> None:
        super().__init__()
        self._profits, self._taxis, self._areas = Profits(), Taxis(), Areas()
        self._printed: list[tuple[int, int, float, float]] = []
        self._changes = 0
        self._rows: list[Row] = []

    def on_tick(self, time_ns: int) -> Emitted:
        profits, taxis, areas = self._profits, self._taxis, self._areas
        for dropoff, rides in groupby(self._in_order(), DROPOFF):
            for cell in profits.expire(dropoff):
                areas.earn(cell, *profits.of(cell))
            for last in taxis.expire(dropoff).values():
                areas.leave(*last)
            for ride in rides:
                cell = profits.add(ride)
                areas.earn(cell, *profits.of(cell))
                before = taxis.add(ride)
                if before is not None:
                    areas.leave(*before)
                areas.arrive(ride[4], ride[0])
                if areas.stale:
                    self._print(list(map(shown, areas.top())), ride)
        return NOTHING

    def _print(self, listed: list[tuple[int, int, float, float]], ride: Ride) -> None:
        if listed != self._printed:
            self._printed = listed
            *_, pickup, read_ns = ride
            delay_ms = (time.time_ns() - read_ns) // 1_000_000
            times = time_text(pickup), time_text(ride[2])
            self._rows.append((self._changes, *times, *_listing(listed), delay_ms))
            self._changes += 1

    def settled(self) -> Iterable[Row]:
        rows, self._rows = self._rows, []
        return rows

    def answer(self) -> Iterable[Row]:
        return self._rows

    def snapshot(self) -> bytes:
        rows = [list(row) for row in self._rows]
        windows = self._profits.window.trips, self._taxis.window.trips
        return msgspec.msgpack.encode(_LogState(*windows, self._arrived, self._printed, self._changes, rows))

    def restore(self, state: bytes) -> None:
        kept = msgspec.msgpack.decode(state, type=_LogState)
        self._profits, self._taxis = Profits(kept.earning), Taxis(kept.driving)
        self._areas = Areas()
        for cell in {ride[1] for ride in kept.earning}:
            self._areas.earn(cell, *self._profits.of(cell))
        for medallion in {ride[5] for ride in kept.driving}:
            if (last := self._taxis[medallion]) is not None:
                self._areas.arrive(*last)
        self._arrived, self._printed, self._changes = kept.arrived, kept.printed, kept.changes
        self._rows = [tuple(row) for row in kept.rows]


def _listing(listed: Iterable[tuple[int, int, float, float]]) -> Row:
    return listing([(cell_name(cell), *fields) for cell, *fields in listed], 4)
