"""Trips and windows of routes in arrays, for the operators of `taxi` by columns."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt

from workloads.dictionaries import Codes
from workloads.taxi.layout import LISTED
from workloads.taxi.window import NEVER, Ranked, Trip

Whole = npt.NDArray[np.int64]

TRIP_FIELDS = 5
SEQ, ROUTE, DROPOFF = 0, 1, 2
"""Rows of an array of trips, which has a column per trip."""

BLOCK = 512
"""Trips that are added to a window at a time. The more there are, the more routes may be listed meanwhile."""

_SLOT = TRIP_FIELDS
"""The row with the slot of the route, which a window has besides."""

_FACTOR, _SLOT_BITS = np.uint64(0x9E3779B97F4A7C15), 15
_WATCHED, _MOST_WATCHED = 5 * LISTED, 20 * LISTED
_LEAST_TRIPS = 1 << 10


def trips_of_rows(rows: Sequence[Trip]) -> Whole:
    """Return trips as an array."""
    numbers = np.fromiter(chain.from_iterable(rows), np.int64, TRIP_FIELDS * len(rows))
    return numbers.reshape(-1, TRIP_FIELDS).T


def rows_of_trips(trips: Whole) -> list[Trip]:
    """Return an array of trips as rows."""
    return list(zip(*trips.tolist(), strict=True))


def blocks_of(trips: Whole) -> Iterator[Whole]:
    """Yield trips, `BLOCK` at a time; at least one block."""
    for at in range(0, max(1, trips.shape[1]), BLOCK):
        yield trips[:, at : at + BLOCK]


class RouteArrays:
    """Routes of the trips in the window, like `RouteWindow`.

    All trips are counted by a hash of their route, in slots: a route has no more trips than its slot. Only some routes
    are watched, which means that their trips are counted one by one: all that have a minimum count, and a few more. The
    minimum is chosen so that about five times as many routes are watched as are listed.

    Attributes:
        coming: added trips of watched routes that have to be counted, the first one last: place among the added trips,
            number, route.
        leaving: trips of watched routes that have to be removed, the first one last: place in the window before, route.
    """

    def __init__(self, rows: Sequence[Trip] = ()) -> None:
        """Start with trips in the order of their numbers."""
        self._begin = self._end = 0
        self._trips = np.empty((TRIP_FIELDS + 1, _LEAST_TRIPS), np.int64)
        slots = self._append(trips_of_rows(rows))
        self._in_slot: Whole = np.bincount(slots, minlength=1 << _SLOT_BITS)
        self._watch(self._end)
        self.coming: list[tuple[int, int, int]] = []
        self.leaving: list[tuple[int, int]] = []

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

    def _watch(self, end: int, most: int = NEVER) -> None:
        """Choose the minimum count, `most` or less, and count the trips before place `end` of routes that have it."""
        trips = self._trips[:, self._begin : end][:, ::-1]
        routes, last, counts = np.unique(trips[ROUTE], return_index=True, return_counts=True)
        least = np.sort(counts)[-_WATCHED] if len(counts) >= _WATCHED else 1
        self._least = max(1, min(most, int(least)))
        found = counts >= self._least
        names = routes[found].tolist()
        self._counts = dict(zip(names, counts[found].tolist(), strict=True))
        self._newest = dict(zip(names, trips[SEQ, last[found]].tolist(), strict=True))
        self._mark_watched()

    def _watch_fewer(self) -> None:
        """Raise the minimum count, and forget routes that do not have it."""
        self._least = max(self._least, sorted(self._counts.values())[-_WATCHED])
        self._counts = {route: count for route, count in self._counts.items() if count >= self._least}
        self._newest = {route: self._newest[route] for route in self._counts}
        self._mark_watched()

    def _mark_watched(self) -> None:
        self._is_watched = np.zeros(1 << _SLOT_BITS, bool)
        self._is_watched[_slots_of(np.fromiter(self._counts, np.int64, len(self._counts)))] = True
        self._most_watched = max(_MOST_WATCHED, 2 * len(self._counts))

    def add(self, trips: Whole, times: Whole, listed: Sequence[int] | None = None) -> list[int]:
        """Add trips to the window and remove expired ones, except for what is left in `coming` and `leaving`.

        Args:
            trips: at most a few hundred, none of them older than those in the window.
            times: drop-offs at these times or before expire, one after the other.
            listed: routes listed before; needed if the listing is asked for while trips come and others leave.

        Returns:
            How many trips have expired at each of `times`.
        """
        if len(self._counts) > self._most_watched:
            self._watch_fewer()
        slots = self._append(trips)
        begin, added = self._begin, self._end - trips.shape[1]
        expired: list[int] = self._trips[DROPOFF, begin : self._end].searchsorted(times, side="right").tolist()
        end = begin + expired[-1]
        np.add.at(self._in_slot, slots, 1)
        self._find(trips, slots, added, end)
        if listed is not None and self._least > (least := self._least_listed(listed)):
            self._watch(added, least)
            self._find(trips, slots, added, end)
        np.subtract.at(self._in_slot, self._trips[_SLOT, begin:end], 1)
        self._begin = end
        return expired

    def _find(self, trips: Whole, slots: Codes, added: int, end: int) -> None:
        """Find the trips of watched routes among those that come and those before place `end`, which leave.

        Routes that may reach the minimum count are watched from now on.
        """
        at = (self._is_watched[slots] | (self._in_slot[slots] >= self._least)).nonzero()[0][::-1]
        self.coming = list(zip(at.tolist(), *trips[:DROPOFF, at].tolist(), strict=True))
        fresh = {route for _, _, route in self.coming if route not in self._counts}
        if fresh:
            self._is_watched[slots[at]] = True
            earlier = self._trips[ROUTE, self._begin : added]
            for route in fresh:
                # If the minimum is 1, all routes with trips were watched before.
                self._counts[route] = int(np.count_nonzero(earlier == route)) if self._least > 1 else 0
        leaving = self._trips[:, self._begin : end]
        at = self._is_watched[leaving[_SLOT]].nonzero()[0][::-1]
        places = zip(at.tolist(), leaving[ROUTE, at].tolist(), strict=True)
        self.leaving = [(place, route) for place, route in places if route in self._counts]

    def _least_listed(self, listed: Sequence[int]) -> int:
        """Return a count that every listed route has, and at least ten routes, while trips come and leave."""
        if len(listed) < LISTED:
            return 1
        left = [route for _, route in self.leaving]
        least: int = min([self._counts[route] - left.count(route) for route in listed])
        return max(1, least)

    def count_next(self) -> Ranked:
        """Count the next of the trips that come. Return the entry of its route."""
        _, seq, route = self.coming.pop()
        count = self._counts[route] = self._counts[route] + 1
        self._newest[route] = seq
        return count, seq, route

    def remove_next(self) -> int:
        """Remove the next of the trips that leave. Return its route."""
        _, route = self.leaving.pop()
        self._counts[route] -= 1
        return route

    def settle(self) -> None:
        """Count all trips that come, and remove all that leave."""
        while self.coming:
            self.count_next()
        while self.leaving:
            self.remove_next()

    def top(self) -> list[Ranked]:
        """Return the listing, best first."""
        least, newest = self._least, self._newest
        found = [(count, newest[route], route) for route, count in self._counts.items() if count >= least]
        if len(found) < LISTED and least > 1 and not self.coming and not self.leaving:
            self._watch(self._end)
            return self.top()
        return sorted(found, reverse=True)[:LISTED]


def _slots_of(routes: Whole) -> Codes:
    return (routes.view(np.uint64) * _FACTOR >> np.uint64(64 - _SLOT_BITS)).view(np.int64)
