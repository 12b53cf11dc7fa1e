"""A batch of rows <-> bytes, typed by the stream's declared schema.

MessagePack through msgspec: decoding checks every field against its declared type and can create nothing but
ints, floats, strings, bytes, booleans and tuples of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from inventory.errors import RunError
from workloads.operators import Row

TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bytes": bytes, "bool": bool}


class CodecError(RunError):
    """Rows do not follow their stream's schema, or bytes are not an encoded batch of it."""


_encoder = msgspec.msgpack.Encoder()
_UNFIT = (TypeError, ValueError, OverflowError, msgspec.EncodeError)


class Codec:
    """Encodes and decodes batches of one stream."""

    def __init__(self, schema: Mapping[str, str]) -> None:
        self.schema = dict(schema)
        row = tuple.__class_getitem__(tuple(TYPES[kind] for kind in schema.values()) or ((),))
        self._decoder: Any = msgspec.msgpack.Decoder(list.__class_getitem__(row))

    def encode(self, rows: Sequence[Row]) -> bytes:
        """Encode rows.

        Raises:
            CodecError: a field holds what no stream may carry (an object, an int beyond 64 bits).
        """
        try:
            return _encoder.encode(rows)
        except _UNFIT as fault:
            raise CodecError(f"a row of the stream {self.schema} cannot be encoded: {fault}") from None

    def decode(self, data: bytes | bytearray | memoryview, count: int) -> list[Row]:
        """Decode what `encode` gave for `count` rows; another number is refused before any row is made.

        Raises:
            CodecError: the bytes are not `count` rows of this schema.
        """
        head = _array_head(count)
        if data[: len(head)] != head:
            raise CodecError(f"bytes that are not {count} rows of the stream {self.schema}")
        try:
            rows: list[Row] = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as fault:
            raise CodecError(f"bytes that are no rows of the stream {self.schema}: {fault}") from None
        return rows


def _array_head(count: int) -> bytes:
    """What MessagePack puts before the elements of an array."""
    if count < 16:
        return bytes([0x90 | count])
    if count < 1 << 16:
        return b"\xdc" + count.to_bytes(2, "big")
    return b"\xdd" + count.to_bytes(4, "big")


def encoded_bytes(rows: Sequence[Row]) -> int:
    """Bytes that these rows would take on the wire.

    Raises:
        CodecError: a field holds what no stream may carry.
    """
    try:
        return len(_encoder.encode(rows))
    except _UNFIT as fault:
        raise CodecError(f"a row cannot be encoded: {fault}") from None
