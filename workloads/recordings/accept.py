"""Acceptance of well-formed rows: rows on the grid that are not older than the newest earlier row."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from inventory.errors import InputError
from workloads.recordings.fields import Mask, Values
from workloads.recordings.grid import Grid
from workloads.recordings.schema import SEQ, Schema

MOST_GAP_S = 366 * 86400
"""Maximum gap between two rows; longer gaps come from corrupt times and would cause endless ticks."""


@dataclass(frozen=True)
class Passed:
    """Result for a set of rows.

    Attributes:
        table: accepted rows.
        first_late: number of the first one that is older than one before it; None: none is.
        jumps: where a time lies too far behind all before it: number of the row, the newest time before it, its own.
    """

    table: pa.Table
    first_late: int | None
    jumps: Sequence[tuple[int, int, int]]


@dataclass
class Gate:
    """Accepts rows block by block, and counts the others.

    Attributes:
        schema: of the rows.
        grid: which trips are no outliers; None: there are none.
        quarantined: rejected rows, by class.
        newest: time of the newest accepted row.
    """

    schema: Schema
    grid: Grid | None = None
    quarantined: Counter[str] = field(default_factory=Counter)
    newest: int | None = None

    def __post_init__(self) -> None:
        self.first_late: str = ""

    def through(self, table: pa.Table, part: Path, offset: int) -> pa.Table:
        """Return the accepted rows of `table`.

        Args:
            table: rows, none of them malformed.
            part: the file that they are from, for messages.
            offset: rows of the input before this file.

        Raises:
            InputError: two rows are further apart than any recording has them.
        """
        passed = self.passed(table)
        for seq, before, time in passed.jumps[:1]:
            raise too_far(part, seq - offset + 1, self.schema, time - before)
        if passed.first_late is not None:
            self.first_late = self.first_late or f"{part}:{passed.first_late - offset + 1}"
        return passed.table

    def passed(self, table: pa.Table) -> Passed:
        """Return the result for well-formed rows."""
        if self.grid is not None:
            inside = on_grid(table, self.grid)
            self.quarantined["outlier"] += len(table) - int(inside.sum())
            table = table.filter(pa.array(inside)) if not inside.all() else table
        if not len(table):
            return Passed(table, None, ())
        times: Values = table.column(self.schema.time).to_numpy()
        floor = times[0] if self.newest is None else self.newest
        newest = np.maximum.accumulate(np.concatenate(([floor], times)))
        in_order = times >= newest[1:]
        far = np.flatnonzero(np.diff(newest) > MOST_GAP_S)
        jumps = [(table.column(SEQ)[int(at)].as_py(), int(newest[at]), int(newest[at + 1])) for at in far]
        self.newest = int(newest[-1])
        if in_order.all():
            return Passed(table, None, jumps)
        self.quarantined["out_of_order"] += len(times) - int(in_order.sum())
        first_late = table.column(SEQ)[int(np.argmin(in_order))].as_py()
        return Passed(table.filter(pa.array(in_order)), first_late, jumps)


def too_far(part: Path, line: int, schema: Schema, seconds: int) -> InputError:
    """Return the error for a row that is too much newer than all earlier rows."""
    return InputError(f"{part}:{line}: {schema.time} is {seconds // 86400} days later than that of any row before it")


def on_grid(table: pa.Table, grid: Grid) -> Mask:
    """Return which trips have both ends on the grid."""
    inside = np.ones(len(table), np.bool_)
    for end in ("pickup", "dropoff"):
        longitude: Values = table.column(f"{end}_longitude").to_numpy()
        latitude: Values = table.column(f"{end}_latitude").to_numpy()
        east, south = longitude - grid.west_border, grid.north_border - latitude
        inside &= (east >= 0) & (east < grid.side * grid.east) & (south >= 0) & (south < grid.side * grid.south)
    return inside
