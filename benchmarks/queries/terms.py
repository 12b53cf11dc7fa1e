"""The terms of the three queries, and how a peer is asked. Needs nothing but Python: peers have their own environment.

A peer reads the CSV parts of a folder, in the order of their names, and writes its answer as Parquet:

    python in_NAME.py QUERY PARTS OUTPUT

It takes for granted that rows are well formed, which the pipelines look at; rows off the grid and late rows it drops.
All use the plan that the pipelines use: for blocks of ticks, bounds tell which routes or cells may be listed at all,
and only these are worked out tick by tick.
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
"""Blocks that pandas and Polars look at together; all at once would take more memory than there is."""

LISTED = 10
ROUTES_S, PROFIT_S, EMPTY_S = 1800, 900, 1800

EAST, SOUTH = 5_986_000, 4_491_556
"""Lengths of a cell of 500 m in nanodegrees; those of 250 m are half as long."""

LONGITUDE, LATITUDE = -74_913_585_000, 41_474_937_000
"""The centre of cell 1.1."""


def grid(query: str) -> tuple[int, int, int, int, int]:
    """Cells in each direction, their lengths east and south, the western and the northern border."""
    parts = 1 if query == "debs2015-q1" else 2
    east, south = EAST // parts, SOUTH // parts
    return 300 * parts, east, south, LONGITUDE - east // 2, LATITUDE + south // 2


Answer = Callable[[list[str], Path], None]


def answer(answers: Mapping[str, Answer]) -> None:
    """Answer what the command line asks."""
    query, parts, output = sys.argv[1:]
    Path(output).mkdir(parents=True)
    answers[query](sorted(map(str, Path(parts).glob("*.csv"))), Path(output))
