"""Traces of a run: their Arrow schemas, and the collection of all processes' files (`agents.trace`) into Parquet files.

Only controllers need this: it imports Arrow.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from agents.protocol.node_folders import regular_files
from agents.trace import COLUMNS, COVERING, FILES, NAMES, PREFIX, Head
from inventory.atomic_files import replacing_path
from inventory.errors import RunError

_KEY = [
    pa.field("run", pa.string(), nullable=False),
    pa.field("node", pa.string(), nullable=False),
    pa.field("worker", pa.int32(), nullable=False),
    pa.field("t_ns", pa.int64(), nullable=False),
]

_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

TABLES: Mapping[str, pa.Schema] = {
    table: pa.schema(_KEY + [pa.field(name, _ARROW[kind]) for name, kind in columns.items()])
    for table, columns in COLUMNS.items()
}
"""Table name -> Arrow schema."""

LATER_COLUMNS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(COVERING, frozenset({"since_ns"})),
    "slot": frozenset({"arrived_ns", "processed_ns", "packed_ns", "queued_rows", "queued_bytes", "node_parts"}),
}
"""Columns that were added to a table later; results of older versions lack them."""

_ROWS = {table: pa.struct(schema) for table, schema in TABLES.items()}

_BATCH = 4096
"""Rows that are held as Python objects before they are converted."""

_ROW_GROUP = 100_000
"""Rows after which a Parquet file starts a new row group, because every group costs a reader time."""

_Value = str | int | float | bool | None
_Rows = list[tuple[_Value, ...]]

_head_decoder = msgspec.msgpack.Decoder(Head)
_record_decoder = msgspec.msgpack.Decoder(dict[str, _Rows])


class UnreportedRows(NamedTuple):
    """Rows of a worker that died before its report of the same second arrived: later than `since_ns`, until `until_ns`.

    Sources do not know of this work, do it again after the recovery, and count it then.
    """

    node: str
    worker: int
    since_ns: int
    until_ns: int


_COUNTED = frozenset({"throughput", "channel", "latency"})
"""Tables of work, which is counted once however often it is done."""


def collect(folders: Sequence[Path], target: Path, unreported: Sequence[UnreportedRows] = ()) -> dict[str, int]:
    """Merge the trace files below `folders` into `target/<table>.parquet`; return rows per table.

    Every table gets a file, possibly an empty one, so that readers need no special case. Unreported rows of tables of
    work are left out.

    Raises:
        RunError: a file is not a trace of this version.
        OSError: the files cannot be written.
    """
    target.mkdir(parents=True, exist_ok=True)
    with ExitStack() as files:
        tables = {
            table: _TableFile(files, table, target / f"{table}.parquet", unreported if table in _COUNTED else ())
            for table in TABLES
        }
        for folder in folders:
            for path in regular_files(folder, FILES):
                for table, rows in read_trace_rows(path):
                    tables[table].add(rows)
        for each in tables.values():
            each.finish()
    return {table: each.written for table, each in tables.items()}


class _TableFile:
    """The Parquet file of one table; `written` is the number of rows in it."""

    def __init__(self, files: ExitStack, table: str, path: Path, unreported: Sequence[UnreportedRows]) -> None:
        """Create the file, which `files` closes."""
        partial = files.enter_context(replacing_path(path))
        self._writer = files.enter_context(pyarrow.parquet.ParquetWriter(partial, TABLES[table]))
        self._table, self._unreported = table, unreported
        self._rows: list[tuple[Any, ...]] = []
        self._batches: list[pa.RecordBatch] = []
        self._held = self.written = 0

    def add(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows.

        Raises:
            RunError: they do not fit the table.
        """
        self._rows += rows
        if len(self._rows) >= _BATCH or self._held + len(self._rows) >= _ROW_GROUP:
            self._convert()
        if self._held >= _ROW_GROUP:
            self._write_group()

    def finish(self) -> None:
        """Write the rest; errors as of `add`."""
        self._convert()
        if self._batches:
            self._write_group()

    def _convert(self) -> None:
        rows, self._rows = self._rows, []
        if rows:
            try:
                self._batches.append(pa.RecordBatch.from_struct_array(pa.array(rows, type=_ROWS[self._table])))
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as fault:
                raise self._unusable(fault) from None
            self._held += len(rows)

    def _write_group(self) -> None:
        group = _without(pa.Table.from_batches(self._batches), self._unreported)
        try:
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        except (pa.ArrowException, ValueError) as fault:  # a null in a key column
            raise self._unusable(fault) from None
        self.written += group.num_rows
        self._batches, self._held = [], 0

    def _unusable(self, fault: Exception) -> RunError:
        return RunError(f"a trace of {self._table} cannot be used: {fault}")


def _without(group: pa.Table, unreported: Sequence[UnreportedRows]) -> pa.Table:
    """Return the rows that were reported."""
    for node, worker, since_ns, until_ns in unreported:
        t_ns = group["t_ns"]
        within = pc.and_(pc.greater(t_ns, since_ns), pc.less_equal(t_ns, until_ns))
        its = pc.and_(pc.equal(group["node"], node), pc.equal(group["worker"], worker))
        group = group.filter(pc.invert(pc.and_(its, within)))
    return group


def read_trace_rows(path: Path) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Yield the rows of a trace file with their table, record by record; one truncated by a crash ends the file.

    Raises:
        RunError: the file is damaged, or of another version.
    """
    try:
        records = _records(path)
        head = next((_head_decoder.decode(record) for record in records), None)
        if head is None:
            return
        for table, columns in head.columns.items():
            if list(columns) != list(NAMES.get(table, ())):
                raise RunError(f"a trace of {table} has columns {columns}, not those of this version: {path}")
        for record in records:
            for table, rows in _record_decoder.decode(record).items():
                width = len(TABLES[table]) - len(head) + 1
                if any(len(row) != width for row in rows):
                    raise RunError(f"the trace {path} is damaged: a row of {table} that has not {width} values")
                yield table, [(head.run, head.node, head.worker, *row) for row in rows]
    except KeyError as fault:
        raise RunError(f"the trace {path} is damaged: there is no table {fault}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as fault:
        raise RunError(f"the trace {path} is damaged: {fault}") from None


def _records(path: Path) -> Iterator[bytes]:
    """Yield the complete records; a crash may have cut off the last one, and a power cut left zeros in its place.

    Raises:
        ValueError: a record is damaged.
    """
    with path.open("rb") as source:
        left = path.stat().st_size
        while len(prefix := source.read(PREFIX.size)) == PREFIX.size:
            length, checksum = PREFIX.unpack(prefix)
            left -= PREFIX.size + length
            if left < 0 or not length:
                return
            record = source.read(length)
            if crc32(record) != checksum:
                if not any(record[-1:]) and not any(source.read()):
                    return
                raise ValueError("a record does not have its checksum")
            yield record
