"""Common parts of both queries over taxi trips: parameters, cells, ticks, layout of the tables, and the log of changes.

The log is a fold over the trips in the order of their numbers, in one task, by the bolt that ends the testbed's own
topology. Its state passes from piece to piece as bytes.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Annotated, Literal

import pyarrow as pa
from msgspec import Meta
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from inventory.times import NS
from workloads.operators import Batch, Bolt
from workloads.pipelines.pipeline import Known, Piece
from workloads.recordings.parse import Values
from workloads.recordings.schema import SEQ, Grid
from workloads.taxi.layout import CELL, LISTED
from workloads.topology import DEFAULT_STREAM

Field = Callable[[Column], Column]

ENDS = tuple(f"{end}_{axis}" for end in ("pickup", "dropoff") for axis in ("longitude", "latitude"))
"""Columns of the places where a trip begins and ends."""

MOST_TICKS = 15
"""Maximum number of ticks in a block."""

DONE = "done"
"""Key among the known numbers: the last answered tick, in periods since 1970."""


@dataclass(frozen=True)
class TripParams:
    """Parameters of both queries.

    Attributes:
        answer: the listing at every tick, the log of all its changes, or both.
        period_s: stream time between ticks, in seconds.
    """

    answer: Literal["snapshots", "changes", "both"] = "snapshots"
    period_s: Annotated[int, Meta(ge=1, le=86_400)] = 60

    @property
    def snapshots(self) -> bool:
        """Return whether snapshots are requested."""
        return self.answer != "changes"

    @property
    def changes(self) -> bool:
        """Return whether the log of changes is requested."""
        return self.answer != "snapshots"


@dataclass(frozen=True)
class PieceTicks:
    """Ticks of a piece by number: tick k is at `k * period_s` seconds.

    Neighbouring ticks form blocks, and a task processes chunks of neighbouring blocks.

    Attributes:
        period_s: seconds between ticks.
        first, last: numbers of the first and the last tick; none when `last` is smaller.
        together: ticks of a block.
    """

    period_s: int
    first: int
    last: int
    together: int

    def after(self, seconds: Column) -> Column:
        """Return the number of the first tick at `seconds` or later."""
        return -_whole_part(-seconds, self.period_s)

    def dealt(self, rows: DataFrame) -> DataFrame:
        """Return rows once for each block of ticks in which they are seen, those of a chunk in one partition.

        Args:
            rows: seen at the ticks from column `since` to before column `until`.

        Returns:
            The rows with `chunk` and `block`; `since` and `until` count from the block's first tick.
        """
        partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
        blocks = (self.last - self.first) // self.together + 1
        # With few chunks some tasks would have none; rows between two chunks are in both.
        of_chunk = min(24, max(1, blocks // (4 * partitions)))
        seen = rows.where(
            (F.col("until") > self.first) & (F.col("since") <= self.last) & (F.col("since") < F.col("until"))
        )
        ends = F.greatest("since", F.lit(self.first)), F.least(F.col("until") - 1, F.lit(self.last))
        begin, end = (_whole_part(tick, self.together) for tick in ends)
        chunks = F.explode(F.sequence(_whole_part(begin, of_chunk), _whole_part(end, of_chunk))).alias("chunk")
        others = [name for name in rows.columns if name not in ("since", "until")]
        dealt = seen.select("*", begin.alias("begin"), end.alias("end"), chunks).repartition(partitions, "chunk")
        first = F.greatest("begin", F.col("chunk") * of_chunk)
        last = F.least("end", F.col("chunk") * of_chunk + (of_chunk - 1))
        placed = dealt.select("*", F.explode(F.sequence(first, last)).alias("block"))
        start = F.col("block") * self.together
        times = ((F.col(name) - start).cast("int").alias(name) for name in ("since", "until"))
        return placed.select("chunk", "block", *times, *others)

    def laid_out(self, spark: SparkSession, listings: DataFrame, fields: Mapping[str, Field]) -> DataFrame:
        """Return the table `snapshots`.

        Args:
            spark: the session.
            listings: `tick` and `listed`, an array of structs, best first; ticks without any may be missing.
            fields: columns, each made of the struct of a listed one.
        """
        every = spark.range(self.first, self.last + 1).select(F.col("id").alias("tick"))
        time = time_text_column(F.col("tick") * self.period_s).alias("ts")
        return every.join(listings, "tick", "left").select(time, *numbered_columns(fields))


def ticks_of(known: Known, piece: Piece, period_s: int, window_s: int) -> PieceTicks:
    """Return the ticks that a piece completes.

    Args:
        known: state after earlier pieces.
        piece: the piece.
        period_s: seconds between ticks.
        window_s: time for which a row counts.
    """
    first = known.numbers.get(DONE, -(-piece.first // period_s) - 1) + 1
    last = -(-piece.newest // period_s) if piece.over else (piece.newest - 1) // period_s
    return PieceTicks(period_s, first, last, max(1, min(MOST_TICKS, window_s // (2 * period_s))))


def cell_column(rows: pa.Table, grid: Grid, end: str) -> Values:
    """Return the cells of trips' `pickup` or `dropoff` as `CELL * x + y`."""
    longitude, latitude = (rows.column(f"{end}_{axis}").to_numpy() for axis in ("longitude", "latitude"))
    cells: Values = grid.x(longitude) * CELL + grid.y(latitude)
    return cells


