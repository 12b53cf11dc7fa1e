"""Batches of columns in DATA frames with the flag COLUMNS.

The payload, behind the stamps:

    table    per column: a uint8, PLAIN, DICTIONARY or GROWING; if DICTIONARY, a uint32 with its number of entries; if
             GROWING, two, with the entries that both sides have and with those that follow; then a uint32 with the
             length of each buffer
    padding  zeros up to a multiple of 64 bytes of the frame
    body     that of an Arrow IPC record batch: the buffers of all columns in order, each padded to a multiple of 64

Buffers of a column: the values of an int, float or bool (a bit each); the offsets (int32, one more than rows) and the
contents of a str or bytes; with a dictionary the indices (int32), then the offsets and contents of its entries. There
are no validity bitmaps, because there are no nulls.

The entries of a growing dictionary are sent once, with the first batch that may refer to them. Both ends of a channel
forget it at a barrier; 0 as the number of known entries begins another one.

Both sides know the schema, so that nothing else is sent. A received batch is checked before it is used: the lengths of
all buffers and dictionary indices here, offsets and UTF-8 by Arrow, so that no later access is out of bounds. The
body is copied once, into a buffer of its own, because the link reuses its buffer.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import pyarrow as pa

from agents.worker.wire.frame import MAX_PAYLOAD, CodecError
from workloads.arrays import decoded, distinct, rows_within, stream_schema
from workloads.columns import Columns
from workloads.dictionaries import MOST_BYTES, MOST_ENTRIES, Dictionary, dictionary_of

PLAIN, DICTIONARY, GROWING = 0, 1, 2

ALIGNMENT = 64

_ENCODING = Struct("<B")
_NUMBER = Struct("<I")

_INDEX = pa.int32()

Sent = Mapping[int, tuple["ref[Dictionary]", int]]
"""By column: the growing dictionary, and the number of its entries that the other end has."""


class EncodedColumns(NamedTuple):
    """A batch as bytes: the table, and the pieces of the body; `rows` and `sent` are for `note_sent`."""

    table: bytes
    body: list[Any]
    rows: int
    sent: Sent

    @property
    def nbytes(self) -> int:
        """Bytes of both, without the padding between them."""
        return len(self.table) + sum(map(len, self.body))

    def pieces(self, at: int) -> list[Any]:
        """Return everything that follows the first `at` bytes of a frame."""
        return [self.table + bytes(_padding(at + len(self.table))), *self.body]


class ColumnCodec:
    """Encoder and decoder for the batches of one stream on one channel, as columns."""

    def __init__(self, schema: Mapping[str, str], most_bytes: int = MOST_BYTES) -> None:
        """Create it; `most_bytes` is the size of a growing dictionary at which both sides must begin another one."""
        self.schema = schema
        self._arrow = stream_schema(schema)
        self._most_bytes = most_bytes
        self.forget()

    def forget(self) -> None:
        """Forget all growing dictionaries."""
        self._sent: Sent = {}
        self._rows_apart: dict[int, int] = {}
        self._received: dict[int, Dictionary] = {}

    def encode(self, columns: Columns) -> EncodedColumns:
        """Encode a batch, without copying contents; nothing is known to the other end before `note_sent`."""
        table, body, sent = bytearray(), list[Any](), dict[int, tuple[ref[Dictionary], int]]()
        for at, column in enumerate(columns.batch().columns):
            known = self._continued(at, column)
            if known is not None:
                entries = column.dictionary
                sent[at] = known[0], max(known[1], len(entries))
                fresh = entries.slice(min(known[1], len(entries)))
                table += _ENCODING.pack(GROWING) + _NUMBER.pack(known[1]) + _NUMBER.pack(len(fresh))
                buffers = [*_buffers_of(column.indices), *_buffers_of(fresh)]
            elif isinstance(column, pa.DictionaryArray) and (apart := _with_own_entries(column)) is not None:
                table += _ENCODING.pack(DICTIONARY) + _NUMBER.pack(len(apart.dictionary))
                buffers = [*_buffers_of(apart.indices), *_buffers_of(apart.dictionary)]
            else:
                table += _ENCODING.pack(PLAIN)
                buffers = _buffers_of(decoded(column))
            for buffer in buffers:
                table += _NUMBER.pack(len(buffer))
                body.append(buffer)
                if padding := _padding(len(buffer)):
                    body.append(bytes(padding))
        return EncodedColumns(bytes(table), body, len(columns), sent)

    def _continued(self, at: int, column: pa.Array) -> "tuple[ref[Dictionary], int] | None":
        """Return the growing dictionary of a column and how much of it is known; None: it is not sent as such.

        One dictionary is continued as long as it lives; columns with others are encoded on their own meanwhile. So are
        columns while its new entries are more than half of the rows since it was last continued.
        """
        dictionary = dictionary_of(column)
        if dictionary is None or dictionary.nbytes > self._most_bytes or len(dictionary) > MOST_ENTRIES:
            return None
        before, count = self._sent.get(at, (None, 0))
        if before is None or before() is None:
            before, count = ref(dictionary), 0
        rows = self._rows_apart.get(at, 0) + len(column)
        if before() is not dictionary or 2 * (len(column.dictionary) - count) > rows:
            return None
        return before, count

    def note_sent(self, batch: EncodedColumns) -> None:
        """Note that the other end gets this batch next."""
        self._sent = {**self._sent, **batch.sent}
        for at in range(len(self._arrow)):
            self._rows_apart[at] = 0 if at in batch.sent else self._rows_apart.get(at, 0) + batch.rows

    def decode(self, data: memoryview, count: int, at: int = 0) -> Columns:
        """Decode `count` rows from what follows the first `at` bytes of a frame, and keep new entries of dictionaries.

        Raises:
            CodecError: the bytes are not a batch of `count` rows of this schema.
        """
        try:
            return self._decode(data, count, at)
        except (pa.ArrowException, ValueError) as fault:
            raise CodecError(f"columns that are no batch of the stream {dict(self.schema)}: {fault}") from None

    def _decode(self, data: memoryview, count: int, at: int) -> Columns:
        table = _Table(data)
        layouts = [table.column(field.type, count) for field in self._arrow]
        body = data[table.stop + _padding(at + table.stop) :]
        wanted = sum(length + _padding(length) for layout in layouts for length in layout.lengths)
        if len(body) != wanted:
            raise ValueError(f"a body of {len(body)} bytes, its buffers take {wanted}")
        own = pa.allocate_buffer(len(body))
        np.frombuffer(own, np.uint8)[:] = np.frombuffer(body, np.uint8)
        arrays, start = [], 0
        for column, (field, layout) in enumerate(zip(self._arrow, layouts, strict=True)):
            buffers = []
            for length in layout.lengths:
                buffers.append(own.slice(start, length))
                start += length + _padding(length)
            if layout.known is None:
                arrays.append(_array(field.type, count, layout, buffers))
            else:
                arrays.append(self._growing(column, field.type, count, layout, buffers))
        batch = pa.RecordBatch.from_arrays(arrays, names=self._arrow.names)
        if rows_within(batch, MAX_PAYLOAD) < count:
            raise ValueError(f"{count} rows of more than {MAX_PAYLOAD} bytes without their dictionaries")
        return Columns(self.schema, batch)

    def _growing(
        self, column: int, kind: pa.DataType, count: int, layout: "_Layout", buffers: Sequence[pa.Buffer]
    ) -> pa.Array:
        indices, *rest = buffers
        fresh, known = _plain(kind, layout.entries or 0, rest), layout.known or 0
        dictionary = self._received.get(column)
        if dictionary is None or not known:
            dictionary = Dictionary(kind)
        if known != len(dictionary):
            raise ValueError(f"entries from {known} on of a dictionary that has {len(dictionary)}")
        entries, nbytes = known + len(fresh), dictionary.nbytes + len(rest[1])
        if entries > MOST_ENTRIES or nbytes > self._most_bytes:
            raise ValueError(f"a dictionary of {entries} entries and {nbytes} bytes")
        _check_indices(indices, entries)
        if len(fresh):
            dictionary.append(fresh)
        self._received[column] = dictionary
        values = pa.Array.from_buffers(_INDEX, count, [None, indices])
        return pa.DictionaryArray.from_arrays(values, dictionary.values, safe=False)


class _Layout(NamedTuple):
    """A column in the table: the entries of its dictionary, None without one, and the lengths of its buffers.

    `known` is the number of entries that precede those of a growing dictionary; None: it is none.
    """

    entries: int | None
    lengths: Sequence[int]
    known: int | None = None


class _Table:
    """Reader of the table."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.stop = 0

    def column(self, kind: pa.DataType, count: int) -> _Layout:
        """Return the next column's layout.

        Raises:
            ValueError: it does not fit a column of this type with `count` rows.
        """
        encoding = self._next(_ENCODING)
        if encoding == PLAIN:
            lengths = [self._next(_NUMBER) for _ in range(_buffers(kind))]
            _check_lengths(kind, count, lengths)
            return _Layout(None, lengths)
        if encoding not in (DICTIONARY, GROWING) or _buffers(kind) != 2:
            raise ValueError(f"encoding {encoding} of a column of {kind}")
        known = self._next(_NUMBER) if encoding == GROWING else None
        entries = self._next(_NUMBER)
        if entries > (count if known is None else MOST_ENTRIES) or not (entries or known):
            raise ValueError(f"a dictionary of {entries} entries for {count} rows")
        indices, *rest = (self._next(_NUMBER) for _ in range(3))
        _check_lengths(_INDEX, count, [indices])
        _check_lengths(kind, entries, rest)
        return _Layout(entries, [indices, *rest], known)

    def _next(self, kind: Struct) -> int:
        if len(self._data) - self.stop < kind.size:
            raise ValueError("a truncated table of columns")
        (number,) = kind.unpack_from(self._data, self.stop)
        self.stop += kind.size
        return int(number)


