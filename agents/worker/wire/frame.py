"""Frames, the unit of transfer between workers: their bytes, and the encoding of the rows in them.

    offset  size  field
    0       1     kind       DATA, CREDIT, END, BARRIER, TICK, STATE, COPY, PULL or LINGER
    1       1     flags      DATA: STAMPED, COLUMNS, see below. STATE and COPY: LAST. COPY: ROUND
    2       2     stream     number of the stream (position in the topology's list of streams)
    4       4     epoch      start of the topology that the frame belongs to
    8       4     sender     number of the sending executor
    12      4     receiver   number of the receiving executor
    16      4     count      DATA: rows. CREDIT: rows returned. BARRIER, TICK: its number. COPY, PULL: of the barrier
                             LINGER: microseconds that rows wait for others in the sending worker
    20      4     length     bytes of payload that follow; CREDIT: bytes returned, no payload
    24            payload

All fields are little-endian. Payload by kind:

    DATA   when STAMPED: a uint32 n and n times (uint32 row, int64 intended time in ns); then the encoded rows, below
           or, when COLUMNS, in `columns`
    TICK   stream time and due time (int64 ns each)
    STATE  a piece of an executor's state; its receiver is the same, which moves, or takes over from it
    COPY   a piece of state that is copied before the barrier, likewise; PULL, which has no payload, requests it

Every field is checked against its limit before memory is allocated for it.

A batch of rows is encoded as MessagePack through msgspec, typed by the stream's declared schema: decoding checks every
field against its declared type and can only create ints, floats, strings, bytes, booleans and tuples of them. If the
`bytes` fields of a batch are large, they are appended to the rest, so that the sender does not copy them:

    offset  size  field
    0       1     0xC1, which no MessagePack value begins with
    1       4     length of the head, little-endian
    5             head: the batch in MessagePack, with the length of each `bytes` field in place of its contents
                  the contents of these fields, row by row

The receiver copies each field once, into a `bytes` object of its own. So a row that an operator keeps does not hold a
frame's buffer, and is the same whether it came from this worker or from another.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, starmap
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from inventory.errors import RunError
from workloads.operators import Row

HEADER = Struct("<BBHIIIII")
HEADER_BYTES = HEADER.size

DATA, CREDIT, END, BARRIER, TICK, STATE, COPY, PULL, LINGER = 1, 2, 3, 4, 5, 6, 7, 8, 9
STAMPED, COLUMNS = 1, 2
LAST, ROUND = 1, 2

MAX_PAYLOAD = 16 * 1024 * 1024
STATE_BYTES = 1024 * 1024
MAX_ROWS = 1 << 20
MAX_LINGER_US = 2_000

_CHUNK = 64 * 1024
_MIN_BUFFER = 16 * 1024
_MAX_BUFFER = 1024 * 1024
"""A reader's buffer grows as the peer fills it; only a single large frame takes it beyond this size."""

_STAMP = Struct("<Iq")
_COUNT = Struct("<I")
_TICK = Struct("<qq")

Stamps = Sequence[tuple[int, int]]
"""(row, intended time in ns of the controller's monotonic clock) of the sampled rows of a batch, ordered by row."""

TYPES: Mapping[str, type] = {"int": int, "float": float, "str": str, "bytes": bytes, "bool": bool}

LARGE_BYTES = 1024
"""From this mean size per row on, the contents of `bytes` fields are appended to the head."""

_APART = Struct("<BI")
_APART_MARK = 0xC1


class FrameError(RunError):
    """Bytes from a peer that are not a valid frame; the link is closed."""


class Frame(NamedTuple):
    """One frame; its payload is only valid until the reader receives more bytes."""

    kind: int
    flags: int
    stream: int
    epoch: int
    sender: int
    receiver: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which is unused here
    length: int
    payload: memoryview


def data(
    stream: int,
    epoch: int,
    sender: int,
    receiver: int,
    count: int,
    rows: Sequence[bytes],
    stamps: Stamps = (),
    flags: int = 0,
) -> list[bytes]:
    """Return the pieces of a DATA frame, in order; `rows` are encoded, those with the flag COLUMNS for `rows_at`."""
    nbytes = sum(map(len, rows))
    if not stamps:
        return [HEADER.pack(DATA, flags, stream, epoch, sender, receiver, count, nbytes), *rows]
    table = _COUNT.pack(len(stamps)) + b"".join(starmap(_STAMP.pack, stamps))
    length = len(table) + nbytes
    return [HEADER.pack(DATA, flags | STAMPED, stream, epoch, sender, receiver, count, length) + table, *rows]