def cell(grid: Grid, end: str) -> Column:
    """Return the same for trips in a Spark table."""
    # Correct only on the grid; other trips are outliers.
    x = F.call_function("div", F.col(f"{end}_longitude") - grid.west_border, F.lit(grid.east)) + 1
    y = F.call_function("div", grid.north_border - F.col(f"{end}_latitude"), F.lit(grid.south)) + 1
    return x * CELL + y


def cell_name_column(number: Column) -> Column:
    """Return the cell as `x.y`."""
    return F.concat_ws(".", F.call_function("div", number, F.lit(CELL)).cast("string"), (number % CELL).cast("string"))


def numbered_columns(fields: Mapping[str, Field]) -> list[Column]:
    """Return columns `name_1` .. of the ten listed ones in the array `listed`; null if there are fewer."""
    listed = [(place, F.get("listed", F.lit(place - 1))) for place in range(1, LISTED + 1)]
    return [
        F.when(one.isNotNull(), value(one)).alias(f"{name}_{place}")
        for place, one in listed
        for name, value in fields.items()
    ]


def time_text_column(seconds: Column) -> Column:
    """Return seconds since 1970 as `YYYY-MM-DD hh:mm:ss`."""
    return F.date_format(F.timestamp_seconds(seconds), "yyyy-MM-dd HH:mm:ss")


def _whole_part(value: Column, by: int) -> Column:
    """Return `value` / `by`, rounded down."""
    return F.call_function("div", value - F.pmod(value, F.lit(by)), F.lit(by))


_STATE = "state"
_TYPES: Mapping[str, tuple[str, pa.DataType]] = {
    "int": ("bigint", pa.int64()),
    "float": ("double", pa.float64()),
    "str": ("string", pa.string()),
}


def log_of(bolt: type[Bolt], trips: DataFrame, before: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return the changes of a piece, and the state for the next piece.

    Args:
        bolt: class of the bolt that keeps the log.
        trips: columns of the bolt's input, in this order, without the time of reading; `SEQ` first.
        before: state after the previous piece.
    """
    state = None if before is None else next((bytes(row[_STATE]) for row in before.collect()), None)
    answer_schema = bolt.answer_schema
    assert answer_schema is not None  # noqa: S101 - logs have a table
    columns = ", ".join(f"{name} {_TYPES[kind][0]}" for name, kind in answer_schema.items())
    in_order = trips.repartition(1).sortWithinPartitions(SEQ)
    rows = in_order.mapInArrow(_fold(bolt, state), f"{columns}, {_STATE} binary").persist()
    return rows.where(f"{_STATE} is null").drop(_STATE), rows.where(f"{_STATE} is not null").select(_STATE)


def _fold(bolt: type[Bolt], state: bytes | None) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that Spark calls with the batches of all trips."""
    schema = pa.schema(
        [(name, _TYPES[kind][1]) for name, kind in (bolt.answer_schema or {}).items()] + [(_STATE, pa.binary())]
    )

    def laid_out(rows: Sequence[Sequence[object]]) -> pa.RecordBatch:
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
        return pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema=schema
        )

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        log = bolt()
        if state is not None:
            log.restore(state)
        for batch in batches:
            if not batch.num_rows:
                continue
            read = repeat(time.time_ns(), batch.num_rows)
            rows = list(zip(*(column.to_pylist() for column in batch.columns), read, strict=True))
            log.process(Batch("", DEFAULT_STREAM, rows))
            # The bolt processes all rows so far; trips of the same second may be in other batches.
            log.on_tick(rows[-1][2] * NS)
            if changes := [(*change, None) for change in log.settled()]:
                yield laid_out(changes)
        yield laid_out([(*[None] * (len(schema) - 1), log.snapshot())])

    return fold
