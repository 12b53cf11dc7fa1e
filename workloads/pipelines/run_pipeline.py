"""Run of a pipeline: session, input, answer, output; at once, or over a stream.

A stream is Structured Streaming over consecutive parts, or over lines from a socket. Spark's own sources keep no order:
files are read by time of change, lines of a socket are distributed. So the parts of a folder, and pieces read from a
socket, are announced one by one in a folder that Spark watches, each after the answer to the previous one. Spark adds
what was announced to a table in memory, and this program reads it there: `foreachBatch` would open a port on which
everybody could call this program, as Py4J does not authenticate callbacks. A row is
late by the event times of all rows before it, and a tick is answered as soon as a later row has been accepted, as the
queries define it; a watermark is one time for a whole piece, and could do neither.
"""

import json
import select
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from inventory.atomic_files import replace_file, replacing_folder
from inventory.errors import InputError, UnfitError
from inventory.plugins import given, parameters
from workloads.pipelines import SOCKET, pipeline_named
from workloads.pipelines.input_splits import Stretch, stretches_of
from workloads.pipelines.lines import input_files, link_part
from workloads.pipelines.pipeline import (
    OUTPUT,
    SUMMARY,
    Format,
    Known,
    Piece,
    Query,
    Tables,
    check_output,
    write_json,
)
from workloads.pipelines.prepare import Repair
from workloads.pipelines.reading import (
    RAW_BYTES_PER_PARTITION,
    Before,
    OpenInput,
    explained,
    kept,
    set_partitions,
    whole,
)
from workloads.pipelines.spark_session import report, spark_started

PIECE_S, PIECE_BYTES = 1.0, 64 * 1024 * 1024
"""Maximum time and size of a piece read from a socket."""

ANNOUNCED = "announced"
"""Table of the announced stretches."""

_READ_BYTES = 1 << 20
_PATIENCE_S = 10.0


class Stream:
    """Writer of the answers of a query, piece by piece."""

    def __init__(self, query: Query, reading: OpenInput, work: Path, tables: Tables) -> None:
        self._query, self._reading, self._work, self._tables = query, reading, work, tables
        self._known, self._pieces = Known(), 0
        self._kinds: StructType | None = None

    def take(self, batch: DataFrame) -> None:
        """Write the answers that become final with a part.

        Raises:
            InputError: the part is refused.
        """
        stretches = [
            Stretch(row["part"], Path(row["path"]), row["begin"], row["end"])
            for row in batch.orderBy("part", "begin").collect()
        ]
        rows = kept(self._query, self._reading, stretches)
        self._kinds = rows.schema
        self._advance(rows, over=False)

    def end(self) -> None:
        """Write the remaining answers.

        Raises:
            InputError: the recording is refused.
        """
        self._reading.check(self._query)
        assert self._kinds is not None  # noqa: S101 - `check` refuses a recording without rows
        nothing = [F.lit(None).cast(field.dataType).alias(field.name) for field in self._kinds]
        self._advance(self._reading.spark.range(0).select(*nothing), over=True)

    def _advance(self, rows: DataFrame, over: bool) -> None:
        before, spark = self._reading.before, self._reading.spark
        if before.first is None or before.newest is None:
            return
        step = self._query.advanced(self._known, Piece(rows, before.first, before.newest, over))
        self._tables.write(step.tables, self._pieces)
        self._pieces += 1
        if not over:
            earlier = [*self._reading.aside.iterdir()]
            stored = {name: self._reading.stored(table) for name, table in step.known.tables.items()}
            self._known = Known(step.known.numbers, stored)
            for place in earlier:
                shutil.rmtree(place)
        spark.catalog.clearCache()


def streamed(query: Query, spark: SparkSession, source: str, work: Path, tables: Tables) -> Before:
    """Process a stream to its end.

    Args:
        query: the query.
        spark: the session.
        source: a file, a folder of parts, or `tcp://HOST:PORT`, which is read until the peer closes it.
        work: folder for temporary files.
        tables: tables to write.

    Raises:
        InputError: the source is refused.
        UnfitError: the connection fails.
    """
    watched = work / "watched"
    watched.mkdir()
    parts: dict[int, Path] = {}
    reading = OpenInput(spark, Path(source), watched, work / "rows", parts)
    stream = Stream(query, reading, work, tables)
    arriving = (
        _pieces(source, work)
        if source.startswith(SOCKET)
        else iter(input_files(Path(source), query.schema, query.grid))
    )
    running: StreamingQuery | None = None
    try:
        for rank, part in enumerate(arriving):
            parts[rank] = part
            _announce(stretches_of({rank: part}), watched / f"{rank:08d}.json")
            if running is None:
                running = _started(reading, work)
            running.processAllAvailable()
            stream.take(spark.table(ANNOUNCED).where(F.col("part") == rank))
            report(f"part {rank + 1}: {reading.before.rows:,} rows so far")
    finally:
        if running is not None:
            running.stop()
    if not parts:
        raise InputError(f"{source}: empty")
    stream.end()
    return reading.before


