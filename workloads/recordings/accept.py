"""Which rows that are not malformed go on: those on the grid that are not older than the newest before them."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from inventory.errors import InputError
from workloads.recordings.fields import Mask, Values
from workloads.recordings.grid import Grid
from workloads.recordings.schema import SEQ, Schema

MOST_GAP_S = 366 * 86400
"""Between two rows; ticks of a longer silence would never end, and a mistyped time makes one."""


@dataclass
class Gate:
    """Lets rows through, block by block, and counts the others.

    Attributes:
        schema: of the rows.
        grid: which trips are no outliers; None: there are none.
        quarantined: rows that were kept back, by class.
        newest: time of the newest row that went through.
    """

    schema: Schema
    grid: Grid | None = None
    quarantined: Counter[str] = field(default_factory=Counter)
    newest: int | None = None

    def __post_init__(self) -> None:
        self.first_late: str = ""

    def through(self, table: pa.Table, part: Path, offset: int) -> pa.Table:
        """The rows of `table` that go on.

        Args:
            table: rows, none of them malformed.
            part: the file that they are from, for messages.
            offset: rows of the input before this file.

        Raises:
            InputError: two rows are further apart than any recording has them.
        """
        if self.grid is not None:
            inside = on_grid(table, self.grid)
            self.quarantined["outlier"] += len(table) - int(inside.sum())
            table = table.filter(pa.array(inside)) if not inside.all() else table
        if not len(table):
            return table
        times: Values = table.column(self.schema.time).to_numpy()
        floor = times[0] if self.newest is None else self.newest
        newest = np.maximum.accumulate(np.concatenate(([floor], times)))
        in_order = times >= newest[1:]
        if (jumps := np.flatnonzero(np.diff(newest) > MOST_GAP_S)).size:
            at = int(jumps[0])
            line = table.column(SEQ)[at].as_py() - offset + 1
            days = int(newest[at + 1] - newest[at]) // 86400
            raise InputError(f"{part}:{line}: {self.schema.time} is {days} days later than that of any row before it")
        self.newest = int(newest[-1])
        if in_order.all():
            return table
        if not self.first_late:
            line = table.column(SEQ)[int(np.argmin(in_order))].as_py() - offset + 1
            self.first_late = f"{part}:{line}"
        self.quarantined["out_of_order"] += len(times) - int(in_order.sum())
        return table.filter(pa.array(in_order))


def on_grid(table: pa.Table, grid: Grid) -> Mask:
    """Which trips have both ends on the grid."""
    inside = np.ones(len(table), np.bool_)
    for end in ("pickup", "dropoff"):
        longitude: Values = table.column(f"{end}_longitude").to_numpy()
        latitude: Values = table.column(f"{end}_latitude").to_numpy()
        east, south = longitude - grid.west_border, grid.north_border - latitude
        inside &= (east >= 0) & (east < grid.side * grid.east) & (south >= 0) & (south < grid.side * grid.south)
    return inside
