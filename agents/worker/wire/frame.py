"""The frame: the unit of the wire. One place writes it, one place reads it.

    offset  size  field
    0       1     kind       DATA, CREDIT, END, BARRIER, TICK or STATE
    1       1     flags      STAMPED: stamps precede the rows of a DATA frame; LAST: of a STATE
    2       2     stream     number of the stream (position in the topology's list of streams)
    4       4     epoch      start of the topology that the frame belongs to
    8       4     sender     number of the sending executor
    12      4     receiver   number of the receiving executor
    16      4     count      DATA: rows. CREDIT: rows given back. BARRIER: its number. TICK: its number
    20      4     length     bytes of payload that follow; CREDIT: bytes given back, no payload
    24            payload

Little-endian. The payload of a DATA frame is, when STAMPED, a uint32 n and n times (uint32 row, int64 intended time in
ns), then the codec's bytes; of a TICK its stream time and its due time (int64 ns each); of a STATE a piece of a moved
executor's state, whose sender and receiver are that executor. Every field is checked against its limit before anything
is allocated for it.
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
_LEAST_BUFFER = 16 * 1024
_MOST_BUFFER = 1024 * 1024
"""A reader's buffer grows as the peer fills it, and beyond this only for a single frame."""

_STAMP = Struct("<Iq")
_COUNT = Struct("<I")
_TICK = Struct("<qq")

Stamps = Sequence[tuple[int, int]]
"""(row, intended time in ns of the source's monotonic clock) of the sampled rows of a batch, by row."""


class FrameError(RunError):
    """A peer sent bytes that are no frame of this protocol; the link is closed."""


class Frame(NamedTuple):
    """One frame; the payload of a DATA frame is only valid until the next bytes are fed."""

    kind: int
    flags: int
    stream: int
    epoch: int
    sender: int
    receiver: int
    count: int  # type: ignore[assignment]  # shadows tuple.count, which nobody needs here
    length: int
    payload: memoryview


def data(
    stream: int, epoch: int, sender: int, receiver: int, count: int, rows: Sequence[bytes], stamps: Stamps = ()
) -> list[bytes]:
    """The pieces of a DATA frame, to be written one after the other; `rows` are the codec's."""
    nbytes = sum(map(len, rows))
    if not stamps:
        return [HEADER.pack(DATA, 0, stream, epoch, sender, receiver, count, nbytes), *rows]
    table = _COUNT.pack(len(stamps)) + b"".join([_STAMP.pack(row, stamp) for row, stamp in stamps])
    length = len(table) + nbytes
    return [HEADER.pack(DATA, STAMPED, stream, epoch, sender, receiver, count, length) + table, *rows]


def credit(stream: int, epoch: int, sender: int, receiver: int, rows: int, nbytes: int) -> bytes:
    """Give `rows` and `nbytes` of the channel sender -> receiver back to its sender."""
    return HEADER.pack(CREDIT, 0, stream, epoch, sender, receiver, rows, nbytes)


def end(stream: int, epoch: int, sender: int, receiver: int) -> bytes:
    """Nothing more comes on the channel sender -> receiver."""
    return HEADER.pack(END, 0, stream, epoch, sender, receiver, 0, 0)


def barrier(stream: int, epoch: int, sender: int, receiver: int, number: int) -> bytes:
    """Everything that the sender emitted on the channel before barrier `number` has been sent."""
    return HEADER.pack(BARRIER, 0, stream, epoch, sender, receiver, number, 0)


def tick(stream: int, epoch: int, sender: int, receiver: int, number: int, time_ns: int, due_ns: int) -> bytes:
    """Everything before `time_ns` of stream time has been sent; `due_ns` is when the tick was due, as for a stamp."""
    return HEADER.pack(TICK, 0, stream, epoch, sender, receiver, number, _TICK.size) + _TICK.pack(time_ns, due_ns)


def tick_times(frame: Frame) -> tuple[int, int]:
    """Stream time and due time of a TICK frame, in ns."""
    time_ns, due_ns = _TICK.unpack(frame.payload)
    return time_ns, due_ns


def state(epoch: int, executor: int, state: bytes) -> Iterator[bytes]:
    """The pieces of as many STATE frames as `state` needs."""
    view = memoryview(state)
    starts = range(0, max(1, len(view)), STATE_BYTES)
    for at in starts:
        piece = view[at : at + STATE_BYTES]
        flags = LAST if at == starts[-1] else 0
        yield HEADER.pack(STATE, flags, 0, epoch, executor, executor, 0, len(piece))
        yield bytes(piece)


def split_payload(frame: Frame) -> tuple[Stamps, memoryview]:
    """Stamps and encoded rows of a DATA frame.

    Raises:
        FrameError: the stamps do not fit the payload or the rows, or are not in rising order.
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
    """How many bytes follow a header.

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
    """Cuts a byte stream into frames; holds at most one incomplete frame.

    Bytes are received straight into its buffer, which is as small as the peer is quiet.
    """

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._buffer = memoryview(bytearray(_LEAST_BUFFER))
        self._start = self._stop = 0
        self._needed = HEADER_BYTES

    def space(self, least: int = 1) -> memoryview:
        """Where the next bytes go, `least` of them or more; what was received before is not valid any more.

        Bytes beyond a large frame would have to be moved when it has gone: there is room to its end, or for a chunk.
        """
        held = self._stop - self._start
        wanted = max(self._needed, _CHUNK, held + least)
        size = len(self._buffer)
        if size < wanted and (held + least > size or self._stop == size):
            # Twice as large for bytes that are there, never as large as a header promises.
            size = max(min(2 * size, wanted), held + least)
        elif size > _MOST_BUFFER >= wanted:
            size = _MOST_BUFFER
        if size != len(self._buffer):
            larger = memoryview(bytearray(size))
            larger[:held] = self._buffer[self._start : self._stop]
            self._buffer = larger
        elif self._start and held:
            self._buffer[:held] = self._buffer[self._start : self._stop]
        self._start, self._stop = 0, held
        return self._buffer[held:wanted]

    def received(self, nbytes: int) -> Iterator[Frame]:
        """Frames that are complete with the `nbytes` that are now in `space`; consume them before more is received.

        Raises:
            FrameError: a field is outside its limits or the epoch is another one.
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
            # Once per frame the constructor that named tuples come with would be the dearest call of all.
            fields = (kind, flags, stream, epoch, sender, receiver, count, length, buffer[body:stop])
            yield tuple.__new__(Frame, fields)

    def feed(self, received: bytes | bytearray | memoryview) -> Iterator[Frame]:
        """The same with bytes that were received elsewhere."""
        self.space(len(received))[: len(received)] = received
        yield from self.received(len(received))
