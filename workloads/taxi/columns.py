"""The first operators of both taxi workloads by columns, which see every trip; the others work at ticks, by rows."""

import time
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.dictionaries import Codes
from workloads.recordings.recording import ColumnRecordedSpout
from workloads.recordings.schema import Grid
from workloads.taxi.layout import CELL, ROUTE
from workloads.taxi.rides import Amount
from workloads.taxi.routes import Route
from workloads.taxi.trips import PaidTrips, Trips
from workloads.topology import DEFAULT_STREAM


class ColumnTrips(Trips, ColumnRecordedSpout):
    """Trips."""

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        seq, pickup, dropoff, *ends = columns[:7]
        start, end = (_cells(self._grid, *ends[at : at + 2]) for at in (0, 2))
        read_ns = np.full(len(seq), time.time_ns())
        return pa.RecordBatch.from_arrays(
            [seq, pickup, dropoff, start, end, pa.array(read_ns), *columns[7:]], names=list(self.fields)
        )


class ColumnPaidTrips(PaidTrips, ColumnTrips):
    """Trips with the taxi's medallion, and fare and tip in nanodollars."""


def _cells(grid: Grid, longitudes: pa.Array, latitudes: pa.Array) -> pa.Array:
    """Return the cells of points on the grid, see `cells`."""
    x: Codes = (longitudes.to_numpy() - grid.west_border) // grid.east
    y: Codes = (grid.north_border - latitudes.to_numpy()) // grid.south
    return pa.array(x * CELL + y + CELL + 1)


class ColumnRoute(Route, ColumnBolt):
    """Trips to routes."""

    derives: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        seq, pickup, dropoff, start, end, read_ns = batch.columns.columns
        routes = pa.array(start.to_numpy() * ROUTE + end.to_numpy())
        return {DEFAULT_STREAM: Derived(_batch([seq, routes, dropoff, pickup, read_ns], Route.fields))}


class ColumnAmount(Amount, ColumnBolt):
    """Trips to amounts."""

    derives: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        seq, pickup, dropoff, start, end, read_ns, medallion, fare, tip = batch.columns.columns
        columns = [seq, start, dropoff, pc.add_checked(fare, tip), end, medallion, pickup, read_ns]
        return {DEFAULT_STREAM: Derived(_batch(columns, Amount.fields))}


def _batch(columns: Sequence[pa.Array], fields: Iterable[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(columns, names=list(fields))
