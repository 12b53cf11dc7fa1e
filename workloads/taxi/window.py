"""Sliding windows: the trips in one, the count of each route, and the most frequent routes."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from heapq import nlargest
from operator import itemgetter
from typing import Any

import msgspec

from workloads.taxi.layout import LISTED

Trip = tuple[Any, ...]
"""A row: number, route or cell, drop-off time in seconds, and further fields."""

Ranked = tuple[int, int, int]
"""Count, number of the newest trip, route: the listing is in falling order of these."""

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

    Only the routes whose count is at least a certain one are watched: their newest trip is known, and they are looked
    at for a listing. That count is chosen so that about three times as many routes as are listed have it. When fewer
    have it than are listed, all trips and routes are looked at once.
    """

    def __init__(self) -> None:
        self._window = TripWindow()
        self._counts: dict[int, int] = {}
        self._watched: dict[int, int] = {}
        self._least = NEVER

    def add(self, trips: Iterable[Trip], until: int = NEVER) -> Trip | None:
        """Count trips, in the order of their numbers, until the count of one's route is `until` or more.

        Return that one, or None when there was none and all have been taken.
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
        found = [(count, newest, route) for route, newest in self._watched.items() if (count := get(route, 0)) >= least]
        if len(found) < LISTED and least > 1:
            last = {trip[1]: trip[0] for trip in self._window.trips}
            found = [(count, last[route], route) for route, count in self._counts.items()]
            least = 1
        best = nlargest(_WATCHED, found)
        self._least = best[-1][0] if len(best) == _WATCHED else least
        self._watched = {route: newest for count, newest, route in found if count >= self._least}
        return best[:LISTED]

    def snapshot(self) -> object:
        """Return all state, to be encoded."""
        return self._window.trips, self._counts

    def restore(self, state: object) -> None:
        """Restore the window from a snapshot."""
        trips, self._counts = msgspec.convert(state, tuple[list[Trip], dict[int, int]])
        self._window, self._watched, self._least = TripWindow(trips), {}, NEVER
