"""Both ends of a channel within a worker: no codec, no link.

Rows go over as they are. What a batch takes of the window, in bytes, is estimated from a few of its rows, so that a
queue of large rows is bounded as between workers and small ones cost nothing each.
"""

from agents.worker.channels.channel import Ager, ChannelId, Inbox, Incoming, Outgoing, Window
from agents.worker.channels.markers import Mark
from agents.worker.wire.codec import encoded_bytes
from workloads.operators import Row

SAMPLED_ROWS = 4
"""Rows of a batch, about, that its size is estimated from."""


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

    def __init__(self, channel: ChannelId, peer: int, window: Window, ager: Ager, receiver_end: LocalIncoming) -> None:
        super().__init__(channel, peer, window, ager)
        self._receiver_end = receiver_end
        receiver_end.sender_end = self

    def _deliver(self, rows: list[Row]) -> tuple[int, int]:
        count = len(rows)
        # Evenly, but not the same places in every batch: what comes with a period is neither preferred nor missed.
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
    ager: Ager,
    kind: type[LocalOutgoing] = LocalOutgoing,
) -> tuple[LocalOutgoing, LocalIncoming]:
    """Both ends; `here` is this worker's number, `names` those of the sending component and its stream.

    `kind` is what the sender's end is to be.
    """
    incoming = LocalIncoming(*names, inbox, window)
    return kind(channel, here, window, ager, incoming), incoming
