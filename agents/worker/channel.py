"""A channel: from one executor to another on one stream, in order, batched and bounded by credits.

The sender's end collects rows, sends a batch when it is full or old, and stops when it has no credit: an
executor with a blocked channel gets no turn, so a slow bolt slows its spout and nothing is ever dropped. The receiver's
end gives credit back as rows are consumed. Channels within a worker and between workers follow the same rules; only the
last step differs, which is a method.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agents.worker import frame
from agents.worker.codec import Codec, CodecError
from workloads.operators import Row

BATCH_ROWS = 256
"""Rows of a full batch."""

BATCH_BYTES = 256 * 1024
"""A batch of large rows is full earlier."""

FLUSH_AGE_NS = 2_000_000
"""A batch that is not full leaves when its first row is so old; it bounds the latency at low rates."""

QUEUE_ROWS = 16_384
QUEUE_BYTES = 8 * 1024 * 1024
"""Bounds of one executor's input queue, shared out evenly over its channels."""


class Delivery(NamedTuple):
    """One entry of an executor's input queue; `rows` None means that the channel has ended."""

    channel: "Incoming"
    rows: Sequence[Row] | None
    stamps: frame.Stamps
    nbytes: int


class Ager:
    """Knows which channels hold rows and since when; `now_ns` is the loop's cached clock."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._waiting: deque[tuple[int, Outgoing]] = deque()

    def watch(self, channel: "Outgoing") -> int:
        """Note that `channel` holds its first row from now on; return that time."""
        self._waiting.append((self.now_ns, channel))
        return self.now_ns

    def is_old(self, since_ns: int) -> bool:
        """Whether rows that wait since then must leave."""
        return since_ns <= self.now_ns - FLUSH_AGE_NS

    def flush_old(self) -> None:
        """Send what is older than `FLUSH_AGE_NS`."""
        while self._waiting and self.is_old(self._waiting[0][0]):
            since, channel = self._waiting.popleft()
            if channel.pending and channel.since_ns == since:
                channel.flush()

    @property
    def next_ns(self) -> int | None:
        """When something becomes old, or None."""
        return self._waiting[0][0] + FLUSH_AGE_NS if self._waiting else None


class Outgoing:
    """The sender's end."""

    def __init__(self, plan_key: tuple[int, int, int], window: tuple[int, int], ager: Ager) -> None:
        self.sender, self.receiver, self.stream = plan_key
        self.pending: list[Row] = []
        self.since_ns = 0
        self._stamps: list[tuple[int, int]] = []
        self._credit_rows, self._credit_bytes = window
        self._batch_rows = BATCH_ROWS
        self._ager = ager
        self._ending = False
        self.ended = False
        self.tuples = self.batches = 0

    @property
    def blocked(self) -> bool:
        """Whether a full batch waits for credit."""
        return len(self.pending) >= self._batch_rows

    def add(self, rows: Sequence[Row], stamp: int | None) -> None:
        """Send `rows`, soon; `stamp` is their intended time when they come from a sampled record."""
        pending = self.pending
        if not pending:
            self.since_ns = self._ager.watch(self)
        if stamp is not None:
            first = len(pending)
            self._stamps.extend([(first + at, stamp) for at in range(len(rows))])
        pending += rows
        if len(pending) >= self._batch_rows:
            self._send(partial=False)

    def flush(self) -> None:
        """Send all that the credit allows, be it less than a batch."""
        self._send(partial=True)
        if self._ending and not self.pending and not self.ended:
            self.ended = True
            self._deliver_end()

    def _send(self, partial: bool) -> None:
        """Send full batches, and with `partial` the rest, as far as the credit goes."""
        while self.pending and (partial or self.blocked) and self._credit_rows > 0 and self._credit_bytes > 0:
            count, nbytes = self._deliver(self.pending[: min(self._batch_rows, self._credit_rows)])
            del self.pending[:count]
            self._credit_rows -= count
            self._credit_bytes -= nbytes
            self.tuples += count
            self.batches += 1

    def credit(self, rows: int, nbytes: int) -> None:
        """The receiver has consumed so much."""
        self._credit_rows += rows
        self._credit_bytes += nbytes
        if self._ending or (self.pending and self._ager.is_old(self.since_ns)):
            self.flush()
        else:
            self._send(partial=False)

    def end(self) -> None:
        """Nothing more will be added; the receiver is told after the last row."""
        self._ending = True
        self.flush()

    def _take_stamps(self, count: int) -> frame.Stamps:
        stamps = self._stamps
        if not stamps:
            return ()
        if stamps[-1][0] < count:
            self._stamps = []
            return stamps
        self._stamps = [(row - count, stamp) for row, stamp in stamps if row >= count]
        return [entry for entry in stamps if entry[0] < count]

    def _deliver(self, rows: list[Row]) -> tuple[int, int]:
        """Hand the first of `rows` over as one batch; return how many, and the bytes that they take of the window."""
        raise NotImplementedError

    def _deliver_end(self) -> None:
        raise NotImplementedError


class Incoming:
    """The receiver's end."""

    def __init__(self, source: str, stream: str, queue: "deque[Delivery]", window: tuple[int, int]) -> None:
        self.source, self.stream = source, stream
        self._queue = queue
        self._rows = self._bytes = 0
        # Giving back half a window at a time keeps the sender going and costs few frames.
        self._half_rows, self._half_bytes = window[0] // 2, window[1] // 2

    def deliver(self, rows: Sequence[Row], stamps: frame.Stamps, nbytes: int) -> None:
        """Put a batch into the executor's queue."""
        self._queue.append(Delivery(self, rows, stamps, nbytes))

    def deliver_end(self) -> None:
        """Put the end of the channel into the executor's queue."""
        self._queue.append(Delivery(self, None, (), 0))

    def consumed(self, rows: int, nbytes: int) -> None:
        """The executor has processed so much of this channel."""
        self._rows += rows
        self._bytes += nbytes
        if self._rows > self._half_rows or self._bytes > self._half_bytes:
            rows, self._rows = self._rows, 0
            nbytes, self._bytes = self._bytes, 0
            self._give_back(rows, nbytes)

    def _give_back(self, rows: int, nbytes: int) -> None:
        raise NotImplementedError


