"""One pipeline from beginning to end: session, input, answer, output."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from inventory.atomic_folder import replacing
from inventory.errors import InputError
from inventory.params import given, parameters
from workloads.pipelines.catalogue import SOCKET, pipeline_named
from workloads.pipelines.output import SUMMARY, Format, Tables, check_output, write_document
from workloads.pipelines.pipeline import Query
from workloads.pipelines.prepare import Repair
from workloads.pipelines.progress import report
from workloads.pipelines.reading import RAW_BYTES_PER_PARTITION, Reading, explained, spread, whole
from workloads.pipelines.row_filter import Before
from workloads.pipelines.source import link, parts_of
from workloads.pipelines.spark_session import started
from workloads.pipelines.streaming import streamed

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Rows that were dealt out by a part of a key are already together for the whole of it.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # Where they are, nothing is gained by summing up twice in the same task.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # Ticks of a task are some thousands, each with a short list; Spark would begin to sort behind the 128th.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Of the session, on which answers depend."""


@dataclass(frozen=True)
class Asked:
    """What a user asked for."""

    name: str
    source: str
    output: Path
    params: tuple[str, ...] = ()
    kind: Format = "parquet"
    stream: bool = False


def checked(asked: Asked) -> Query | Repair:
    """Return the pipeline with its parameters; nothing has been read.

    Raises:
        InputError: there is no such pipeline, a parameter is wrong, or the output may not be replaced.
    """
    pipeline = pipeline_named(asked.name)
    params = parameters(pipeline.Params, (given(asked.params), ()))
    check_output(asked.output, Path(asked.source))
    if asked.stream and not issubclass(pipeline, Query):
        raise InputError(f"--stream: {asked.name} needs its whole input at once")
    if asked.source.startswith(SOCKET) and not asked.stream:
        raise InputError(f"--input: {asked.source} is a stream, which needs --stream")
    found: Query | Repair = pipeline(params)
    return found


def run(asked: Asked) -> None:
    """Run a pipeline; its output is there as a whole or not at all.

    Raises:
        InputError: what is asked for, or the input, is wrong.
        UnfitError: Spark does not start, or the output cannot be written.
    """
    pipeline = checked(asked)
    with replacing(asked.output) as folder:
        work = folder / ".work"
        work.mkdir()
        before = _streamed(pipeline, asked, folder, work) if asked.stream else _whole(pipeline, asked, folder, work)
        write_document(folder / SUMMARY, {"rows_read": before.rows, "quarantined": before.quarantined})
        shutil.rmtree(work)
    report(f"written to {asked.output}")


def _whole(pipeline: Query | Repair, asked: Asked, folder: Path, work: Path) -> Before:
    source = Path(asked.source)
    schema = pipeline.schema if isinstance(pipeline, Query) else pipeline.schema_of(source)
    parts = parts_of(source, schema, pipeline.grid)
    if isinstance(pipeline, Repair):
        for rank, part in enumerate(parts):
            link(part, work / "parts", rank)
    with session(asked.name) as spark:
        size = sum(part.stat().st_size for part in parts)
        report(f"reading {len(parts)} part{'s'[: len(parts) != 1]}, {size:,} bytes")
        reading = Reading(spark, source, work / "parts", work / "rows", dict(enumerate(parts)))
        with explained(parts):
            if isinstance(pipeline, Query):
                tables: Mapping[str, DataFrame] = whole(pipeline, reading)
            else:
                spread(spark, size, RAW_BYTES_PER_PARTITION)
                tables = pipeline.tables(reading, schema, folder)
            Tables(folder, asked.kind, pipeline.order).write(tables)
    return reading.before


def _streamed(query: Query | Repair, asked: Asked, folder: Path, work: Path) -> Before:
    assert isinstance(query, Query)  # noqa: S101 - `checked` sees to it
    with session(asked.name) as spark:
        return streamed(query, spark, asked.source, work, Tables(folder, asked.kind, query.order))


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Yield a session for the pipeline `name`, and lines of progress while it is open.

    Raises:
        UnfitError: Spark does not start.
    """
    builder = SparkSession.builder.appName(f"millrace {name}")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    report("starting Spark")
    with started(builder, report) as spark:
        yield spark
