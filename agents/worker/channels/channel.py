"""A channel from one executor to another on one stream: in order, batched, with credit-based flow control.

The sender's end collects rows, sends a batch when it is full or has waited (`linger`), and stops when it has no credit.
An executor with a blocked channel gets no turn, so a slow bolt slows its spout down and nothing is dropped. The
receiver's end returns credit as rows are consumed. Channels within a worker and between workers (`ends`) follow the
same rules and differ only in how a batch is delivered.

Markers are sent between the rows of a channel, in order and without credit. Barriers and ticks have the same order on
every channel of a topology, so that a bolt can wait for each of them on all its channels. A channel that has ended
counts as having delivered all later ones.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from agents.worker.channels.linger import FlushTimer
from agents.worker.wire.frame import Stamps
from workloads.columns import Columns, joined_rows
from workloads.operators import Row

BATCH_ROWS = 1024
"""Rows of a full batch."""

COLUMN_BATCHES = 8
"""A channel between two column operators holds so many times the rows, because a batch of columns has fixed costs."""

BATCH_BYTES = 256 * 1024
"""Bytes of a full batch, which large rows reach earlier."""

DECODED_BYTES = 8 * 1024 * 1024
"""Most bytes of a batch of columns without its dictionaries, a few bytes of which can stand for any number of rows."""

QUEUE_ROWS = 16_384
QUEUE_BYTES = 8 * 1024 * 1024
"""Limits of one executor's input queue, divided evenly among its channels."""


class Barrier(NamedTuple):
    """Barrier `number`: the point at which state is stored or an executor moves."""

    number: int


class Tick(NamedTuple):
    """Tick `number`: rows before stream time `time_ns` were sent; `due_ns` is on the controller's monotonic clock."""

    number: int
    time_ns: int
    due_ns: int


class End(NamedTuple):
    """The end of a channel."""


Mark = Barrier | Tick | End


class Ticks(NamedTuple):
    """Ticks inside a batch: each with the number of rows of the batch that precede it, rising, at least one row."""

    places: tuple[tuple[int, Tick], ...]


class ChannelId(NamedTuple):
    """Identity of a channel: executors and stream by number."""

    sender: int
    receiver: int
    stream: int


class CreditWindow(NamedTuple):
    """Most rows and bytes of one channel in flight or queued."""

    rows: int
    nbytes: int


class Delivery(NamedTuple):
    """One entry of an executor's input queue: a batch, which may have ticks inside, or a marker."""

    channel: "Incoming"
    rows: Sequence[Row]
    stamps: Stamps
    nbytes: int
    mark: Mark | Ticks | None = None


