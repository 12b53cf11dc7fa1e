"""A channel delivers every row once, in order, with its stamp, in its window, and marks behind the rows before them."""

from collections import deque

import pytest
from channel_ends import BOTH_KINDS, EPOCH, KEY, NAMES, SCHEMA, batches_of, remote
from hypothesis import given
from hypothesis import strategies as st
from scripted_run import Pipe

from agents.worker.channels import channel
from agents.worker.channels.channel import Barrier, ChannelId, CreditWindow, Delivery, End, Tick
from agents.worker.channels.ends import RemoteIncoming, local_channel
from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer
from agents.worker.wire import frame
from agents.worker.wire.frame import Codec, CodecError, FrameError

ACTIONS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 30), st.sampled_from([0, 3, 40, 700]), st.none() | st.integers(-9, 9)),
    st.tuples(st.just("next_mark"), st.just(Barrier(0)) | st.builds(Tick, st.just(0), *[st.integers(0, 9)] * 2)),
    st.tuples(st.just("transfer"), st.integers(1, 300)),
    st.tuples(st.just("transfer_back"), st.integers(1, 60)),
    st.tuples(st.just("consume")),
    st.tuples(st.just("advance"), st.sampled_from([0, 1, MAX_LINGER_NS - 1, MAX_LINGER_NS, 10**9])),
)