def _check_lengths(kind: pa.DataType, count: int, lengths: Sequence[int]) -> None:
    """Check the lengths of the buffers of a plain column; the contents of str and bytes are as long as they are.

    Raises:
        ValueError: a buffer has another length.
    """
    bits = 32 * (count + 1) if len(lengths) == 2 else kind.bit_width * count
    if lengths[0] != -(-bits // 8):
        raise ValueError(f"a buffer of {lengths[0]} bytes for {count} rows of {kind}")


def _array(kind: pa.DataType, count: int, layout: _Layout, buffers: Sequence[pa.Buffer]) -> pa.Array:
    if layout.entries is None:
        return _plain(kind, count, buffers)
    indices, *rest = buffers
    _check_indices(indices, layout.entries)
    return pa.DictionaryArray.from_arrays(
        pa.Array.from_buffers(_INDEX, count, [None, indices]), _plain(kind, layout.entries, rest), safe=False
    )


def _check_indices(indices: pa.Buffer, entries: int) -> None:
    # Negative ones are among them.
    highest = int(np.frombuffer(indices, np.uint32).max())
    if highest >= entries:
        raise ValueError(f"index {highest} into a dictionary of {entries} entries")


def _with_own_entries(column: pa.DictionaryArray) -> pa.DictionaryArray | None:
    """Return a column with a dictionary of the entries that it has; None: it is smaller without, as of a few rows."""
    codes, values = distinct(column)
    if 2 * len(values) > len(column):
        return None
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values, safe=False)