class Outgoing(ABC):
    """The sender's end.

    A sender with ticks close together may have them travel inside its batches: `mark_inside`.

    Attributes:
        id: identity of the channel.
        peer: number of the receiver's worker.
        pending: rows that have not been sent.
        ended: whether the `End` marker has been sent.
        closed: whether the receiver has closed the channel, after the barrier at which one of the two moved.
        tuples, batches: totals sent.
        generation: another object after every barrier, at which dictionaries are forgotten.
        dictionary_bytes: most bytes of a dictionary for this channel.
        takes_ticks: whether ticks can travel inside its batches.
        is_local: whether the receiver is in the same worker.
    """

    takes_ticks: ClassVar[bool] = False
    is_local: ClassVar[bool] = False

    def __init__(
        self, channel: ChannelId, peer: int, window: CreditWindow, flush_timer: FlushTimer, batches: int = 1
    ) -> None:
        """Create the end; a full batch has `batches` times `BATCH_ROWS` rows."""
        self.id, self.peer = channel, peer
        self.pending: list[Row] | Columns = []
        self.since_ns = 0
        self._stamps: list[tuple[int, int]] = []
        self._ticks: list[tuple[int, Tick]] = []
        self._marks: list[Mark] = []
        self._credit_rows, self._credit_bytes = window
        self.generation = object()
        self.dictionary_bytes = window.nbytes // 2
        self._full_rows = self._batch_rows = BATCH_ROWS * batches
        # A batch of columns is not cut as long as it fits.
        self._most_batches = batches
        self._flush_timer = flush_timer
        self.ended = self.closed = False
        self.tuples = self.batches = 0

    @property
    def is_empty(self) -> bool:
        """True if it holds no rows."""
        return not self.pending

    @property
    def blocked(self) -> bool:
        """True if a full batch, or a marker behind rows, waits for credit."""
        return len(self.pending) >= self._batch_rows or bool(self._marks)

    def add(self, rows: Sequence[Row], stamps: Stamps = (), ticks: Sequence[tuple[int, Tick]] = ()) -> None:
        """Queue `rows` to be sent.

        Args:
            rows: to be sent.
            stamps: intended times of those that derive from sampled records.
            ticks: inside the rows, see `Ticks`; `flush` must follow.
        """
        pending = self.pending
        if ticks:
            self._ticks += [(len(pending) + row, tick) for row, tick in ticks]
        if not pending:
            self.since_ns = self._flush_timer.watch(self)
        if stamps:
            first = len(pending)
            self._stamps += [(first + row, stamp) for row, stamp in stamps] if first else stamps
        if isinstance(pending, Columns) or isinstance(rows, Columns):
            self.pending = pending = joined_rows(pending, rows)
        else:
            pending += rows
        if len(pending) >= self._batch_rows:
            self._send(partial=False)

    def mark(self, mark: Mark) -> None:
        """Send a marker behind the rows; no rows may be added until it has been sent."""
        self._marks.append(mark)
        if isinstance(mark, Barrier):
            self.generation = object()
        self.flush()

    def mark_inside(self, tick: Tick) -> None:
        """Send a tick behind the rows so far, which may wait, and in front of others; `flush` must follow."""
        if self.pending and not self._marks:
            self._ticks.append((len(self.pending), tick))
        else:
            self.mark(tick)

    def flush(self) -> None:
        """Send everything that the credit allows, even less than a batch."""
        self._send(partial=True)
        while self._marks and not self.pending:
            mark = self._marks.pop(0)
            self._deliver_mark(mark)
            self.ended = isinstance(mark, End)

    def _send(self, partial: bool) -> None:
        """Send full batches, and with `partial` also the rest, within the credit."""
        while (
            self.pending
            and (partial or len(self.pending) >= self._batch_rows)
            and self._credit_rows > 0
            and self._credit_bytes > 0
        ):
            most = min(self._batch_rows * self._most_batches, self._credit_rows)
            rows = self.pending if len(self.pending) <= most else self.pending[:most]
            count, nbytes = self._deliver(rows)
            if count == len(self.pending):
                # Within a worker the receiver now owns this list.
                self.pending = []
            else:
                del self.pending[:count]
            self._credit_rows -= count
            self._credit_bytes -= nbytes
            self.tuples += count
            self.batches += 1

    def _fitting(self, rows: Sequence[Row], nbytes: int) -> int:
        """Return how many of these rows, of `nbytes` in total, fit into one batch.

        Rows of several kB fill a batch by bytes; the size of later batches is adapted to them.
        """
        count = len(rows)
        self._batch_rows = max(1, min(self._full_rows, BATCH_BYTES * count // max(1, nbytes)))
        most = count if nbytes <= 2 * BATCH_BYTES else min(count, self._batch_rows)
        return min(most, rows.rows_within(DECODED_BYTES)) if isinstance(rows, Columns) else most

    def credit(self, rows: int, nbytes: int) -> None:
        """Take credit back for rows and bytes that the receiver has consumed."""
        self._credit_rows += rows
        self._credit_bytes += nbytes
        if self._marks or self._ticks or (self.pending and self._flush_timer.is_old(self)):
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

    def _take_ticks(self, count: int) -> Ticks | None:
        ticks = self._ticks
        if not ticks:
            return None
        taken = tuple([place for place in ticks if place[0] <= count])
        self._ticks = [(row - count, tick) for row, tick in ticks if row > count]
        return Ticks(taken) if taken else None

    @abstractmethod
    def _deliver(self, rows: list[Row] | Columns) -> tuple[int, int]:
        """Deliver the first of `rows` as one batch; return their number and the bytes that they take of the window."""

    @abstractmethod
    def _deliver_mark(self, mark: Mark) -> None:
        """Deliver a marker."""


class Inbox(Protocol):
    """Queue for deliveries at a receiver's end."""

    def append(self, delivery: Delivery) -> None:
        """Add one delivery."""
        ...


class Incoming(ABC):
    """The receiver's end; `source` and `stream` are names."""

    def __init__(self, source: str, stream: str, inbox: Inbox, window: CreditWindow) -> None:
        self.source, self.stream = source, stream
        self._inbox = inbox
        self._rows = self._bytes = 0
        # Returning half a window at a time keeps the sender busy and costs few frames.
        self._half_rows, self._half_bytes = window.rows // 2, window.nbytes // 2

    def deliver(self, rows: Sequence[Row], stamps: Stamps, nbytes: int, ticks: Ticks | None = None) -> None:
        """Put a batch into the executor's queue."""
        self._inbox.append(tuple.__new__(Delivery, (self, rows, stamps, nbytes, ticks)))

    def deliver_mark(self, mark: Mark) -> None:
        """Put a marker into the executor's queue."""
        self._inbox.append(Delivery(self, (), (), 0, mark))

    def consumed(self, rows: int, nbytes: int) -> None:
        """Note that the executor has processed rows of this channel; return credit from time to time."""
        self._rows += rows
        self._bytes += nbytes
        if self._rows >= self._half_rows or self._bytes > self._half_bytes:
            rows, self._rows = self._rows, 0
            nbytes, self._bytes = self._bytes, 0
            self._give_back(rows, nbytes)

    @abstractmethod
    def close(self) -> None:
        """Close the channel: nothing follows on it, and no more credit is returned."""

    @abstractmethod
    def drop(self) -> None:
        """Break circles of references: the garbage collector, which would find them, runs hardly ever in a worker."""

    @abstractmethod
    def _give_back(self, rows: int, nbytes: int) -> None:
        """Return credit to the sender."""


def window(channels_of_receiver: int, buffer_bytes: int = QUEUE_BYTES) -> CreditWindow:
    """Return the window of each channel of an executor that has `channels_of_receiver` of them.

    Between two column operators it has `COLUMN_BATCHES` times the rows, and as many bytes.

    Args:
        channels_of_receiver: number of channels that share the queue.
        buffer_bytes: size of the queue; its rows are in the same proportion.
    """
    rows = QUEUE_ROWS * buffer_bytes // QUEUE_BYTES
    return CreditWindow(max(16, rows // channels_of_receiver), max(64 * 1024, buffer_bytes // channels_of_receiver))
