"""A channel: from one executor to another on one stream, in order, batched and bounded by credits.

The sender's end collects rows, sends a batch when it is full or old, and stops when it has no credit: an
executor with a blocked channel gets no turn, so a slow bolt slows its spout and nothing is ever dropped. Marks follow
the rows before them and need no credit. The receiver's end gives credit back as rows are consumed. Channels within a
worker (`local`) and between workers (`remote`) follow the same rules; only the last step differs, which is a method.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from agents.worker.channels.markers import End, Mark
from agents.worker.wire.frame import Stamps
from workloads.operators import Row

BATCH_ROWS = 1024
"""Rows of a full batch."""

BATCH_BYTES = 256 * 1024
"""A batch of large rows is full earlier."""

FLUSH_AGE_NS = 2_000_000
"""A batch that is not full leaves when its first row is so old; it bounds the latency at low rates."""

QUEUE_ROWS = 16_384
QUEUE_BYTES = 8 * 1024 * 1024
"""Bounds of one executor's input queue, shared out evenly over its channels."""


class ChannelId(NamedTuple):
    """Which channel: executors and stream by number."""

    sender: int
    receiver: int
    stream: int


class Window(NamedTuple):
    """What one channel may have on the way or queued."""

    rows: int
    nbytes: int


class Delivery(NamedTuple):
    """One entry of an executor's input queue: a batch, or a mark."""

    channel: "Incoming"
    rows: Sequence[Row]
    stamps: Stamps
    nbytes: int
    mark: Mark | None = None


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


class Outgoing(ABC):
    """The sender's end.

    Attributes:
        id: which channel.
        peer: number of the worker of the receiver.
        pending: rows that have not left.
        ended: whether the end has left.
        closed: whether the receiver has let go of it, after the barrier that moved one of the two.
        tuples, batches: what has left.
    """

    def __init__(self, channel: ChannelId, peer: int, window: Window, ager: Ager) -> None:
        self.id, self.peer = channel, peer
        self.pending: list[Row] = []
        self.since_ns = 0
        self._stamps: list[tuple[int, int]] = []
        self._marks: list[Mark] = []
        self._credit_rows, self._credit_bytes = window
        self._batch_rows = BATCH_ROWS
        self._ager = ager
        self.ended = self.closed = False
        self.tuples = self.batches = 0

    @property
    def blocked(self) -> bool:
        """Whether a full batch, or a mark behind rows, waits for credit."""
        return len(self.pending) >= self._batch_rows or bool(self._marks)

    def add(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        """Send `rows`, soon; `stamps` are intended times of those that come from sampled records."""
        pending = self.pending
        if not pending:
            self.since_ns = self._ager.watch(self)
        if stamps:
            first = len(pending)
            self._stamps += [(first + row, stamp) for row, stamp in stamps]
        pending += rows
        if len(pending) >= self._batch_rows:
            self._send(partial=False)

    def mark(self, mark: Mark) -> None:
        """Send a mark behind the rows; none may be added until it has left."""
        self._marks.append(mark)
        self.flush()

    def flush(self) -> None:
        """Send all that the credit allows, be it less than a batch."""
        self._send(partial=True)
        while self._marks and not self.pending:
            mark = self._marks.pop(0)
            self._deliver_mark(mark)
            self.ended = isinstance(mark, End)

    def _send(self, partial: bool) -> None:
        """Send full batches, and with `partial` the rest, as far as the credit goes."""
        while (
            self.pending
            and (partial or len(self.pending) >= self._batch_rows)
            and self._credit_rows > 0
            and self._credit_bytes > 0
        ):
            most = min(self._batch_rows, self._credit_rows)
            rows = self.pending if len(self.pending) <= most else self.pending[:most]
            count, nbytes = self._deliver(rows)
            if count == len(self.pending):
                # Within a worker this list is now the receiver's.
                self.pending = []
            else:
                del self.pending[:count]
            self._credit_rows -= count
            self._credit_bytes -= nbytes
            self.tuples += count
            self.batches += 1

    def _fitting(self, count: int, nbytes: int) -> int:
        """How many of `count` rows that take `nbytes` leave as one batch.

        Rows of several kB fill a batch by bytes; batches to come have as many as would have fitted.
        """
        self._batch_rows = max(1, min(BATCH_ROWS, BATCH_BYTES * count // max(1, nbytes)))
        return count if nbytes <= 2 * BATCH_BYTES else min(count, self._batch_rows)

    def credit(self, rows: int, nbytes: int) -> None:
        """The receiver has consumed so much."""
        self._credit_rows += rows
        self._credit_bytes += nbytes
        if self._marks or (self.pending and self._ager.is_old(self.since_ns)):
            self.flush()
        else:
            self._send(partial=False)

    def _take_stamps(self, count: int) -> Stamps:
        stamps = self._stamps
        if not stamps:
            return ()
        if stamps[-1][0] < count:
            self._stamps = []
            return stamps
        self._stamps = [(row - count, stamp) for row, stamp in stamps if row >= count]
        return [entry for entry in stamps if entry[0] < count]

    @abstractmethod
    def _deliver(self, rows: list[Row]) -> tuple[int, int]:
        """Hand the first of `rows` over as one batch; return how many, and the bytes that they take of the window."""

    @abstractmethod
    def _deliver_mark(self, mark: Mark) -> None:
        """Hand a mark over."""


class Inbox(Protocol):
    """Where a receiver's end puts what arrives."""

    def append(self, delivery: Delivery) -> None:
        """Take one delivery."""
        ...


class Incoming(ABC):
    """The receiver's end; `source` and `stream` are names."""

    def __init__(self, source: str, stream: str, inbox: Inbox, window: Window) -> None:
        self.source, self.stream = source, stream
        self._inbox = inbox
        self._rows = self._bytes = 0
        # Giving back half a window at a time keeps the sender going and costs few frames.
        self._half_rows, self._half_bytes = window.rows // 2, window.nbytes // 2

    def deliver(self, rows: Sequence[Row], stamps: Stamps, nbytes: int) -> None:
        """Put a batch into the executor's queue."""
        self._inbox.append(tuple.__new__(Delivery, (self, rows, stamps, nbytes, None)))

    def deliver_mark(self, mark: Mark) -> None:
        """Put a mark into the executor's queue."""
        self._inbox.append(Delivery(self, (), (), 0, mark))

    def consumed(self, rows: int, nbytes: int) -> None:
        """The executor has processed so much of this channel."""
        self._rows += rows
        self._bytes += nbytes
        if self._rows >= self._half_rows or self._bytes > self._half_bytes:
            rows, self._rows = self._rows, 0
            nbytes, self._bytes = self._bytes, 0
            self._give_back(rows, nbytes)

    @abstractmethod
    def close(self) -> None:
        """Let go of the channel: nothing comes on it any more, and no credit will be given."""

    @abstractmethod
    def drop(self) -> None:
        """Break circles of references: the garbage collector, which would find them, runs hardly ever in a worker."""

    @abstractmethod
    def _give_back(self, rows: int, nbytes: int) -> None:
        """Give credit."""


def window(channels_of_receiver: int) -> Window:
    """What one of an executor's `channels_of_receiver` channels may have on the way or queued."""
    return Window(max(16, QUEUE_ROWS // channels_of_receiver), max(64 * 1024, QUEUE_BYTES // channels_of_receiver))
