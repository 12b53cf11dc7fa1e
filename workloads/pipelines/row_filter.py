"""Row numbers, and which rows go on: those that are not malformed, no outliers, and not older than one before them.

Nothing here sorts the rows. Whether a row is late, the times alone tell: it is when a row with a later time has a
smaller number, and the first number of every time is a small table. Only where a time has late rows are rows compared
with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from inventory.errors import InputError
from workloads.pipelines.input_splits import STRETCH, Findings, Stretch
from workloads.pipelines.lines import FAULT
from workloads.pipelines.source import PLACE, TURN, part_at
from workloads.recordings.accept import MOST_GAP_S, too_far
from workloads.recordings.prepare import MOST_OUT_OF_ORDER
from workloads.recordings.schema import SEQ, Schema

OUTLIER = "outlier"
"""Column that says whether a row is an outlier."""


@dataclass
class Before:
    """What is known of the rows before a piece of a recording.

    Attributes:
        rows: how many there were.
        newest: time of the newest that was accepted; None: there was none.
        first: time of the first that was accepted.
        quarantined: how many were not, by class.
        first_late: file and line of the first late one.
    """

    rows: int = 0
    newest: int | None = None
    first: int | None = None
    quarantined: dict[str, int] = field(default_factory=lambda: {"malformed": 0, "outlier": 0, "out_of_order": 0})
    first_late: str = ""

    def check_order(self) -> None:
        """Refuse a recording with too many late rows.

        Raises:
            InputError: more than one in a hundred rows is late.
        """
        late = self.quarantined["out_of_order"]
        if late > MOST_OUT_OF_ORDER * self.rows:
            raise InputError(
                f"{self.first_late}: the first of {late:,} rows, of {self.rows:,}, that are older than one before "
                f"them; more than {MOST_OUT_OF_ORDER:.0%} is not accepted, and "
                "`millrace pipeline prepare` puts them in order"
            )


def accepted(
    copy: DataFrame, found: Mapping[int, Findings], stretches: Sequence[Stretch], schema: Schema, before: Before
) -> DataFrame:
    """Return the rows of a copy, numbered over the whole input; `before` is brought up to date.

    Args:
        copy: of all stretches.
        found: in each stretch; its late rows are left out.
        stretches: what was copied, in the order of the input.
        schema: of the rows.
        before: the rows before these.

    Raises:
        InputError: two rows are further apart than any recording has them.
    """
    firsts: list[int] = []
    for number, stretch in enumerate(stretches):
        one = found[number]
        firsts.append(before.rows)
        before.rows += one.rows
        for kind, count in (("malformed", one.malformed), ("outlier", one.outlier), ("out_of_order", one.late)):
            before.quarantined[kind] += count
        line = 1 - firsts[next(at for at, other in enumerate(stretches) if other.part == stretch.part)] + firsts[-1]
        if one.first_late is not None:
            before.first_late = before.first_late or f"{stretch.path}:{line + one.first_late}"
        if one.first is None or one.newest is None or one.first_row is None:
            continue
        floor = one.first if before.newest is None else before.newest
        for row, newest, time in [(one.first_row, floor, one.first), *one.jumps]:
            if time - newest > MOST_GAP_S:
                raise too_far(stretch.path, line + row, schema, time - newest)
        before.first = one.first if before.first is None else before.first
        before.newest = max(floor, one.newest)
    if SEQ in copy.columns:
        copy = copy.withColumn(SEQ, F.get(F.lit(firsts), STRETCH) + F.col(SEQ))
    return copy.drop(STRETCH)


def late_rows(rows: DataFrame, times: DataFrame, time: str) -> int:
    """Return how many rows are older than one before them.

    Args:
        rows: with `SEQ`.
        times: each `time` with the `first` and the `last` number that has it.
        time: column.
    """
    limits = _limited(times, time).where("last > limit").select(time, "limit")
    return rows.join(limits, time).where(f"{SEQ} > limit").count()


def jump_in(times: DataFrame, time: str) -> Any:
    """Return the `first` number and the `days` of the earliest time that lies too far behind another.

    None: none does.
    """
    gap = F.col(time) - F.lag(time).over(Window.orderBy(time))
    jumps = times.withColumn("gap", gap).where(F.col("gap") > MOST_GAP_S)
    return jumps.agg(F.min(F.struct("first", F.expr("gap div 86400").alias("days"))).alias("jump")).collect()[0]["jump"]


def where_is(seq: int, places: Sequence[tuple[int, int]], parts: Mapping[int, Path]) -> str:
    """Return file and line of a row."""
    here = [(part_at(place), first) for place, first in places]
    rank = next(rank for rank, first in reversed(here) if first <= seq)
    return f"{parts[rank]}:{seq - min(first for at, first in here if at == rank) + 1}"


def _limited(times: DataFrame, time: str) -> DataFrame:
    """Add `limit`, the smallest number that has a later time: rows with a larger one are late."""
    later = Window.orderBy(F.desc(time)).rowsBetween(Window.unboundedPreceding, -1)
    return times.withColumn("limit", F.min("first").over(later))


def numbered(rows: DataFrame, before: Before) -> tuple[DataFrame, list[tuple[int, int]]]:
    """Put `SEQ` in the place of `PLACE` and `TURN`, and count malformed rows and outliers.

    Returns:
        The rows, and the number of the first row at each place.
    """
    pieces = rows.groupBy(PLACE).agg(
        F.count(PLACE).alias("rows"),
        F.min(TURN).alias("turn"),
        F.count(FAULT).alias("malformed"),
        F.count_if(F.col(FAULT).isNull() & F.col(OUTLIER)).alias("outlier"),
    )
    places, shifts = [], []
    for piece in sorted(pieces.collect(), key=lambda piece: piece[PLACE]):
        places.append((piece[PLACE], before.rows))
        shifts.append({PLACE: piece[PLACE], "shift": before.rows - piece["turn"]})
        before.rows += piece["rows"]
        for kind in ("malformed", "outlier"):
            before.quarantined[kind] += piece[kind]
    # As Arrow, which needs no worker of Python.
    kinds = pa.schema([(PLACE, pa.int64()), ("shift", pa.int64())])
    shift = rows.sparkSession.createDataFrame(pa.Table.from_pylist(shifts, kinds))
    others = [name for name in rows.columns if name not in (PLACE, TURN)]
    number: Column = (F.col(TURN) + F.col("shift")).alias(SEQ)
    return rows.join(shift.hint("broadcast"), PLACE).select(number, *others), places
