"""From the parts of an input to the accepted, numbered rows: neither malformed, nor outliers, nor late.

Rows are not sorted. Times alone show whether a row is late: a later time then has a smaller first row number, and the
first row number of every time is a small table. Rows are compared with it only where a time has late rows.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # it has no types
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from workloads.pipelines.input_splits import STRETCH, Findings, Stretch, copied, copy_schema, overlapping, stretches_of
from workloads.pipelines.lines import FAULT, PLACE, TURN, check_packed, part_at, raw_rows
from workloads.pipelines.pipeline import Known, Piece, Query
from workloads.recordings.prepare import MOST_GAP_S, check_order, no_valid_row, too_far
from workloads.recordings.raw_files import is_parquet
from workloads.recordings.schema import SEQ, Schema

OUTLIER = "outlier"
"""Column that is true for outliers."""


@dataclass
class Before:
    """Totals of the rows before a piece of a recording.

    Attributes:
        rows: number of rows.
        newest: time of the newest accepted row; None: there is none.
        first: time of the first accepted row.
        quarantined: number of rejected rows, by class.
        first_late: file and line of the first late row.
    """

    rows: int = 0
    newest: int | None = None
    first: int | None = None
    quarantined: dict[str, int] = field(default_factory=lambda: {"malformed": 0, "outlier": 0, "out_of_order": 0})
    first_late: str = ""


def accepted(
    copy: DataFrame, findings: Mapping[int, Findings], stretches: Sequence[Stretch], schema: Schema, before: Before
) -> DataFrame:
    """Return the rows of a copy, numbered over the whole input; update `before`.

    Args:
        copy: of all stretches, without late rows.
        findings: those in each stretch.
        stretches: in the order of the input.
        schema: of the rows.
        before: totals of the rows before these.

    Raises:
        InputError: the gap between two rows is longer than in any recording.
    """
    firsts: list[int] = []
    for number, stretch in enumerate(stretches):
        one = findings[number]
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
    """Return the number of rows that are older than an earlier row.

    Args:
        rows: with `SEQ`.
        times: each `time` with the `first` and the `last` row number of that time.
        time: column.
    """
    limits = _limited(times, time).where("last > limit").select(time, "limit")
    return rows.join(limits, time).where(f"{SEQ} > limit").count()


def jump_in(times: DataFrame, time: str) -> Any:
    """Return the `first` number and the `days` of the earliest time that follows a gap that is too long, or None."""
    gap = F.col(time) - F.lag(time).over(Window.orderBy(time))
    jumps = times.withColumn("gap", gap).where(F.col("gap") > MOST_GAP_S)
    return jumps.agg(F.min(F.struct("first", F.expr("gap div 86400").alias("days"))).alias("jump")).collect()[0]["jump"]


def where_is(seq: int, places: Sequence[tuple[int, int]], parts: Mapping[int, Path]) -> str:
    """Return the file and line of a row."""
    here = [(part_at(place), first) for place, first in places]
    rank = next(rank for rank, first in reversed(here) if first <= seq)
    return f"{parts[rank]}:{seq - min(first for at, first in here if at == rank) + 1}"


def _limited(times: DataFrame, time: str) -> DataFrame:
    """Add `limit`, the smallest row number with a later time: rows with a larger number are late."""
    later = Window.orderBy(F.desc(time)).rowsBetween(Window.unboundedPreceding, -1)
    return times.withColumn("limit", F.min("first").over(later))


def number_rows(rows: DataFrame, before: Before) -> tuple[DataFrame, list[tuple[int, int]]]:
    """Replace `PLACE` and `TURN` by `SEQ`, and count malformed rows and outliers.

    Returns:
        The rows, and the number of the first row of each place.
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
    # An Arrow table needs no Python worker.
    kinds = pa.schema([(PLACE, pa.int64()), ("shift", pa.int64())])
    shift = rows.sparkSession.createDataFrame(pa.Table.from_pylist(shifts, kinds))
    others = [name for name in rows.columns if name not in (PLACE, TURN)]
    number: Column = (F.col(TURN) + F.col("shift")).alias(SEQ)
    return rows.join(shift.hint("broadcast"), PLACE).select(number, *others), places


RAW_BYTES_PER_PARTITION = 64 * 1024 * 1024
COPY_BYTES_PER_PARTITION = 16 * 1024 * 1024
"""Sizes of raw input and of the copy of what is needed; they give the number of partitions that tasks exchange."""


@dataclass(frozen=True)
class OpenInput:
    """An input that is being read.

    Attributes:
        spark: the session.
        source: as named by the user.
        folder: links to its parts.
        aside: folder for temporary rows.
        parts: by rank.
        before: totals of the rows read so far.
    """

    spark: SparkSession
    source: Path
    folder: Path
    aside: Path
    parts: Mapping[int, Path]
    before: Before = field(default_factory=Before)

    def raw(self, schema: Schema) -> DataFrame:
        """Return all raw rows."""
        parquet = is_parquet(next(iter(self.parts.values())))
        return raw_rows(self.spark.read, self.folder, schema, parquet)

    def stored(self, rows: DataFrame) -> DataFrame:
        """Return the rows, read from a copy on disk that exists until the output is complete."""
        place = str(self.aside / uuid4().hex)
        # The copy is read a few times only: dictionaries would cost more time than they save.
        rows.write.option("parquet.enable.dictionary", "false").parquet(place)
        return self.spark.read.schema(rows.schema).parquet(place)

    def check(self, query: Query) -> None:
        """Refuse an input without accepted rows or with too many late ones, after all of it has been read.

        Raises:
            InputError: it is refused.
        """
        before = self.before
        check_order(before.first_late, before.quarantined["out_of_order"], before.rows)
        if before.newest is None:
            raise no_valid_row(self.source, self.parts.values(), query.schema, before.quarantined)


def whole(query: Query, reading: OpenInput) -> Mapping[str, DataFrame]:
    """Return the answer of a query to an input that is read at once.

    Raises:
        InputError: the input is refused.
    """
    rows = kept(query, reading, stretches_of(reading.parts))
    reading.check(query)
    before = reading.before
    assert before.first is not None  # noqa: S101 - `check` refuses what has no row
    assert before.newest is not None  # noqa: S101
    return query.advanced(Known(), Piece(rows, before.first, before.newest, over=True)).tables


def kept(query: Query, reading: OpenInput, stretches: Sequence[Stretch]) -> DataFrame:
    """Return the accepted rows of a piece as reduced by the query; update `reading.before`.

    They are kept on disk, so that lines are parsed once, and plans do not grow from step to step.
    """
    spark, place = reading.spark, reading.aside / uuid4().hex
    findings = copied(spark, query, dict(enumerate(stretches)), place)
    if again := overlapping(stretches, findings, reading.before.newest):
        findings |= copied(spark, query, again, place)
    set_partitions(spark, sum(file.stat().st_size for file in place.iterdir()), COPY_BYTES_PER_PARTITION)
    copy = spark.read.schema(copy_schema(query)).parquet(str(place))
    return accepted(copy, findings, stretches, query.schema, reading.before)


def set_partitions(spark: SparkSession, size: int, each: int) -> None:
    """Set the number of partitions that tasks exchange, for `size` bytes of input and `each` bytes per partition."""
    partitions = max(2 * spark.sparkContext.defaultParallelism, -(-size // each))
    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))


@contextmanager
def explained(parts: Iterable[Path]) -> Iterator[None]:
    """Report read errors of Spark inside the block as errors of a part.

    Raises:
        InputError: a part is damaged.
    """
    try:
        yield
    except (PySparkException, Py4JError):
        check_packed(parts)
        raise
