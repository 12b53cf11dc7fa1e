"""The reference answers of `taxi-profit`, on the controller, from the trips that were emitted.

Snapshots sort each window from scratch, column by column. The log recomputes the values of single cells, and keeps all
values in one sorted list.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from math import inf

import numpy as np
import pyarrow as pa

from workloads.operators import Row
from workloads.recordings.schema import Grid
from workloads.taxi.layout import LISTED, cell_name, listing_fields, time_text
from workloads.taxi.route_reference import Whole, end_cells, windows
from workloads.taxi.trips import PaidTrips

COLUMNS = PaidTrips.columns
PROFIT_S, EMPTY_S = 900, 1800

_NEAR = 1e-12
"""Error bound of quotients; values near the last listed one are compared exactly."""

_EXACT = Context(prec=60)
_DOLLARS = Decimal("0.000001")


def _columns(tables: Iterable[pa.Table], grid: Grid) -> Iterator[tuple[Whole, ...]]:
    """Drop-off time, number, start and end cell, amount in nanodollars and number of the taxi, table by table."""
    taxis: dict[str, int] = {}
    for table in tables:
        encoded = table.column("medallion").combine_chunks().dictionary_encode()
        known = np.array([taxis.setdefault(name, len(taxis)) for name in encoded.dictionary.to_pylist()], np.int64)
        yield (
            table.column("dropoff_datetime").to_numpy(),
            table.column("seq").to_numpy(),
            end_cells(table, "pickup", grid),
            end_cells(table, "dropoff", grid),
            table.column("fare_amount").to_numpy() + table.column("tip_amount").to_numpy(),
            known[encoded.indices.to_numpy()],
        )


def snapshots(tables: Iterable[pa.Table], grid: Grid, period_s: int, first_s: int) -> Iterator[Row]:
    """Yield rows of the table `snapshots`."""
    for tick, window in windows(_columns(tables, grid), EMPTY_S, period_s, first_s):
        dropoffs, seqs, starts, ends, amounts, taxis = window
        lately = slice(int(np.searchsorted(dropoffs, tick - PROFIT_S, side="right")), None)
        earned = _by_cell(starts[lately], amounts[lately], seqs[lately])
        _, last = np.unique(taxis[::-1], return_index=True)
        there = _by_cell(ends[::-1][last], seqs[::-1][last], seqs[::-1][last])
        cells, paid, empty = np.intersect1d(earned[0], there[0], return_indices=True)
        middles, counts = earned[2][paid], there[1][empty]
        newest = np.maximum(earned[3][paid], there[3][empty])
        values = middles / counts
        if len(values) > LISTED:
            least = np.partition(values, -LISTED)[-LISTED]
            near = np.flatnonzero(values >= least - abs(least) * _NEAR)
        else:
            near = np.arange(len(values))
        areas = [
            (Fraction(int(middles[at]), 2 * int(counts[at])), int(newest[at]), -int(cells[at]), int(counts[at]))
            for at in near
        ]
        yield time_text(tick), *_listing(areas)


def _by_cell(cells: Whole, values: Whole, seqs: Whole) -> tuple[Whole, Whole, Whole, Whole]:
    """Return cells, how many values each has, the two middle ones together, and the largest number."""
    if not len(cells):
        return cells, cells, cells, cells
    order = np.lexsort((values, cells))
    distinct, first, counts = np.unique(cells[order], return_index=True, return_counts=True)
    ordered = values[order]
    middles = ordered[first + (counts - 1) // 2] + ordered[first + counts // 2]
    return distinct, counts, middles, np.maximum.reduceat(seqs[order], first)


def _listing(areas: Iterable[tuple[Fraction, int, int, int]]) -> Row:
    """Return fields of the best of (value in nanodollars, newest trip, cell less than 0, empty taxis)."""
    ranked = sorted(areas, reverse=True)[:LISTED]
    return listing_fields(
        [(cell_name(-cell), empty, _dollars(value * empty), _dollars(value)) for value, _, cell, empty in ranked], 4
    )


def _dollars(nano: Fraction) -> float:
    exact = _EXACT.divide(Decimal(nano.numerator), Decimal(nano.denominator * 10**9))
    return float(exact.quantize(_DOLLARS, ROUND_HALF_UP, _EXACT))


class _City:
    """State of all cells at one moment."""

    def __init__(self) -> None:
        self.paid: deque[tuple[int, int, int]] = deque()
        self.seen: deque[tuple[int, int, int]] = deque()
        self.amounts: defaultdict[int, deque[tuple[int, int]]] = defaultdict(deque)
        self.last: dict[int, tuple[int, int]] = {}
        self.there: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self.values: dict[int, tuple[float, int]] = {}
        self.order: list[tuple[float, int]] = []

    def move_to(self, time: int) -> set[int]:
        """Remove expired trips. Return the affected cells."""
        touched = set()
        while self.paid and self.paid[0][0] <= time - PROFIT_S:
            _, cell, _ = self.paid.popleft()
            self.amounts[cell].popleft()
            touched.add(cell)
        while self.seen and self.seen[0][0] <= time - EMPTY_S:
            _, taxi, seq = self.seen.popleft()
            if self.last[taxi][1] == seq:
                touched.add(self._leave(taxi))
        return touched

    def take(self, time: int, seq: int, start: int, end: int, amount: int, taxi: int) -> set[int]:
        """Add one trip. Return the affected cells."""
        self.paid.append((time, start, seq))
        self.amounts[start].append((amount, seq))
        touched = {start, end}
        if taxi in self.last:
            touched.add(self._leave(taxi))
        self.seen.append((time, taxi, seq))
        self.last[taxi] = end, seq
        self.there[end][seq] = 1
        return touched

    def _leave(self, taxi: int) -> int:
        cell, seq = self.last.pop(taxi)
        del self.there[cell][seq]
        return cell

    def value(self, cell: int) -> Fraction:
        """Return the value of a cell, in nanodollars."""
        amounts = sorted([amount for amount, _ in self.amounts[cell]])
        middles = amounts[(len(amounts) - 1) // 2] + amounts[len(amounts) // 2]
        return Fraction(middles, 2 * len(self.there[cell]))

    def revalue(self, cells: Iterable[int]) -> bool:
        """Update cells in the sorted list. Return whether one of them is, or was, near the listing."""
        before = self._near()
        moved: list[tuple[float, int]] = []
        for cell in cells:
            known = self.values.pop(cell, None)
            if known is not None:
                del self.order[bisect_left(self.order, known)]
                moved.append(known)
            if self.amounts[cell] and self.there[cell]:
                known = self.values[cell] = float(self.value(cell)), cell
                insort(self.order, known)
                moved.append(known)
        return max(moved, default=(-inf, 0)) >= min(before, self._near())

    def _near(self) -> tuple[float, int]:
        """Return a bound; cells above it may be listed."""
        if len(self.order) < LISTED:
            return -inf, 0
        least = self.order[-LISTED][0]
        return least - abs(least) * _NEAR, 0

    def fields(self) -> Row:
        """Return the fields of the listing."""
        areas = []
        for _, cell in self.order[bisect_left(self.order, self._near()) :]:
            newest = max(self.amounts[cell][-1][1], max(self.there[cell]))
            areas.append((self.value(cell), newest, -cell, len(self.there[cell])))
        return _listing(areas)


def changes(tables: Iterable[pa.Table], grid: Grid) -> Iterator[Row]:
    """Yield rows of the table `changes`, without delays."""
    city = _City()
    printed = listing_fields([], 4)
    number = 0
    kept: list[pa.Table] = []

    def noted() -> Iterator[pa.Table]:
        for table in tables:
            kept.append(table)
            yield table

    for columns in _columns(noted(), grid):
        pickups = kept.pop().column("pickup_datetime").to_pylist()
        for pickup, (dropoff, *trip) in zip(pickups, zip(*(c.tolist() for c in columns), strict=True), strict=True):
            touched = city.move_to(dropoff) | city.take(dropoff, *trip)
            if city.revalue(touched) and (fields := city.fields()) != printed:
                yield number, time_text(pickup), time_text(dropoff), *fields, None
                printed, number = fields, number + 1
