"""The bolts of `taxi` that keep trips or write answers, by columns; their state is that of the bolts by rows."""

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from inventory.times import NS
from workloads.arrays import batch_rows
from workloads.columns import ColumnBatch, ColumnBolt, Columns, ColumnsEmitted
from workloads.operators import NOTHING, Batch, Emitted, Row
from workloads.taxi.layout import LISTED, listing_fields, route_names
from workloads.taxi.route_arrays import (
    BLOCK,
    DROPOFF,
    SEQ,
    RouteArrays,
    Whole,
    blocks_of,
    rows_of_trips,
    trips_of_rows,
)
from workloads.taxi.routes import WINDOW_S, CountRoutes, MergeRoutes, RouteLog, least_of, with_trip
from workloads.taxi.window import Change, ChangeWriter, ListingTable, Ordered, Ranked, Trip
from workloads.topology import DEFAULT_STREAM

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
        return [trip for part in self._parts for trip in (part if isinstance(part, list) else batch_rows(part))]

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


class ColumnCountRoutes(ColumnOrdered, CountRoutes):
    """Counts of a share of the routes in the window; emits the ten most frequent on a tick.

    Until columns come, it counts by rows, which costs less for a few trips per tick.
    """

    def __init__(self) -> None:
        super().__init__()
        self._arrays: RouteArrays | None = None
        self._listed: list[Ranked] = []

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        self._to_arrays()
        return super().process_columns(batch)

    def process_ticks(self, batch: ColumnBatch, ticks: Sequence[tuple[int, int]]) -> Sequence[Emitted]:
        # Sorting moves no trip over a tick.
        before = sum(map(len, self._parts))
        self._parts.append(batch.columns)
        places = [(before + row, time_ns) for row, time_ns in ticks]
        return self._listings(self._to_arrays(), self.taken(), places)

    def on_tick(self, time_ns: int) -> Emitted:
        if self._arrays is None:
            return super().on_tick(time_ns)
        trips = self.taken()
        return self._listings(self._arrays, trips, [(trips.shape[1], time_ns)])[0]

    def _to_arrays(self) -> RouteArrays:
        if self._arrays is None:
            self._arrays = RouteArrays(super().trips())
            self._listed = self._arrays.top()
            super().continue_with([])
        return self._arrays

    def _listings(self, window: RouteArrays, trips: Whole, ticks: Sequence[tuple[int, int]]) -> list[Emitted]:
        """Add trips; return what is emitted at ticks, which have the number of trips before them and a time."""
        done = 0
        emitted: list[Emitted] = []
        waiting = deque(ticks)
        while waiting:
            within = [place for place, _ in waiting if place <= done + BLOCK]
            stop = within[-1] if within else done + BLOCK
            times = [waiting.popleft()[1] // NS - WINDOW_S for _ in within]
            if not within:
                # What expires here is not in the window at the next tick.
                times.append(int(trips[DROPOFF, stop - 1]) - WINDOW_S)
            expired = window.add(trips[:, done:stop], np.array(times), self._listed)
            for place, left in zip(within or [stop], expired, strict=True):
                window.advance(place - done, left)
                self._listed = window.top()
                if within:
                    emitted.append({DEFAULT_STREAM: self._listed})
            done = stop
        return emitted

    def trips(self) -> list[Trip]:
        return super().trips() if self._arrays is None else rows_of_trips(self._arrays.trips)

    def trip_array(self) -> Whole:
        return super().trip_array() if self._arrays is None else self._arrays.trips

    def continue_with(self, trips: list[Trip]) -> None:
        self._arrays = None
        super().continue_with(trips)


class LateTable(ListingTable):
    """A sink that makes text of its rows when they are final: the same names occur again and again."""

    def __init__(self) -> None:
        super().__init__()
        self._late: list[Any] = []

    def columns_of(self, entries: Sequence[Any]) -> list[pa.Array]:
        """Return what was written as columns."""
        raise NotImplementedError(f"{type(self).__name__} does not define columns_of()")

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


class ColumnLog(ColumnOrdered, LateTable, ChangeWriter):
    """Every change of the listing, evaluated after each trip in the order of trip numbers.

    Most trips are of routes that cannot be listed before the next tick, whatever comes and goes until then. These are
    counted in arrays, and the others are followed one by one.
    """

    answer_schema = RouteLog.answer_schema
    skips_ticks: ClassVar[bool] = True

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
        expired = window.add(trips, dropoffs[starts] - WINDOW_S, self._listed)
        coming, leaving, counts, newest = window.coming, window.leaving, window.counts, window.newest
        for start, stop, left in zip(starts, [*starts[1:], len(dropoffs)], expired, strict=True):
            listed = {route for *_, route in self._listed}
            lost = False
            while leaving and leaving[-1][0] < left:
                route = leaving.pop()[1]
                counts[route] -= 1
                lost = lost or route in listed
            if lost and not (coming and coming[-1][0] == start):
                # The listing may have changed, which is recorded at the next trip of any route.
                self._list(window.top(), trips[:, start])
                lost = False
            least = least_of(self._listed)
            while coming and coming[-1][0] < stop:
                at, seq, route = coming.pop()
                count = counts[route] = counts[route] + 1
                newest[route] = seq
                if lost or count >= least:
                    top = window.top() if lost else with_trip((count, seq, route), self._listed)
                    self._list(top, trips[:, at])
                    least, lost = least_of(top), False

    def _list(self, listed: list[Ranked], trip: Whole) -> None:
        """Note the listing after a trip."""
        self._listed = listed
        self.note([route for *_, route in listed], *trip[DROPOFF:].tolist())

    def fields(self, listed: Sequence[int]) -> Row:
        return listing_fields(map(route_names, listed), 2)

    def columns_of(self, entries: Sequence[Change]) -> list[pa.Array]:
        numbers, pickups, dropoffs, listings, delays = zip(*entries, strict=True)
        names = [column for pair in _names(listings) for column in pair]
        return [pa.array(numbers), _times(pickups), _times(dropoffs), *names, pa.array(delays)]

    def kept(self) -> object:
        return rows_of_trips(self._window.trips)

    def bring_back(self, kept: object) -> None:
        self._window = RouteArrays(msgspec.convert(kept, list[Trip]))
        self._listed = self._window.top()


class ColumnMerge(LateTable, MergeRoutes):
    """The best ten of all routes, on every tick; it gets rows, which are few, and writes columns."""

    def columns_of(self, entries: Sequence[tuple[int, list[Ranked]]]) -> list[pa.Array]:
        times, listings = zip(*entries, strict=True)
        counts, routes = ([[entry[field] for entry in listed] for listed in listings] for field in (0, 2))
        columns = [_times(times)]
        for (start, end), count in zip(_names(routes), _placed(_numbers(counts)), strict=True):
            columns += [start, end, count]
        return columns


def _numbers(listings: Sequence[Sequence[int]]) -> pa.Array:
    """Return the numbers of all listings, one listing after the other, with nulls for missing ones."""
    missing = [None] * LISTED
    complete = [listed if len(listed) == LISTED else [*listed, *missing[len(listed) :]] for listed in listings]
    return pa.array(chain.from_iterable(complete), pa.int64(), size=LISTED * len(complete))


def _placed(numbers: pa.Array) -> list[pa.Array]:
    """Return a column per place of a listing."""
    return [numbers.take(pa.array(np.arange(place, len(numbers), LISTED))) for place in range(LISTED)]


def _names(listings: Sequence[Sequence[int]]) -> list[tuple[pa.Array, pa.Array]]:
    """Return the names of starts and ends of the routes at each place."""
    encoded = _numbers(listings).dictionary_encode()
    names = list(map(route_names, encoded.dictionary.to_pylist()))
    starts, ends = (pa.array([name[at] for name in names], pa.string()) for at in (0, 1))
    return [(starts.take(indices), ends.take(indices)) for indices in _placed(encoded.indices)]


def _times(seconds: Sequence[int]) -> pa.Array:
    return pa.array(seconds).cast(pa.timestamp("s")).cast(pa.string())
