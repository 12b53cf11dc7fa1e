"""Gates: in a run with a communication schedule, rows wait until their node's gate opens.

A node may send to one node per stage in a time slot. Every channel is an outbox whose rows leave only when the gate to
its receiver's node opens, at most one part per executor pair and time slot; what is left waits for the next round.
Channels within a node have their turn like all others. Which executor of a shuffled component gets a row is not decided
before a gate opens (`Pool`). Marks carry no rows and need no gate, but they keep their place behind the rows before
them. A full outbox stops its executor; it is never opened out of turn.

Runs without gates make none of this: their channels and routers are the plain ones.
"""

from collections.abc import Callable, Mapping, Sequence

from agents.worker.channels.channel import Delivery, Inbox, Outgoing
from agents.worker.channels.groupings import Grouping, Router, Shuffle
from agents.worker.channels.local import LocalOutgoing
from agents.worker.channels.markers import Mark
from agents.worker.channels.remote import RemoteOutgoing
from agents.worker.wire.frame import Stamps
from workloads.operators import Row

OUTBOX_PARTS = 4
"""Parts that an outbox holds before it is full."""


class Gated(Outgoing):
    """The sender's end of a channel as an outbox; `part_tuples` is what may leave at a time."""

    part_tuples = 0

    @property
    def blocked(self) -> bool:
        return len(self.pending) >= OUTBOX_PARTS * self.part_tuples or bool(self._marks)

    @property
    def room(self) -> int:
        """How many more rows would leave if the gate opened now."""
        if self._credit_bytes <= 0:
            return 0
        return max(0, min(self.part_tuples, self._credit_rows) - len(self.pending))

    def release(self, most: int) -> int:
        """The gate is open: send `most` rows, as far as the credit goes; return how many left."""
        kept = self.pending[most:]
        del self.pending[most:]
        before = self.tuples
        super()._send(partial=True)
        self.pending += kept
        # Marks may be the next.
        self.flush()
        return self.tuples - before

    def _send(self, partial: bool) -> None:
        """Neither a full batch nor an old one opens a gate."""


class GatedLocal(Gated, LocalOutgoing):
    """An outbox for an executor of this worker."""


class GatedRemote(Gated, RemoteOutgoing):
    """An outbox for an executor of another worker."""


class Pool:
    """A shuffle grouping whose rows go to executors on the node whose gate opens; `rows` wait for that."""

    def __init__(self, channels: Sequence[Outgoing], first: int) -> None:
        self._channels = [channel for channel in channels if isinstance(channel, Gated)]
        self._evenly = Shuffle(channels, first)
        self._stamps: list[tuple[int, int]] = []
        self._turn = 0
        self.rows: list[Row] = []

    def deal(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        first = len(self.rows)
        self._stamps += [(first + at, stamp) for at, stamp in stamps]
        self.rows += rows

    @property
    def full(self) -> bool:
        """Whether there are as many rows as outboxes of the channels would hold."""
        return len(self.rows) >= sum(OUTBOX_PARTS * channel.part_tuples for channel in self._channels)

    def pour(self, is_open: Callable[[Outgoing], bool]) -> None:
        """Give rows to the channels whose gates open, as many as will leave, to each the same."""
        if not self.rows:
            return
        opened = [channel for channel in self._channels if is_open(channel)]
        self._turn += 1
        for at in range(len(opened)):
            channel = opened[(self._turn + at) % len(opened)]
            share = min(-(-len(self.rows) // (len(opened) - at)), channel.room)
            if share:
                channel.add(*self._take(share))

    def settle(self) -> None:
        """A mark comes behind the rows: they go to all channels, in turn."""
        if self.rows:
            self._evenly.deal(*self._take(len(self.rows)))

    def _take(self, count: int) -> tuple[list[Row], Stamps]:
        """The first `count` rows with their stamps."""
        taken, self.rows = self.rows[:count], self.rows[count:]
        stamps = [entry for entry in self._stamps if entry[0] < count]
        self._stamps = [(at - count, stamp) for at, stamp in self._stamps if at >= count]
        return taken, stamps


class GatedRouter(Router):
    """The router of an executor whose channels are gated; `pools` hold rows whose receivers are not decided."""

    def __init__(self, executor: str, streams: Mapping[str, Sequence[Grouping]], channels: Sequence[Outgoing]) -> None:
        super().__init__(executor, streams, channels)
        self.pools = [each for groupings in streams.values() for each in groupings if isinstance(each, Pool)]

    @property
    def blocked(self) -> bool:
        return super().blocked or any(pool.full for pool in self.pools)

    def mark(self, mark: Mark) -> None:
        for pool in self.pools:
            pool.settle()
        super().mark(mark)


class Counted:
    """An inbox that tells how many rows come into it."""

    def __init__(self, inbox: Inbox, count: Callable[[int], None]) -> None:
        self._append, self._count = inbox.append, count

    def append(self, delivery: Delivery) -> None:
        """See `channel.Inbox`."""
        self._count(len(delivery.rows))
        self._append(delivery)