def _plain(kind: pa.DataType, count: int, buffers: Sequence[pa.Buffer]) -> pa.Array:
    array = pa.Array.from_buffers(kind, count, [None, *buffers])
    if len(buffers) == 2:
        array.validate(full=True)
        offsets = np.frombuffer(buffers[0], np.int32)
        if offsets[0] or offsets[-1] != len(buffers[1]):
            raise ValueError(f"offsets {offsets[0]} to {offsets[-1]} for {len(buffers[1])} bytes")
    return array


def _buffers(kind: pa.DataType) -> int:
    return 2 if pa.types.is_string(kind) or pa.types.is_binary(kind) else 1


def _buffers_of(column: pa.Array) -> list[memoryview]:
    """Return the buffers of a plain column without nulls, of its own rows only."""
    first, count = column.offset, len(column)
    buffers = column.buffers()
    if pa.types.is_boolean(column.type):
        if first % 8:
            return [np.packbits(column.to_numpy(zero_copy_only=False), bitorder="little").data]
        return [np.frombuffer(buffers[1], np.uint8)[first // 8 : -(-(first + count) // 8)].data]
    if _buffers(column.type) == 1:
        width = column.type.bit_width // 8
        return [np.frombuffer(buffers[1], np.uint8)[first * width : (first + count) * width].data]
    offsets = np.frombuffer(buffers[1], np.int32)[first : first + count + 1]
    start, stop = int(offsets[0]), int(offsets[-1])
    contents = np.frombuffer(buffers[2], np.uint8)[start:stop].data if stop > start else memoryview(b"")
    return [(offsets - offsets[0] if start else offsets).view(np.uint8).data, contents]


def _padding(length: int) -> int:
    return -length % ALIGNMENT
