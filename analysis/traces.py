"""Traces in Spark: the Parquet files of many runs as one DataFrame per table.

Every process records the start and end of the measured interval in its own clock, so that no clocks are compared. A row
of the tables `throughput`, `executor` and `channel` covers the time since the previous row. `covered` adds the start of
that time, so that a row across an edge of the interval counts with the part that lies inside.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it

from agents.collected_traces import TABLES
from analysis.results import BUFFER_MB, Run
from inventory.times import NS

MOST_POINTS = 120
"""Most points of a run in a table over time."""

_SQL_TYPES = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
}


def without_pattern(path: Path) -> str:
    """Return a path with escapes: Spark takes every path for a glob pattern."""
    return re.sub(r"([\\{}\[\]*?])", r"\\\1", str(path.resolve()))


@dataclass(frozen=True)
class Traces:
    """The traces of `runs`; `table` returns the DataFrame of one table.

    Attributes:
        spark: the session.
        runs: the runs.
        buffer_mb: the buffer of an executor.
    """

    spark: SparkSession
    runs: tuple[Run, ...]
    buffer_mb: float = BUFFER_MB

    def prepare(self) -> None:
        """Read the marks now, before several threads build tables."""
        _ = self._marks

    def table(self, name: str) -> DataFrame:
        """Return all rows of a table with four more columns.

        `from_ns` and `to_ns` are the measured interval in the clock of the row's process. `length_ns`, the interval's
        length in the controller's clock, and `lead_ns`, the time from the sources' start to the interval, are the same
        for all processes of a run.
        """
        begun, ended = F.coalesce("began_ns", "measure_start_ns"), F.coalesce("ended_ns", "measure_end_ns")
        length = F.col("measure_end_ns") - F.col("measure_start_ns")
        lead = F.col("measure_start_ns") - F.col("source_start_ns")
        rows = self._rows(name).join(F.broadcast(self._times), "run")
        return (
            rows.join(F.broadcast(self._marks), ["run", "node", "worker"], "left")
            .withColumns({"from_ns": begun, "to_ns": ended, "length_ns": length, "lead_ns": lead})
            .drop("began_ns", "ended_ns", "source_start_ns", "measure_start_ns", "measure_end_ns")
        )

    def _rows(self, name: str) -> DataFrame:
        columns = ", ".join(f"`{field.name}` {_SQL_TYPES[field.type]}" for field in TABLES[name])
        files = [without_pattern(run.folder / "traces" / f"{name}.parquet") for run in self.runs]
        return self.spark.read.schema(columns).parquet(*files)

    @cached_property
    def step_s(self) -> int:
        """Seconds per step of tables over time, with which the longest run has at most `MOST_POINTS` steps."""
        longest = 0
        for run in self.runs:
            times = run.times
            if times.source_start_ns is not None and times.measure_end_ns is not None:
                longest = max(longest, times.measure_end_ns - times.source_start_ns)
        return max(1, -(-longest // (MOST_POINTS * NS)))

    @cached_property
    def _times(self) -> DataFrame:
        """The measured interval of each run in the controller's clock."""
        times = [(run.id, run.times) for run in self.runs]
        columns = {
            "run": pa.array([name for name, _ in times], pa.string()),
            "source_start_ns": pa.array([t.source_start_ns for _, t in times], pa.int64()),
            "measure_start_ns": pa.array([t.measure_start_ns for _, t in times], pa.int64()),
            "measure_end_ns": pa.array([t.measure_end_ns for _, t in times], pa.int64()),
        }
        return self.spark.createDataFrame(pa.table(columns))

    @cached_property
    def _marks(self) -> DataFrame:
        """The measured interval in the clock of each process, one row per process and run; collected once."""
        at = {kind: F.max(F.when(F.col("kind") == kind, F.col("t_ns"))) for kind in ("measure_start", "measure_end")}
        marks = self._rows("event").groupBy("run", "node", "worker")
        found = marks.agg(at["measure_start"].alias("began_ns"), at["measure_end"].alias("ended_ns"))
        return self.spark.createDataFrame(found.toArrow())


def measured(rows: DataFrame) -> DataFrame:
    """Return the rows written within the measured interval; suitable for levels and samples."""
    return rows.where((F.col("t_ns") > F.col("from_ns")) & (F.col("t_ns") <= F.col("to_ns")))


def duration_s() -> Column:
    """Return the length of the measured interval in seconds; null where a process got both marks at once."""
    return F.nullif(F.col("to_ns") - F.col("from_ns"), F.lit(0)) / NS


def covered(rows: DataFrame, *series: str, most_ns: int | None = None) -> DataFrame:
    """Add `since_ns`, the start of the time covered by a row; it ends at the row's `t_ns`.

    Args:
        rows: rows of a table.
        series: columns that, with the run, identify a series of rows.
        most_ns: the longest time that a row may cover, for tables that leave out idle seconds.
    """
    before = F.lag("t_ns").over(Window.partitionBy("run", *series).orderBy("t_ns"))
    # A first row covers the time since the sources started, a second at most: rows come once a second.
    since = F.coalesce(before, F.greatest(F.col("t_ns") - NS, F.col("from_ns") - F.col("lead_ns")))
    if most_ns is not None:
        since = F.greatest(since, F.col("t_ns") - most_ns)
    # Of two rows of the same instant the later one still covers 1 ns, which avoids a division by zero.
    return rows.withColumn("since_ns", F.least(since, F.col("t_ns") - 1))


def share_within(start: Column, end: Column) -> Column:
    """Return the share (0..1) of a covered row's time between `start` and `end`, all in ns."""
    inside = F.least(F.col("t_ns"), end) - F.greatest(F.col("since_ns"), start)
    return F.greatest(inside, F.lit(0)) / (F.col("t_ns") - F.col("since_ns"))


def measured_share() -> Column:
    """Return the share (0..1) of a covered row's time in the measured interval."""
    return share_within(F.col("from_ns"), F.col("to_ns"))


def component_of(executor: str) -> Column:
    """Return the component of an executor's name `component[index]`."""
    return F.regexp_extract(executor, r"^(.*)\[\d+\]$", 1)
