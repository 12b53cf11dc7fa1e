"""A channel delivers every row once, in order, with its stamp, in its window, and marks behind the rows before them."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Pipe

from agents.worker import channel, frame
from agents.worker.channel import FLUSH_AGE_NS, Ager, ChannelId, Delivery, Incoming, Outgoing, Window
from agents.worker.codec import Codec, CodecError
from agents.worker.frame import FrameError
from agents.worker.local import local_channel
from agents.worker.marks import Barrier, End, Mark, Tick
from agents.worker.remote import RemoteIncoming, RemoteOutgoing, mark_of

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
    ager: Ager
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
        self.ager.now_ns += by_ns
        self.ager.flush_old()

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
    ager, queue, window = Ager(), deque[Delivery](), Window(rows, nbytes)
    there, back = Pipe(EPOCH), Pipe(EPOCH)
    codec = Codec(SCHEMA)
    outgoing = RemoteOutgoing(KEY, 1, window, ager, codec, EPOCH, there)
    incoming = RemoteIncoming(KEY, NAMES, queue, window, codec, EPOCH, back)
    return Ends(outgoing, incoming, ager, queue, window, there, back)


def local(rows: int, nbytes: int) -> Ends:
    ager, queue, window = Ager(), deque[Delivery](), Window(rows, nbytes)
    return Ends(*local_channel(KEY, 0, NAMES, queue, window, ager), ager, queue, window)


BOTH = pytest.mark.parametrize("ends_of", [remote, local])

ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 30), st.sampled_from([0, 3, 40, 700]), st.none() | st.integers(-9, 9)),
    st.tuples(st.just("next_mark"), st.just(Barrier(0)) | st.builds(Tick, st.just(0), *[st.integers(0, 9)] * 2)),
    st.tuples(st.just("carry"), st.integers(1, 300)),
    st.tuples(st.just("carry_back"), st.integers(1, 60)),
    st.tuples(st.just("consume")),
    st.tuples(st.just("advance"), st.sampled_from([0, 1, FLUSH_AGE_NS - 1, FLUSH_AGE_NS, 10**9])),
)


@BOTH
@settings(deadline=None, max_examples=200)
@given(
    actions=st.lists(ACTIONS, min_size=12, max_size=60),
    batch=st.integers(1, 12),
    batch_bytes=st.sampled_from([1, 100, 2_000, 10**6]),
    window=st.tuples(st.integers(1, 40), st.sampled_from([1, 60, 1_000, 10**6])),
)
def test_rows_arrive_once_in_order_with_their_stamps_whatever_happens_when(
    ends_of: object, actions: list[tuple], batch: int, batch_bytes: int, window: tuple[int, int]
) -> None:
    with batches_of(batch, batch_bytes):
        ends = ends_of(*window)
        for name, *arguments in actions:
            # An executor whose channel is blocked gets no turn, so nothing is added then.
            if name not in ("add", "next_mark") or not ends.outgoing.blocked:
                getattr(ends, name)(*arguments)
            ends.check()
        assert not ends.outgoing.ended
        ends.mark(End())
        ends.settle()
    assert ends.got == ends.added
    assert ends.marks == ends.sent
    assert (ends.ends, ends.outgoing.ended) == (1, True)
    assert not ends.outgoing.blocked
    assert not ends.outgoing.pending


@BOTH
@settings(deadline=None, max_examples=100)
@given(adds=st.lists(st.integers(1, 30), min_size=1, max_size=20), batch=st.integers(1, 12), rows=st.integers(1, 40))
def test_credit_comes_back_so_that_half_a_window_is_always_free_when_all_is_consumed(
    ends_of: object, adds: list[int], batch: int, rows: int
) -> None:
    with batches_of(batch):
        ends = ends_of(rows, 2_000)
        for count in adds:
            ends.add(count, 50, None)
            ends.advance(FLUSH_AGE_NS)
            ends.settle()
            assert len(ends.got) == len(ends.added)
            assert ends.outgoing._credit_rows >= rows - rows // 2
            assert ends.outgoing._credit_bytes >= 1_000
            assert ends.outgoing._credit_rows + ends.incoming._rows == rows
            assert ends.outgoing._credit_bytes + ends.incoming._bytes == 2_000


@BOTH
def test_a_batch_leaves_when_it_is_full_and_not_before_its_age(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(100, 10**6)
        ends.add(3, 1, None)
        assert ends.outgoing.tuples == 0
        ends.add(1, 1, None)
        assert ends.outgoing.tuples == 4
        ends.add(6, 1, None)
        assert ends.outgoing.tuples == 8
        ends.advance(FLUSH_AGE_NS - 1)
        assert ends.outgoing.tuples == 8
        assert ends.ager.next_ns == FLUSH_AGE_NS
        ends.advance(1)
        assert ends.outgoing.tuples == 10
        assert ends.ager.next_ns is None
        assert ends.outgoing.batches == 3


@BOTH
def test_the_age_is_that_of_the_oldest_row_that_is_still_here(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(100, 10**6)
        ends.add(1, 1, None)
        ends.advance(FLUSH_AGE_NS // 2)
        # Rows that trickle in do not make the first one young again.
        ends.add(1, 1, None)
        ends.advance(FLUSH_AGE_NS // 2)
        assert ends.outgoing.tuples == 2
        ends.add(1, 1, None)
        ends.advance(FLUSH_AGE_NS // 2)
        ends.add(3, 1, None)
        assert ends.outgoing.tuples == 6
        # Nor does what left as a full batch make its successors old.
        ends.add(1, 1, None)
        ends.advance(FLUSH_AGE_NS // 2)
        assert ends.outgoing.tuples == 6
        ends.advance(FLUSH_AGE_NS // 2)
        assert ends.outgoing.tuples == 7


@BOTH
def test_rows_that_grew_old_without_credit_leave_with_the_first_credit(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(4, 10**6)
        ends.add(4, 1, None)
        ends.add(1, 1, None)
        ends.advance(FLUSH_AGE_NS)
        assert ends.outgoing.tuples == 4
        ends.settle()
        assert ends.outgoing.tuples == 5
        assert len(ends.got) == 5


@BOTH
def test_marks_wait_in_order_for_the_rows_before_them_and_need_no_credit_of_their_own(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(2, 10**6)
        ends.add(2, 1, None)
        ends.mark(Tick(1, 5, 7))
        # The window is full, and yet the mark has left.
        assert not ends.outgoing.blocked
        ends.add(1, 1, None)
        for mark in (Tick(2, 10, 14), Barrier(3), End()):
            ends.mark(mark)
        assert ends.outgoing.blocked
        assert not ends.outgoing.ended
        ends.settle()
        assert len(ends.got) == 3
        assert ends.marks == [(2, Tick(1, 5, 7)), (3, Tick(2, 10, 14)), (3, Barrier(3)), (3, End())]
        assert ends.outgoing.ended


@BOTH
def test_a_mark_sends_the_rows_before_it_although_they_are_neither_many_nor_old(ends_of: object) -> None:
    ends = ends_of(100, 10**6)
    ends.add(3, 1, None)
    ends.mark(Barrier(1))
    assert ends.outgoing.tuples == 3
    ends.settle()
    assert (len(ends.got), ends.marks) == (3, [(3, Barrier(1))])


@BOTH
def test_who_sends_learns_when_the_receiver_lets_go(ends_of: object) -> None:
    ends = ends_of(10, 10**6)
    ends.add(3, 1, None)
    ends.mark(Barrier(1))
    ends.settle()
    assert not ends.outgoing.closed
    before = ends.outgoing._credit_rows
    ends.incoming.close()
    ends.carry_back(1 << 30)
    assert ends.outgoing.closed
    assert ends.outgoing._credit_rows == before


def test_huge_rows_make_small_batches_and_overshoot_the_window_by_one_at_most() -> None:
    window, one_batch = 300_000, 2 * channel.BATCH_BYTES + frame.HEADER_BYTES
    ends = remote(16_384, window)
    ends.add(300, 100_000, 7)
    assert isinstance(ends.outgoing, RemoteOutgoing)
    most = largest = 0
    ends.mark(End())
    while not ends.ends:
        most = max(most, ends.outgoing.nbytes - ends.credited[1])
        ends.carry(1 << 30)
        largest = max([largest, *(delivery.nbytes for delivery in ends.queue)])
        ends.consume()
        ends.carry_back(1 << 30)
        ends.check()
    assert largest <= one_batch
    assert window <= most <= window + one_batch
    assert ends.got == ends.added


def queued_bytes(ends: Ends) -> int:
    """What really lies in a queue."""
    return sum(len(payload) for delivery in ends.queue for _, payload in delivery.rows)


@pytest.mark.parametrize("size", [3_000, 50_000])
@pytest.mark.parametrize("queued", [1, 9])
def test_within_a_worker_too_a_queue_of_large_rows_is_bounded_by_bytes(size: int, queued: int) -> None:
    window = 2_000_000
    ends = local(16_384, window)
    most = 0
    for _ in range(10 * window // size // 20):
        if not ends.outgoing.blocked:
            ends.add(20, size, None)
        ends.advance(FLUSH_AGE_NS)
        most = max(most, queued_bytes(ends))
        if len(ends.queue) > queued:
            ends.consume()
        ends.check()
    assert most <= window + 2 * channel.BATCH_BYTES
    ends.mark(End())
    ends.settle()
    assert ends.got == ends.added


def test_a_queue_of_large_rows_that_nobody_takes_holds_a_window_and_stands_still() -> None:
    window = 2_000_000
    ends = local(16_384, window)
    while not ends.outgoing.blocked:
        ends.add(20, 50_000, None)
        ends.advance(FLUSH_AGE_NS)
    assert window <= queued_bytes(ends) <= window + 2 * channel.BATCH_BYTES


@pytest.mark.parametrize("period", [2, 7, 64, 1_024])
def test_large_rows_that_come_with_a_period_count_as_they_weigh(period: int) -> None:
    ends = local(1 << 20, 1 << 40)
    counted = 0
    for number in range(period * 400):
        ends.add(1, 20_000 if number % period == 0 else 10, None)
        if number % 37 == 0:
            ends.outgoing.flush()
    ends.outgoing.flush()
    counted = sum(delivery.nbytes for delivery in ends.queue)
    assert counted == pytest.approx(queued_bytes(ends), rel=0.5)


def test_within_a_worker_too_what_no_stream_may_carry_is_refused() -> None:
    ends = local(100, 10_000)
    ends.outgoing.add([(1, object())])
    with pytest.raises(CodecError, match="cannot be encoded"):
        ends.outgoing.flush()


@BOTH
def test_a_batch_that_turns_out_full_by_bytes_does_not_leave_rows_behind_while_there_is_credit(ends_of: object) -> None:
    # The first batch teaches that fewer rows fit; what is left may already be full, and must not look blocked.
    ends = ends_of(16_384, 1 << 30)
    ends.add(channel.BATCH_ROWS + 100, 2_000, None)
    assert not ends.outgoing.blocked


@BOTH
def test_one_huge_row_among_small_ones_leaves_in_a_batch_of_its_size(ends_of: object) -> None:
    ends = ends_of(16_384, 1 << 30)
    ends.add(100, 10, 1)
    ends.add(1, 5_000_000, 2)
    ends.add(155, 10, 3)
    ends.mark(End())
    ends.settle()
    assert ends.got == ends.added


def test_a_row_beyond_the_limit_is_an_error_that_says_so() -> None:
    with mock.patch.object(frame, "MAX_PAYLOAD", 2_000), batches_of(4, 500):
        ends = remote(100, 10_000)
        ends.add(4, 900, None)
        with pytest.raises(FrameError, match=r"one row takes 10\d\d bytes, the most is 1000"):
            ends.add(4, 1_000, None)


def received(count: int, nbytes: int = 0) -> frame.Frame:
    """A DATA frame as another worker sends it."""
    rows = Codec(SCHEMA).encode([(at, bytes(nbytes)) for at in range(count)])
    pipe = Pipe(EPOCH)
    pipe.write(frame.data(KEY[2], EPOCH, KEY[0], KEY[1], count, rows))
    return pipe.carry(1 << 30)[0]


def test_a_peer_that_sends_beyond_its_window_is_refused() -> None:
    incoming = remote(10, 10**6).incoming
    assert isinstance(incoming, RemoteIncoming)
    incoming.receive(received(10))
    with pytest.raises(FrameError, match="window"):
        incoming.receive(received(1))
    incoming = remote(10, 100).incoming
    assert isinstance(incoming, RemoteIncoming)
    incoming.receive(received(1, 200))
    with pytest.raises(FrameError, match="window"):
        incoming.receive(received(1))


@pytest.mark.parametrize(("rows", "nbytes"), [(1, 0), (0, 1), (2**32 - 1, 2**32 - 1)])
def test_a_peer_that_gives_more_credit_than_was_used_is_refused(rows: int, nbytes: int) -> None:
    with pytest.raises(FrameError, match="credit"):
        remote(10, 100).outgoing.credit(rows, nbytes)


def test_nothing_may_follow_the_end() -> None:
    incoming = remote(10, 100).incoming
    assert isinstance(incoming, RemoteIncoming)
    incoming.deliver_mark(End())
    for mark in (End(), Barrier(1), Tick(1, 2, 3)):
        with pytest.raises(FrameError, match="end"):
            incoming.deliver_mark(mark)
    with pytest.raises(FrameError, match="end"):
        incoming.receive(received(1))


def test_rows_of_the_wrong_types_are_an_error_that_names_who_sent_them() -> None:
    incoming = remote(10, 10**6).incoming
    pipe = Pipe(EPOCH)
    pipe.write(frame.data(KEY[2], EPOCH, KEY[0], KEY[1], 1, Codec({"n": "str"}).encode([("x", b"")])))
    assert isinstance(incoming, RemoteIncoming)
    with pytest.raises(CodecError, match=r"^a sent bytes that are no rows of the stream .*Expected `int`, got `str`"):
        incoming.receive(pipe.carry(1 << 30)[0])


@pytest.mark.parametrize("channels", [1, 2, 3, 7, 100, 10_000])
def test_windows_share_out_a_queue_but_are_never_too_small_to_work(channels: int) -> None:
    rows, nbytes = channel.window(channels)
    assert rows == max(16, channel.QUEUE_ROWS // channels)
    assert nbytes == max(64 * 1024, channel.QUEUE_BYTES // channels)


def test_ages_of_many_channels_are_kept_apart() -> None:
    ager, queue = Ager(), deque[Delivery]()
    pairs = [local_channel(ChannelId(at, 0, 0), 0, NAMES, queue, Window(99, 99), ager) for at in range(3)]
    ends = [outgoing for outgoing, _ in pairs]
    for at, outgoing in enumerate(ends):
        ager.now_ns = at * 1_000
        outgoing.add([(at,)], None)
    for at in range(3):
        ager.now_ns = FLUSH_AGE_NS + at * 1_000
        assert ager.next_ns == ager.now_ns
        ager.flush_old()
        assert [delivery.rows for delivery in queue] == [[(before,)] for before in range(at + 1)]
    # What left as a full batch or with its end is not sent again when its old age comes.
    ends[0].add([(9,)], None)
    ends[0].mark(End())
    ager.now_ns += FLUSH_AGE_NS
    ager.flush_old()
    assert [delivery.rows for delivery in queue][3:] == [[(9,)], ()]
