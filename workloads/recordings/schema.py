"""What a recording is made of: the official fields, and the columns of a prepared file.

All times are whole seconds since 1970 UTC; local times without a zone are taken as if they were UTC.
"""

from collections.abc import Mapping
from dataclasses import dataclass

SEQ = "seq"
"""Number of a row among all rows of the input, bad ones too, from 0; first column of every prepared file."""

NANO = 1_000_000_000
"""Parts of a degree or a dollar in which coordinates and money are kept, so that all arithmetic on them is exact."""


@dataclass(frozen=True)
class Schema:
    """One official data set.

    Attributes:
        name: as in `millrace generate`, and in the metadata of prepared files.
        fields: of a raw row, in order.
        columns: of a prepared file behind `SEQ`, each with its Arrow type.
        time: column of the time by which rows are ordered, in seconds.
        lag_ns: stream time of a row is its time less this, in nanoseconds. With 1, a tick at T covers rows up to and
            including T; with 0 it covers those before.
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
