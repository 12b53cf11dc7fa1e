"""A spout's turn: no record before its time, ticks between records, one end."""

import time
from collections.abc import Sequence

import pytest
from executor_harness import CountingSpout, Downstream
from hypothesis import given
from hypothesis import strategies as st
from spouts import MAX_ROWS, RATES, S, TimedSpout, describe_output, expected_output, spout_of, ticking_spouts

from agents.worker.channels.channel import End, Tick
from inventory.errors import RunError
from workloads.operators import STEP_NS, Row
from workloads.rates import Constant, Max, Rate, Replay


@given(RATES, st.lists(st.integers(1, S // 3), max_size=15), st.integers(1, 4), st.integers(0, S))
def test_every_record_is_emitted_once_it_is_due_and_never_before(
    rate: Rate, steps: list[int], of: int, start: int
) -> None:
    schedule = rate.schedule(0)
    assert schedule is not None
    spouts = [spout_of(CountingSpout(), rate, Downstream(), index, of) for index in range(of)]
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
    monkeypatch.setattr("agents.worker.executors.executor.FIRST_STRIDE", 1)
    downstream = Downstream()
    running = spout_of(CountingSpout(), Constant(100.0), downstream)
    running.start(7)
    assert running.turn(7 + 5 * S)
    while running.turn(7 + 5 * S):
        pass
    assert downstream.stamped() == [((at,), 7 + at * S // 100) for at in range(501)]
    assert running.meter.late_ns == 0


def test_turns_of_a_source_are_bounded_however_late_it_is() -> None:
    spout = CountingSpout()
    running = spout_of(spout, Constant(1e6), Downstream())
    running.start(0)
    for _ in range(3):
        assert running.turn(10 * S)
    assert spout.limits == [MAX_ROWS] * 3
    assert running.meter.late_ns == 10 * S - (3 * MAX_ROWS - 1) * 1_000


def test_at_rate_max_a_record_is_due_when_it_is_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.worker.executors.executor.FIRST_STRIDE", 1)
    downstream = Downstream()
    running = spout_of(CountingSpout(), Max(), downstream)
    running.start(50)
    assert not running.turn(49)
    assert running.turn(60)
    assert {stamp for _, stamp in downstream.stamped()} == {60}
    assert running.meter.late_ns is None


def test_a_finite_input_ends_once_and_its_position_is_what_it_emitted() -> None:
    downstream, count = Downstream(), MAX_ROWS + 44
    running = spout_of(CountingSpout(count), Max(), downstream)
    running.start(0)
    assert [running.turn(0) for _ in range(3)] == [True, True, True]
    assert not running.turn(0)
    assert running.exhausted
    assert running.drained
    assert running.position == running.meter.emitted == count
    assert downstream.arrived == [*((at,) for at in range(count)), End()]
    running.stop()
    assert downstream.marks == [End()]


def test_a_stopped_source_does_not_call_its_operator() -> None:
    spout = CountingSpout()
    downstream = Downstream()
    running = spout_of(spout, Max(), downstream)
    running.start(0)
    running.turn(0)
    running.stop()
    running.turn(1)
    assert not running.turn(1)
    assert len(spout.limits) == 1
    assert running.next_ns is None
    assert running.position == MAX_ROWS
    assert not running.exhausted
    assert running.drained


def test_a_source_that_never_started_can_be_stopped() -> None:
    running = spout_of(CountingSpout(), Max(), Downstream())
    assert not running.turn(10**12)
    assert running.next_ns is None
    running.stop()
    running.turn(10**12)
    assert running.drained
    assert running.position == 0


def test_a_source_whose_start_lies_ahead_can_be_stopped() -> None:
    running = spout_of(CountingSpout(), Max(), Downstream())
    running.start(500)
    running.turn(100)
    running.stop()
    running.turn(200)
    assert running.drained
    assert running.position == 0


def test_without_credit_a_source_emits_nothing_and_is_blocked() -> None:
    downstream = Downstream(window=100)
    running = spout_of(CountingSpout(), Constant(1e6), downstream)
    running.start(0)
    for now in range(0, S, S // 100):
        running.turn(now)
    assert running.position < 100 + 2 * MAX_ROWS
    assert running.meter.blocked_ns > S // 2
    assert running.next_ns is None


def test_an_operator_that_returns_more_rows_than_are_due_is_an_error() -> None:
    class Greedy(CountingSpout):
        def next_batch(self, limit: int) -> Sequence[Row]:
            return super().next_batch(limit + 1)

    running = spout_of(Greedy(), Constant(10.0), Downstream())
    running.start(0)
    with pytest.raises(RunError, match=r"s\[0\]: next_batch gave 2 rows, the limit was 1"):
        running.turn(0)


class Broken(CountingSpout):
    """Fails with a given exception."""

    def __init__(self, fault: Exception) -> None:
        super().__init__()
        self.fault = fault

    def next_batch(self, limit: int) -> Sequence[Row]:
        raise self.fault


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (ZeroDivisionError("division by zero"), r"s\[0\] failed: ZeroDivisionError: division by zero \(.*\.py:\d+\)"),
        (RunError("the file is gone"), r"^s\[0\]: the file is gone$"),
    ],
)
def test_an_operators_failure_names_the_executor_and_the_line(fault: Exception, message: str) -> None:
    running = spout_of(Broken(fault), Max(), Downstream())
    running.start(0)
    with pytest.raises(RunError, match=message):
        running.turn(0)


def test_a_spout_that_waits_for_its_state_emits_nothing() -> None:
    running = spout_of(CountingSpout(), Max(), Downstream())
    running.start(0)
    running.live = False
    assert not running.turn(5)
    running.live = True
    assert running.turn(5)


@given(ticking_spouts(), st.lists(st.integers(0, 30 * STEP_NS), max_size=30), st.integers(0, S), st.booleans())
def test_ticks_separate_the_records_at_their_times_and_one_follows_the_last_record(
    given_spout: tuple, steps: list[int], start: int, stopped: bool
) -> None:
    rate, spout, times, index, of = given_spout
    downstream = Downstream()
    running = spout_of(spout, rate, downstream, index, of)
    running.start(start)
    clock = running._clock
    now = start
    before = time.monotonic_ns()
    for step in steps:
        now += step
        while running.turn(now):
            downstream.outgoing.flush()
            if downstream.marks and isinstance(tick := downstream.marks[-1], Tick):
                due = clock.tick_due_ns(tick.time_ns)
                assert due is None or start + due <= now, "a tick before it was due"
    if stopped:
        running.stop()
        running.turn(now)
    else:
        while not running.ending:
            now = running.next_ns if running.next_ns is not None and running.next_ns > now else now
            running.turn(now)
    assert describe_output(downstream.arrived) == expected_output(times[: running.position], spout.tick_ns)
    assert running.position == len(times) or stopped
    for tick in downstream.marks[:-1]:
        assert isinstance(tick, Tick)
        assert tick.time_ns == tick.number * spout.tick_ns
        due = clock.tick_due_ns(tick.time_ns)
        if due is None:
            assert before <= tick.due_ns <= time.monotonic_ns()
        else:
            assert tick.due_ns == start + due


def test_a_tick_is_sent_when_it_is_due_and_does_not_wait_for_the_next_record() -> None:
    downstream = Downstream()
    running = spout_of(TimedSpout([0, 10, 5 * S], S), Replay(1.0), downstream)
    running.start(7)
    while running.turn(7 + 10):
        pass
    assert running.next_ns == 7 + S
    assert not running.turn(7 + S - 1)
    assert running.turn(7 + S)
    downstream.outgoing.flush()
    assert describe_output(downstream.arrived) == [0, 1, "tick 1"]
    # Later ticks are sent only with the next record, which may not come.
    assert not running.turn(7 + 5 * S - 1)
    while running.turn(7 + 5 * S):
        pass
    downstream.outgoing.flush()
    assert describe_output(downstream.arrived) == [
        0,
        1,
        "tick 1",
        "tick 2",
        "tick 3",
        "tick 4",
        "tick 5",
        2,
        "tick 6",
        "end",
    ]


def test_a_late_tick_has_its_due_time() -> None:
    downstream = Downstream()
    running = spout_of(CountingSpout(tick_ns=S), Constant(1.0), downstream)
    running.start(50)
    while running.turn(50 + 3 * S):
        pass
    assert downstream.marks == [Tick(number, number * S, 50 + number * S) for number in (1, 2, 3)]
