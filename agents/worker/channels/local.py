"""Both ends of a channel within a worker: no codec, no link.

Rows are passed as Python objects. The bytes that a batch takes of the window are estimated from a few of its rows, so
that the queue has the same limit as between workers, at no cost per row.
"""

from agents.worker.channels.channel import ChannelId, FlushTimer, Inbox, Incoming, Outgoing, Window
from agents.worker.channels.markers import Mark
from agents.worker.wire.codec import encoded_bytes
from workloads.operators import Row

SAMPLED_ROWS = 4
"""Approximate number of rows from which the size of a batch is estimated."""


class LocalIncoming(Incoming):
    """The receiver's end of a channel within this worker."""

    sender_end: "LocalOutgoing"

    def close(self) -> None:
        """See `Incoming.close`."""
        self.sender_end.closed = True
        self.drop()

    def drop(self) -> None:
        """See `Incoming.drop`."""
        del self.sender_end

    def _give_back(self, rows: int, nbytes: int) -> None:
        self.sender_end.credit(rows, nbytes)


class LocalOutgoing(Outgoing):
    """The sender's end of a channel within this worker."""

    def __init__(
        self, channel: ChannelId, peer: int, window: Window, flush_timer: FlushTimer, receiver_end: LocalIncoming
    ) -> None:
        super().__init__(channel, peer, window, flush_timer)
        self._receiver_end = receiver_end
        receiver_end.sender_end = self

    def _deliver(self, rows: list[Row]) -> tuple[int, int]:
        count = len(rows)
        # Evenly spaced, with another offset in every batch, so that periodic rows are neither preferred nor missed.
        step = max(1, count // SAMPLED_ROWS)
        sample = rows[self.batches % step :: step]
        nbytes = encoded_bytes(sample) * count // len(sample)
        fitting = self._fitting(count, nbytes)
        if fitting < count:
            rows, nbytes = rows[:fitting], nbytes * fitting // count
        self._receiver_end.deliver(rows, self._take_stamps(len(rows)), nbytes)
        return len(rows), nbytes

    def _deliver_mark(self, mark: Mark) -> None:
        self._receiver_end.deliver_mark(mark)


def local_channel(
    channel: ChannelId,
    here: int,
    names: tuple[str, str],
    inbox: Inbox,
    window: Window,
    flush_timer: FlushTimer,
    kind: type[LocalOutgoing] = LocalOutgoing,
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
    """
    incoming = LocalIncoming(*names, inbox, window)
    return kind(channel, here, window, flush_timer, incoming), incoming
