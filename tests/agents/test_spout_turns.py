"""A spout's turn: no record before its time, ticks between records, barriers where they were agreed on, one end."""

import time
from bisect import bisect_right
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import Below, Count

from agents.worker.marks import Barrier, End, Mark, Tick
from agents.worker.running import Running
from agents.worker.snapshot import Snapshot
from agents.worker.spout import SpoutExecutor
from inventory.errors import RunError
from workloads.operators import STEP_NS, Row, Spout
from workloads.rates import Constant, Max, Rate, Replay, Steps
from workloads.source_clock import source_clock
from workloads.topology import Executor

S = 1_000_000_000

MOST = SpoutExecutor.MOST_ROWS


def spout_of(spout: Spout, rate: Rate, below: Below, index: int = 0, of: int = 1) -> SpoutExecutor:
    clock = source_clock(rate, spout, index, of, 0)
    return SpoutExecutor(index, Executor("s", index), spout, below.router, clock, 0)


RATES: st.SearchStrategy[Rate] = st.one_of(
    st.builds(Constant, st.sampled_from([0.5, 3.0, 1_000.0, 12_345.6])),
    st.builds(
        lambda a, pause, b: Steps(((0.0, a), (0.25, 0.0 if pause else b), (0.5, b))),
        st.sampled_from([0.0, 10.0, 700.0]),
        st.booleans(),
        st.sampled_from([5.0, 2_000.0]),
    ),
)


