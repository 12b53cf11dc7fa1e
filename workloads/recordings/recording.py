"""One executor's share of a prepared recording: reader, spout, and the rows emitted so far.

Row i of the file belongs to executor i mod n. Rows are read by row groups, so that memory does not grow with the file;
the executors of one worker share the groups that have been decoded.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from inventory.errors import RunError
from inventory.times import NS
from workloads.columns import ColumnSpout
from workloads.operators import Context, Row, Spout
from workloads.recordings.schema import SCHEMAS, Schema

FORMAT_KEY = b"millrace.schema"
"""Key of the schema's name in the metadata of a prepared file."""

GROUP_ROWS = 1 << 16
"""Maximum rows of a row group, which is decoded at once."""

GROUPS_KEPT = 6
"""Decoded row groups kept per file and choice of columns: positions of executors of one worker are close together."""

_FILES_KEPT = 4
_FORMATS = {"int64": "q", "int32": "i", "int8": "b", "double": "d"}


class Column:
    """Decoded column of a row group."""

    def __init__(self, array: pa.Array) -> None:
        self._names: list[str] | None = None
        self._texts: pa.Array | None = None
        if hasattr(array, "dictionary"):
            self._texts, array = array.dictionary, array.indices
            self._names = self._texts.to_pylist()
        self._numbers = _numbers(array)

    def values(self, part: slice) -> list[Any]:
        """Return a part as plain Python values."""
        numbers = self._numbers[part].tolist()
        return numbers if self._names is None else [self._names[place] for place in numbers]

    def array(self, part: slice) -> pa.Array:
        """Return a part as an array."""
        import numpy as np  # for operators by columns only

        numbers = np.asarray(self._numbers)[part]
        if self._texts is not None:
            return pa.DictionaryArray.from_arrays(pa.array(numbers), self._texts, safe=False)
        return pa.array(numbers if numbers.dtype == np.float64 else numbers.astype(np.int64))


