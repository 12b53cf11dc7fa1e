"""Gates: in a run with a communication schedule, rows wait until the gate to their receiver's node opens.

A node may send to one node per stage in a time slot. Every channel is an outbox whose rows are sent only when the gate
to its receiver's node opens, at most one part per executor pair and time slot; the rest waits for the next round.
Channels within a node follow the schedule too. The executor of a shuffled component that gets a row is chosen when a
gate opens (`Pool`). Markers carry no rows and need no gate, but they stay behind the rows before them. A full outbox
blocks its executor; it is not sent outside its time slot.

Runs without gates use the plain channels and routers.
"""

from collections.abc import Callable, Mapping, Sequence

from agents.worker.channels.channel import Delivery, Inbox, Mark, Outgoing
from agents.worker.channels.ends import SAMPLED_ROWS, LocalOutgoing, RemoteOutgoing
from agents.worker.channels.groupings import Grouping, Router, Shuffle
from agents.worker.wire.frame import Stamps, encoded_bytes
from workloads.columns import Columns, joined_rows
from workloads.operators import Row

OUTBOX_PARTS = 4
"""Parts in a full outbox."""


def estimated_bytes(rows: Sequence[Row]) -> int:
    """Return the encoded size of rows, estimated from a few evenly spaced ones; of columns, their size."""
    if not rows:
        return 0
    if isinstance(rows, Columns):
        return rows.nbytes
    sample = rows[:: max(1, len(rows) // SAMPLED_ROWS)]
    return encoded_bytes(sample) * len(rows) // len(sample)


class Gated(Outgoing):
    """The sender's end of a channel as an outbox; `part_tuples` is the most rows sent per time slot."""

    part_tuples = 0
    takes_ticks = False

    @property
    def blocked(self) -> bool:
        return len(self.pending) >= OUTBOX_PARTS * self.part_tuples or bool(self._marks)

    @property
    def room(self) -> int:
        """Number of further rows that would be sent if the gate opened now."""
        if self._credit_bytes <= 0:
            return 0
        return max(0, min(self.part_tuples, self._credit_rows) - len(self.pending))

    def release(self, most: int) -> int:
        """Send up to `most` rows through the open gate, within the credit; return how many were sent."""
        kept = self.pending[most:]
        del self.pending[most:]
        before = self.tuples
        super()._send(partial=True)
        self.pending = joined_rows(self.pending, kept)
        # Markers may be next.
        self.flush()
        return self.tuples - before

    def _send(self, partial: bool) -> None:
        """Send nothing: neither a full batch nor an old one opens a gate."""


class GatedLocal(Gated, LocalOutgoing):
    """An outbox for an executor of this worker."""


class GatedRemote(Gated, RemoteOutgoing):
    """An outbox for an executor of another worker."""


class Pool:
    """A shuffle grouping whose `rows` wait for a gate, and go to executors on the node to which it opens."""

    def __init__(self, channels: Sequence[Outgoing], first: int) -> None:
        self._channels = [channel for channel in channels if isinstance(channel, Gated)]
        self._evenly = Shuffle(channels, first)
        self._stamps: list[tuple[int, int]] = []
        self._turn = 0
        self.rows: list[Row] | Columns = []

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        first = len(self.rows)
        self._stamps += [(first + at, stamp) for at, stamp in stamps]
        self.rows = joined_rows(self.rows, rows)

    @property
    def full(self) -> bool:
        """True if the rows would fill the outboxes of all channels."""
        return len(self.rows) >= sum(OUTBOX_PARTS * channel.part_tuples for channel in self._channels)

    def distribute(self, is_open: Callable[[Outgoing], bool]) -> None:
        """Divide rows evenly among the channels whose gates open, at most as many as can be sent now."""
        if not self.rows:
            return
        opened = [channel for channel in self._channels if is_open(channel)]
        self._turn += 1
        for at in range(len(opened)):
            channel = opened[(self._turn + at) % len(opened)]
            share = min(-(-len(self.rows) // (len(opened) - at)), channel.room)
            if share:
                channel.add(*self._take(share))

    def assign_waiting(self) -> None:
        """Assign the waiting rows to all channels round robin, because a marker follows them."""
        if self.rows:
            self._evenly.deal(*self._take(len(self.rows)))

    def _take(self, count: int) -> tuple[Sequence[Row], Stamps]:
        """Remove and return the first `count` rows with their stamps."""
        taken, self.rows = self.rows[:count], self.rows[count:]
        stamps = [entry for entry in self._stamps if entry[0] < count]
        self._stamps = [(at - count, stamp) for at, stamp in self._stamps if at >= count]
        return taken, stamps


class GatedRouter(Router):
    """The router of an executor whose channels are gated; `pools` hold rows without a receiver yet."""

    def __init__(self, executor: str, streams: Mapping[str, Sequence[Grouping]], channels: Sequence[Outgoing]) -> None:
        super().__init__(executor, streams, channels)
        self.pools = [each for groupings in streams.values() for each in groupings if isinstance(each, Pool)]

    @property
    def blocked(self) -> bool:
        return super().blocked or any(pool.full for pool in self.pools)

    def mark(self, mark: Mark) -> None:
        for pool in self.pools:
            pool.assign_waiting()
        super().mark(mark)


class CountingInbox:
    """An inbox that calls `count` with the number of rows of each delivery."""

    def __init__(self, inbox: Inbox, count: Callable[[int], None]) -> None:
        self._append, self._count = inbox.append, count

    def append(self, delivery: Delivery) -> None:
        self._count(len(delivery.rows))
        self._append(delivery)
