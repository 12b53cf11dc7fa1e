"""The bolts of `taxi` that keep trips or write answers, by columns; their state is that of the bolts by rows."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from inventory.times import NS
from workloads.arrays import rows_of
from workloads.columns import ColumnBatch, ColumnBolt, Columns, ColumnsEmitted
from workloads.operators import NOTHING, Batch, Emitted, Row
from workloads.taxi.layout import LISTED, listing, route_names
from workloads.taxi.route_arrays import (
    DROPOFF,
    SEQ,
    RouteArrays,
    Whole,
    blocks_of,
    rows_of_trips,
    trips_of_rows,
)
from workloads.taxi.routes import WINDOW_S, Count, Log, Merge, least_of, with_trip
from workloads.taxi.window import Change, Changes, KeyedTrips, Ordered, Ranked, Table, Trip
from workloads.topology import DEFAULT_STREAM, FieldType

ROWS_BELOW = 64
"""From so many trips on, columns cost less than rows: all their fields are numbers."""


class ColumnOrdered(Ordered, ColumnBolt):
    """Collects trips until the tick, as they come."""

    rows_below = ROWS_BELOW
    derives: ClassVar[bool] = True

    _parts: list[list[Trip] | pa.RecordBatch]

    @property
    def arrived(self) -> list[Trip]:
        """Trips since the last tick, in the order of their arrival."""
        return [trip for part in self._parts for trip in (part if isinstance(part, list) else rows_of(part))]

    @arrived.setter
    def arrived(self, trips: list[Trip]) -> None:
        self._parts = [trips]

    def process(self, batch: Batch) -> Emitted:
        last = self._parts[-1]
        if isinstance(last, list):
            last.extend(batch.rows)
        else:
            self._parts.append(list(batch.rows))
        return NOTHING

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        self._parts.append(batch.columns)
        return NOTHING

    def taken(self) -> Whole:
        """Return the trips since the last tick, by number."""
        parts = [
            trips_of_rows(part) if isinstance(part, list) else np.array([column.to_numpy() for column in part.columns])
            for part in self._parts
            if len(part)
        ]
        self._parts = [[]]
        trips = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0] if parts else trips_of_rows(())
        seqs = trips[SEQ]
        return trips if (seqs[1:] > seqs[:-1]).all() else trips[:, seqs.argsort(kind="stable")]


class ColumnCount(ColumnOrdered, KeyedTrips):
    """Counts of a share of the routes in the window; emits the ten most frequent on a tick."""

    fields: ClassVar[Mapping[str, FieldType]] = Count.fields
    key = Count.key

    def __init__(self) -> None:
        super().__init__()
        self._window = RouteArrays()

    def on_tick(self, time_ns: int) -> Emitted:
        window = self._window
        *full, last = blocks_of(self.taken())
        for trips in full:
            window.add(trips, trips[DROPOFF, -1:] - WINDOW_S)
            window.settle()
        window.add(last, np.array([time_ns // NS - WINDOW_S]))
        window.settle()
        return {DEFAULT_STREAM: window.top()}

    def trips(self) -> list[Trip]:
        return rows_of_trips(self._window.trips)

    def continue_with(self, trips: list[Trip]) -> None:
        self._window = RouteArrays(trips)


class LateTable(Table):
    """A sink that makes text of its rows when they are final: the same names occur again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._late: list[Any] = []

    def columns_of(self, entries: Sequence[Any]) -> list[pa.Array]:
        """Return what was written as columns."""
        raise NotImplementedError

    def write(self, entry: Any) -> None:
        self._late.append(entry)

    def _to_rows(self) -> None:
        self.rows += map(self.row_of, self._late)
        self._late = []

    def settled(self) -> Iterable[Row]:
        if self.rows or not self._late:
            self._to_rows()
            return super().settled()
        columns, self._late = self.columns_of(self._late), []
        return Columns(self.answer_schema, pa.RecordBatch.from_arrays(columns, names=list(self.answer_schema)))

    def answer(self) -> Iterable[Row]:
        self._to_rows()
        return super().answer()

    def snapshot(self) -> bytes:
        self._to_rows()
        return super().snapshot()


