"""Trips and windows of routes in arrays, for the operators of `taxi` by columns."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from workloads.dictionaries import Codes
from workloads.taxi.layout import LISTED
from workloads.taxi.window import Ranked, Trip

Whole = npt.NDArray[np.int64]

TRIP_FIELDS = 5
SEQ, ROUTE, DROPOFF = 0, 1, 2
"""Rows of an array of trips, which has a column per trip."""

BLOCK = 512
"""Trips that are added to a window at a time. The more there are, the more routes may be listed meanwhile."""

_SLOT = TRIP_FIELDS
"""The row with the slot of the route, which a window has besides."""

_FACTOR, _SLOT_BITS = np.uint64(0x9E3779B97F4A7C15), 14
_MOST_WATCHED = 6 * LISTED
_LEAST_TRIPS = 1 << 10


def trips_of_rows(rows: Sequence[Trip]) -> Whole:
    """Return trips as an array."""
    numbers = np.fromiter(chain.from_iterable(rows), np.int64, TRIP_FIELDS * len(rows))
    return numbers.reshape(-1, TRIP_FIELDS).T


def rows_of_trips(trips: Whole) -> list[Trip]:
    """Return an array of trips as rows."""
    return list(zip(*trips.tolist(), strict=True))


def by_route(trips: Whole) -> Mapping[int, bytes]:
    """Return the trips of each route, packed: the fields of one after the other, each in 8 bytes."""
    ordered = trips[:, trips[ROUTE].argsort(kind="stable")]
    starts = np.flatnonzero(np.diff(ordered[ROUTE], prepend=-1))
    packed, size = ordered.T.tobytes(), TRIP_FIELDS * trips.itemsize
    edges = [*(starts * size).tolist(), len(packed)]
    return {
        route: packed[start:stop]
        for route, start, stop in zip(ordered[ROUTE, starts].tolist(), edges, edges[1:], strict=False)
    }


def trips_of_bytes(packed: Iterable[bytes]) -> Whole:
    """Return packed trips as an array, by number."""
    trips = np.frombuffer(b"".join(packed), np.int64).reshape(-1, TRIP_FIELDS).T
    return trips[:, trips[SEQ].argsort()]


def blocks_of(trips: Whole) -> Iterator[Whole]:
    """Yield trips, `BLOCK` at a time; at least one block."""
    for at in range(0, max(1, trips.shape[1]), BLOCK):
        yield trips[:, at : at + BLOCK]


class RouteArrays:
    """Routes of the trips in the window, like `RouteWindow`.

    All trips are counted in slots, by a hash of their route: a route has no more trips than its slot. Only some slots
    are watched, which means that the trips of their routes are counted one by one: those with as many trips as a route
    needs to be listed, and a few others.

    Attributes:
        counts: trips of each route in watched slots; the caller counts those that come and those that leave.
        newest: number of the newest trip of each of these routes.
        coming: added trips of these routes that have to be counted, the first one last: place among the added trips,
            number, route.
        leaving: trips of these routes that have to be removed, the first one last: place in the window before, route.
    """

    def __init__(self, rows: Sequence[Trip] = ()) -> None:
        """Start with trips in the order of their numbers."""
        self._begin = self._end = 0
        self._trips = np.empty((TRIP_FIELDS + 1, _LEAST_TRIPS), np.int64)
        slots = self._append(trips_of_rows(rows))
        self._in_slot: Whole = np.bincount(slots, minlength=1 << _SLOT_BITS)
        self._is_watched = np.zeros(1 << _SLOT_BITS, bool)
        self._least, self._most_watched = 1, _MOST_WATCHED
        self.counts: defaultdict[int, int] = defaultdict(int)
        self.newest: dict[int, int] = {}
        self.coming: list[tuple[int, int, int]] = []
        self.leaving: list[tuple[int, int]] = []
        self._watch(self._in_slot > 0, self._end)

    @property
    def trips(self) -> Whole:
        """Trips in the window; between ticks, they determine all else."""
        return self._trips[:TRIP_FIELDS, self._begin : self._end]

    def _append(self, trips: Whole) -> Codes:
        """Append trips to those in the window; return their slots."""
        more = trips.shape[1]
        if self._end + more > self._trips.shape[1]:
            kept = self._trips[:, self._begin : self._end]
            self._begin, self._end = 0, kept.shape[1]
            self._trips = np.empty((TRIP_FIELDS + 1, max(_LEAST_TRIPS, 2 * (self._end + more))), np.int64)
            self._trips[:, : self._end] = kept
        part = self._trips[:, self._end : self._end + more]
        part[:TRIP_FIELDS] = trips
        part[_SLOT] = slots = _slots_of(trips[ROUTE])
        self._end += more
        return slots

    def _watch(self, fresh: npt.NDArray[np.bool_], end: int) -> None:
        """Watch more slots, in which the trips before place `end` have been counted."""
        self._is_watched |= fresh
        trips = self._trips[:, self._begin : end]
        at = fresh[trips[_SLOT]].nonzero()[0]
        for seq, route in zip(*trips[:DROPOFF, at].tolist(), strict=True):
            self.counts[route] += 1
            self.newest[route] = seq

    def _forget(self, least: int) -> None:
        """Watch only slots with at least so many trips."""
        self._is_watched &= self._in_slot >= least
        routes = np.fromiter(self.counts, np.int64, len(self.counts))
        kept = routes[self._is_watched[_slots_of(routes)]].tolist()
        self.counts = defaultdict(int, {route: self.counts[route] for route in kept if self.counts[route]})
        self.newest = {route: self.newest[route] for route in self.counts}
        self._most_watched = max(_MOST_WATCHED, 2 * len(self.counts))

    def add(self, trips: Whole, times: Whole, listed: Sequence[Ranked]) -> list[int]:
        """Add trips to the window and remove expired ones, except for what is left in `coming` and `leaving`.

        Args:
            trips: at most a few hundred, none of them older than those in the window.
            times: drop-offs at these times or before expire, one after the other.
            listed: the listing before.

        Returns:
            How many trips have expired at each of `times`.
        """
        slots = self._append(trips)
        begin, added = self._begin, self._end - trips.shape[1]
        expired: list[int] = self._trips[DROPOFF, begin : self._end].searchsorted(times, side="right").tolist()
        end = begin + expired[-1]
        self.leaving = self._watched(end)
        self._least = self._least_listed(listed)
        if len(self.counts) > self._most_watched:
            self._forget(self._least - 1)
            self.leaving = self._watched(end)
        np.add.at(self._in_slot, slots, 1)
        # Routes of other slots would not be listed even if no trip were to leave.
        fresh = (self._in_slot >= self._least) > self._is_watched
        if fresh.any():
            self._watch(fresh, added)
            self.leaving = self._watched(end)
        at = self._is_watched[slots].nonzero()[0][::-1]
        self.coming = list(zip(at.tolist(), *trips[:DROPOFF, at].tolist(), strict=True))
        np.subtract.at(self._in_slot, self._trips[_SLOT, begin:end], 1)
        self._begin = end
        return expired

    def _watched(self, end: int) -> list[tuple[int, int]]:
        """Return places and routes of the trips before place `end` in watched slots, the first one last."""
        trips = self._trips[:, self._begin : end]
        at = self._is_watched[trips[_SLOT]].nonzero()[0][::-1]
        return list(zip(at.tolist(), trips[ROUTE, at].tolist(), strict=True))

    def _least_listed(self, listed: Sequence[Ranked]) -> int:
        """Return a count that at least ten routes have all the time, and therefore every listed route."""
        if len(listed) < LISTED:
            return 1
        left = [route for _, route in self.leaving]
        least: int = min([self.counts[route] - left.count(route) for *_, route in listed])
        return max(1, least)

    def advance(self, come: int, left: int) -> None:
        """Count the first `come` of the added trips, and remove the first `left` of those in the window before."""
        coming, leaving, counts, newest = self.coming, self.leaving, self.counts, self.newest
        while coming and coming[-1][0] < come:
            _, seq, route = coming.pop()
            counts[route] += 1
            newest[route] = seq
        while leaving and leaving[-1][0] < left:
            counts[leaving.pop()[1]] -= 1

    def top(self) -> list[Ranked]:
        """Return the listing, best first."""
        least, newest = self._least, self.newest
        frequent = [(count, newest[route], route) for route, count in self.counts.items() if count >= least]
        return sorted(frequent, reverse=True)[:LISTED]


def _slots_of(routes: Whole) -> Codes:
    return (routes.view(np.uint64) * _FACTOR >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