def rows_at(stamps: int) -> int:
    """Return where the encoded rows begin in a DATA frame with so many stamps."""
    return HEADER_BYTES + (_COUNT.size + stamps * _STAMP.size if stamps else 0)


def credit(stream: int, epoch: int, sender: int, receiver: int, rows: int, nbytes: int) -> bytes:
    """Return a CREDIT frame: `rows` and `nbytes` of the channel sender -> receiver are free again."""
    return HEADER.pack(CREDIT, 0, stream, epoch, sender, receiver, rows, nbytes)


def end_frame(stream: int, epoch: int, sender: int, receiver: int) -> bytes:
    """Return an END frame: nothing more follows on the channel sender -> receiver."""
    return HEADER.pack(END, 0, stream, epoch, sender, receiver, 0, 0)


def barrier(stream: int, epoch: int, sender: int, receiver: int, number: int) -> bytes:
    """Return a BARRIER frame: all rows that the sender emitted on the channel before barrier `number` precede it."""
    return HEADER.pack(BARRIER, 0, stream, epoch, sender, receiver, number, 0)


def tick(stream: int, epoch: int, sender: int, receiver: int, number: int, time_ns: int, due_ns: int) -> bytes:
    """Return a TICK frame: all rows before stream time `time_ns` precede it.

    `due_ns` is when the tick was due, on the same clock as stamps.
    """
    return HEADER.pack(TICK, 0, stream, epoch, sender, receiver, number, _TICK.size) + _TICK.pack(time_ns, due_ns)


def tick_times(frame: Frame) -> tuple[int, int]:
    """Return stream time and due time of a TICK frame, in ns."""
    time_ns, due_ns = _TICK.unpack(frame.payload)
    return time_ns, due_ns


def state(epoch: int, executor: int, state: bytes, receiver: int | None = None) -> Iterator[bytes]:
    """Yield the pieces of the STATE frames that carry `state` to the executor itself, or to another one."""
    return _state_frames(STATE, LAST, epoch, executor, executor if receiver is None else receiver, 0, state)


def copy(
    epoch: int, executor: int, barrier: int, state: bytes, ends_round: bool, receiver: int | None = None
) -> Iterator[bytes]:
    """Yield the pieces of the COPY frames that carry `state`, some of what is copied before the barrier."""
    receiver = executor if receiver is None else receiver
    return _state_frames(COPY, LAST | ROUND * ends_round, epoch, executor, receiver, barrier, state)


def pull(epoch: int, executor: int, barrier: int, receiver: int | None = None) -> bytes:
    """Return a PULL frame: the next COPY, of an executor that moves or gives keys to `receiver`, may follow."""
    return HEADER.pack(PULL, 0, 0, epoch, executor, executor if receiver is None else receiver, barrier, 0)


def linger(epoch: int, wait_us: int) -> bytes:
    """Return a LINGER frame: rows wait `wait_us` microseconds for others in the sending worker, and should to it."""
    return HEADER.pack(LINGER, 0, 0, epoch, 0, 0, wait_us, 0)


def _state_frames(
    kind: int, last: int, epoch: int, executor: int, receiver: int, count: int, state: bytes
) -> Iterator[bytes]:
    view = memoryview(state)
    starts = range(0, max(1, len(view)), STATE_BYTES)
    for at in starts:
        piece = view[at : at + STATE_BYTES]
        flags = last if at == starts[-1] else 0
        yield HEADER.pack(kind, flags, 0, epoch, executor, receiver, count, len(piece))
        yield bytes(piece)


