"""Frames, the unit of transfer between workers: writing and reading.

    offset  size  field
    0       1     kind       DATA, CREDIT, END, BARRIER, TICK or STATE
    1       1     flags      STAMPED: stamps precede the rows of a DATA frame; LAST: of a STATE
    2       2     stream     number of the stream (position in the topology's list of streams)
    4       4     epoch      start of the topology that the frame belongs to
    8       4     sender     number of the sending executor
    12      4     receiver   number of the receiving executor
    16      4     count      DATA: rows. CREDIT: rows returned. BARRIER: its number. TICK: its number
    20      4     length     bytes of payload that follow; CREDIT: bytes returned, no payload
    24            payload

All fields are little-endian. Payload by kind:

    DATA   when STAMPED: a uint32 n and n times (uint32 row, int64 intended time in ns); then the encoded rows
    TICK   stream time and due time (int64 ns each)
    STATE  a piece of a moved executor's state; sender and receiver are both that executor

Every field is checked against its limit before memory is allocated for it.
"""

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from inventory.errors import RunError

HEADER = Struct("<BBHIIIII")
HEADER_BYTES = HEADER.size

DATA, CREDIT, END, BARRIER, TICK, STATE = 1, 2, 3, 4, 5, 6
STAMPED = 1
LAST = 1

MAX_PAYLOAD = 16 * 1024 * 1024
STATE_BYTES = 1024 * 1024
MAX_ROWS = 1 << 20

_CHUNK = 64 * 1024
_MIN_BUFFER = 16 * 1024
_MAX_BUFFER = 1024 * 1024
"""A reader's buffer grows as the peer fills it; only a single large frame takes it beyond this size."""

_STAMP = Struct("<Iq")
_COUNT = Struct("<I")
_TICK = Struct("<qq")

Stamps = Sequence[tuple[int, int]]
"""(row, intended time in ns of the controller's monotonic clock) of the sampled rows of a batch, ordered by row."""


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
    stream: int, epoch: int, sender: int, receiver: int, count: int, rows: Sequence[bytes], stamps: Stamps = ()
) -> list[bytes]:
    """Return the pieces of a DATA frame, to be written one after the other; `rows` are the encoded rows."""
    nbytes = sum(map(len, rows))
    if not stamps:
        return [HEADER.pack(DATA, 0, stream, epoch, sender, receiver, count, nbytes), *rows]
    table = _COUNT.pack(len(stamps)) + b"".join([_STAMP.pack(row, stamp) for row, stamp in stamps])
    length = len(table) + nbytes
    return [HEADER.pack(DATA, STAMPED, stream, epoch, sender, receiver, count, length) + table, *rows]


def credit(stream: int, epoch: int, sender: int, receiver: int, rows: int, nbytes: int) -> bytes:
    """Return a CREDIT frame: `rows` and `nbytes` of the channel sender -> receiver are free again."""
    return HEADER.pack(CREDIT, 0, stream, epoch, sender, receiver, rows, nbytes)


def end(stream: int, epoch: int, sender: int, receiver: int) -> bytes:
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


def state(epoch: int, executor: int, state: bytes) -> Iterator[bytes]:
    """Yield the pieces of the STATE frames that carry `state`."""
    view = memoryview(state)
    starts = range(0, max(1, len(view)), STATE_BYTES)
    for at in starts:
        piece = view[at : at + STATE_BYTES]
        flags = LAST if at == starts[-1] else 0
        yield HEADER.pack(STATE, flags, 0, epoch, executor, executor, 0, len(piece))
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
    if any(b <= a for a, b in zip([-1, *rows], rows, strict=False)) or (rows and rows[-1] >= frame.count):
        raise FrameError("stamps of rows that are not in the frame")
    return stamps, frame.payload[stop:]


def _payload_bytes(kind: int, flags: int, count: int, length: int) -> int:
    """Return the number of payload bytes that follow a header.

    Raises:
        FrameError: a field is outside its limits.
    """
    if kind == DATA:
        if flags & ~STAMPED or not 0 < count <= MAX_ROWS or length > MAX_PAYLOAD:
            raise FrameError(f"a data frame with flags {flags}, {count} rows, {length} bytes")
        return length
    if kind == STATE and not flags & ~LAST and not count and length <= STATE_BYTES:
        return length
    if kind == TICK and not flags and length == _TICK.size:
        return length
    if not flags and (kind == CREDIT or (kind == BARRIER and not length) or (kind == END and not count | length)):
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
