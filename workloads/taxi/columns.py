"""The first operators of both taxi workloads by columns, and which of the others are by columns, too."""

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from workloads.arrays import decoded, stream_schema
from workloads.columns import ColumnBatch, ColumnBolt, ColumnsEmitted, Derived
from workloads.dictionaries import Codes
from workloads.operators import Operator
from workloads.recordings.recording import ColumnRecordedSpout
from workloads.recordings.schema import Grid
from workloads.taxi.layout import CELL, ROUTE
from workloads.taxi.rides import TripAmounts
from workloads.taxi.route_columns import ROWS_BELOW, ColumnCountRoutes, ColumnLog, ColumnMerge
from workloads.taxi.routes import Route
from workloads.taxi.trips import PaidTrips, Trips
from workloads.topology import DEFAULT_STREAM

_ROUTE, _AMOUNT = stream_schema(Route.fields), stream_schema(TripAmounts.fields)


class ColumnTrips(Trips, ColumnRecordedSpout):
    """Trips."""

    rows_below = ROWS_BELOW

    def __init__(self, tick_ns: int, grid: Grid) -> None:
        super().__init__(tick_ns, grid)
        self._schema = stream_schema(self.fields)

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        seq, pickup, dropoff, *ends = columns[:7]
        start, end = (_cells(self._grid, *ends[at : at + 2]) for at in (0, 2))
        # The time of reading is set when they are emitted.
        prepared = [seq, pickup, dropoff, start, end, seq, *map(decoded, columns[7:])]
        return pa.RecordBatch.from_arrays(prepared, schema=self._schema)

    def next_columns(self, limit: int) -> pa.RecordBatch:
        columns = super().next_columns(limit)
        read_ns = pa.array(np.full(columns.num_rows, time.time_ns()))
        return columns.set_column(5, self._schema.field(5), read_ns)


class ColumnPaidTrips(PaidTrips, ColumnTrips):
    """Trips with the taxi's medallion, and fare and tip in nanodollars."""


def _cells(grid: Grid, longitudes: pa.Array, latitudes: pa.Array) -> pa.Array:
    """Return the cells of points on the grid, see `cells`."""
    x: Codes = (longitudes.to_numpy() - grid.west_border) // grid.east
    y: Codes = (grid.north_border - latitudes.to_numpy()) // grid.south
    return pa.array(x * CELL + y + CELL + 1)


class ColumnRoute(Route, ColumnBolt):
    """Trips to routes."""

    rows_below = ROWS_BELOW
    derives: ClassVar[bool] = True
    skips_ticks: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        seq, pickup, dropoff, start, end, read_ns = batch.columns.columns
        routes = pa.array(start.to_numpy() * ROUTE + end.to_numpy())
        columns = [seq, routes, dropoff, pickup, read_ns]
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays(columns, schema=_ROUTE))}


class ColumnAmount(TripAmounts, ColumnBolt):
    """Trips to amounts."""

    rows_below = ROWS_BELOW
    derives: ClassVar[bool] = True
    skips_ticks: ClassVar[bool] = True

    def process_columns(self, batch: ColumnBatch) -> ColumnsEmitted:
        seq, pickup, dropoff, start, end, read_ns, medallion, fare, tip = batch.columns.columns
        columns = [seq, start, dropoff, pc.add_checked(fare, tip), end, medallion, pickup, read_ns]
        return {DEFAULT_STREAM: Derived(pa.RecordBatch.from_arrays(columns, schema=_AMOUNT))}


OPERATORS: Mapping[type[Trips], tuple[type[Trips], Mapping[str, type[Operator]]]] = {
    Trips: (ColumnTrips, {"route": ColumnRoute, "count": ColumnCountRoutes, "merge": ColumnMerge, "log": ColumnLog}),
    PaidTrips: (ColumnPaidTrips, {"amount": ColumnAmount}),
}
"""By the spout of a workload by rows: the spout by columns, and the bolts."""
