"""Encoding of a batch of rows as bytes, typed by the stream's declared schema.

MessagePack through msgspec: decoding checks every field against its declared type and can only create ints, floats,
strings, bytes, booleans and tuples of them. If the `bytes` fields of a batch are large, they are appended to the
rest, so that the sender does not copy them:

    offset  size  field
    0       1     0xC1, which no MessagePack value begins with
    1       4     length of the head, little-endian
    5             head: the batch in MessagePack, with the length of each `bytes` field in place of its contents
                  the contents of these fields, row by row

The receiver copies each field once, into a `bytes` object of its own. So a row that an operator keeps does not hold a
frame's buffer, and is the same whether it came from this worker or from another.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Any

import msgspec

from inventory.errors import RunError
from workloads.operators import Row

TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bytes": bytes, "bool": bool}


LARGE_BYTES = 1024
"""From this mean size per row on, the contents of `bytes` fields are appended to the head."""

_APART = Struct("<BI")
_APART_MARK = 0xC1


class CodecError(RunError):
    """Rows that do not follow their stream's schema, or bytes that are not an encoded batch of it."""


_encoder = msgspec.msgpack.Encoder()
_UNFIT = (TypeError, ValueError, OverflowError, msgspec.EncodeError)


class Codec:
    """Encoder and decoder for the batches of one stream."""

    def __init__(self, schema: Mapping[str, str]) -> None:
        self.schema = dict(schema)
        types = [TYPES[kind] for kind in schema.values()]
        self._decoder = _decoder(types)
        self._head_decoder = _decoder([int if kind is bytes else kind for kind in types])
        self._large = [place for place, kind in enumerate(types) if kind is bytes]

    def encode(self, rows: Sequence[Row]) -> list[bytes]:
        """Encode rows; return pieces to be written one after the other.

        Raises:
            CodecError: a field has a value that no stream can carry (an object, an int beyond 64 bits).
        """
        try:
            apart = self._encode_apart(rows) if self._large and rows else None
            return apart or [_encoder.encode(rows)]
        except _UNFIT as fault:
            raise CodecError(f"a row of the stream {self.schema} cannot be encoded: {fault}") from None

    def _encode_apart(self, rows: Sequence[Row]) -> list[bytes] | None:
        """Encode the batch with its `bytes` fields appended; return None when they are small, or not `bytes`."""
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True))
        fields = [columns[place] for place in self._large]
        if {kind for column in fields for kind in map(type, column)} != {bytes}:
            return None
        sizes = [list(map(len, column)) for column in fields]
        if sum(map(sum, sizes)) < LARGE_BYTES * len(rows):
            return None
        for place, column in zip(self._large, sizes, strict=True):
            columns[place] = column
        head = _encoder.encode(list(zip(*columns, strict=True)))
        return [_APART.pack(_APART_MARK, len(head)) + head, *chain.from_iterable(zip(*fields, strict=True))]

    def decode(self, data: bytes | bytearray | memoryview, count: int) -> list[Row]:
        """Decode `count` rows from the output of `encode`; another number is rejected before any row is created.

        Raises:
            CodecError: the bytes are not `count` rows of this schema.
        """
        if self._large and data[:1] == b"\xc1":
            return self._decode_apart(memoryview(data), count)
        return self._decode(self._decoder, data, count)

    def _decode(self, decoder: Any, data: bytes | bytearray | memoryview, count: int) -> list[Row]:
        head = _array_head(count)
        if data[: len(head)] != head:
            raise CodecError(f"bytes that are not {count} rows of the stream {self.schema}")
        try:
            rows: list[Row] = decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise CodecError(f"bytes that are no rows of the stream {self.schema}: {fault}") from None
        return rows

    def _decode_apart(self, data: memoryview, count: int) -> list[Row]:
        if len(data) < _APART.size:
            raise CodecError(f"{len(data)} bytes that are no rows of the stream {self.schema}")
        _, length = _APART.unpack_from(data)
        stop = _APART.size + length
        # If the head is longer than the data, it is truncated, and its decoder raises.
        heads = self._decode(self._head_decoder, data[_APART.size : stop], count)
        columns: list[Sequence[Any]] = list(zip(*heads, strict=True))
        sizes = list(chain.from_iterable(zip(*[columns[place] for place in self._large], strict=True)))
        if min(sizes, default=0) < 0 or sum(sizes) != len(data) - stop:
            raise CodecError(f"fields of {sum(sizes)} bytes in {len(data) - stop}, of the stream {self.schema}")
        # One call copies all fields.
        fields = Struct("s".join([*map(str, sizes), ""])).unpack_from(data, stop)
        for at, place in enumerate(self._large):
            columns[place] = fields[at :: len(self._large)]
        return list(zip(*columns, strict=True))


def _decoder(types: Sequence[type]) -> Any:
    row = tuple.__class_getitem__(tuple(types) or ((),))
    return msgspec.msgpack.Decoder(list.__class_getitem__(row))


@lru_cache(maxsize=4096)
def _array_head(count: int) -> bytes:
    """Return the header that MessagePack puts before the elements of an array."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def encoded_bytes(rows: Sequence[Row]) -> int:
    """Return the number of bytes that these rows would take on the wire.

    Raises:
        CodecError: a field has a value that no stream can carry.
    """
    try:
        return len(_encoder.encode(rows))
    except _UNFIT as fault:
        raise CodecError(f"a row cannot be encoded: {fault}") from None