@settings(deadline=None, max_examples=100)
@given(RATES, st.lists(st.integers(1, S // 3), max_size=15), st.integers(1, 4), st.integers(0, S))
def test_every_record_leaves_once_it_is_due_and_never_before(rate: Rate, steps: list[int], of: int, start: int) -> None:
    schedule = rate.schedule(0)
    assert schedule is not None
    spouts = [spout_of(Count(), rate, Below(), index, of) for index in range(of)]
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
    running = spout_of(Count(), Constant(100.0), below)
    running.start(7)
    assert running.turn(7 + 5 * S)
    while running.turn(7 + 5 * S):
        pass
    assert below.stamped() == [((at,), 7 + at * S // 100) for at in range(501)]
    assert running.meter.late_ns == 0


def test_turns_of_a_source_are_bounded_however_late_it_is() -> None:
    spout = Count()
    running = spout_of(spout, Constant(1e6), Below())
    running.start(0)
    for _ in range(3):
        assert running.turn(10 * S)
    assert spout.asked == [MOST] * 3
    assert running.meter.late_ns == 10 * S - (3 * MOST - 1) * 1_000


def test_at_rate_max_a_record_is_due_when_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.worker.latency.FIRST_STRIDE", 1)
    below = Below()
    running = spout_of(Count(), Max(), below)
    running.start(50)
    assert not running.turn(49)
    assert running.turn(60)
    assert {stamp for _, stamp in below.stamped()} == {60}
    assert running.meter.late_ns is None


def test_a_finite_input_ends_once_and_its_position_is_what_it_emitted() -> None:
    below, count = Below(), MOST + 44
    running = spout_of(Count(count), Max(), below)
    running.start(0)
    assert [running.turn(0) for _ in range(3)] == [True, True, True]
    assert not running.turn(0)
    assert running.exhausted
    assert running.drained
    assert running.position == running.meter.emitted == count
    assert below.arrived == [*((at,) for at in range(count)), End()]
    running.stop()
    assert below.marks == [End()]


def test_a_stopped_source_asks_its_operator_no_more() -> None:
    spout = Count()
    below = Below()
    running = spout_of(spout, Max(), below)
    running.start(0)
    running.turn(0)
    running.stop()
    running.turn(1)
    assert not running.turn(1)
    assert len(spout.asked) == 1
    assert running.next_ns is None
    assert running.position == MOST
    assert not running.exhausted
    assert running.drained


def test_a_source_that_never_started_can_be_stopped() -> None:
    running = spout_of(Count(), Max(), Below())
    assert not running.turn(10**12)
    assert running.next_ns is None
    running.stop()
    running.turn(10**12)
    assert running.drained
    assert running.position == 0


def test_a_source_whose_start_lies_ahead_can_be_stopped() -> None:
    running = spout_of(Count(), Max(), Below())
    running.start(500)
    running.turn(100)
    running.stop()
    running.turn(200)
    assert running.drained
    assert running.position == 0


def test_without_credit_a_source_emits_nothing_and_is_blocked() -> None:
    below = Below(window=100)
    running = spout_of(Count(), Constant(1e6), below)
    running.start(0)
    for now in range(0, S, S // 100):
        running.turn(now)
    assert running.position < 100 + 2 * MOST
    assert running.meter.blocked_ns > S // 2
    assert running.next_ns is None


def test_an_operator_that_gives_more_rows_than_were_due_is_told_so() -> None:
    class Greedy(Count):
        def next_batch(self, limit: int) -> Sequence[Row]:
            return super().next_batch(limit + 1)

    running = spout_of(Greedy(), Constant(10.0), Below())
    running.start(0)
    with pytest.raises(RunError, match=r"s\[0\]: next_batch gave 2 rows, the limit was 1"):
        running.turn(0)


class Broken(Count):
    """Fails as told."""

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
    running = spout_of(Broken(fault), Max(), Below())
    running.start(0)
    with pytest.raises(RunError, match=message):
        running.turn(0)


def test_a_spout_that_waits_for_its_state_emits_nothing() -> None:
    running = spout_of(Count(), Max(), Below())
    running.start(0)
    running.live = False
    assert not running.turn(5)
    running.live = True
    assert running.turn(5)


# --- ticks -----------------------------------------------------------------------------------------------------


class Recorded(Count):
    """Emits (0,), (1,), ..., each with a time of its own."""

    recorded = True

    def __init__(self, times: Sequence[int], tick_ns: int) -> None:
        super().__init__(len(times), tick_ns)
        self.times = Times(times)


class Times:
    """A recording in memory."""

    def __init__(self, times: Sequence[int]) -> None:
        self._times = times

    def due_ns(self, record: int) -> int:
        return self._times[record]

    def due_count(self, elapsed_ns: int) -> int:
        return bisect_right(self._times, elapsed_ns)


def expected(times: Sequence[int], tick_ns: int) -> list[int | str]:
    """What a spout emits of records at these stream times: numbers of records, and ticks, in order."""
    found: list[int | str] = []
    tick = 1
    for record, time_ns in enumerate(times):
        while tick * tick_ns <= time_ns:
            found.append(f"tick {tick}")
            tick += 1
        found.append(record)
    if times and times[-1] >= (tick - 1) * tick_ns:
        found.append(f"tick {tick}")
    return [*found, "end"]


def shown(arrived: Sequence[Row | Mark]) -> list[int | str]:
    """What has arrived, in the terms of `expected`."""
    names = {Tick: "tick", Barrier: "barrier"}
    return [
        "end"
        if isinstance(entry, End)
        else f"{names[type(entry)]} {entry.number}"
        if isinstance(entry, Tick | Barrier)
        else entry[0]
        for entry in arrived
    ]


@st.composite
def ticking(draw: st.DrawFn) -> tuple[Rate, Spout, list[int], int, int]:
    """Rate, spout, the stream times of its records, its index and how many it is one of."""
    of = draw(st.integers(1, 3))
    index = draw(st.integers(0, of - 1))
    count = draw(st.integers(0, 40))
    tick_ns = draw(st.sampled_from([1, 3, 10, 400])) * STEP_NS
    kind = draw(st.sampled_from(["max", "constant", "replay", "recorded at max", "recorded at a rate"]))
    rate = Constant(1e9 / STEP_NS) if kind in ("constant", "recorded at a rate") else Max()
    if kind in ("max", "constant"):
        return rate, Count(count, tick_ns), [(at * of + index) * STEP_NS for at in range(count)], index, of
    gaps = draw(st.lists(st.sampled_from([0, 1, STEP_NS, 25 * STEP_NS]), min_size=count, max_size=count))
    times = [sum(gaps[: at + 1]) for at in range(count)]
    if kind == "replay":
        rate = Replay(draw(st.sampled_from([1.0, 2.0, 0.3])))
    return rate, Recorded(times, tick_ns), times, index, of


@settings(deadline=None, max_examples=200)
@given(ticking(), st.lists(st.integers(0, 30 * STEP_NS), max_size=30), st.integers(0, S), st.booleans())
def test_ticks_part_the_records_at_their_times_and_the_last_is_behind_the_last_record_wherever_that_is(
    given_spout: tuple, steps: list[int], start: int, stopped: bool
) -> None:
    rate, spout, times, index, of = given_spout
    below = Below()
    running = spout_of(spout, rate, below, index, of)
    running.start(start)
    clock = running._clock
    now = start
    before = time.monotonic_ns()
    for step in steps:
        now += step
        while running.turn(now):
            below.outgoing.flush()
            if below.marks and isinstance(tick := below.marks[-1], Tick):
                due = clock.tick_due_ns(tick.time_ns)
                assert due is None or start + due <= now, "a tick before it was due"
    if stopped:
        running.stop()
        running.turn(now)
    else:
        while not running.ending:
            now = running.next_ns if running.next_ns is not None and running.next_ns > now else now
            running.turn(now)
    assert shown(below.arrived) == expected(times[: running.position], spout.tick_ns)
    assert running.position == len(times) or stopped
    for tick in below.marks[:-1]:
        assert isinstance(tick, Tick)
        assert tick.time_ns == tick.number * spout.tick_ns
        due = clock.tick_due_ns(tick.time_ns)
        if due is None:
            assert before <= tick.due_ns <= time.monotonic_ns()
        else:
            assert tick.due_ns == start + due


def test_a_tick_comes_when_it_is_due_and_does_not_wait_for_the_record_behind_it() -> None:
    below = Below()
    running = spout_of(Recorded([0, 10, 5 * S], S), Replay(1.0), below)
    running.start(7)
    while running.turn(7 + 10):
        pass
    assert running.next_ns == 7 + S
    assert not running.turn(7 + S - 1)
    assert running.turn(7 + S)
    below.outgoing.flush()
    assert shown(below.arrived) == [0, 1, "tick 1"]
    # Those behind it are sent only with the next record: whether it comes is not known yet.
    assert not running.turn(7 + 5 * S - 1)
    while running.turn(7 + 5 * S):
        pass
    below.outgoing.flush()
    assert shown(below.arrived) == [0, 1, "tick 1", "tick 2", "tick 3", "tick 4", "tick 5", 2, "tick 6", "end"]


def test_a_tick_that_comes_late_says_when_it_was_due() -> None:
    below = Below()
    running = spout_of(Count(tick_ns=S), Constant(1.0), below)
    running.start(50)
    while running.turn(50 + 3 * S):
        pass
    assert below.marks == [Tick(number, number * S, 50 + (number - 1) * S) for number in (1, 2, 3)] or below.marks == [
        Tick(number, number * S, 50 + number * S) for number in (1, 2, 3)
    ]


# --- barriers --------------------------------------------------------------------------------------------------


class Passing:
    """A spout executor, and what it was at the barriers that it passed."""

    def __init__(self, running: SpoutExecutor) -> None:
        self.running = running
        self.passed: list[tuple[int, Snapshot]] = []
        running.on_barrier = self._on_barrier
        running.start(0)

    def _on_barrier(self, running: Running, number: int) -> None:
        assert running is self.running
        self.passed.append((number, Snapshot.read(b"".join(running.snapshot().pieces()))))

    def run(self, turns: int, now: int) -> None:
        for _ in range(turns):
            self.running.turn(now)


def test_a_held_spout_goes_on_up_to_the_tick_and_passes_the_barrier_just_before_it() -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(tick_ns=10 * STEP_NS), Max(), below))
    passing.run(1, 1)
    assert running.next_tick == 1
    running.hold(3)
    passing.run(20, 1)
    below.outgoing.flush()
    assert running.next_tick == 3
    assert shown(below.arrived)[-1] == 29
    assert running.next_ns is None
    running.cut(5, 4)
    passing.run(20, 1)
    below.outgoing.flush()
    arrived = shown(below.arrived)
    at = arrived.index("barrier 5")
    assert arrived[at - 2 : at + 3] == [29, "tick 3", "barrier 5", 30, 31]
    assert [(number, kept.position, kept.next_tick) for number, kept in passing.passed] == [(5, 30, 4)]


def test_without_ticks_the_barrier_comes_at_once() -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(), Max(), below))
    passing.run(1, 1)
    running.hold(1)
    passing.run(1, 1)
    running.cut(2, 1)
    assert running.next_ns is not None
    passing.run(1, 1)
    assert below.arrived[-1] == Barrier(2)
    assert [(number, kept.position) for number, kept in passing.passed] == [(2, 2 * MOST)]
    passing.run(1, 1)
    assert running.position == 3 * MOST


def test_a_barrier_waits_for_credit_behind_the_rows_and_no_row_behind_it_is_emitted_meanwhile() -> None:
    below = Below(window=10)
    passing = Passing(running := spout_of(Count(), Max(), below))
    passing.run(1, 1)
    running.hold(1)
    running.cut(2, 1)
    passing.run(9, 5)
    # It was passed, with rows still before it that have no credit.
    assert [(number, kept.position) for number, kept in passing.passed] == [(2, MOST)]
    assert running.position == MOST
    assert below.marks == []
    taken: list[Row | Mark] = []
    while not any(isinstance(entry, Barrier) for entry in taken):
        taken += below.arrived
        rows = sum(len(delivery.rows) for delivery in below.queue)
        below.queue.clear()
        assert running.position == MOST
        below.incoming.consumed(rows, 0)
    assert taken == [*((at,) for at in range(MOST)), Barrier(2)]
    passing.run(1, 5)
    assert running.position == 2 * MOST


def test_without_credit_there_is_no_turn_for_a_barrier_either() -> None:
    below = Below(window=10)
    passing = Passing(running := spout_of(Count(), Max(), below))
    passing.run(9, 1)
    running.hold(1)
    running.cut(2, 1)
    passing.run(9, 5)
    assert passing.passed == []
    while not passing.passed:
        below.consume()
        passing.run(1, 5)
    assert passing.passed[0][1].position == running.position


@pytest.mark.parametrize("tick_ns", [0, 10 * STEP_NS])
def test_a_held_spout_that_is_stopped_ends_only_when_the_barrier_has_come(tick_ns: int) -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(tick_ns=tick_ns), Max(), below))
    passing.run(1, 1)
    running.hold(running.next_tick)
    running.stop()
    passing.run(5, 1)
    assert not running.ending
    assert below.marks == []
    running.cut(1, running.next_tick)
    passing.run(5, 1)
    assert running.ending
    assert shown(below.marks)[:1] == ["barrier 1"]
    assert shown(below.marks)[-1] == "end"
    assert [number for number, _ in passing.passed] == [1]


