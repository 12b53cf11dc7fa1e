"""Traces in Spark: the Parquet files of many runs as one DataFrame per table.

Every process records the start and end of the measured interval in its own clock, so that no clocks are compared.
`analysis.measure.covered` has what a row means; `share_within` is its rule as an expression of Spark. Files with rows
that do not say which time they cover are completed beforehand.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program gives it

from agents.collected_traces import TABLES
from agents.trace import AGENT, CONTROLLER
from analysis.measure.covered import MARKS, completed
from analysis.records.campaign import BUFFER_MB, Run
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
        scratch: folder for files that are needed while tables are made.
        buffer_mb: the buffer of an executor.
    """

    spark: SparkSession
    runs: tuple[Run, ...]
    scratch: Path
    buffer_mb: float = BUFFER_MB

    def prepare(self) -> None:
        """Read the marks now, before several threads build tables."""
        _ = self._marks, self._node_marks

    def table(self, name: str) -> DataFrame:
        """Return all rows of a table with four more columns.

        `from_ns` and `to_ns` are the measured interval in the clock of the row's process. `length_ns`, the interval's
        length in the controller's clock, and `lead_ns`, the time from the sources' start to the interval, are the same
        for all processes of a run.
        """
        begun = F.coalesce("began_ns", "node_began_ns", "measure_start_ns")
        ended = F.coalesce("ended_ns", "node_ended_ns", "measure_end_ns")
        length = F.col("measure_end_ns") - F.col("measure_start_ns")
        lead = F.col("measure_start_ns") - F.col("source_start_ns")
        rows = self._rows(name).join(F.broadcast(self._times), "run")
        return (
            rows.join(F.broadcast(self._marks), ["run", "node", "worker"], "left")
            .join(F.broadcast(self._node_marks), ["run", "node"], "left")
            .withColumns({"from_ns": begun, "to_ns": ended, "length_ns": length, "lead_ns": lead})
            .drop("began_ns", "ended_ns", "node_began_ns", "node_ended_ns")
            .drop("source_start_ns", "measure_start_ns", "measure_end_ns")
        )

    def _rows(self, name: str) -> DataFrame:
        columns = ", ".join(f"`{field.name}` {_SQL_TYPES[field.type]}" for field in TABLES[name])
        files = [
            without_pattern(completed(run.folder / "traces", name, self.scratch / str(at)))
            for at, run in enumerate(self.runs)
        ]
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
        return self.spark.createDataFrame(self._mark_rows)

    @cached_property
    def _node_marks(self) -> DataFrame:
        """The same by node, for processes without marks: those of the node's agent, else those of the controller."""
        rows = self._mark_rows.filter(pc.equal(self._mark_rows["worker"], AGENT)).to_pylist()
        marks = {(row["run"], row["node"]): [row["began_ns"], row["ended_ns"]] for row in rows}
        for run in self.runs:
            controller = marks.get((run.id, CONTROLLER), [None, None])
            for node, record in (run.file.nodes if run.file else {}).items():
                own, ahead_ns = marks.setdefault((run.id, node), [None, None]), record.clock.offset_ns
                for at, (mark, instead) in enumerate(zip(own, controller, strict=True)):
                    own[at] = instead + ahead_ns if mark is None and instead is not None else mark
        columns = {
            "run": pa.array([run for run, _ in marks], pa.string()),
            "node": pa.array([node for _, node in marks], pa.string()),
            "node_began_ns": pa.array([began for began, _ in marks.values()], pa.int64()),
            "node_ended_ns": pa.array([ended for _, ended in marks.values()], pa.int64()),
        }
        return self.spark.createDataFrame(pa.table(columns))

    @cached_property
    def _mark_rows(self) -> pa.Table:
        at = (F.max(F.when(F.col("kind") == kind, F.col("t_ns"))) for kind in MARKS)
        begun, ended = at
        marks = self._rows("event").groupBy("run", "node", "worker")
        return marks.agg(begun.alias("began_ns"), ended.alias("ended_ns")).toArrow()


def measured(rows: DataFrame) -> DataFrame:
    """Return the rows written within the measured interval; suitable for levels and samples."""
    return rows.where((F.col("t_ns") > F.col("from_ns")) & (F.col("t_ns") <= F.col("to_ns")))


def duration_s() -> Column:
    """Return the length of the measured interval in seconds; null where a process got both marks at once."""
    return F.nullif(F.col("to_ns") - F.col("from_ns"), F.lit(0)) / NS


def share_within(start: Column, end: Column, since: str = "since_ns") -> Column:
    """Return the share (0..1) of a row's time between `start` and `end`, in ns, as in `analysis.measure.covered`.

    `since` is the column with the begin of that time.
    """
    inside = F.least(F.col("t_ns"), end) - F.greatest(F.col(since), start)
    return F.greatest(inside, F.lit(0)) / F.greatest(F.col("t_ns") - F.col(since), F.lit(1))


def measured_share() -> Column:
    """Return the share (0..1) of a row's time in the measured interval."""
    return share_within(F.col("from_ns"), F.col("to_ns"))


def component_of(executor: str) -> Column:
    """Return the component of an executor's name `component[index]`."""
    return F.regexp_extract(executor, r"^(.*)\[\d+\]$", 1)
