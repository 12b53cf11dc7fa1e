"""An executor's turn: one batch when there is input and credit, no record before its time, and errors with names."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.worker.channel import Ager, Delivery, LocalIncoming, LocalOutgoing
from agents.worker.executor import BoltExecutor, SpoutExecutor, _pieces
from agents.worker.router import Global, Router
from inventory.errors import RunError
from workloads.operators import Batch, Bolt, Emitted, Row, Spout
from workloads.rates import Constant, Schedule, Steps
from workloads.topology import Executor

ME = Executor("b", 1)
S = 1_000_000_000


class Echo(Bolt):
    """Emits what it gets and remembers the batches."""

    def __init__(self, copies: int = 1) -> None:
        self.batches: list[list[Row]] = []
        self.copies = copies

    def process(self, batch: Batch) -> Emitted:
        self.batches.append(list(batch.rows))
        return {"default": list(batch.rows) * self.copies}


class Count(Spout):
    """Emits (0,), (1,), ... up to its limit."""

    def __init__(self, limit: int = 1 << 60) -> None:
        self.next, self.limit = 0, limit
        self.asked: list[int] = []

    def next_batch(self, limit: int) -> Sequence[Row]:
        self.asked.append(limit)
        first, self.next = self.next, min(self.limit, self.next + limit)
        return [(at,) for at in range(first, self.next)]


class Below:
    """A channel to somebody downstream, and what has arrived there."""

    def __init__(self, window: int = 1 << 20) -> None:
        self.queue: deque[Delivery] = deque()
        self.incoming = LocalIncoming("b", "default", self.queue, (window, 1 << 30))
        self.ager = Ager()
        self.outgoing = LocalOutgoing((0, 1, 0), (window, 1 << 30), self.ager, self.incoming)
        self.router = Router("b[1]", {"default": [Global(self.outgoing)]}, [self.outgoing])

    def consume(self) -> None:
        while self.queue:
            _, rows, _, nbytes = self.queue.popleft()
            if rows is not None:
                self.incoming.consumed(len(rows), nbytes)

    def stamped(self) -> list[tuple[Row, int | None]]:
        self.outgoing.flush()
        return [
            (row, dict(stamps).get(at))
            for _, rows, stamps, _ in self.queue
            if rows is not None
            for at, row in enumerate(rows)
        ]


def bolt_with(rows: Sequence[Row], stamps: Sequence[tuple[int, int]], below: Below, bolt: Bolt) -> BoltExecutor:
    queue: deque[Delivery] = deque()
    incoming = LocalIncoming("a", "default", queue, (100, 100))
    LocalOutgoing((9, 9, 9), (100, 100), Ager(), incoming)
    incoming.deliver(rows, stamps, 0)
    return BoltExecutor(ME, bolt, below.router, queue, 1)


@st.composite
def stamped_rows(draw: st.DrawFn) -> tuple[list[Row], list[tuple[int, int]]]:
    count = draw(st.integers(1, 30))
    stamped = sorted(draw(st.sets(st.integers(0, count - 1))))
    return [(at,) for at in range(count)], [(row, draw(st.integers(0, 3))) for row in stamped]


@settings(deadline=None, max_examples=200)
@given(stamped_rows())
def test_pieces_are_all_rows_in_order_cut_where_the_stamp_changes(given_rows: tuple) -> None:
    rows, stamps = given_rows
    pieces = list(_pieces(rows, stamps))
    assert [row for piece, _ in pieces for row in piece] == rows
    stamp_of = dict(stamps)
    assert [(stamp_of.get(row[0])) for row in rows] == [stamp for piece, stamp in pieces for _ in piece]
    assert all(len(piece) > 0 for piece, _ in pieces)
    assert all(a != b for (_, a), (_, b) in pairwise(pieces))


@settings(deadline=None, max_examples=100)
@given(stamped_rows(), st.integers(0, 3))
def test_what_a_stamped_row_causes_inherits_its_stamp(given_rows: tuple, copies: int) -> None:
    rows, stamps = given_rows
    below = Below()
    running = bolt_with(rows, stamps, below, Echo(copies))
    assert running.turn(0)
    stamp_of = dict(stamps)
    assert sorted(below.stamped(), key=repr) == sorted(((r, stamp_of.get(r[0])) for r in rows * copies), key=repr)
    assert (running.meter.processed, running.meter.emitted) == (len(rows), len(rows) * copies)


def test_without_credit_below_there_is_no_turn_and_the_time_counts_as_blocked() -> None:
    below = Below(window=10)
    running = bolt_with([(0,)], (), below, Echo())
    below.outgoing.add([(at,) for at in range(300)], None)
    assert below.outgoing.blocked
    for now in (100, 150, 400):
        assert not running.turn(now)
    assert running.meter.blocked_ns == 300
    assert running.meter.processed == 0
    while below.outgoing.blocked:
        below.consume()
    assert running.turn(1_000)
    assert running.meter.blocked_ns == 900
    assert not running.turn(5_000)
    assert running.meter.blocked_ns == 900


def test_no_input_is_not_blocked() -> None:
    below = Below(window=10)
    running = BoltExecutor(ME, Echo(), below.router, deque(), 1)
    below.outgoing.add([(at,) for at in range(300)], None)
    for now in (0, 1_000):
        assert not running.turn(now)
    assert running.meter.blocked_ns == 0


def test_a_bolt_ends_after_the_last_of_its_inputs_and_so_does_its_output() -> None:
    below = Below()
    queue: deque[Delivery] = deque()
    inputs = [LocalIncoming(source, "default", queue, (100, 100)) for source in "xyz"]
    running = BoltExecutor(ME, Echo(), below.router, queue, 3)
    for incoming in inputs:
        assert not running.drained
        incoming.deliver([(1,)], (), 0)
        LocalOutgoing((0, 0, 0), (100, 100), Ager(), incoming)
        incoming.deliver_end()
        while running.turn(0):
            pass
    assert running.drained
    assert [delivery.rows for delivery in below.queue] == [[(1,), (1,), (1,)], None]


class Broken(Bolt, Spout):
    """Fails as told."""

    def __init__(self, fault: Exception) -> None:
        self.fault = fault

    def process(self, batch: Batch) -> Emitted:
        raise self.fault

    def next_batch(self, limit: int) -> Sequence[Row]:
        raise self.fault


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ZeroDivisionError("division by zero"), r"b\[1\] failed: ZeroDivisionError: division by zero \(.*\.py:\d+\)"),
        (RunError("the file is gone"), r"^b\[1\]: the file is gone$"),
    ],
)
def test_an_operators_failure_names_the_executor_and_the_line(fault: Exception, message: str) -> None:
    with pytest.raises(RunError, match=message):
        bolt_with([(1,)], (), Below(), Broken(fault)).turn(0)
    spout = SpoutExecutor(ME, Broken(fault), Below().router, 2, None, 0)
    spout.start(0)
    with pytest.raises(RunError, match=message):
        spout.turn(0)


def test_an_undeclared_stream_is_named_with_the_nearest_one() -> None:
    class Elsewhere(Echo):
        def process(self, batch: Batch) -> Emitted:
            return {"defualt": batch.rows}

    with pytest.raises(RunError, match=r"b\[1\].*undeclared stream 'defualt'.*'default'"):
        bolt_with([(1,)], (), Below(), Elsewhere()).turn(0)


# --- sources ---------------------------------------------------------------------------------------------------


def spout_of(spout: Spout, schedule: Schedule | None, below: Below, index: int = 0, of: int = 1) -> SpoutExecutor:
    return SpoutExecutor(Executor("s", index), spout, below.router, of, schedule, 0)


RATES: st.SearchStrategy[Callable[[], Schedule]] = st.one_of(
    st.builds(Constant, st.sampled_from([0.5, 3.0, 1_000.0, 12_345.6])).map(lambda rate: rate.schedule),
    st.builds(
        lambda a, pause, b: Steps(((0.0, a), (0.25, 0.0 if pause else b), (0.5, b))),
        st.sampled_from([0.0, 10.0, 700.0]),
        st.booleans(),
        st.sampled_from([5.0, 2_000.0]),
    ).map(lambda rate: rate.schedule),
)


@settings(deadline=None, max_examples=100)
@given(RATES, st.lists(st.integers(1, S // 3), max_size=15), st.integers(1, 4), st.integers(0, S))
def test_every_record_leaves_once_it_is_due_and_never_before(
    rate: Callable[[], Schedule], steps: list[int], of: int, start: int
) -> None:
    schedule = rate()
    spouts = [spout_of(Count(), schedule, Below(), index, of) for index in range(of)]
    for running in spouts:
        running.start(start)
    now = 0
    for step in steps:
        now += step
        for running in spouts:
            while running.turn(now):
                running.router.channels[0].flush()
        emitted = sum(running.meter.emitted for running in spouts)
        assert emitted == (schedule.due_count(now - start) if now >= start else 0)
        for running in spouts:
            index = running.position * of + running.executor.index
            assert running.next_ns == start + schedule.due_ns(index) > now
            if running.position:
                last = start + schedule.due_ns(index - of)
                assert running.meter.late_ns is not None
                assert 0 <= running.meter.late_ns <= now - last


def test_a_source_that_was_held_up_catches_up_and_its_stamps_stay_those_of_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agents.worker.latency.FIRST_STRIDE", 1)
    below = Below()
    running = spout_of(Count(), Constant(100.0).schedule(), below)
    running.start(7)
    assert running.turn(7 + 5 * S)
    while running.turn(7 + 5 * S):
        pass
    assert below.stamped() == [((at,), 7 + at * S // 100) for at in range(501)]
    assert running.meter.late_ns == 0


def test_turns_of_a_source_are_bounded_however_late_it_is() -> None:
    spout = Count()
    running = spout_of(spout, Constant(1e6).schedule(), Below())
    running.start(0)
    for _ in range(3):
        assert running.turn(10 * S)
    assert spout.asked == [SpoutExecutor.MOST_ROWS] * 3
    assert running.meter.late_ns == 10 * S - 767_000


def test_at_rate_max_a_record_is_due_when_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.worker.latency.FIRST_STRIDE", 1)
    below = Below()
    running = spout_of(Count(), None, below)
    running.start(50)
    assert not running.turn(49)
    assert running.turn(60)
    assert {stamp for _, stamp in below.stamped()} == {60}
    assert running.meter.late_ns is None


def test_a_finite_input_ends_once_and_its_position_is_what_it_emitted() -> None:
    below = Below()
    running = spout_of(Count(300), None, below)
    running.start(0)
    assert [running.turn(0) for _ in range(3)] == [True, True, True]
    assert not running.turn(0)
    assert running.exhausted
    assert running.drained
    assert running.position == running.meter.emitted == 300
    assert [delivery.rows is None for delivery in below.queue] == [False, False, True]
    running.stop()
    assert sum(delivery.rows is None for delivery in below.queue) == 1


def test_a_stopped_source_asks_its_operator_no_more() -> None:
    spout = Count()
    below = Below()
    running = spout_of(spout, None, below)
    running.start(0)
    running.turn(0)
    running.stop()
    assert not running.turn(1)
    assert len(spout.asked) == 1
    assert running.next_ns is None
    assert running.position == 256
    assert not running.exhausted
    assert running.drained


def test_a_source_that_never_started_can_be_stopped() -> None:
    running = spout_of(Count(), None, Below())
    assert not running.turn(10**12)
    assert running.next_ns is None
    running.stop()
    assert running.drained
    assert running.position == 0


def test_without_credit_a_source_emits_nothing_and_is_blocked() -> None:
    below = Below(window=100)
    running = spout_of(Count(), Constant(1e6).schedule(), below)
    running.start(0)
    for now in range(0, S, S // 100):
        running.turn(now)
    assert running.position < 100 + 2 * 256
    assert running.meter.blocked_ns > S // 2
    assert running.next_ns is None


def test_an_operator_that_gives_more_rows_than_were_due_is_told_so() -> None:
    class Greedy(Count):
        def next_batch(self, limit: int) -> Sequence[Row]:
            return super().next_batch(limit + 1)

    running = spout_of(Greedy(), Constant(10.0).schedule(), Below())
    running.start(0)
    with pytest.raises(RunError, match=r"s\[0\]: next_batch gave 2 rows, the limit was 1"):
        running.turn(0)