@BOTH_KINDS
@given(
    actions=st.lists(ACTIONS, min_size=12, max_size=60),
    batch=st.integers(1, 12),
    batch_bytes=st.sampled_from([1, 100, 2_000, 10**6]),
    window=st.tuples(st.integers(1, 40), st.sampled_from([1, 60, 1_000, 10**6])),
)
def test_rows_arrive_once_in_order_with_their_stamps_under_any_interleaving(
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
    assert ends.received_rows == ends.sent_rows
    assert ends.received_marks == ends.sent_marks
    assert (ends.end_marks, ends.outgoing.ended) == (1, True)
    assert not ends.outgoing.blocked
    assert not ends.outgoing.pending


@BOTH_KINDS
@given(adds=st.lists(st.integers(1, 30), min_size=1, max_size=20), batch=st.integers(1, 12), rows=st.integers(1, 40))
def test_credit_comes_back_so_that_half_a_window_is_always_free_when_all_is_consumed(
    ends_of: object, adds: list[int], batch: int, rows: int
) -> None:
    with batches_of(batch):
        ends = ends_of(rows, 2_000)
        for count in adds:
            ends.add(count, 50, None)
            ends.advance(MAX_LINGER_NS)
            ends.settle()
            assert len(ends.received_rows) == len(ends.sent_rows)
            assert ends.outgoing._credit_rows >= rows - rows // 2
            assert ends.outgoing._credit_bytes >= 1_000
            assert ends.outgoing._credit_rows + ends.incoming._rows == rows
            assert ends.outgoing._credit_bytes + ends.incoming._bytes == 2_000


@BOTH_KINDS
def test_a_batch_leaves_when_it_is_full_and_not_before_its_age(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(100, 10**6)
        ends.add(3, 1, None)
        assert ends.outgoing.tuples == 0
        ends.add(1, 1, None)
        assert ends.outgoing.tuples == 4
        ends.add(6, 1, None)
        assert ends.outgoing.tuples == 8
        ends.advance(MAX_LINGER_NS - 1)
        assert ends.outgoing.tuples == 8
        assert ends.flush_timer.next_ns == MAX_LINGER_NS
        ends.advance(1)
        assert ends.outgoing.tuples == 10
        assert ends.flush_timer.next_ns is None
        assert ends.outgoing.batches == 3


@BOTH_KINDS
def test_the_age_of_a_batch_is_that_of_its_oldest_row(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(100, 10**6)
        ends.add(1, 1, None)
        ends.advance(MAX_LINGER_NS // 2)
        # Later rows do not reset the age of the first one.
        ends.add(1, 1, None)
        ends.advance(MAX_LINGER_NS // 2)
        assert ends.outgoing.tuples == 2
        ends.add(1, 1, None)
        ends.advance(MAX_LINGER_NS // 2)
        ends.add(3, 1, None)
        assert ends.outgoing.tuples == 6
        # Rows that left in a full batch do not add to the age of their successors.
        ends.add(1, 1, None)
        ends.advance(MAX_LINGER_NS // 2)
        assert ends.outgoing.tuples == 6
        ends.advance(MAX_LINGER_NS // 2)
        assert ends.outgoing.tuples == 7


@BOTH_KINDS
def test_rows_that_grew_old_without_credit_leave_with_the_first_credit(ends_of: object) -> None:
    with batches_of(4):
        ends = ends_of(4, 10**6)
        ends.add(4, 1, None)
        ends.add(1, 1, None)
        ends.advance(MAX_LINGER_NS)
        assert ends.outgoing.tuples == 4
        ends.settle()
        assert ends.outgoing.tuples == 5
        assert len(ends.received_rows) == 5


@BOTH_KINDS
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
        assert len(ends.received_rows) == 3
        assert ends.received_marks == [(2, Tick(1, 5, 7)), (3, Tick(2, 10, 14)), (3, Barrier(3)), (3, End())]
        assert ends.outgoing.ended


@BOTH_KINDS
def test_a_mark_flushes_the_rows_before_it_whatever_their_number_and_age(ends_of: object) -> None:
    ends = ends_of(100, 10**6)
    ends.add(3, 1, None)
    ends.mark(Barrier(1))
    assert ends.outgoing.tuples == 3
    ends.settle()
    assert (len(ends.received_rows), ends.received_marks) == (3, [(3, Barrier(1))])


@BOTH_KINDS
def test_the_sender_is_notified_when_the_receiver_closes(ends_of: object) -> None:
    ends = ends_of(10, 10**6)
    ends.add(3, 1, None)
    ends.mark(Barrier(1))
    ends.settle()
    assert not ends.outgoing.closed
    before = ends.outgoing._credit_rows
    ends.incoming.close()
    ends.transfer_back(1 << 30)
    assert ends.outgoing.closed
    assert ends.outgoing._credit_rows == before


def data_frame(count: int, nbytes: int = 0) -> frame.Frame:
    """A DATA frame as another worker sends it."""
    rows = Codec(SCHEMA).encode([(at, bytes(nbytes)) for at in range(count)])
    pipe = Pipe(EPOCH)
    pipe.write(frame.data(KEY[2], EPOCH, KEY[0], KEY[1], count, rows))
    return pipe.transfer(1 << 30)[0]


def test_a_peer_that_sends_beyond_its_window_is_refused() -> None:
    incoming = remote(10, 10**6).incoming
    assert isinstance(incoming, RemoteIncoming)
    incoming.receive(data_frame(10))
    with pytest.raises(FrameError, match="window"):
        incoming.receive(data_frame(1))
    incoming = remote(10, 100).incoming
    assert isinstance(incoming, RemoteIncoming)
    incoming.receive(data_frame(1, 200))
    with pytest.raises(FrameError, match="window"):
        incoming.receive(data_frame(1))


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
        incoming.receive(data_frame(1))


def test_rows_of_the_wrong_types_are_an_error_that_names_the_sender() -> None:
    incoming = remote(10, 10**6).incoming
    pipe = Pipe(EPOCH)
    pipe.write(frame.data(KEY[2], EPOCH, KEY[0], KEY[1], 1, Codec({"n": "str"}).encode([("x", b"")])))
    assert isinstance(incoming, RemoteIncoming)
    with pytest.raises(CodecError, match=r"^a sent bytes that are no rows of the stream .*Expected `int`, got `str`"):
        incoming.receive(pipe.transfer(1 << 30)[0])


@pytest.mark.parametrize("channels", [1, 2, 3, 7, 100, 10_000])
def test_windows_divide_a_queue_but_have_a_minimum_size(channels: int) -> None:
    rows, nbytes = channel.window(channels)
    assert rows == max(16, channel.QUEUE_ROWS // channels)
    assert nbytes == max(64 * 1024, channel.QUEUE_BYTES // channels)


@pytest.mark.parametrize("channels", [1, 3, 100])
def test_a_buffer_of_another_size_has_room_for_as_many_rows_in_proportion(channels: int) -> None:
    rows, nbytes = channel.window(channels, channel.QUEUE_BYTES // 4)
    assert rows == max(16, channel.QUEUE_ROWS // 4 // channels)
    assert nbytes == max(64 * 1024, channel.QUEUE_BYTES // 4 // channels)


def test_ages_of_many_channels_are_kept_apart() -> None:
    flush_timer, queue = FlushTimer(MAX_LINGER_NS), deque[Delivery]()
    pairs = [local_channel(ChannelId(at, 0, 0), 0, NAMES, queue, CreditWindow(99, 99), flush_timer) for at in range(3)]
    ends = [outgoing for outgoing, _ in pairs]
    for at, outgoing in enumerate(ends):
        flush_timer.now_ns = at * 1_000
        outgoing.add([(at,)], None)
    for at in range(3):
        flush_timer.now_ns = MAX_LINGER_NS + at * 1_000
        assert flush_timer.next_ns == flush_timer.now_ns
        flush_timer.flush_old()
        assert [delivery.rows for delivery in queue] == [[(before,)] for before in range(at + 1)]
    # Rows that left in a full batch or with the end are not sent again when their age is reached.
    ends[0].add([(9,)], None)
    ends[0].mark(End())
    flush_timer.now_ns += MAX_LINGER_NS
    flush_timer.flush_old()
    assert [delivery.rows for delivery in queue][3:] == [[(9,)], ()]
