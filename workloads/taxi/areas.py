"""Value of areas: profit, empty taxis, and the areas with the highest value.

Profits are kept as the sum of the two middle amounts in nanodollars (twice the median), values as fractions of whole
numbers, so that every comparison is exact. Floating-point numbers only sort out what cannot be listed: dividing whole
numbers rounds correctly, so that of two values the smaller never has the larger quotient.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from heapq import nlargest

from workloads.taxi.layout import LISTED
from workloads.taxi.window import Trip, TripWindow

Ride = Trip
"""Number, start cell, drop-off time, amount in nanodollars, end cell, medallion, pick-up time, when it was read."""

Area = tuple[int, int, int, int]
"""Cell, empty taxis, the two middle amounts together, number of the newest trip that made either."""

PROFIT_S, EMPTY_S = 900, 1800
"""Lengths of the windows for profits and for empty taxis."""

_NANO_TO_MICRO = 1000


class Profits:
    """Amounts of the trips in the window by start cell."""

    def __init__(self, rides: Iterable[Ride] = ()) -> None:
        self.window = TripWindow()
        self._amounts: dict[int, list[int]] = {}
        self._newest: dict[int, int] = {}
        for ride in rides:
            self.add(ride)

    def add(self, ride: Ride) -> int:
        """Add a ride. Return its start cell."""
        seq, cell, _, amount = ride[:4]
        self.window.keep((ride,))
        insort(self._amounts.setdefault(cell, []), amount)
        self._newest[cell] = seq
        return int(cell)

    def expire(self, time: int) -> set[int]:
        """Remove rides that ended `PROFIT_S` before `time` or earlier. Return their start cells."""
        expired = self.window.expire(time - PROFIT_S)
        for ride in expired:
            amounts = self._amounts[ride[1]]
            del amounts[bisect_left(amounts, ride[3])]
            if not amounts:
                del self._amounts[ride[1]], self._newest[ride[1]]
        return {ride[1] for ride in expired}

    def of(self, cell: int) -> tuple[int, int, int]:
        """Return number of trips, the two middle amounts together, and number of the newest trip.

        All 0 without trips.
        """
        amounts = self._amounts.get(cell)
        if amounts is None:
            return 0, 0, 0
        count = len(amounts)
        return count, amounts[(count - 1) // 2] + amounts[count // 2], self._newest[cell]


class Taxis:
    """Last position of each taxi within the window, as (cell, number of the trip)."""

    def __init__(self, rides: Iterable[Ride] = ()) -> None:
        self.window = TripWindow()
        self._last: dict[str, tuple[int, int]] = {}
        for ride in rides:
            self.add(ride)

    def __getitem__(self, medallion: str) -> tuple[int, int] | None:
        return self._last.get(medallion)

    def add(self, ride: Ride) -> tuple[int, int] | None:
        """Add a ride. Return the taxi's previous position."""
        self.window.keep((ride,))
        before = self._last.get(ride[5])
        self._last[ride[5]] = ride[4], ride[0]
        return before

    def expire(self, time: int) -> dict[str, tuple[int, int]]:
        """Remove rides that ended `EMPTY_S` before `time` or earlier. Return the taxis without a position now."""
        gone = {}
        for ride in self.window.expire(time - EMPTY_S):
            last = ride[4], ride[0]
            if self._last[ride[5]] == last:
                del self._last[ride[5]]
                gone[ride[5]] = last
        return gone


class Areas:
    """Profit and empty taxis of each cell; cells that lack one of them are not listed."""

    def __init__(self) -> None:
        self._profits: dict[int, tuple[int, int]] = {}
        self._empty: dict[int, set[int]] = {}
        self._values: dict[int, float] = {}
        self._listed: list[Area] = []
        self._least = float("-inf")
        self.stale = False

    def earn(self, cell: int, trips: int, middle: int, newest: int) -> None:
        """Set the profit of a cell."""
        if trips:
            self._profits[cell] = middle, newest
        else:
            self._profits.pop(cell, None)
        self._value(cell)

    def arrive(self, cell: int, seq: int) -> None:
        """Add an empty taxi after trip number `seq`."""
        self._empty.setdefault(cell, set()).add(seq)
        self._value(cell)

    def leave(self, cell: int, seq: int) -> None:
        """Remove that taxi."""
        there = self._empty[cell]
        there.remove(seq)
        if not there:
            del self._empty[cell]
        self._value(cell)

    def _value(self, cell: int) -> None:
        """Record whether a change of a cell may affect the listing."""
        was = self._values.pop(cell, None)
        if cell in self._profits and cell in self._empty:
            self._values[cell] = self._profits[cell][0] / len(self._empty[cell])
        if (was is not None and was >= self._least) or self._values.get(cell, float("-inf")) >= self._least:
            self.stale = True

    def top(self) -> list[Area]:
        """Return the listing, best first."""
        if self.stale:
            self.stale = False
            values = self._values
            self._least = nlargest(LISTED, values.values())[-1] if len(values) >= LISTED else float("-inf")
            near = [self._area(cell) for cell, value in values.items() if value >= self._least]
            self._listed = best_areas(near)
        return self._listed

    def _area(self, cell: int) -> Area:
        middle, newest = self._profits[cell]
        return cell, len(self._empty[cell]), middle, max(newest, max(self._empty[cell]))

    def snapshot(self) -> tuple[dict[int, tuple[int, int]], dict[int, list[int]]]:
        """Return all state, to be encoded."""
        return self._profits, {cell: sorted(seqs) for cell, seqs in self._empty.items()}

    @classmethod
    def restored(cls, profits: dict[int, tuple[int, int]], empty: Mapping[int, list[int]]) -> "Areas":
        """Return the areas of a snapshot."""
        areas = cls()
        areas._profits = profits
        areas._empty = {cell: set(seqs) for cell, seqs in empty.items()}
        for cell in profits:
            areas._value(cell)
        return areas


def best_areas(areas: Sequence[Area]) -> list[Area]:
    """Return the listing of `areas`: value descending, then newest first.

    One trip may be the newest of two, since it makes a profit where it starts and an empty taxi where it ends; if these
    also have the same value, the smaller cell is first.
    """
    return sorted(areas, key=_place)[:LISTED]


def _place(area: Area) -> tuple[Fraction, int, int]:
    cell, empty, middle, newest = area
    return -Fraction(middle, empty), -newest, cell


def shown(area: Area) -> tuple[int, int, float, float]:
    """Return cell, empty taxis, profit and value in dollars, to the nearest millionth; a half goes away from zero."""
    cell, empty, middle, _ = area
    return cell, empty, _dollars(middle, 2 * _NANO_TO_MICRO), _dollars(middle, 2 * _NANO_TO_MICRO * empty)


def _dollars(amount: int, parts: int) -> float:
    micro = (2 * abs(amount) + parts) // (2 * parts)
    return (micro if amount >= 0 else -micro) / 1e6