def split_payload(frame: Frame) -> tuple[Stamps, memoryview]:
    """Return stamps and encoded rows of a DATA frame.

    Raises:
        FrameError: the stamps do not fit the payload or the rows, or are not in ascending order.
    """
    if not frame.flags & STAMPED:
        return (), frame.payload
    if frame.length < _COUNT.size:
        raise FrameError("a stamped frame without stamps")
    (count,) = _COUNT.unpack_from(frame.payload)
    stop = _COUNT.size + count * _STAMP.size
    if count > frame.count or stop > frame.length:
        raise FrameError(f"{count} stamps for {frame.count} rows in {frame.length} bytes")
    stamps = list(_STAMP.iter_unpack(frame.payload[_COUNT.size : stop]))
    rows = [row for row, _ in stamps]
    if not all(map(int.__lt__, rows, islice(rows, 1, None))) or (rows and rows[-1] >= frame.count):
        raise FrameError("stamps of rows that are not in the frame")
    return stamps, frame.payload[stop:]


def _payload_bytes(kind: int, flags: int, count: int, length: int) -> int:
    """Return the number of payload bytes that follow a header.

    Raises:
        FrameError: a field is outside its limits.
    """
    if kind == DATA:
        if flags & ~(STAMPED | COLUMNS) or not 0 < count <= MAX_ROWS or length > MAX_PAYLOAD:
            raise FrameError(f"a data frame with flags {flags}, {count} rows, {length} bytes")
        return length
    if kind == STATE and not flags & ~LAST and not count and length <= STATE_BYTES:
        return length
    if kind == COPY and flags in (0, LAST, LAST | ROUND) and length <= STATE_BYTES:
        return length
    if kind == TICK and not flags and length == _TICK.size:
        return length
    numbered = (kind in (BARRIER, PULL) or (kind == LINGER and count <= MAX_LINGER_US)) and not length
    if not flags and (kind == CREDIT or numbered or (kind == END and not count | length)):
        return 0
    raise FrameError(f"a frame of kind {kind} with flags {flags}, count {count}, length {length}")


class FrameReader:
    """Splits a byte stream into frames; holds at most one incomplete frame.

    Bytes are received directly into its buffer, which stays small for a quiet peer.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._buffer = memoryview(bytearray(_MIN_BUFFER))
        self._start = self._stop = 0
        self._needed = HEADER_BYTES

    @property
    def is_amid_large(self) -> bool:
        """True if a part is missing of a frame that is larger than what is usually received at once."""
        return self._needed > _CHUNK

    def space(self, least: int = 1) -> memoryview:
        """Return free buffer space of at least `least` bytes; payloads of earlier frames become invalid.

        The space ends with a large incomplete frame, because bytes behind it would have to be moved afterwards.
        """
        held = self._stop - self._start
        wanted = max(self._needed, _CHUNK, held + least)
        size = len(self._buffer)
        if size < wanted and (held + least > size or self._stop == size):
            # Grow by the bytes received, not by the length that a header claims.
            size = max(min(2 * size, wanted), held + least)
        elif size > _MAX_BUFFER >= wanted:
            size = _MAX_BUFFER
        if size != len(self._buffer):
            larger = memoryview(bytearray(size))
            larger[:held] = self._buffer[self._start : self._stop]
            self._buffer = larger
        elif self._start and held:
            self._buffer[:held] = self._buffer[self._start : self._stop]
        self._start, self._stop = 0, held
        return self._buffer[held:wanted]

    def received(self, nbytes: int) -> Iterator[Frame]:
        """Yield the frames completed by the `nbytes` just written to `space`; consume them before receiving more.

        Raises:
            FrameError: a field is outside its limits, or the frame is of another epoch.
        """
        self._stop += nbytes
        buffer, end = self._buffer, self._stop
        self._needed = HEADER_BYTES
        while end - self._start >= HEADER_BYTES:
            at = self._start
            kind, flags, stream, epoch, sender, receiver, count, length = HEADER.unpack_from(buffer, at)
            body = at + HEADER_BYTES
            stop = body + _payload_bytes(kind, flags, count, length)
            if epoch != self._epoch:
                raise FrameError(f"a frame of epoch {epoch} in epoch {self._epoch}")
            if stop > end:
                self._needed = stop - at
                return
            self._start = stop
            # Per frame, the constructor of the named tuple would be the most expensive call.
            fields = (kind, flags, stream, epoch, sender, receiver, count, length, buffer[body:stop])
            yield tuple.__new__(Frame, fields)

    def feed(self, received: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """Yield the frames completed by bytes that were received elsewhere."""
        self.space(len(received))[: len(received)] = received
        yield from self.received(len(received))


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
