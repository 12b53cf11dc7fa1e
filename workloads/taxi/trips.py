"""Trips: the source of both workloads, with cells in place of coordinates, and common parameters."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from inventory.times import NS
from workloads.columns import Api
from workloads.operators import Row
from workloads.recordings.recording import RecordedSpout
from workloads.recordings.schema import DEBS2015, Grid
from workloads.taxi.layout import CELL
from workloads.topology import FieldType
from workloads.workload import PreparedInput, filled

GENERATED_ROWS, GENERATED_SEED = 200_000, 1
"""Size of the generated default input: about 13 hours."""


@dataclass(frozen=True)
class TaxiParams:
    """Parameters of both taxi workloads.

    Attributes:
        input: a file in the schema of DEBS 2015 (also `.gz` or prepared Parquet) or a folder of them; empty: generated.
        answer: the listing at every tick, the log of all its changes, or both.
        period_s: stream time between ticks, in seconds.
        parallelism: executors per component; components left out keep their default.
        workers: requested slots.
        api: interface of the first two components, which process trips one by one; answers are the same.
    """

    input: str = ""
    answer: Literal["snapshots", "changes", "both"] = "snapshots"
    period_s: Annotated[int, Meta(ge=1, le=86_400)] = 60
    parallelism: Mapping[str, int] = field(default_factory=dict)
    workers: Annotated[int, Meta(ge=1)] = 5
    api: Api = "rows"

    defaults: ClassVar[Mapping[str, int]]
    """Default executors per component."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parallelism", filled(self.parallelism, self.defaults))

    @property
    def snapshots(self) -> bool:
        """Return whether snapshots are requested."""
        return self.answer != "changes"

    @property
    def changes(self) -> bool:
        """Return whether the log of changes is requested."""
        return self.answer != "snapshots"

    @property
    def tick_ns(self) -> int:
        """Stream time between ticks."""
        return self.period_s * NS


def prepare_trips(params: TaxiParams, grid: Grid, folder: Path) -> PreparedInput:
    """Ensure that `folder` contains the valid trips on `grid`; see `workloads.recordings.prepare`."""
    from workloads.recordings.prepare import prepare

    return prepare(Path(params.input) if params.input else _generated(folder), DEBS2015, folder, grid)


def _generated(folder: Path) -> Path:
    from workloads.generate.taxi_trips import taxi_trips
    from workloads.generate.writing import write_rows

    path = folder / f"debs2015-{GENERATED_ROWS}-{GENERATED_SEED}.csv.gz"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(path, taxi_trips(GENERATED_ROWS, GENERATED_SEED), lambda _rows: None)
    return path


def grid_cells(grid: Grid, longitudes: Sequence[int], latitudes: Sequence[int]) -> list[int]:
    """Return the cells of points on the grid; `Grid.x` and `Grid.y` of all of them in one go."""
    west, north, east, south = grid.west_border, grid.north_border, grid.east, grid.south
    first = CELL + 1
    return [
        (longitude - west) // east * CELL + (north - latitude) // south + first
        for longitude, latitude in zip(longitudes, latitudes, strict=True)
    ]


class Trips(RecordedSpout):
    """Trips as their row number, times in seconds, cells of both ends, and when they were read.

    The time of reading is used only for the column `delay_ms` of the answer.
    """

    columns: ClassVar[tuple[str, ...]] = (
        "seq",
        "pickup_datetime",
        "dropoff_datetime",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
    )
    fields: ClassVar[Mapping[str, FieldType]] = {
        "seq": "int",
        "pickup": "int",
        "dropoff": "int",
        "start": "int",
        "end": "int",
        "read_ns": "int",
    }

    def __init__(self, tick_ns: int, grid: Grid) -> None:
        super().__init__(tick_ns)
        self._grid = grid

    def rows(self, columns: Sequence[list[Any]]) -> Sequence[Row]:
        seq, pickup, dropoff, *ends = columns[:7]
        start, end = grid_cells(self._grid, *ends[:2]), grid_cells(self._grid, *ends[2:])
        return list(zip(seq, pickup, dropoff, start, end, repeat(time.time_ns()), *columns[7:]))


class PaidTrips(Trips):
    """Trips with the taxi's medallion, and fare and tip in nanodollars."""

    columns = (*Trips.columns, "medallion", "fare_amount", "tip_amount")
    fields: ClassVar[Mapping[str, FieldType]] = {**Trips.fields, "medallion": "str", "fare": "int", "tip": "int"}
