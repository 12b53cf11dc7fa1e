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
from workloads.pipelines.lines import FAULT
from workloads.pipelines.source import PLACE, TURN, part_at
from workloads.recordings.accept import MOST_GAP_S
from workloads.recordings.prepare import MOST_OUT_OF_ORDER
from workloads.recordings.schema import SEQ

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


def accepted(rows: DataFrame, time: str, parts: Mapping[int, Path], before: Before) -> DataFrame:
    """The rows that go on, with `SEQ` in the place of `PLACE` and `TURN`; `before` is brought up to date.

    Args:
        rows: what `rows_of` gave, with `OUTLIER`; it is read several times.
        time: column by which rows are ordered, in seconds.
        parts: by rank, for messages.
        before: the rows before these.

    Raises:
        InputError: two rows are further apart than any recording has them.
    """
    rows, places = numbered(rows, before)
    good = rows.where(f"{FAULT} is null and not {OUTLIER}").drop(FAULT, OUTLIER)
    times = good.groupBy(time).agg(F.min(SEQ).alias("first"), F.max(SEQ).alias("last"))
    if before.newest is not None:
        known = times.sparkSession.range(1).select(F.lit(before.newest).cast("bigint"), F.lit(-1), F.lit(-1))
        times = known.toDF(*times.columns).unionByName(times)
        times = times.groupBy(time).agg(F.min("first").alias("first"), F.max("last").alias("last"))
    times = _limited(times, time).persist()
    # One question for all of them: planning one costs more than answering it.
    facts = times.agg(
        F.max(time).alias("newest"),
        F.min(time).alias("least"),
        F.min_by(time, "first").alias("first"),
        F.count_if(F.col("last") > F.col("limit")).alias("with_late"),
    ).collect()[0]
    if facts["newest"] is None:
        return good
    before.newest = facts["newest"]
    if before.first is None:
        before.first = facts["first"]
    if facts["newest"] - facts["least"] > MOST_GAP_S:
        # Times that were the newest when they came.
        jump = too_far(times.where("limit is null or first < limit"), time)
        if jump is not None:
            where = where_is(jump["first"], places, parts)
            raise InputError(f"{where}: {time} is {jump['days']} days later than that of any row before it")
    if not facts["with_late"]:
        return good
    limits = times.where("last > limit").select(time, "limit").persist()
    late = good.join(limits, time).where(f"{SEQ} > limit")
    counted = late.agg(F.count(SEQ).alias("rows"), F.min(SEQ).alias("first")).collect()[0]
    before.quarantined["out_of_order"] += counted["rows"]
    before.first_late = before.first_late or where_is(counted["first"], places, parts)
    return good.join(limits, time, "left").where(f"limit is null or {SEQ} < limit").select(*good.columns)


def late_rows(rows: DataFrame, times: DataFrame, time: str) -> int:
    """How many rows are older than one before them.

    Args:
        rows: with `SEQ`.
        times: each `time` with the `first` and the `last` number that has it.
        time: column.
    """
    limits = _limited(times, time).where("last > limit").select(time, "limit")
    return rows.join(limits, time).where(f"{SEQ} > limit").count()


def too_far(times: DataFrame, time: str) -> Any:
    """The `first` number and the `days` of the earliest time that lies too far behind another; None: none does."""
    gap = F.col(time) - F.lag(time).over(Window.orderBy(time))
    jumps = times.withColumn("gap", gap).where(F.col("gap") > MOST_GAP_S)
    return jumps.agg(F.min(F.struct("first", F.expr("gap div 86400").alias("days"))).alias("jump")).collect()[0]["jump"]


def where_is(seq: int, places: Sequence[tuple[int, int]], parts: Mapping[int, Path]) -> str:
    """File and line of a row."""
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