class LocalIncoming(Incoming):
    """The receiver's end of a channel within this worker."""

    sender_end: "LocalOutgoing"

    def _give_back(self, rows: int, nbytes: int) -> None:
        self.sender_end.credit(rows, nbytes)


class LocalOutgoing(Outgoing):
    """The sender's end of a channel within this worker: no codec, no link, no bytes."""

    def __init__(
        self, plan_key: tuple[int, int, int], window: tuple[int, int], ager: Ager, receiver_end: LocalIncoming
    ) -> None:
        super().__init__(plan_key, window, ager)
        self._receiver_end = receiver_end
        receiver_end.sender_end = self

    def _deliver(self, rows: list[Row]) -> tuple[int, int]:
        self._receiver_end.deliver(rows, self._take_stamps(len(rows)), 0)
        return len(rows), 0

    def _deliver_end(self) -> None:
        self._receiver_end.deliver_end()


class Wire(Protocol):
    """What a channel needs of a link."""

    def write(self, pieces: list[bytes]) -> None:
        """Send bytes, in order, without waiting."""
        ...


class RemoteOutgoing(Outgoing):
    """The sender's end of a channel to another worker."""

    def __init__(
        self, plan_key: tuple[int, int, int], window: tuple[int, int], ager: Ager, codec: Codec, epoch: int, wire: Wire
    ) -> None:
        super().__init__(plan_key, window, ager)
        self._window = window
        self._codec, self._epoch, self.wire = codec, epoch, wire
        self.nbytes = 0

    def credit(self, rows: int, nbytes: int) -> None:
        """Take a CREDIT frame.

        Raises:
            FrameError: it gives more back than was taken.
        """
        if self._credit_rows + rows > self._window[0] or self._credit_bytes + nbytes > self._window[1]:
            raise frame.FrameError(f"credit of {rows} rows and {nbytes} bytes that were never used")
        super().credit(rows, nbytes)

    def _deliver(self, rows: list[Row]) -> tuple[int, int]:
        encoded = self._codec.encode(rows)
        # Rows of several kB fill a batch by bytes; the next batch takes as many as would have fitted.
        self._batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * len(rows) // len(encoded)))
        if len(encoded) > 2 * BATCH_BYTES and len(rows) > 1:
            return self._deliver(rows[: self._batch_rows])
        if len(encoded) > frame.MAX_PAYLOAD // 2:
            raise frame.FrameError(f"one row takes {len(encoded)} bytes, the most is {frame.MAX_PAYLOAD // 2}")
        stamps = self._take_stamps(len(rows))
        pieces = frame.data(self.stream, self._epoch, self.sender, self.receiver, len(rows), encoded, stamps)
        self.wire.write(pieces)
        size = sum(map(len, pieces))
        self.nbytes += size
        return len(rows), size

    def _deliver_end(self) -> None:
        self.wire.write([frame.end(self.stream, self._epoch, self.sender, self.receiver)])


class RemoteIncoming(Incoming):
    """The receiver's end of a channel from another worker."""

    def __init__(
        self,
        plan_key: tuple[int, int, int],
        names: tuple[str, str],
        queue: "deque[Delivery]",
        window: tuple[int, int],
        codec: Codec,
        epoch: int,
        wire: Wire,
    ) -> None:
        super().__init__(*names, queue, window)
        self.sender, self.receiver, self.stream_number = plan_key
        self.codec = codec
        self._window = window
        self._taken_rows = self._taken_bytes = 0
        self._ended = False
        self._epoch, self.wire = epoch, wire

    def receive(self, received: frame.Frame) -> None:
        """Take a DATA frame.

        Raises:
            FrameError, CodecError: it is not what its header and schema promise, or more than the window allows.
        """
        self._check_open()
        # A sender with a byte of credit left may send one batch, whatever its size.
        if self._taken_rows + received.count > self._window[0] or self._taken_bytes >= self._window[1]:
            raise frame.FrameError(f"{received.count} rows beyond the window of their channel")
        nbytes = frame.HEADER_BYTES + received.length
        self._taken_rows += received.count
        self._taken_bytes += nbytes
        stamps, encoded = frame.split_payload(received)
        try:
            rows = self.codec.decode(encoded, received.count)
        except CodecError as fault:
            raise CodecError(f"{self.source} sent {fault}") from None
        self.deliver(rows, stamps, nbytes)

    def deliver_end(self) -> None:
        """Take an END frame.

        Raises:
            FrameError: it is the second one.
        """
        self._check_open()
        self._ended = True
        super().deliver_end()

    def _check_open(self) -> None:
        if self._ended:
            raise frame.FrameError("a frame after the end of its channel")

    def _give_back(self, rows: int, nbytes: int) -> None:
        self._taken_rows -= rows
        self._taken_bytes -= nbytes
        self.wire.write([frame.credit(self.stream_number, self._epoch, self.sender, self.receiver, rows, nbytes)])


def window(channels_of_receiver: int) -> tuple[int, int]:
    """(rows, bytes) that one of an executor's `channels_of_receiver` channels may have on the way or queued."""
    return max(16, QUEUE_ROWS // channels_of_receiver), max(64 * 1024, QUEUE_BYTES // channels_of_receiver)
