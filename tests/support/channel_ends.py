"""Both ends of a channel, between workers or within one, and all that goes through it, for tests."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pytest
from scripted import Pipe

from agents.worker.channels import channel
from agents.worker.channels.channel import (
    Barrier,
    ChannelId,
    Delivery,
    End,
    FlushTimer,
    Incoming,
    Mark,
    Outgoing,
    Tick,
    Window,
)
from agents.worker.channels.ends import RemoteIncoming, RemoteOutgoing, local_channel, mark_of
from agents.worker.wire import frame
from agents.worker.wire.frame import Codec

KEY = ChannelId(4, 9, 1)
NAMES = ("a", "default")
EPOCH = 2
SCHEMA = {"n": "int", "text": "bytes"}


@contextmanager
def batches_of(rows: int, nbytes: int = channel.BATCH_BYTES) -> Iterator[None]:
    with mock.patch.multiple(channel, BATCH_ROWS=rows, BATCH_BYTES=nbytes):
        yield


@dataclass
class Ends:
    """Both ends of a channel, the pipes between them, and what has happened so far."""

    outgoing: Outgoing
    incoming: Incoming
    flush_timer: FlushTimer
    queue: deque[Delivery]
    window: Window
    there: Pipe = field(default_factory=lambda: Pipe(EPOCH))
    back: Pipe = field(default_factory=lambda: Pipe(EPOCH))
    added: list[tuple[tuple, int | None]] = field(default_factory=list)
    got: list[tuple[tuple, int | None]] = field(default_factory=list)
    sent: list[tuple[int, Mark]] = field(default_factory=list)
    marks: list[tuple[int, Mark]] = field(default_factory=list)
    consumed: int = 0
    credited: tuple[int, int] = (0, 0)
    """`sent` and `marks` are marks with the number of rows before them, as they went in and as they came out."""

    def add(self, count: int, size: int, stamp: int | None) -> None:
        first = len(self.added)
        rows = [(first + at, bytes(size)) for at in range(count)]
        self.added += [(row, stamp) for row in rows]
        self.outgoing.add(rows, [] if stamp is None else [(at, stamp) for at in range(count)])

    def mark(self, mark: Mark) -> None:
        self.sent.append((len(self.added), mark))
        self.outgoing.mark(mark)

    def next_mark(self, mark: Barrier | Tick) -> None:
        """Send a mark with a number beyond those of all before."""
        self.mark(mark._replace(number=len(self.sent) + 1))

    @property
    def ends(self) -> int:
        return sum(isinstance(mark, End) for _, mark in self.marks)

    def carry(self, nbytes: int) -> None:
        for received in self.there.carry(nbytes):
            assert (received.sender, received.receiver, received.stream) == KEY
            assert isinstance(self.incoming, RemoteIncoming)
            if received.kind == frame.DATA:
                self.incoming.receive(received)
            else:
                self.incoming.deliver_mark(mark_of(received))

    def carry_back(self, nbytes: int) -> None:
        for received in self.back.carry(nbytes):
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
            self.marks.append((len(self.got), mark))
            return True
        assert self.ends == 0
        stamp_of = dict(stamps)
        assert len(stamp_of) == len(stamps)
        self.got += [(row, stamp_of.get(at)) for at, row in enumerate(rows)]
        self.consumed += len(rows)
        self.incoming.consumed(len(rows), nbytes)
        return True

    def advance(self, by_ns: int) -> None:
        self.flush_timer.now_ns += by_ns
        self.flush_timer.flush_old()

    def check(self) -> None:
        """What must hold at every moment."""
        out = self.outgoing
        assert self.got == self.added[: len(self.got)]
        assert self.marks == self.sent[: len(self.marks)]
        assert out.tuples + len(out.pending) == len(self.added)
        assert out.tuples - self.consumed <= self.window[0]
        assert out._credit_rows >= 0
        if out.blocked:
            assert out._credit_rows == 0 or out._credit_bytes <= 0
            assert out.pending
        if isinstance(out, RemoteOutgoing):
            assert out.tuples - self.credited[0] <= self.window[0]

    def settle(self) -> None:
        """Let everything flow that can flow."""
        while True:
            before = (len(self.got), len(self.marks), len(self.there), len(self.back))
            self.carry(1 << 30)
            while self.consume():
                self.check()
            self.carry_back(1 << 30)
            if before == (len(self.got), len(self.marks), len(self.there), len(self.back)):
                return


def remote(rows: int, nbytes: int) -> Ends:
    flush_timer, queue, window = FlushTimer(), deque[Delivery](), Window(rows, nbytes)
    there, back = Pipe(EPOCH), Pipe(EPOCH)
    codec = Codec(SCHEMA)
    outgoing = RemoteOutgoing(KEY, 1, window, flush_timer, codec, EPOCH, there)
    incoming = RemoteIncoming(KEY, NAMES, queue, window, codec, EPOCH, back)
    return Ends(outgoing, incoming, flush_timer, queue, window, there, back)


def local(rows: int, nbytes: int) -> Ends:
    flush_timer, queue, window = FlushTimer(), deque[Delivery](), Window(rows, nbytes)
    return Ends(*local_channel(KEY, 0, NAMES, queue, window, flush_timer), flush_timer, queue, window)


BOTH = pytest.mark.parametrize("ends_of", [remote, local])