def test_a_held_spout_that_comes_to_its_end_waits_there_and_ends_when_it_is_released() -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(100), Max(), below))
    running.hold(1)
    passing.run(5, 1)
    assert running.exhausted
    assert not running.ending
    # Nothing but a command can change that, and the loop may sleep.
    assert running.next_ns is None
    running.release()
    assert running.next_ns is not None
    passing.run(1, 1)
    assert running.drained
    assert shown(below.arrived) == [*range(100), "end"]


def test_an_abandoned_barrier_leaves_no_trace() -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(tick_ns=10 * STEP_NS), Max(), below))
    passing.run(1, 1)
    running.hold(1)
    passing.run(5, 1)
    assert below.marks == []
    running.release()
    passing.run(60, 1)
    running.stop()
    passing.run(1, 1)
    assert passing.passed == []
    assert shown(below.arrived) == expected([at * STEP_NS for at in range(running.position)], 10 * STEP_NS)


def test_a_spout_that_has_ended_passes_a_barrier_as_it_is_cut() -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(30), Max(), below))
    passing.run(3, 1)
    assert running.drained
    running.hold(1)
    running.cut(4, 9)
    assert [(number, kept.position) for number, kept in passing.passed] == [(4, 30)]
    assert shown(below.marks) == ["end"]


