"""Official data sets: fields, columns of a prepared file, and the grids of DEBS 2015.

All times are whole seconds since 1970 UTC; local times without a zone are taken as if they were UTC.

Grids are flat squares of 500 m or 250 m, in whole nanodegrees. 41.474937 degrees north, 74.913585 degrees west is the
centre of cell 1.1; the first number of a cell grows to the east, the second to the south. A point on a border belongs
to the cell east or south of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import numpy.typing as npt

SEQ = "seq"
"""Number of a row among all rows of the input, rejected ones included, from 0; first column of a prepared file."""

NANO = 1_000_000_000
"""Units per degree or dollar; coordinates and money are integers in these units, so that arithmetic is exact."""


@dataclass(frozen=True)
class Schema:
    """Official data set.

    Attributes:
        name: as in `millrace generate`, and in the metadata of prepared files.
        fields: fields of a raw row, in order.
        columns: columns of a prepared file after `SEQ`, each with its Arrow type.
        time: column of the time by which rows are ordered, in seconds.
        lag_ns: nanoseconds subtracted from a row's time to give its stream time. With 1, a tick at T covers rows up to
            and including T; with 0 it covers earlier rows only.
    """

    name: str
    fields: tuple[str, ...]
    columns: Mapping[str, str]
    time: str
    lag_ns: int


DEBS2014 = Schema(
    name="debs2014",
    fields=("id", "timestamp", "value", "property", "plug_id", "household_id", "house_id"),
    columns={
        "timestamp": "int64",
        "value": "double",
        "property": "int8",
        "plug_id": "int64",
        "household_id": "int64",
        "house_id": "int64",
    },
    time="timestamp",
    lag_ns=0,
)
"""Smart plugs: `value` is W where `property` is 1 (load), kWh where it is 0 (work)."""

DEBS2015 = Schema(
    name="debs2015",
    fields=(
        "medallion",
        "hack_license",
        "pickup_datetime",
        "dropoff_datetime",
        "trip_time_in_secs",
        "trip_distance",
        "pickup_longitude",
        "pickup_latitude",
        "dropoff_longitude",
        "dropoff_latitude",
        "payment_type",
        "fare_amount",
        "surcharge",
        "mta_tax",
        "tip_amount",
        "tolls_amount",
        "total_amount",
    ),
    columns={
        "medallion": "string",
        "pickup_datetime": "int64",
        "dropoff_datetime": "int64",
        "pickup_longitude": "int64",
        "pickup_latitude": "int64",
        "dropoff_longitude": "int64",
        "dropoff_latitude": "int64",
        "fare_amount": "int64",
        "tip_amount": "int64",
    },
    time="dropoff_datetime",
    lag_ns=1,
)
"""Taxi trips: degrees in whole nanodegrees, rounded down; dollars in whole nanodollars, rounded down."""

SCHEMAS: Mapping[str, Schema] = {schema.name: schema for schema in (DEBS2014, DEBS2015)}


Number = TypeVar("Number", int, "npt.NDArray[Any]")
"""One whole number, or an array of them."""

CENTRE_LONGITUDE = -74_913_585_000
CENTRE_LATITUDE = 41_474_937_000


@dataclass(frozen=True)
class Grid:
    """A grid of `side` x `side` cells.

    Attributes:
        side: cells in each direction; they are numbered 1..side.
        east, south: length of a cell in nanodegrees of longitude and latitude.
    """

    side: int
    east: int
    south: int

    def x(self, longitude: Number) -> Number:
        """Return the first number of the cell at `longitude`, in nanodegrees; off the grid it is not in 1..side."""
        return (longitude - self.west_border) // self.east + 1

    def y(self, latitude: Number) -> Number:
        """Return the second number of the cell at `latitude`, in nanodegrees; off the grid it is not in 1..side."""
        return (self.north_border - latitude) // self.south + 1

    @property
    def west_border(self) -> int:
        """The western border of cells 1.y, which belongs to them."""
        return CENTRE_LONGITUDE - self.east // 2

    @property
    def north_border(self) -> int:
        """The northern border of cells x.1, which belongs to them."""
        return CENTRE_LATITUDE + self.south // 2


CELLS_500_M = Grid(300, 5_986_000, 4_491_556)
"""Grid of query 1."""

CELLS_250_M = Grid(600, 2_993_000, 2_245_778)
"""Grid of query 2."""