def _announce(stretches: Sequence[Stretch], path: Path) -> None:
    """Announce stretches as a file in the folder that Spark watches, written atomically."""
    rows = [
        {"part": one.part, "path": str(one.path.resolve()), "begin": one.begin, "end": one.end} for one in stretches
    ]
    replace_file(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _started(reading: OpenInput, work: Path) -> StreamingQuery:
    announced = reading.spark.readStream.schema("part bigint, path string, begin bigint, `end` bigint")
    writer = announced.json(str(reading.folder)).writeStream.format("memory").queryName(ANNOUNCED)
    return writer.option("checkpointLocation", str(work / "checkpoint")).start()


def _pieces(source: str, work: Path) -> Iterator[Path]:
    """Yield the data from a socket as files of whole lines, until the peer closes it.

    Raises:
        InputError: the address is invalid.
        UnfitError: the connection fails or breaks.
    """
    host, colon, port = source.removeprefix(SOCKET).rpartition(":")
    if not colon or not host or not port.isdecimal():
        raise InputError(f"--input: got {source!r}, expected {SOCKET}HOST:PORT")
    place = work / "arrived"
    place.mkdir()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE_S) as peer:
            report(f"reading from {source}")
            for number, lines in enumerate(_whole_lines(peer)):
                path = place / f"{number}.csv"
                path.write_bytes(lines)
                yield path
    except OSError as fault:
        raise UnfitError(f"{source}: {fault.strerror or fault}") from None


def _whole_lines(peer: socket.socket) -> Iterator[bytes]:
    """Yield the whole lines that arrive within `PIECE_S`; the last line may lack its end."""
    rest, over = b"", False
    while not over:
        arrived, size, until = [rest], len(rest), time.monotonic() + PIECE_S
        while size < PIECE_BYTES and (left := until - time.monotonic()) > 0:
            if not select.select([peer], [], [], left)[0]:
                continue
            piece = peer.recv(_READ_BYTES)
            if not piece:
                over = True
                break
            arrived.append(piece)
            size += len(piece)
        whole = b"".join(arrived)
        cut = len(whole) if over else whole.rfind(b"\n") + 1
        rest = whole[cut:]
        if cut:
            yield whole[:cut]


SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Rows partitioned by a part of a key are already together for the whole key.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    # For these, partial sums in the same task gain nothing.
    "spark.sql.execution.combineAdjacentAggregation": "true",
    # A task has some thousands of ticks, each with a short list; by default Spark sorts after the 128th.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
"""Settings of the session on which answers depend."""


@dataclass(frozen=True)
class Asked:
    """Request of a user."""

    name: str
    source: str
    output: Path
    params: tuple[str, ...] = ()
    kind: Format = "parquet"
    stream: bool = False


def checked_pipeline(asked: Asked) -> Query | Repair:
    """Return the pipeline with its parameters, before anything is read.

    Raises:
        InputError: the pipeline is unknown, a parameter is wrong, or the output may not be replaced.
    """
    pipeline = pipeline_named(asked.name)
    params = parameters(pipeline.Params, given(asked.params))
    check_output(asked.output, Path(asked.source))
    if asked.stream and not issubclass(pipeline, Query):
        raise InputError(f"--stream: {asked.name} needs its whole input at once")
    if asked.source.startswith(SOCKET) and not asked.stream:
        raise InputError(f"--input: {asked.source} is a stream, which needs --stream")
    made: Query | Repair = pipeline(params)
    return made


def execute_pipeline(asked: Asked) -> None:
    """Run a pipeline; its output is written completely or not at all.

    Raises:
        InputError: the request or the input is wrong.
        UnfitError: Spark does not start, or the output cannot be written.
    """
    pipeline = checked_pipeline(asked)
    with replacing_folder(asked.output, OUTPUT) as folder:
        work = folder / ".work"
        work.mkdir()
        before = _streamed(pipeline, asked, folder, work) if asked.stream else _whole(pipeline, asked, folder, work)
        write_json(folder / SUMMARY, {"rows_read": before.rows, "quarantined": before.quarantined})
        shutil.rmtree(work)
    report(f"written to {asked.output}")


def _whole(pipeline: Query | Repair, asked: Asked, folder: Path, work: Path) -> Before:
    source = Path(asked.source)
    schema = pipeline.schema if isinstance(pipeline, Query) else pipeline.schema_of(source)
    parts = input_files(source, schema, pipeline.grid)
    if isinstance(pipeline, Repair):
        for rank, part in enumerate(parts):
            link_part(part, work / "parts", rank)
    with session(asked.name) as spark:
        size = sum(part.stat().st_size for part in parts)
        report(f"reading {len(parts)} part{'s'[: len(parts) != 1]}, {size:,} bytes")
        reading = OpenInput(spark, source, work / "parts", work / "rows", dict(enumerate(parts)))
        with explained(parts):
            if isinstance(pipeline, Query):
                tables: Mapping[str, DataFrame] = whole(pipeline, reading)
            else:
                set_partitions(spark, size, RAW_BYTES_PER_PARTITION)
                tables = pipeline.tables(reading, schema, folder)
            Tables(folder, asked.kind, pipeline.order).write(tables)
    return reading.before


def _streamed(query: Query | Repair, asked: Asked, folder: Path, work: Path) -> Before:
    assert isinstance(query, Query)  # noqa: S101 - `checked` sees to it
    with session(asked.name) as spark:
        return streamed(query, spark, asked.source, work, Tables(folder, asked.kind, query.order))


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Yield a session for the pipeline `name`; report progress while it is open.

    Raises:
        UnfitError: Spark does not start.
    """
    builder = SparkSession.builder.appName(f"millrace {name}")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    report("starting Spark")
    with spark_started(builder, report) as spark:
        yield spark
