"""Sliding windows of trips, and the common base of the bolts of both taxi workloads.

A window holds the trips, the count of each route, and the most frequent routes. Rows with one drop-off time are ordered
by row number only, and rows from different executors arrive in no order. So operations that depend on the order wait
for the tick, and then take the rows by number.
"""

import time
from abc import abstractmethod
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar

import msgspec

from inventory.times import NS
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.taxi.layout import CHANGES, LISTED, SNAPSHOTS, time_text

Trip = tuple[Any, ...]
"""A row: number, route or cell, drop-off time in seconds, and further fields."""

Ranked = tuple[int, int, int]
"""Count, number of the newest trip, route: the listing is in falling order of these."""

Change = tuple[int, int, int, Sequence[float], int]
"""Number, pick-up and drop-off time of its trip, numbers of the listing, delay in milliseconds."""

NEVER = 1 << 62
"""More than any count."""

DROPOFF = itemgetter(2)
_WATCHED = 3 * LISTED


class TripWindow:
    """Trips in the order of their numbers, which is also that of their drop-off times."""

    def __init__(self, trips: Iterable[Trip] = ()) -> None:
        self._trips = list(trips)
        self._gone = 0

    @property
    def trips(self) -> list[Trip]:
        """Return the trips in the window."""
        return self._trips[self._gone :]

    def keep(self, trips: Iterable[Trip]) -> None:
        """Add trips, none of them older than earlier ones."""
        self._trips += trips

    def expire(self, time: int) -> Sequence[Trip]:
        """Remove and return trips with a drop-off at `time` or before."""
        gone = self._gone
        now = self._gone = bisect_right(self._trips, time, gone, key=DROPOFF)
        if now == gone:
            return ()
        expired = self._trips[gone:now]
        if now > len(self._trips) // 2:
            del self._trips[:now]
            self._gone = 0
        return expired


class RouteWindow:
    """Routes of the trips in the window.

    Only routes with a minimum count are watched: their newest trip is stored, and they are candidates for a listing.
    The minimum is chosen so that about three times as many routes are watched as are listed. When fewer are left than
    are listed, all trips and routes are examined once.
    """

    def __init__(self, trips: Iterable[Trip] = ()) -> None:
        """Start with trips in the order of their numbers, all of them kept and counted."""
        self._window = TripWindow(trips)
        self._counts = dict(Counter(trip[1] for trip in self._window.trips))
        self._watched: dict[int, int] = {}
        self._least = NEVER

    @property
    def trips(self) -> list[Trip]:
        """Return the trips in the window; between ticks, they determine all else."""
        return self._window.trips

    def add(self, trips: Iterable[Trip], until: int = NEVER) -> Trip | None:
        """Count trips, in the order of their numbers, until the count of one's route is `until` or more.

        Return this trip, or None after counting all of them.
        """
        counts, get, least, watched = self._counts, self._counts.get, self._least, self._watched
        for trip in trips:
            route = trip[1]
            count = counts[route] = get(route, 0) + 1
            if count >= least:
                watched[route] = trip[0]
            if count >= until:
                return trip
        return None

    def ranked(self, trip: Trip) -> Ranked:
        """Return the listing entry of the route of the trip counted last."""
        return self._counts[trip[1]], trip[0], trip[1]

    def keep(self, trips: Iterable[Trip]) -> None:
        """Keep trips that have been or will be counted, until they expire."""
        self._window.keep(trips)

    def expire(self, time: int) -> Sequence[int]:
        """Remove trips with a drop-off at `time` or before. Return their routes."""
        expired = [trip[1] for trip in self._window.expire(time)]
        counts = self._counts
        for route in expired:
            count = counts[route]
            if count > 1:
                counts[route] = count - 1
            else:
                del counts[route]
        return expired

    def top(self) -> list[Ranked]:
        """Return the listing, best first; all kept trips have been counted."""
        get, least = self._counts.get, self._least
        frequent = [
            (count, newest, route) for route, newest in self._watched.items() if (count := get(route, 0)) >= least
        ]
        if len(frequent) < LISTED and least > 1:
            last = {trip[1]: trip[0] for trip in self._window.trips}
            frequent = [(count, last[route], route) for route, count in self._counts.items()]
            least = 1
        best = nlargest(_WATCHED, frequent)
        self._least = best[-1][0] if len(best) == _WATCHED else least
        self._watched = {route: newest for count, newest, route in frequent if count >= self._least}
        return best[:LISTED]


class Ordered(Bolt):
    """Collects trips until the tick."""

    def __init__(self) -> None:
        super().__init__()
        self.arrived: list[Trip] = []

    def process(self, batch: Batch) -> Emitted:
        self.arrived += batch.rows
        return NOTHING

    def in_order(self) -> list[Trip]:
        """Return the trips since the last tick, by number."""
        arrived, self.arrived = self.arrived, []
        arrived.sort()
        return arrived