class Recording:
    """Share of a prepared file.

    Attributes:
        rows: valid rows in the whole file.
        records: number of this executor's own rows.
        position: own records taken so far.
        origin_ns: stream time of the first row of the whole file.
        times: stream times of the own records, for `Spout.times`.
    """

    def __init__(self, path: Path, index: int = 0, of: int = 1, columns: Sequence[str] | None = None) -> None:
        """Open share `index` of `of`.

        Args:
            path: a file that `prepare` wrote.
            index: of the executor.
            of: number of executors that share the file.
            columns: columns returned by `take`, in this order; None: all, `seq` first.

        Raises:
            RunError: the file is not a recording, or lacks a column.
        """
        self._file = _opened(path)
        self._names = self._file.names if columns is None else tuple(columns)
        missing = set(self._names) - set(self._file.names)
        if missing:
            raise RunError(f"{path}: a recording {self._file.schema.name} has no column {min(missing)!r}")
        self._index, self._of = index, of
        self.rows = self._file.bounds[-1]
        self.records = max(0, -(-(self.rows - index) // of))
        self.position = 0
        self.times = RecordedTimes(self._file, index, of)
        self.origin_ns = self._file.seconds(0) * NS - self._file.schema.lag_ns
        self._begin = self._end = 0
        self._columns: Sequence[Column] = ()

    def take(self, limit: int) -> list[list[Any]]:
        """Return the next own records, at most `limit`, as one list per column; empty lists after the last record."""
        taken: list[list[Any]] = [[] for _ in self._names]
        for part in self._parts(limit):
            for column, values in zip(self._columns, taken, strict=True):
                values += column.values(part)
        return taken

    def take_columns(self, limit: int) -> list[pa.Array]:
        """Return the same as one array per column; no int is smaller than int64, text may be dictionary-encoded."""
        taken: list[list[pa.Array]] = [[] for _ in self._names]
        for part in self._parts(limit):
            for column, arrays in zip(self._columns, taken, strict=True):
                arrays.append(column.array(part))
        if not taken[0]:
            return [column.array(slice(0)) for column in self._columns or self._file.columns(0, self._names)]
        return [pa.concat_arrays(arrays) for arrays in taken]

    def _parts(self, limit: int) -> Iterator[slice]:
        """Go on by the next own records, at most `limit`, and yield their parts of decoded groups, in `_columns`."""
        at = self._index + self.position * self._of
        left = limit
        while left > 0 and at < self.rows:
            if not self._begin <= at < self._end:
                group = self._file.group_of(at)
                self._begin, self._end = self._file.bounds[group : group + 2]
                self._columns = self._file.columns(group, self._names)
            own = range(at, min(self._end, at + left * self._of), self._of)
            yield slice(own.start - self._begin, own.stop - self._begin, self._of)
            left -= len(own)
            at += len(own) * self._of
            self.position += len(own)

    def skip(self, position: int) -> None:
        """Go to `position` own records from the beginning of the share, in either direction."""
        self.position = position


class RecordedTimes:
    """Stream times of one share's records: a `Schedule`, whose `due_ns` raises IndexError after the last record."""

    def __init__(self, file: "_File", index: int, of: int) -> None:
        self._file, self._index, self._of = file, index, of
        self._lag_ns = file.schema.lag_ns
        self._asked = (-1, 0)

    def due_ns(self, record: int) -> int:
        """Return the stream time of own record number `record`."""
        return self._file.seconds(self._index + record * self._of) * NS - self._lag_ns

    def due_count(self, time_ns: int) -> int:
        """Return the number of own records at `time_ns` of stream time or before."""
        seconds = (time_ns + self._lag_ns) // NS
        asked, count = self._asked
        if seconds != asked:
            count = max(0, -(-(self._file.rows_until(seconds) - self._index) // self._of))
            self._asked = seconds, count
        return count


class _File:
    """Prepared file: index of its row groups, and the groups read last.

    Attributes:
        schema: of the recording.
        names: of its columns.
        bounds: number of the first row of each group, and the number of all rows.
    """

    def __init__(self, path: Path) -> None:
        try:
            metadata = pq.read_metadata(path)
        except (OSError, ValueError) as fault:
            raise RunError(f"{path}: it cannot be read as a recording: {fault}") from None
        schema = SCHEMAS.get((metadata.metadata or {}).get(FORMAT_KEY, b"").decode())
        if schema is None or metadata.num_rows == 0:
            raise RunError(f"{path}: not a prepared recording")
        self.schema: Schema = schema
        texts = [name for name, kind in schema.columns.items() if kind == "string"]
        self._parquet = pq.ParquetFile(path, metadata=metadata, memory_map=True, read_dictionary=texts)
        self.names: tuple[str, ...] = tuple(self._parquet.schema_arrow.names)
        self.bounds = [0]
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        time = self.names.index(schema.time)
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            statistics = row_group.column(time).statistics
            self.bounds.append(self.bounds[-1] + row_group.num_rows)
            self._firsts.append(statistics.min)
            self._lasts.append(statistics.max)
        self.columns: Callable[[int, tuple[str, ...]], Sequence[Column]]
        self.columns = lru_cache(maxsize=GROUPS_KEPT)(self._read)
        self._times: Callable[[int], memoryview[int]] = lru_cache(maxsize=GROUPS_KEPT)(self._read_times)

    def group_of(self, row: int) -> int:
        """Return the number of the group with row number `row`."""
        return bisect_right(self.bounds, row) - 1

    def seconds(self, row: int) -> int:
        """Return the time of a row.

        Raises:
            IndexError: the row does not exist.
        """
        if row >= self.bounds[-1]:
            raise IndexError(row)
        group = self.group_of(row)
        seconds: int = self._times(group)[row - self.bounds[group]]
        return seconds

    def rows_until(self, seconds: int) -> int:
        """Return the number of rows with this time or an earlier one."""
        group = bisect_right(self._lasts, seconds)
        if group == len(self._lasts) or seconds < self._firsts[group]:
            return self.bounds[group]
        return self.bounds[group] + bisect_right(self._times(group), seconds)

    def _read(self, group: int, names: tuple[str, ...]) -> Sequence[Column]:
        table = self._parquet.read_row_group(group, columns=list(names), use_threads=False).combine_chunks()
        return [Column(table.column(name).chunk(0)) for name in names]

    def _read_times(self, group: int) -> "memoryview[int]":
        table = self._parquet.read_row_group(group, columns=[self.schema.time], use_threads=False)
        return _numbers(table.combine_chunks().column(0).chunk(0))


def _numbers(array: Any) -> "memoryview[int]":
    """Return the numbers of an array in place."""
    width: int = array.type.byte_width
    raw = memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
    numbers: memoryview[int] = raw.cast(_FORMATS[str(array.type)])  # type: ignore[call-overload]
    return numbers


def _opened(path: Path) -> _File:
    try:
        status = path.stat()
    except OSError as fault:
        raise RunError(f"{path}: it cannot be read: {fault.strerror}") from None
    return _shared(path, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=_FILES_KEPT)
def _shared(path: Path, *_version: int) -> _File:
    return _File(path)


class RecordedSpout(Spout):
    """Emits the rows of its share in the file's order; stream time is the recorded time.

    A workload's own spout sets `columns`, and overrides `rows` if its rows have other fields.
    """

    recorded = True

    columns: ClassVar[tuple[str, ...]]
    """Columns of the prepared file that make its rows."""

    input: ClassVar[str] = "recording"
    """Name of the prepared input."""

    recording: Recording

    def __init__(self, tick_ns: int = 0) -> None:
        self.tick_ns = tick_ns

    def open(self, context: Context) -> None:
        path = Path(context.inputs[self.input])
        self.recording = Recording(path, context.index, context.parallelism, self.columns)
        self.times = self.recording.times
        self.origin_ns = self.recording.origin_ns

    def rows(self, columns: Sequence[list[object]]) -> Sequence[Row]:
        """Return rows to emit, one per record in the same order, from one list per column."""
        return list(zip(*columns, strict=True))

    def next_batch(self, limit: int) -> Sequence[Row]:
        return self.rows(self.recording.take(limit))

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.recording.position)

    def restore(self, state: bytes) -> None:
        self.seek(msgspec.msgpack.decode(state, type=int))

    def seek(self, position: int) -> None:
        self.recording.skip(position)


class ColumnRecordedSpout(RecordedSpout, ColumnSpout):
    """`RecordedSpout` by columns; overrides `batch` if its rows have other fields than `columns`.

    Rows are prepared ahead, many at a time: with frequent ticks a batch has few, for each of which the fixed costs of
    Arrow and NumPy would be higher than all others.
    """

    AHEAD, MOST_AHEAD = 16, 4096
    """Batches of rows, and rows, that are prepared ahead."""

    def __init__(self, tick_ns: int = 0) -> None:
        super().__init__(tick_ns)
        self._ahead: pa.RecordBatch | None = None

    def batch(self, columns: Sequence[pa.Array]) -> pa.RecordBatch:
        """Return rows to emit, one per record in the same order, from one array per column."""
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))

    def next_columns(self, limit: int) -> pa.RecordBatch:
        ahead = self._ahead
        if ahead is None or ahead.num_rows < limit:
            # What is left is prepared again, so that there are not two batches where one would do.
            self.recording.skip(self._position)
            ahead = self.batch(self.recording.take_columns(max(limit, min(self.AHEAD * limit, self.MOST_AHEAD))))
        self._ahead = ahead.slice(limit)
        return ahead.slice(0, limit)

    def next_batch(self, limit: int) -> Sequence[Row]:
        self.seek(self._position)
        return super().next_batch(limit)

    @property
    def _position(self) -> int:
        """Number of records emitted."""
        return self.recording.position - (0 if self._ahead is None else self._ahead.num_rows)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self._position)

    def seek(self, position: int) -> None:
        super().seek(position)
        self._ahead = None


def emitted(path: Path, positions: Sequence[int], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows emitted when executor i is at `positions[i]` of its share, in order, piece by piece.

    Args:
        path: a prepared file.
        positions: of all executors.
        columns: columns of the result, in this order.
    """
    import numpy as np  # on the controller only

    places = np.array(positions, np.int64)
    at = 0
    for batch in pq.ParquetFile(path).iter_batches(GROUP_ROWS, columns=list(columns)):
        if at // len(places) >= places.max():
            return
        row = np.arange(at, at + len(batch))
        left = row // len(places) < places[row % len(places)]
        at += len(batch)
        yield pa.Table.from_batches([batch]).select(list(columns)).filter(pa.array(left))
