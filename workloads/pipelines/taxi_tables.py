"""What both queries over taxi trips share: parameters, cells, ticks, and how answers are laid out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pyarrow as pa
from msgspec import Meta
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from workloads.pipelines.pipeline import Known, Piece
from workloads.recordings.fields import Values
from workloads.recordings.grid import Grid
from workloads.taxi.layout import CELL, LISTED

Field = Callable[[Column], Column]

ENDS = tuple(f"{end}_{axis}" for end in ("pickup", "dropoff") for axis in ("longitude", "latitude"))
"""Columns of the places where a trip begins and ends."""

MOST_TICKS = 15
"""Ticks that are looked at together."""

DONE = "done"
"""Among the known numbers: the last tick that has been answered, in periods since 1970."""


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
        """Whether snapshots are asked for."""
        return self.answer != "changes"

    @property
    def changes(self) -> bool:
        """Whether the log of changes is asked for."""
        return self.answer != "snapshots"


@dataclass(frozen=True)
class Ticks:
    """Ticks of a piece, each named by its number: tick k is at `k * period_s` seconds.

    Neighbouring ones are looked at in blocks, and a task works on chunks of neighbouring blocks.

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
        """Return number of the first tick at `seconds` or later."""
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
        # Few chunks would leave tasks without any; between two of them rows stand in both.
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
        time = time_text(F.col("tick") * self.period_s).alias("ts")
        return every.join(listings, "tick", "left").select(time, *numbered(fields))


def ticks_of(known: Known, piece: Piece, period_s: int, window_s: int) -> Ticks:
    """Return the ticks that have come with a piece.

    Args:
        known: from the piece before.
        piece: this one.
        period_s: seconds between ticks.
        window_s: for how long a row counts.
    """
    first = known.numbers.get(DONE, -(-piece.first // period_s) - 1) + 1
    last = -(-piece.newest // period_s) if piece.over else (piece.newest - 1) // period_s
    return Ticks(period_s, first, last, max(1, min(MOST_TICKS, window_s // (2 * period_s))))


def cells(rows: pa.Table, grid: Grid, end: str) -> Values:
    """Return the cells of trips' `pickup` or `dropoff` as `CELL * x + y`."""
    longitude, latitude = (rows.column(f"{end}_{axis}").to_numpy() for axis in ("longitude", "latitude"))
    found: Values = grid.x(longitude) * CELL + grid.y(latitude)
    return found


def cell(grid: Grid, end: str) -> Column:
    """Return the same for trips in a table of Spark's."""
    # Right only within the grid; others are left out anyway.
    x = F.call_function("div", F.col(f"{end}_longitude") - grid.west_border, F.lit(grid.east)) + 1
    y = F.call_function("div", grid.north_border - F.col(f"{end}_latitude"), F.lit(grid.south)) + 1
    return x * CELL + y


def cell_name(number: Column) -> Column:
    """Return the cell as `x.y`."""
    return F.concat_ws(".", F.call_function("div", number, F.lit(CELL)).cast("string"), (number % CELL).cast("string"))


def numbered(fields: Mapping[str, Field]) -> list[Column]:
    """Return columns `name_1` .. of the ten listed ones in the array `listed`; null where there are fewer."""
    listed = [(place, F.get("listed", F.lit(place - 1))) for place in range(1, LISTED + 1)]
    return [
        F.when(one.isNotNull(), value(one)).alias(f"{name}_{place}")
        for place, one in listed
        for name, value in fields.items()
    ]


def time_text(seconds: Column) -> Column:
    """Return seconds since 1970 as `YYYY-MM-DD hh:mm:ss`."""
    return F.date_format(F.timestamp_seconds(seconds), "yyyy-MM-dd HH:mm:ss")


def _whole_part(value: Column, by: int) -> Column:
    """Return `value` / `by`, rounded down."""
    return F.call_function("div", value - F.pmod(value, F.lit(by)), F.lit(by))
