"""The two ends of a channel within a worker, and of a channel between workers.

Within a worker rows are passed as Python objects, without codec or link. The bytes that a batch takes of the window are
estimated from a few of its rows, so that the queue has the same limit as between workers, at no cost per row; those of
columns are known.

Between workers there are a codec, frames, a link, and a window that the receiver enforces. With a credit of zero rows
and zero bytes the receiver closes a channel after one of its two executors has moved.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from agents.worker.channels.channel import (
    Barrier,
    ChannelId,
    CreditWindow,
    End,
    Inbox,
    Incoming,
    Mark,
    Outgoing,
    Tick,
)
from agents.worker.channels.linger import FlushTimer
from agents.worker.wire import frame
from agents.worker.wire.frame import Codec, CodecError, encoded_bytes
from workloads.columns import Columns
from workloads.operators import Row

if TYPE_CHECKING:
    from agents.worker.wire.columns import ColumnCodec

SAMPLED_ROWS = 4
"""Approximate number of rows from which the size of a batch is estimated."""


class LocalIncoming(Incoming):
    """The receiver's end of a channel within this worker."""

    sender_end: "LocalOutgoing"

    def close(self) -> None:
        self.sender_end.closed = True
        self.drop()

    def drop(self) -> None:
        del self.sender_end

    def _give_back(self, rows: int, nbytes: int) -> None:
        self.sender_end.credit(rows, nbytes)