class KeyedTrips(Ordered):
    """Collects trips until the tick, and keeps a window of trips: its executor's share by a key."""

    key: ClassVar[int]
    """Place of the key in a trip."""

    kept = KeyedState(list[Trip])
    """Trips in the window."""

    waiting = KeyedState(list[Trip])
    """Trips since the last tick."""

    @abstractmethod
    def trips(self) -> list[Trip]:
        """Return the trips in the window, by number."""

    @abstractmethod
    def continue_with(self, trips: list[Trip]) -> None:
        """Replace the window by one with these trips, by number."""

    def store_state(self) -> None:
        self.waiting.update(self._by_key(self.arrived))
        self.store_window()

    def store_window(self) -> None:
        """Copy the trips in the window into `kept`."""
        self.kept.update(self._by_key(self.trips()))

    def load_state(self) -> None:
        self.arrived = list(chain.from_iterable(self.waiting.values()))
        self.continue_with(self.stored_window())

    def stored_window(self) -> list[Trip]:
        """Return the trips in `kept`, by number."""
        return sorted(chain.from_iterable(self.kept.values()))

    def _by_key(self, trips: Iterable[Trip]) -> Mapping[Any, list[Trip]]:
        by_key: defaultdict[Any, list[Trip]] = defaultdict(list)
        for trip in trips:
            by_key[trip[self.key]].append(trip)
        return by_key


class Candidates(Bolt):
    """Collects candidates for the listing until the tick."""

    key: ClassVar[int]
    """Place of the key in a row, by which each of those that come between two ticks is another one."""

    candidates = KeyedState(tuple[Any, ...])

    def process(self, batch: Batch) -> Emitted:
        key = self.key
        self.candidates.update([(row[key], row) for row in batch.rows])
        return NOTHING

    def taken(self) -> list[Any]:
        """Return the candidates since the last tick."""
        candidates = list(self.candidates.values())
        self.candidates.clear()
        return candidates


class ListingTable(Bolt):
    """A sink whose rows are final when written."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    @abstractmethod
    def row_of(self, entry: Any) -> Row:
        """Return a row of the answer."""

    def write(self, entry: Any) -> None:
        """Add a row to the answer."""
        self.rows.append(self.row_of(entry))

    def settled(self) -> Iterable[Row]:
        rows, self.rows = self.rows, []
        return rows

    def answer(self) -> Iterable[Row]:
        return self.rows


class SnapshotWriter(Candidates, ListingTable):
    """Writes the listing at every tick."""

    answer_table = SNAPSHOTS

    @abstractmethod
    def best(self, candidates: list[Any]) -> list[Any]:
        """Return the best ten."""

    @abstractmethod
    def fields(self, listed: Sequence[Any]) -> Row:
        """Return the fields of a listing, a result of `best`."""

    def on_tick(self, time_ns: int) -> Emitted:
        self.write((time_ns // NS, self.best(self.taken())))
        return NOTHING

    def row_of(self, entry: tuple[int, list[Any]]) -> Row:
        time_s, listed = entry
        return (time_text(time_s), *self.fields(listed))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.rows)

    def restore(self, state: bytes) -> None:
        self.rows = msgspec.msgpack.decode(state, type=list[tuple[Any, ...]])


class ChangeWriter(Ordered, ListingTable):
    """Writes every change of the listing."""

    answer_table = CHANGES

    def __init__(self) -> None:
        super().__init__()
        self._printed: Sequence[float] = []
        self._number = 0

    @abstractmethod
    def fields(self, listed: Sequence[Any]) -> Row:
        """Return the fields of a listing passed to `note`."""

    @abstractmethod
    def kept(self) -> object:
        """Return the state of the listing, to be encoded."""

    @abstractmethod
    def bring_back(self, kept: Any) -> None:
        """Continue from the result of `kept`."""

    def note(self, listed: Sequence[float], dropoff: int, pickup: int, read_ns: int) -> None:
        """After a trip, write the numbers of the listing if they differ from those written last."""
        if listed != self._printed:
            self._printed = listed
            self.write((self._number, pickup, dropoff, listed, (time.time_ns() - read_ns) // 1_000_000))
            self._number += 1

    def row_of(self, entry: Change) -> Row:
        number, pickup, dropoff, listed, delay_ms = entry
        return (number, time_text(pickup), time_text(dropoff), *self.fields(listed), delay_ms)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.kept(), self.arrived, self._printed, self._number, self.rows))

    def restore(self, state: bytes) -> None:
        kept, self.arrived, self._printed, self._number, self.rows = msgspec.msgpack.decode(state, type=_CHANGES_STATE)
        self.bring_back(kept)


_CHANGES_STATE = tuple[Any, list[Trip], list[int | float], int, list[tuple[Any, ...]]]
