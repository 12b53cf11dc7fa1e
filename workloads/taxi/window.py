"""How often each route was taken within a window that moves with time, and which were taken most.

A route's rank is one whole number, its count above the number of its newest trip, so that the order of the listing is
that of ranks, and no two routes have the same.
"""

from bisect import bisect_right
from collections.abc import Sequence
from heapq import nlargest

import msgspec

from workloads.taxi.layout import LISTED

NEWEST_BITS = 40
ONE = 1 << NEWEST_BITS
"""One trip in a rank; row numbers are below it."""

_NEWEST = ONE - 1
_NEVER = 1 << 100
_WATCHED = 3 * LISTED


class RouteWindow:
    """Routes of the trips in the window.

    Only the routes whose count is at least a certain one are looked at for a listing. That one is chosen so that about
    three times as many as are listed have it; when fewer have it than are listed, all routes are looked at once.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}
        self._routes: list[int] = []
        self._dropoffs: list[int] = []
        self._gone = 0
        self._watched: set[int] = set()
        self._least = _NEVER

    def add(self, seqs: Sequence[int], routes: Sequence[int], dropoffs: Sequence[int]) -> None:
        """Take trips in, in the order of their row numbers."""
        ranks, get, least, watch = self._ranks, self._ranks.get, self._least, self._watched.add
        for seq, route in zip(seqs, routes, strict=True):
            rank = (get(route, 0) | _NEWEST) + 1 + seq
            ranks[route] = rank
            if rank >= least:
                watch(route)
        self._routes += routes
        self._dropoffs += dropoffs

    def add_one(self, seq: int, route: int, dropoff: int) -> int:
        """Take one trip in; return its route's rank."""
        ranks = self._ranks
        rank = ranks[route] = (ranks.get(route, 0) | _NEWEST) + 1 + seq
        if rank >= self._least:
            self._watched.add(route)
        self._routes.append(route)
        self._dropoffs.append(dropoff)
        return rank

    def expire(self, time: int) -> Sequence[int]:
        """Let go of trips with a drop-off at `time` or before; return their routes."""
        gone = self._gone
        now = bisect_right(self._dropoffs, time, gone)
        if now == gone:
            return ()
        expired = self._routes[gone:now]
        ranks = self._ranks
        for route in expired:
            rank = ranks[route] - ONE
            if rank < ONE:
                del ranks[route]
            else:
                ranks[route] = rank
        self._gone = now
        if now > len(self._routes) // 2:
            del self._routes[:now], self._dropoffs[:now]
            self._gone = 0
        return expired

    def top(self) -> list[tuple[int, int]]:
        """The listing as (rank, route), best first."""
        get, least = self._ranks.get, self._least
        found = [(rank, route) for route in self._watched if (rank := get(route, 0)) >= least]
        if len(found) < LISTED and least > ONE:
            found = [(rank, route) for route, rank in self._ranks.items()]
            least = ONE
        best = nlargest(_WATCHED, found)
        if len(best) == _WATCHED:
            least = best[-1][0] & ~_NEWEST
        self._least = least
        self._watched = {route for rank, route in found if rank >= least}
        return best[:LISTED]

    def snapshot(self) -> object:
        """All of it, to be encoded."""
        return self._dropoffs[self._gone :], self._routes[self._gone :], self._ranks

    def restore(self, state: object) -> None:
        """Be the window that `snapshot` was taken of."""
        kept = msgspec.convert(state, tuple[list[int], list[int], dict[int, int]])
        self._dropoffs, self._routes, self._ranks = kept
        self._gone, self._watched, self._least = 0, set(), _NEVER
