"""Constants of the three queries, and the command line of a peer. Imports the standard library only.

A peer reads the CSV files of a folder, in the order of their names, and writes its answer as Parquet:

    python NAME_queries.py QUERY INPUT OUTPUT

It drops rows off the grid and late rows. Unlike the pipelines, it does not check that rows are well formed. All peers
use the plan of the pipelines: for every block of ticks, bounds select the routes or cells that can be listed, and only
these are computed tick by tick.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

READING = ("id", "timestamp", "value", "property", "plug_id", "household_id", "house_id")
TRIP = (
    *("medallion", "license", "pickup", "dropoff", "seconds", "miles"),
    *("pickup_lon", "pickup_lat", "dropoff_lon", "dropoff_lat"),
    *("payment", "fare", "surcharge", "tax", "tip", "tolls", "total"),
)
PLUG = ("house_id", "household_id", "plug_id")

BASE = 1377986400
TICK_S = 30
SLICES = (60, 300, 900)
DAY_S = 3600

PERIOD_S = 60
BLOCK = 15
BLOCKS = 96
"""Blocks that pandas and Polars process together; all blocks at once exceed the memory."""

LISTED = 10
ROUTES_S, PROFIT_S, EMPTY_S = 1800, 900, 1800

EAST, SOUTH = 5_986_000, 4_491_556
"""Size of a cell of 500 m in nanodegrees; cells of 250 m have half of it."""

LONGITUDE, LATITUDE = -74_913_585_000, 41_474_937_000
"""Centre of cell 1.1 in nanodegrees."""


def grid(query: str) -> tuple[int, int, int, int, int]:
    """Return cells per direction, their size east and south, and the western and northern border, in nanodegrees."""
    parts = 1 if query == "debs2015-q1" else 2
    east, south = EAST // parts, SOUTH // parts
    return 300 * parts, east, south, LONGITUDE - east // 2, LATITUDE + south // 2


QueryFunction = Callable[[list[str], Path], None]


def run_query(functions: Mapping[str, QueryFunction]) -> None:
    """Run the query that the command line names."""
    query, source, output = sys.argv[1:]
    Path(output).mkdir(parents=True)
    functions[query](sorted(map(str, Path(source).glob("*.csv"))), Path(output))
