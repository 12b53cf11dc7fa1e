"""The bolts of `taxi-profit`: trips to amounts, amounts to profits and moves of taxis, both to values, and the log.

Profits and empty taxis travel as changes since the tick before.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from operator import add
from typing import Any, ClassVar

import msgspec

from inventory.times import NS
from workloads.keyed_state import KeyedState
from workloads.operators import NOTHING, Batch, Bolt, Emitted, Row
from workloads.taxi.areas import Area, Areas, Profits, Ride, Taxis, best_areas, shown
from workloads.taxi.layout import cell_name, change_columns, listing_fields, snapshot_columns
from workloads.taxi.window import DROPOFF, ChangeWriter, KeyedTrips, SnapshotWriter
from workloads.topology import DEFAULT_STREAM, FieldType

_LISTED: Mapping[str, FieldType] = {"cell": "str", "empty": "int", "profit": "float", "value": "float"}


class TripAmounts(Bolt):
    """Trips to amounts."""

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


class Profit(KeyedTrips):
    """Profits of a share of the start cells; emits changed profits on a tick."""

    fields: ClassVar[Mapping[str, FieldType]] = {"cell": "int", "trips": "int", "middle": "int", "newest": "int"}
    key = 1

    def __init__(self) -> None:
        super().__init__()
        self._profits = Profits()

    def on_tick(self, time_ns: int) -> Emitted:
        touched = {self._profits.add(ride) for ride in self.in_order()}
        touched |= self._profits.expire(time_ns // NS)
        return {DEFAULT_STREAM: [(cell, *self._profits.of(cell)) for cell in touched]}

    def trips(self) -> list[Ride]:
        return self._profits.window.trips

    def continue_with(self, trips: list[Ride]) -> None:
        self._profits = Profits(trips)


class TaxiPositions(KeyedTrips):
    """Positions of a share of the taxis; emits arrivals and departures of empty taxis on a tick."""

    fields: ClassVar[Mapping[str, FieldType]] = {"cell": "int", "seq": "int", "taxis": "int"}
    key = 5

    def __init__(self) -> None:
        super().__init__()
        self._taxis = Taxis()

    def on_tick(self, time_ns: int) -> Emitted:
        before: dict[str, tuple[int, int] | None] = {}
        for ride in self.in_order():
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

    def trips(self) -> list[Ride]:
        return self._taxis.window.trips

    def continue_with(self, trips: list[Ride]) -> None:
        self._taxis = Taxis(trips)


class Value(Bolt):
    """Values of a share of the cells; emits the ten most valuable on a tick."""

    fields: ClassVar[Mapping[str, FieldType]] = {"cell": "int", "empty": "int", "middle": "int", "newest": "int"}

    profits = KeyedState(tuple[int, int])
    empty = KeyedState(list[int])

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

    def store_state(self) -> None:
        profits, empty = self._areas.snapshot()
        self.profits.update(profits)
        self.empty.update(empty)

    def load_state(self) -> None:
        self._areas = Areas.restored(dict(self.profits), self.empty)


class MergeAreas(SnapshotWriter):
    """The best ten of all areas, on every tick."""

    answer_schema = snapshot_columns(_LISTED)
    key = 0

    def best(self, candidates: list[Area]) -> list[Area]:
        return best_areas(candidates)

    def fields(self, listed: Sequence[Area]) -> Row:
        return _fields(_numbers(listed))


class AreaLog(ChangeWriter):
    """Every change of the listing, evaluated after each trip in the order of trip numbers."""

    answer_schema = change_columns(_LISTED)

    def __init__(self) -> None:
        super().__init__()
        self._profits, self._taxis, self._areas = Profits(), Taxis(), Areas()

    def on_tick(self, time_ns: int) -> Emitted:
        profits, taxis, areas = self._profits, self._taxis, self._areas
        for dropoff, rides in groupby(self.in_order(), DROPOFF):
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
                    self.note(_numbers(areas.top()), dropoff, *ride[6:])
        return NOTHING

    def fields(self, listed: Sequence[Any]) -> Row:
        return _fields(listed)

    def kept(self) -> object:
        return self._profits.window.trips, self._taxis.window.trips

    def bring_back(self, kept: Any) -> None:
        earning, driving = msgspec.convert(kept, tuple[list[Ride], list[Ride]])
        self._profits, self._taxis, self._areas = Profits(earning), Taxis(driving), Areas()
        for cell in {ride[1] for ride in earning}:
            self._areas.earn(cell, *self._profits.of(cell))
        for medallion in {ride[5] for ride in driving}:
            if (last := self._taxis[medallion]) is not None:
                self._areas.arrive(*last)


def _numbers(areas: Sequence[Area]) -> list[float]:
    """Return cell, empty taxis, profit and value of each, in a row."""
    return [number for area in areas for number in shown(area)]


def _fields(numbers: Sequence[Any]) -> Row:
    """Return the same with the cells' names, and filled up."""
    return listing_fields([(cell_name(cell), *rest) for cell, *rest in zip(*[iter(numbers)] * 4, strict=True)], 4)
