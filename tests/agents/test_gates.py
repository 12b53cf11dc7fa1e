"""Outboxes: rows wait for their gate, marks behind them; shuffled rows go to where a gate opens first."""

from collections import deque
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.worker.channels.channel import Barrier, ChannelId, CreditWindow, Delivery, End, Outgoing
from agents.worker.channels.ends import local_channel
from agents.worker.channels.gated import OUTBOX_PARTS, GatedLocal, GatedRouter, Pool, estimated_bytes
from agents.worker.channels.groupings import Global
from agents.worker.channels.linger import MAX_LINGER_NS, FlushTimer
from agents.worker.wire.frame import encoded_bytes
from workloads.operators import Row

PART = 3


class GatedChannel:
    """A gated channel and the deliveries at its other end."""

    def __init__(self, number: int = 1, window: int = 100) -> None:
        self.flush_timer = FlushTimer(MAX_LINGER_NS)
        self.queue: deque[Delivery] = deque()
        size = CreditWindow(window, 1000)
        both = local_channel(
            ChannelId(0, number, 0), 0, ("a", "default"), self.queue, size, self.flush_timer, GatedLocal
        )
        self.outgoing, self.incoming = both
        assert isinstance(self.outgoing, GatedLocal)
        self.outgoing.part_tuples = PART

    @property
    def arrived(self) -> list[object]:
        found: list[object] = []
        for delivery in self.queue:
            found += [delivery.mark] if delivery.mark is not None else delivery.rows
        return found

    @property
    def stamps(self) -> dict[Row, int]:
        return {entry.rows[at]: stamp for entry in self.queue for at, stamp in entry.stamps}


def rows_of(*numbers: int) -> list[Row]:
    return [(number,) for number in numbers]


def test_neither_a_full_batch_nor_age_nor_credit_opens_a_gate() -> None:
    out = GatedChannel()
    out.outgoing.add(rows_of(*range(5000)))
    out.flush_timer.now_ns = 10 * MAX_LINGER_NS
    out.flush_timer.flush_old()
    out.outgoing.credit(10, 0)
    assert not out.queue
    assert out.flush_timer.next_ns is None


def test_an_open_gate_lets_a_part_pass_and_keeps_the_rest_with_its_stamps() -> None:
    out = GatedChannel()
    out.outgoing.add(rows_of(0, 1, 2, 3, 4), [(1, 11), (4, 44)])
    assert out.outgoing.release(PART) == 3
    assert out.arrived == rows_of(0, 1, 2)
    assert out.stamps == {(1,): 11}
    assert out.outgoing.release(PART) == 2
    assert out.arrived == rows_of(0, 1, 2, 3, 4)
    assert out.stamps == {(1,): 11, (4,): 44}
    assert out.outgoing.release(PART) == 0


def test_a_part_is_no_larger_than_the_credit() -> None:
    out = GatedChannel(window=2)
    out.outgoing.add(rows_of(0, 1, 2))
    assert out.outgoing.room == 0
    assert [out.outgoing.release(PART), out.outgoing.release(PART)] == [2, 0]
    out.incoming.consumed(2, 0)
    assert out.outgoing.release(PART) == 1


def test_marks_need_no_gate_but_keep_their_place_behind_the_rows() -> None:
    out = GatedChannel()
    out.outgoing.mark(Barrier(1))
    assert out.arrived == [Barrier(1)]
    out.outgoing.add(rows_of(0, 1, 2, 3))
    out.outgoing.mark(End())
    assert out.outgoing.blocked
    out.outgoing.release(PART)
    assert out.arrived == [Barrier(1), *rows_of(0, 1, 2)]
    out.outgoing.release(PART)
    assert out.arrived == [Barrier(1), *rows_of(0, 1, 2, 3), End()]
    assert out.outgoing.ended
    assert not out.outgoing.blocked


def test_a_full_outbox_blocks() -> None:
    out = GatedChannel()
    out.outgoing.add(rows_of(*range(OUTBOX_PARTS * PART - 1)))
    assert not out.outgoing.blocked
    out.outgoing.add(rows_of(99))
    assert out.outgoing.blocked


def pool_of(count: int) -> tuple[Pool, list[GatedChannel], GatedRouter]:
    outs = [GatedChannel(number) for number in range(1, count + 1)]
    channels: list[Outgoing] = [out.outgoing for out in outs]
    pool = Pool(channels, 0)
    return pool, outs, GatedRouter("a[0]", {"default": [pool]}, channels)


