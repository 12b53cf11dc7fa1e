"""Both ends of a channel, between workers or within one, and everything that passes through it."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pytest
from scripted_run import Pipe

from agents.worker.channels import channel
from agents.worker.channels.channel import (
    Barrier,
    ChannelId,
    CreditWindow,
    Delivery,
    End,
    Incoming,
    Mark,
    Outgoing,
    Tick,
)
from agents.worker.channels.ends import RemoteIncoming, RemoteOutgoing, local_channel, mark_of
from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer
from agents.worker.wire import frame
from agents.worker.wire.frame import Codec, Stamps
from workloads.columns import Columns
from workloads.operators import Row

KEY = ChannelId(4, 9, 1)
NAMES = ("a", "default")
EPOCH = 2
SCHEMA = {"n": "int", "text": "bytes"}


@contextmanager
def batches_of(rows: int, nbytes: int = channel.BATCH_BYTES) -> Iterator[None]:
    with mock.patch.multiple(channel, BATCH_ROWS=rows, BATCH_BYTES=nbytes):
        yield


@dataclass
class ChannelEnds:
    """Both ends of a channel, the pipes between them, and what has been sent and received so far."""

    outgoing: Outgoing
    incoming: Incoming
    flush_timer: FlushTimer
    queue: deque[Delivery]
    window: CreditWindow
    forward: Pipe = field(default_factory=lambda: Pipe(EPOCH))
    backward: Pipe = field(default_factory=lambda: Pipe(EPOCH))
    sent_rows: list[tuple[tuple, int | None]] = field(default_factory=list)
    received_rows: list[tuple[tuple, int | None]] = field(default_factory=list)
    sent_marks: list[tuple[int, Mark]] = field(default_factory=list)
    received_marks: list[tuple[int, Mark]] = field(default_factory=list)
    consumed: int = 0
    credited: tuple[int, int] = (0, 0)
    """`sent_marks` and `received_marks` hold (number of rows before the mark, mark)."""

    def add(self, count: int, size: int, stamp: int | None) -> None:
        first = len(self.sent_rows)
        rows = [(first + at, bytes(size)) for at in range(count)]
        self.sent_rows += [(row, stamp) for row in rows]
        self.outgoing.add(rows, [] if stamp is None else [(at, stamp) for at in range(count)])

    def mark(self, mark: Mark) -> None:
        self.sent_marks.append((len(self.sent_rows), mark))
        self.outgoing.mark(mark)

    def next_mark(self, mark: Barrier | Tick) -> None:
        """Send a mark with a number greater than those of all marks before."""
        self.mark(mark._replace(number=len(self.sent_marks) + 1))

    @property
    def end_marks(self) -> int:
        return sum(isinstance(mark, End) for _, mark in self.received_marks)

    def transfer(self, nbytes: int) -> None:
        for received in self.forward.transfer(nbytes):
            assert (received.sender, received.receiver, received.stream) == KEY
            assert isinstance(self.incoming, RemoteIncoming)
            if received.kind == frame.DATA:
                self.incoming.receive(received)
            else:
                self.incoming.deliver_mark(mark_of(received))

    def transfer_back(self, nbytes: int) -> None:
        for received in self.backward.transfer(nbytes):
            assert received.kind == frame.CREDIT
            assert (received.sender, received.receiver, received.stream) == KEY
            self.credited = (self.credited[0] + received.count, self.credited[1] + received.length)
            self.outgoing.credit(received.count, received.length)

    def consume(self) -> bool:
        if not self.queue:
            return False
        source, rows, stamps, nbytes, mark = self.queue.popleft()
        assert source is self.incoming
        if mark is not None:
            assert (rows, stamps, nbytes) == ((), (), 0)
            self.received_marks.append((len(self.received_rows), mark))
            return True
        assert self.end_marks == 0
        stamp_of = dict(stamps)
        assert len(stamp_of) == len(stamps)
        self.received_rows += [(row, stamp_of.get(at)) for at, row in enumerate(rows)]
        self.consumed += len(rows)
        self.incoming.consumed(len(rows), nbytes)
        return True

    def advance(self, by_ns: int) -> None:
        self.flush_timer.now_ns += by_ns
        self.flush_timer.flush_old()

    def check(self) -> None:
        """Check the invariants, which hold at every moment."""
        out = self.outgoing
        assert self.received_rows == self.sent_rows[: len(self.received_rows)]
        assert self.received_marks == self.sent_marks[: len(self.received_marks)]
        assert out.tuples + len(out.pending) == len(self.sent_rows)
        assert out.tuples - self.consumed <= self.window[0]
        assert out._credit_rows >= 0
        if out.blocked:
            assert out._credit_rows == 0 or out._credit_bytes <= 0
            assert out.pending
        if isinstance(out, RemoteOutgoing):
            assert out.tuples - self.credited[0] <= self.window[0]

    def settle(self) -> None:
        """Transfer and consume until nothing moves."""
        while True:
            before = (len(self.received_rows), len(self.received_marks), len(self.forward), len(self.backward))
            self.transfer(1 << 30)
            while self.consume():
                self.check()
            self.transfer_back(1 << 30)
            if before == (len(self.received_rows), len(self.received_marks), len(self.forward), len(self.backward)):
                return


def remote(rows: int, nbytes: int) -> ChannelEnds:
    flush_timer, queue, window = FlushTimer(MAX_LINGER_NS), deque[Delivery](), CreditWindow(rows, nbytes)
    forward, backward = Pipe(EPOCH), Pipe(EPOCH)
    codec = Codec(SCHEMA)
    outgoing = RemoteOutgoing(KEY, 1, window, flush_timer, codec, EPOCH, forward)
    incoming = RemoteIncoming(KEY, NAMES, queue, window, codec, EPOCH, backward)
    return ChannelEnds(outgoing, incoming, flush_timer, queue, window, forward, backward)


def local(rows: int, nbytes: int) -> ChannelEnds:
    flush_timer, queue, window = FlushTimer(MAX_LINGER_NS), deque[Delivery](), CreditWindow(rows, nbytes)
    return ChannelEnds(*local_channel(KEY, 0, NAMES, queue, window, flush_timer), flush_timer, queue, window)


BOTH_KINDS = pytest.mark.parametrize("ends_of", [remote, local])


class RecordedChannel(Outgoing):
    """A channel that records the rows that are added to it, and their stamps."""

    def __init__(self, receiver: int) -> None:
        super().__init__(ChannelId(0, receiver, 0), 1, CreditWindow(1, 1 << 20), FlushTimer(MAX_LINGER_NS))
        self.rows: list[Row] = []
        self.stamps: list[int | None] = []

    def add(self, rows: Sequence[Row], stamps: Stamps = ()) -> None:
        assert len(rows) > 0
        assert list(stamps) == sorted(stamps)
        self.rows += rows
        self.stamps += map(dict(stamps).get, range(len(rows)))

    def _deliver(self, rows: list[Row] | Columns) -> tuple[int, int]:
        raise AssertionError("rows stay here")

    def _deliver_mark(self, mark: Mark) -> None:
        raise AssertionError("marks do not come here")