class LocalOutgoing(Outgoing):
    """The sender's end of a channel within this worker."""

    takes_ticks = True
    is_local = True

    def __init__(
        self,
        channel: ChannelId,
        peer: int,
        window: CreditWindow,
        flush_timer: FlushTimer,
        receiver_end: LocalIncoming,
        batches: int = 1,
    ) -> None:
        super().__init__(channel, peer, window, flush_timer, batches)
        self._receiver_end = receiver_end
        receiver_end.sender_end = self

    def _deliver(self, rows: list[Row] | Columns) -> tuple[int, int]:
        count = len(rows)
        if isinstance(rows, Columns):
            nbytes = rows.nbytes
        else:
            # Evenly spaced, with another offset in every batch, so that periodic rows are neither preferred nor missed.
            step = max(1, count // SAMPLED_ROWS)
            sample = rows[self.batches % step :: step]
            nbytes = encoded_bytes(sample) * count // len(sample)
        fitting = self._fitting(rows, nbytes)
        if fitting < count:
            rows, nbytes = rows[:fitting], nbytes * fitting // count
        self._receiver_end.deliver(rows, self._take_stamps(len(rows)), nbytes, self._take_ticks(len(rows)))
        return len(rows), nbytes

    def _deliver_mark(self, mark: Mark) -> None:
        self._receiver_end.deliver_mark(mark)


def local_channel(
    channel: ChannelId,
    here: int,
    names: tuple[str, str],
    inbox: Inbox,
    window: CreditWindow,
    flush_timer: FlushTimer,
    kind: type[LocalOutgoing] = LocalOutgoing,
    batches: int = 1,
) -> tuple[LocalOutgoing, LocalIncoming]:
    """Return both ends of a channel within a worker.

    Args:
        channel: its identity.
        here: number of this worker.
        names: of the sending component and its stream.
        inbox: of the receiver.
        window: of the channel.
        flush_timer: of the worker.
        kind: class of the sender's end.
        batches: of the sender's end.
    """
    incoming = LocalIncoming(*names, inbox, window)
    return kind(channel, here, window, flush_timer, incoming, batches), incoming


class Wire(Protocol):
    """The part of a link that a channel uses."""

    def write(self, pieces: list[bytes]) -> None:
        """Send bytes, in order, without blocking."""
        ...


class RemoteOutgoing(Outgoing):
    """The sender's end of a channel to another worker; `nbytes` is the total size of its frames."""

    def __init__(
        self,
        channel: ChannelId,
        peer: int,
        window: CreditWindow,
        flush_timer: FlushTimer,
        codec: Codec,
        epoch: int,
        wire: Wire,
        batches: int = 1,
    ) -> None:
        super().__init__(channel, peer, window, flush_timer, batches)
        self._window = window
        self._codec, self._epoch, self._wire = codec, epoch, wire
        self.nbytes = 0

    def credit(self, rows: int, nbytes: int) -> None:
        """Handle a CREDIT frame.

        Raises:
            FrameError: it returns more credit than was used.
        """
        if not rows and not nbytes:
            self.closed = True
            return
        if self._credit_rows + rows > self._window.rows or self._credit_bytes + nbytes > self._window.nbytes:
            raise frame.FrameError(f"credit of {rows} rows and {nbytes} bytes that were never used")
        super().credit(rows, nbytes)

    def _deliver(self, rows: list[Row] | Columns) -> tuple[int, int]:
        columns = self._column_codec.encode(rows) if isinstance(rows, Columns) else None
        encoded = self._codec.encode(rows) if columns is None else columns.body
        nbytes = sum(map(len, encoded))
        fitting = self._fitting(rows, nbytes)
        if fitting < len(rows):
            return self._deliver(rows[:fitting])
        if nbytes > frame.MAX_PAYLOAD // 2:
            raise frame.FrameError(f"one row takes {nbytes} bytes, the most is {frame.MAX_PAYLOAD // 2}")
        stamps = self._take_stamps(len(rows))
        flags = 0
        if columns is not None:
            encoded, flags = columns.pieces(frame.rows_at(len(stamps))), frame.COLUMNS
            self._column_codec.note_sent(columns)
        sender, receiver, stream = self.id
        pieces = frame.data(stream, self._epoch, sender, receiver, len(rows), encoded, stamps, flags)
        self._wire.write(pieces)
        size = sum(map(len, pieces))
        self.nbytes += size
        return len(rows), size

    @cached_property
    def _column_codec(self) -> "ColumnCodec":
        return _column_codec(self._codec, self._window)

    def _deliver_mark(self, mark: Mark) -> None:
        sender, receiver, stream = self.id
        match mark:
            case Barrier(number=number):
                _forget_dictionaries(self)
                written = frame.barrier(stream, self._epoch, sender, receiver, number)
            case Tick():
                written = frame.tick(stream, self._epoch, sender, receiver, *mark)
            case End():
                written = frame.end_frame(stream, self._epoch, sender, receiver)
        self._wire.write([written])


class RemoteIncoming(Incoming):
    """The receiver's end of a channel from another worker."""

    def __init__(
        self,
        channel: ChannelId,
        names: tuple[str, str],
        inbox: Inbox,
        window: CreditWindow,
        codec: Codec,
        epoch: int,
        wire: Wire,
    ) -> None:
        super().__init__(*names, inbox, window)
        self._id, self._codec = channel, codec
        self._window = window
        self._taken_rows = self._taken_bytes = 0
        self._last: dict[type[Mark], int] = {}
        self._ended = False
        self._epoch, self._wire = epoch, wire

    def receive(self, received: frame.Frame) -> None:
        """Handle a DATA frame.

        Raises:
            FrameError, CodecError: it does not match its header or schema, or exceeds the window.
        """
        self._check_open()
        # With at least one byte of credit left, a sender may send one batch of any size.
        if self._taken_rows + received.count > self._window.rows or self._taken_bytes >= self._window.nbytes:
            raise frame.FrameError(f"{received.count} rows beyond the window of their channel")
        nbytes = frame.HEADER_BYTES + received.length
        self._taken_rows += received.count
        self._taken_bytes += nbytes
        stamps, encoded = frame.split_payload(received)
        rows: Sequence[Row]
        try:
            if received.flags & frame.COLUMNS:
                at = frame.HEADER_BYTES + received.length - len(encoded)
                rows = self._column_codec.decode(encoded, received.count, at)
            else:
                rows = self._codec.decode(encoded, received.count)
        except CodecError as fault:
            raise CodecError(f"{self.source} sent {fault}") from None
        self.deliver(rows, stamps, nbytes)

    @cached_property
    def _column_codec(self) -> "ColumnCodec":
        return _column_codec(self._codec, self._window)

    def deliver_mark(self, mark: Mark) -> None:
        """Handle a marker.

        Raises:
            FrameError: the channel had ended, or the marker's number is not higher than the last one of its kind.
        """
        self._check_open()
        match mark:
            case End():
                self._ended = True
            case Barrier(number=number) | Tick(number=number):
                kind = type(mark)
                last = self._last.get(kind, 0)
                if number <= last:
                    raise frame.FrameError(f"{kind.__name__.lower()} {number} behind {last}")
                self._last[kind] = number
                if kind is Barrier:
                    _forget_dictionaries(self)
        super().deliver_mark(mark)

    def close(self) -> None:
        self._credit(0, 0)

    def drop(self) -> None:
        """Do nothing: the channel is part of no cycle of references."""

    def _check_open(self) -> None:
        if self._ended:
            raise frame.FrameError("a frame after the end of its channel")

    def _give_back(self, rows: int, nbytes: int) -> None:
        self._taken_rows -= rows
        self._taken_bytes -= nbytes
        self._credit(rows, nbytes)

    def _credit(self, rows: int, nbytes: int) -> None:
        sender, receiver, stream = self._id
        self._wire.write([frame.credit(stream, self._epoch, sender, receiver, rows, nbytes)])


def _column_codec(codec: Codec, window: CreditWindow) -> "ColumnCodec":
    # Arrow's computations are loaded with the first batch of columns.
    from agents.worker.wire.columns import ColumnCodec

    return ColumnCodec(codec.schema, window.nbytes // 2)


def _forget_dictionaries(end: RemoteOutgoing | RemoteIncoming) -> None:
    codec: ColumnCodec | None = vars(end).get("_column_codec")
    if codec is not None:
        codec.forget()


def mark_of(received: frame.Frame) -> Mark:
    """Return the marker in a BARRIER, TICK or END frame."""
    match received.kind:
        case frame.BARRIER:
            return Barrier(received.count)
        case frame.TICK:
            return Tick(received.count, *frame.tick_times(received))
        case _:
            return End()
