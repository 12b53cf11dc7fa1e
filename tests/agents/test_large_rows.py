"""Rows of many kB: batches are small, and windows also limit bytes, between workers and within one."""

from unittest import mock

import pytest
from channel_ends import BOTH_KINDS, ChannelEnds, batches_of, local, remote

from agents.worker.channels import channel
from agents.worker.channels.channel import End
from agents.worker.channels.ends import RemoteOutgoing
from agents.worker.channels.linger import MAX_LINGER_NS
from agents.worker.wire import frame
from agents.worker.wire.frame import CodecError, FrameError


def test_huge_rows_make_small_batches_and_overshoot_the_window_by_one_at_most() -> None:
    window, one_batch = 300_000, 2 * channel.BATCH_BYTES + frame.HEADER_BYTES
    ends = remote(16_384, window)
    ends.add(300, 100_000, 7)
    assert isinstance(ends.outgoing, RemoteOutgoing)
    peak = largest = 0
    ends.mark(End())
    while not ends.end_marks:
        peak = max(peak, ends.outgoing.nbytes - ends.credited[1])
        ends.transfer(1 << 30)
        largest = max([largest, *(delivery.nbytes for delivery in ends.queue)])
        ends.consume()
        ends.transfer_back(1 << 30)
        ends.check()
    assert largest <= one_batch
    assert window <= peak <= window + one_batch
    assert ends.received_rows == ends.sent_rows


def queued_bytes(ends: ChannelEnds) -> int:
    """Return the actual bytes of payload in a queue."""
    return sum(len(payload) for delivery in ends.queue for _, payload in delivery.rows)


@pytest.mark.parametrize("size", [3_000, 50_000])
@pytest.mark.parametrize("queued", [1, 9])
def test_within_a_worker_too_a_queue_of_large_rows_is_bounded_by_bytes(size: int, queued: int) -> None:
    window = 2_000_000
    ends = local(16_384, window)
    peak = 0
    for _ in range(10 * window // size // 20):
        if not ends.outgoing.blocked:
            ends.add(20, size, None)
        ends.advance(MAX_LINGER_NS)
        peak = max(peak, queued_bytes(ends))
        if len(ends.queue) > queued:
            ends.consume()
        ends.check()
    assert peak <= window + 2 * channel.BATCH_BYTES
    ends.mark(End())
    ends.settle()
    assert ends.received_rows == ends.sent_rows


def test_an_unread_queue_of_large_rows_holds_one_window() -> None:
    window = 2_000_000
    ends = local(16_384, window)
    while not ends.outgoing.blocked:
        ends.add(20, 50_000, None)
        ends.advance(MAX_LINGER_NS)
    assert window <= queued_bytes(ends) <= window + 2 * channel.BATCH_BYTES


@pytest.mark.parametrize("period", [2, 7, 64, 1_024])
def test_periodic_large_rows_are_counted_with_their_size(period: int) -> None:
    ends = local(1 << 20, 1 << 40)
    for number in range(period * 400):
        ends.add(1, 20_000 if number % period == 0 else 10, None)
        if number % 37 == 0:
            ends.outgoing.flush()
    ends.outgoing.flush()
    counted = sum(delivery.nbytes for delivery in ends.queue)
    assert counted == pytest.approx(queued_bytes(ends), rel=0.5)


def test_within_a_worker_too_unsupported_values_are_refused() -> None:
    ends = local(100, 10_000)
    ends.outgoing.add([(1, object())])
    with pytest.raises(CodecError, match="cannot be encoded"):
        ends.outgoing.flush()


@BOTH_KINDS
def test_a_batch_that_turns_out_full_by_bytes_does_not_leave_rows_behind_while_there_is_credit(ends_of: object) -> None:
    # After the first batch, fewer rows fit into one; the rest may be a full batch already, and must not look blocked.
    ends = ends_of(16_384, 1 << 30)
    ends.add(channel.BATCH_ROWS + 100, 2_000, None)
    assert not ends.outgoing.blocked


@BOTH_KINDS
def test_one_huge_row_among_small_ones_leaves_in_a_batch_of_its_size(ends_of: object) -> None:
    ends = ends_of(16_384, 1 << 30)
    ends.add(100, 10, 1)
    ends.add(1, 5_000_000, 2)
    ends.add(155, 10, 3)
    ends.mark(End())
    ends.settle()
    assert ends.received_rows == ends.sent_rows


def test_a_row_beyond_the_limit_is_an_error_that_says_so() -> None:
    with mock.patch.object(frame, "MAX_PAYLOAD", 2_000), batches_of(4, 500):
        ends = remote(100, 10_000)
        ends.add(4, 900, None)
        with pytest.raises(FrameError, match=r"one row takes 10\d\d bytes, the most is 1000"):
            ends.add(4, 1_000, None)