@pytest.mark.parametrize("end", ["exhausted", "stopped", "until"])
def test_a_spout_that_comes_to_its_end_before_the_tick_of_the_barrier_passes_it_nevertheless(end: str) -> None:
    below = Below()
    passing = Passing(running := spout_of(Count(25 if end == "exhausted" else 1_000, 10 * STEP_NS), Max(), below))
    passing.run(1, 1)
    running.hold(running.next_tick)
    if end == "until":
        running.until = 25
    running.cut(6, 8)
    while running.position < 20:
        passing.run(1, 1)
    if end == "stopped":
        running.stop()
    passing.run(20, 1)
    assert [number for number, _ in passing.passed] == [6]
    assert running.drained
    without = [entry for entry in shown(below.arrived) if entry != "barrier 6"]
    assert without == expected([at * STEP_NS for at in range(running.position)], 10 * STEP_NS)


def test_a_restored_spout_that_is_over_ends_before_its_start_with_the_tick_that_was_missing() -> None:
    below = Below()
    running = spout_of(Count(tick_ns=10 * STEP_NS), Constant(1e9 / STEP_NS), below)
    running.restore(Snapshot(b"25", 25, 3))
    running.until = 25
    running.turn(1)
    assert shown(below.arrived) == ["tick 3", "end"]