class ColumnLog(ColumnOrdered, LateTable, Changes):
    """Every change of the listing, evaluated after each trip in the order of trip numbers.

    Most trips are of routes that cannot be listed before the next tick, whatever comes and goes until then. These are
    counted in arrays, and the others are followed one by one.
    """

    answer_schema = Log.answer_schema

    def __init__(self) -> None:
        super().__init__()
        self._window = RouteArrays()
        self._listed: list[Ranked] = []

    def on_tick(self, time_ns: int) -> Emitted:
        for trips in blocks_of(self.taken()):
            self._evaluate(trips)
        return NOTHING

    def _evaluate(self, trips: Whole) -> None:
        if not trips.shape[1]:
            return
        window, dropoffs = self._window, trips[DROPOFF]
        starts = [0, *(np.flatnonzero(dropoffs[1:] != dropoffs[:-1]) + 1).tolist()]
        expired = window.add(trips, dropoffs[starts] - WINDOW_S, [route for *_, route in self._listed])
        coming, leaving = window.coming, window.leaving
        for start, stop, left in zip(starts, [*starts[1:], len(dropoffs)], expired, strict=True):
            listed = {route for *_, route in self._listed}
            lost = False
            while leaving and leaving[-1][0] < left:
                lost |= window.remove_next() in listed
            if lost:
                # The listing may have changed, which is recorded at the next trip of any route.
                if coming and coming[-1][0] == start:
                    window.count_next()
                self._list(window.top(), trips[:, start])
            while coming and coming[-1][0] < stop:
                at = coming[-1][0]
                entry = window.count_next()
                if entry[0] >= least_of(self._listed):
                    self._list(with_trip(entry, self._listed), trips[:, at])

    def _list(self, listed: list[Ranked], trip: Whole) -> None:
        """Note the listing after a trip."""
        self._listed = listed
        self.note([route for *_, route in listed], *trip[DROPOFF:].tolist())

    def fields(self, listed: Sequence[int]) -> Row:
        return listing(map(route_names, listed), 2)

    def columns_of(self, entries: Sequence[Change]) -> list[pa.Array]:
        numbers, pickups, dropoffs, listings, delays = zip(*entries, strict=True)
        names = [column for listed in _placed(listings) for column in _names(listed)]
        return [pa.array(numbers), _times(pickups), _times(dropoffs), *names, pa.array(delays)]

    def kept(self) -> object:
        return rows_of_trips(self._window.trips)

    def bring_back(self, kept: object) -> None:
        self._window = RouteArrays(msgspec.convert(kept, list[Trip]))
        self._listed = self._window.top()


class ColumnMerge(LateTable, Merge):
    """The best ten of all routes, on every tick; it gets rows, which are few, and writes columns."""

    def columns_of(self, entries: Sequence[tuple[int, list[Ranked]]]) -> list[pa.Array]:
        times, listings = zip(*entries, strict=True)
        columns = [_times(times)]
        for listed in _placed(listings):
            counts, routes = ([entry and entry[field] for entry in listed] for field in (0, 2))
            columns += [*_names(routes), pa.array(counts, pa.int64())]
        return columns


def _placed(listings: Sequence[Sequence[Any]]) -> Iterator[list[Any]]:
    """Yield what is first in each listing, then what is second, and so on; None where nothing is."""
    for place in range(LISTED):
        yield [listed[place] if place < len(listed) else None for listed in listings]


def _names(routes: Sequence[int | None]) -> tuple[pa.Array, pa.Array]:
    """Return the names of starts and ends of routes."""
    encoded = pa.array(routes, pa.int64()).dictionary_encode()
    names = list(map(route_names, encoded.dictionary.to_pylist()))
    starts, ends = (pa.array([name[at] for name in names], pa.string()) for at in (0, 1))
    return starts.take(encoded.indices), ends.take(encoded.indices)


def _times(seconds: Sequence[int]) -> pa.Array:
    return pa.array(seconds).cast(pa.timestamp("s")).cast(pa.string())
