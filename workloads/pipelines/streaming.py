"""A query over a stream: Structured Streaming over parts that come one after the other, or lines from a socket.

Spark's own sources give no order: files come by time of change, lines of a socket are dealt out. So the parts of a
folder, and pieces of what a socket brings, are put one by one into a folder that Spark watches, the next one when the
one before has been answered. Late rows are told by the event time of all rows before them, and a tick is answered as
soon as a row behind it has been accepted, as the queries define it; a watermark is one time for a whole piece, and
could do neither.
"""

import json
import select
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from inventory.errors import InputError, MillraceError, UnfitError
from workloads.pipelines.catalogue import SOCKET
from workloads.pipelines.input_splits import Stretch, stretches_of
from workloads.pipelines.output import Tables
from workloads.pipelines.pipeline import Known, Piece, Query
from workloads.pipelines.progress import report
from workloads.pipelines.reading import Reading, kept
from workloads.pipelines.row_filter import Before
from workloads.pipelines.source import parts_of

PIECE_S, PIECE_BYTES = 1.0, 64 * 1024 * 1024
"""Of what a socket brings, the most that makes a piece."""

_READ_BYTES = 1 << 20
_PATIENCE_S = 10.0


class Stream:
    """The answers of a query, piece by piece."""

    def __init__(self, query: Query, reading: Reading, work: Path, tables: Tables) -> None:
        self._query, self._reading, self._work, self._tables = query, reading, work, tables
        self._known, self._pieces = Known(), 0
        self._kinds: StructType | None = None
        self.fault: MillraceError | None = None

    def take(self, batch: DataFrame, _number: int) -> None:
        """Write the answers that a part makes final."""
        stretches = [
            Stretch(row["part"], Path(row["path"]), row["begin"], row["end"])
            for row in batch.orderBy("part", "begin").collect()
        ]
        try:
            rows = kept(self._query, self._reading, stretches)
            self._kinds = rows.schema
            self._advance(rows, over=False)
        except MillraceError as fault:
            self.fault = fault
            raise

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
        query: what is asked.
        spark: the session.
        source: a file, a folder of parts, or `tcp://HOST:PORT`, which is read until the other side closes it.
        work: a folder for what is needed meanwhile.
        tables: what to write.

    Raises:
        InputError: the source is refused.
        UnfitError: nobody listens there.
    """
    watched = work / "watched"
    watched.mkdir()
    parts: dict[int, Path] = {}
    reading = Reading(spark, Path(source), watched, work / "rows", parts)
    stream = Stream(query, reading, work, tables)
    arriving = (
        _pieces(source, work) if source.startswith(SOCKET) else iter(parts_of(Path(source), query.schema, query.grid))
    )
    running: StreamingQuery | None = None
    try:
        for rank, part in enumerate(arriving):
            parts[rank] = part
            _announce(stretches_of({rank: part}), watched / f"{rank:08d}.json")
            if running is None:
                running = _started(stream, reading, work)
            _answer(running, stream)
            report(f"part {rank + 1}: {reading.before.rows:,} rows so far")
    finally:
        if running is not None:
            running.stop()
    if not parts:
        raise InputError(f"{source}: empty")
    stream.end()
    return reading.before


def _announce(stretches: Sequence[Stretch], path: Path) -> None:
    """Put a list of what is to be read into the folder that Spark watches, as a whole."""
    aside = path.with_name(f".{path.name}")
    rows = [
        {"part": one.part, "path": str(one.path.resolve()), "begin": one.begin, "end": one.end} for one in stretches
    ]
    aside.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    aside.rename(path)


def _started(stream: Stream, reading: Reading, work: Path) -> StreamingQuery:
    announced = reading.spark.readStream.schema("part bigint, path string, begin bigint, `end` bigint")
    writer = announced.json(str(reading.folder)).writeStream.foreachBatch(stream.take)
    return writer.option("checkpointLocation", str(work / "checkpoint")).start()


def _answer(running: StreamingQuery, stream: Stream) -> None:
    """Wait until all available input has been processed."""
    try:
        running.processAllAvailable()
    except PySparkException:
        if stream.fault is not None:
            raise stream.fault from None
        raise


def _pieces(source: str, work: Path) -> Iterator[Path]:
    """Yield the data from a socket, as files of whole lines, until the other side closes it.

    Raises:
        InputError: the source is no address.
        UnfitError: there is no connection, or it breaks.
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
    """Yield whole lines, as many as come in `PIECE_S`; the last one may lack its end."""
    rest, over = b"", False
    while not over:
        arrived, size, until = [rest], len(rest), time.monotonic() + PIECE_S
        while size < PIECE_BYTES and (left := until - time.monotonic()) > 0:
            if not select.select([peer], [], [], left)[0]:
                continue
            data = peer.recv(_READ_BYTES)
            if not data:
                over = True
                break
            arrived.append(data)
            size += len(data)
        whole = b"".join(arrived)
        cut = len(whole) if over else whole.rfind(b"\n") + 1
        rest = whole[cut:]
        if cut:
            yield whole[:cut]