# --- recovery --------------------------------------------------------------------------------------------------


def test_a_restored_spout_goes_on_where_it_was_and_counts_apart_what_had_been_seen() -> None:
    below = Below()
    running = spout_of(Count(1_000), Max(), below)
    running.restore(Snapshot(b"300", 300, 1))
    running.seen = 700
    running.start(0)
    while not running.ending:
        running.turn(1)
    assert shown(below.arrived) == [*range(300, 1_000), "end"]
    assert (running.meter.replayed, running.meter.emitted) == (400, 300)
    assert running.position == 1_000


@pytest.mark.parametrize("until", [300, 301, 555, 1_000])
def test_a_spout_with_an_until_ends_exactly_there_stopped_or_not(until: int) -> None:
    for stopped in (False, True):
        below = Below()
        running = spout_of(Count(1_000), Max(), below)
        running.restore(Snapshot(b"300", 300, 1))
        running.until = until
        running.start(0)
        if stopped:
            running.stop()
            assert not running.ending
        for _ in range(20):
            running.turn(1)
        assert shown(below.arrived) == [*range(300, until), "end"]
        assert running.drained


@settings(deadline=None, max_examples=150)
@given(ticking(), st.integers(0, 2**32), st.integers(0, 6))
def test_whatever_is_killed_between_barriers_records_and_ticks_come_as_if_nothing_had_been(
    given_spout: tuple, seed: int, deaths: int
) -> None:
    rate, spout, times, index, of = given_spout
    random = Random(seed)  # noqa: S311 - it must be repeatable
    kept = Snapshot(b"0", 0, 1)
    until: int | None = None
    lasting: list[int | str] = []

    def life() -> tuple[Passing, Below]:
        below = Below()
        spout.restore(b"0")
        running = spout_of(spout, rate, below, index, of)
        running.restore(kept)
        running.until = until
        return Passing(running), below

    passing, below = life()
    now, barrier, held = 0, 0, False
    while not passing.running.ending:
        running = passing.running
        now += random.choice([0, 0, STEP_NS, 30 * STEP_NS])
        running.turn(now)
        chance = random.random()
        if chance < 0.2 and not held and not running.ending:
            barrier, held = barrier + 1, True
            running.hold(running.next_tick)
        elif chance < 0.5 and held:
            held = False
            if random.random() < 0.3:
                running.release()
            else:
                running.cut(barrier, running.next_tick + random.choice([0, 0, 1, 3]))
        if passing.passed:
            ((number, kept),) = passing.passed
            passing.passed.clear()
            below.outgoing.flush()
            *before, mark = shown(below.arrived)
            assert mark == f"barrier {number}"
            lasting += before
            below.queue.clear()
        elif chance > 0.8 and deaths > 0:
            deaths -= 1
            until = running.position if random.random() < 0.2 else until
            held = False
            passing, below = life()
        elif held and deaths == 0:
            held = False
            running.release()
    *right, end = expected(times[: passing.running.position], spout.tick_ns)
    # Ticks before a barrier that was cut behind them came from other sources too, whatever follows here.
    right += [f"tick {at}" for at in range(1, kept.next_tick) if f"tick {at}" not in right]
    assert lasting + shown(below.arrived) == [*right, end]
    assert passing.running.position == len(times) or until is not None