def open_to(pool: Pool, outs: Sequence[GatedChannel], *opened: int) -> None:
    """A time slot in which the gates to these executors are open."""
    channels = [outs[at].outgoing for at in opened]
    pool.distribute(lambda channel: channel in channels)
    for channel in channels:
        channel.release(PART)


def test_shuffled_rows_go_to_where_a_gate_opens_a_part_each_and_evenly() -> None:
    pool, outs, router = pool_of(3)
    router.emit({"default": rows_of(*range(5))}, {"default": [(0, 7), (3, 8)]})
    assert not any(out.outgoing.pending for out in outs)
    open_to(pool, outs, 2)
    assert outs[2].arrived == rows_of(0, 1, 2)
    open_to(pool, outs, 0, 1)
    assert [len(out.arrived) for out in outs] == [1, 1, 3]
    assert outs[2].stamps == {(0,): 7}
    assert outs[0].stamps | outs[1].stamps == {(3,): 8}


def test_single_rows_do_not_always_go_to_the_same_executor_of_a_node() -> None:
    pool, outs, router = pool_of(2)
    for number in range(10):
        router.emit({"default": rows_of(number)})
        open_to(pool, outs, 0, 1)
    assert [len(out.arrived) for out in outs] == [5, 5]


def test_before_a_mark_shuffled_rows_get_their_receivers_in_turn() -> None:
    pool, outs, router = pool_of(2)
    router.emit({"default": rows_of(0, 1, 2)}, {"default": [(2, 5)]})
    router.mark(Barrier(4))
    assert not pool.rows
    assert router.blocked
    open_to(pool, outs, 0)
    open_to(pool, outs, 1)
    assert [out.arrived for out in outs] == [[*rows_of(0, 2), Barrier(4)], [*rows_of(1), Barrier(4)]]
    assert outs[0].stamps == {(2,): 5}
    assert not router.blocked


def test_a_pool_as_full_as_all_its_outboxes_blocks() -> None:
    _, _, router = pool_of(2)
    router.emit({"default": rows_of(*range(2 * OUTBOX_PARTS * PART - 1))})
    assert not router.blocked
    router.emit({"default": rows_of(99)})
    assert router.blocked


@given(st.lists(st.one_of(st.integers(0, 9), st.sets(st.integers(0, 2)), st.just("mark")), max_size=40))
def test_every_shuffled_row_arrives_once_and_in_order(script: list[int | set[int] | str]) -> None:
    pool, outs, router = pool_of(3)
    emitted = barrier = 0
    for step in script:
        if isinstance(step, int) and not router.blocked:
            stamps = [(at, emitted + at) for at in range(step)]
            router.emit({"default": rows_of(*range(emitted, emitted + step))}, {"default": stamps})
            emitted += step
        elif isinstance(step, set):
            open_to(pool, outs, *step)
        elif step == "mark" and not router.blocked:
            barrier += 1
            router.mark(Barrier(barrier))
    while pool.rows or any(out.outgoing.pending for out in outs):
        open_to(pool, outs, 0, 1, 2)
    per_channel = [[row for row in out.arrived if not isinstance(row, Barrier)] for out in outs]
    assert sorted(row for rows in per_channel for row in rows) == rows_of(*range(emitted))
    for out, rows in zip(outs, per_channel, strict=True):
        assert rows == sorted(rows)
        assert out.stamps == {row: row[0] for row in rows}
        assert [mark.number for mark in out.arrived if isinstance(mark, Barrier)] == list(range(1, barrier + 1))
        assert all(len(entry.rows) <= PART for entry in out.queue)


def test_a_keyed_row_waits_although_other_gates_are_open() -> None:
    outs = [GatedChannel(1), GatedChannel(2)]
    router = GatedRouter("a[0]", {"default": [Global(outs[0].outgoing)]}, [out.outgoing for out in outs])
    router.emit({"default": rows_of(0)})
    outs[1].outgoing.release(PART)
    assert not outs[0].queue
    assert not router.pools


@given(st.integers(0, 40))
def test_the_size_of_an_outbox_is_estimated_from_a_few_of_its_rows(count: int) -> None:
    rows = rows_of(*[7] * count)
    assert estimated_bytes(rows) == pytest.approx(encoded_bytes(rows), rel=0.3) if rows else not estimated_bytes(rows)
