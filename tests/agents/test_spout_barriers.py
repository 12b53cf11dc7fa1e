"""Spouts pass barriers at the agreed tick, and continue after a recovery as if there had been no failure."""

from random import Random

import pytest
from executor_harness import CountingSpout, Downstream
from hypothesis import given
from hypothesis import strategies as st
from spouts import MAX_ROWS, BarrierRecorder, describe_output, expected_output, spout_of, ticking_spouts

from agents.worker.channels.channel import Barrier, Mark
from agents.worker.executors.executor import FIRST_STRIDE, Snapshot
from workloads.operators import STEP_NS, Row
from workloads.rates import Constant, Max


def test_a_held_spout_goes_on_up_to_the_tick_and_passes_the_barrier_just_before_it() -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(running := spout_of(CountingSpout(tick_ns=10 * STEP_NS), Max(), downstream))
    recorder.run(1, 1)
    assert running.next_tick == 1
    running.hold(3)
    recorder.run(20, 1)
    downstream.outgoing.flush()
    assert running.next_tick == 3
    assert describe_output(downstream.arrived)[-1] == 29
    assert running.next_ns is None
    running.cut(5, 4)
    recorder.run(20, 1)
    downstream.outgoing.flush()
    arrived = describe_output(downstream.arrived)
    at = arrived.index("barrier 5")
    assert arrived[at - 2 : at + 3] == [29, "tick 3", "barrier 5", 30, 31]
    assert [(number, snapshot.position, snapshot.next_tick) for number, snapshot in recorder.passed] == [(5, 30, 4)]


def test_without_ticks_the_barrier_comes_at_once() -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(running := spout_of(CountingSpout(), Max(), downstream))
    recorder.run(1, 1)
    running.hold(1)
    recorder.run(1, 1)
    running.cut(2, 1)
    assert running.next_ns is not None
    recorder.run(1, 1)
    assert downstream.arrived[-1] == Barrier(2)
    assert [(number, snapshot.position) for number, snapshot in recorder.passed] == [(2, 2 * MAX_ROWS)]
    recorder.run(1, 1)
    assert running.position == 3 * MAX_ROWS


def test_a_barrier_waits_for_credit_after_the_rows_and_no_later_row_is_emitted_meanwhile() -> None:
    downstream = Downstream(window=10)
    recorder = BarrierRecorder(running := spout_of(CountingSpout(), Max(), downstream))
    recorder.run(1, 1)
    running.hold(1)
    running.cut(2, 1)
    recorder.run(9, 5)
    # The barrier is passed while rows before it still wait for credit.
    assert [(number, snapshot.position) for number, snapshot in recorder.passed] == [(2, MAX_ROWS)]
    assert running.position == MAX_ROWS
    assert downstream.marks == []
    taken: list[Row | Mark] = []
    while not any(isinstance(entry, Barrier) for entry in taken):
        taken += downstream.arrived
        rows = sum(len(delivery.rows) for delivery in downstream.queue)
        downstream.queue.clear()
        assert running.position == MAX_ROWS
        downstream.incoming.consumed(rows, 0)
    assert taken == [*((at,) for at in range(MAX_ROWS)), Barrier(2)]
    recorder.run(1, 5)
    assert running.position == 2 * MAX_ROWS


def test_without_credit_there_is_no_turn_for_a_barrier_either() -> None:
    downstream = Downstream(window=10)
    recorder = BarrierRecorder(running := spout_of(CountingSpout(), Max(), downstream))
    recorder.run(9, 1)
    running.hold(1)
    running.cut(2, 1)
    recorder.run(9, 5)
    assert recorder.passed == []
    while not recorder.passed:
        downstream.consume()
        recorder.run(1, 5)
    assert recorder.passed[0][1].position == running.position


@pytest.mark.parametrize("tick_ns", [0, 10 * STEP_NS])
def test_a_held_spout_that_is_stopped_ends_only_when_the_barrier_has_come(tick_ns: int) -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(running := spout_of(CountingSpout(tick_ns=tick_ns), Max(), downstream))
    recorder.run(1, 1)
    running.hold(running.next_tick)
    running.stop()
    recorder.run(5, 1)
    assert not running.ending
    assert downstream.marks == []
    running.cut(1, running.next_tick)
    recorder.run(5, 1)
    assert running.ending
    assert describe_output(downstream.marks)[:1] == ["barrier 1"]
    assert describe_output(downstream.marks)[-1] == "end"
    assert [number for number, _ in recorder.passed] == [1]


def test_a_held_spout_at_the_end_of_its_input_ends_when_it_is_released() -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(running := spout_of(CountingSpout(100), Max(), downstream))
    running.hold(1)
    recorder.run(5, 1)
    assert running.exhausted
    assert not running.ending
    # Only a command can change that: the event loop may sleep.
    assert running.next_ns is None
    running.release()
    assert running.next_ns is not None
    recorder.run(1, 1)
    assert running.drained
    assert describe_output(downstream.arrived) == [*range(100), "end"]


def test_an_abandoned_barrier_leaves_no_trace() -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(running := spout_of(CountingSpout(tick_ns=10 * STEP_NS), Max(), downstream))
    recorder.run(1, 1)
    running.hold(1)
    recorder.run(5, 1)
    assert downstream.marks == []
    running.release()
    recorder.run(60, 1)
    running.stop()
    recorder.run(1, 1)
    assert recorder.passed == []
    assert describe_output(downstream.arrived) == expected_output(
        [at * STEP_NS for at in range(running.position)], 10 * STEP_NS
    )


def test_a_spout_that_has_ended_passes_a_barrier_as_it_is_cut() -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(running := spout_of(CountingSpout(30), Max(), downstream))
    recorder.run(3, 1)
    assert running.drained
    running.hold(1)
    running.cut(4, 9)
    assert [(number, snapshot.position) for number, snapshot in recorder.passed] == [(4, 30)]
    assert describe_output(downstream.marks) == ["end"]


@pytest.mark.parametrize("end", ["exhausted", "stopped", "until"])
def test_a_spout_that_ends_before_the_tick_of_the_barrier_passes_it_nevertheless(end: str) -> None:
    downstream = Downstream()
    recorder = BarrierRecorder(
        running := spout_of(CountingSpout(25 if end == "exhausted" else 1_000, 10 * STEP_NS), Max(), downstream)
    )
    recorder.run(1, 1)
    running.hold(running.next_tick)
    if end == "until":
        running.until = 25
    running.cut(6, 8)
    while running.position < 20:
        recorder.run(1, 1)
    if end == "stopped":
        running.stop()
    recorder.run(20, 1)
    assert [number for number, _ in recorder.passed] == [6]
    assert running.drained
    without = [entry for entry in describe_output(downstream.arrived) if entry != "barrier 6"]
    assert without == expected_output([at * STEP_NS for at in range(running.position)], 10 * STEP_NS)


def test_a_restored_spout_at_its_end_emits_the_missing_tick_and_ends_before_its_start() -> None:
    downstream = Downstream()
    running = spout_of(CountingSpout(tick_ns=10 * STEP_NS), Constant(1e9 / STEP_NS), downstream)
    running.restore(Snapshot(b"25", 25, 3))
    running.until = 25
    running.turn(1)
    assert describe_output(downstream.arrived) == ["tick 3", "end"]


# --- recovery --------------------------------------------------------------------------------------------------


def test_a_restored_spout_continues_at_its_position_and_counts_replayed_records_separately() -> None:
    downstream = Downstream()
    running = spout_of(CountingSpout(1_000), Max(), downstream)
    running.restore(Snapshot(b"300", 300, 1))
    running.start(0, seen=700)
    while not running.ending:
        running.turn(1)
    assert describe_output(downstream.arrived) == [*range(300, 1_000), "end"]
    assert (running.meter.replayed, running.meter.emitted) == (400, 300)
    assert running.position == 1_000


def test_a_restored_spout_samples_one_of_every_block_of_records_from_its_position_on() -> None:
    downstream = Downstream()
    running = spout_of(CountingSpout(1_000), Max(), downstream)
    running.restore(Snapshot(b"300", 300, 1))
    running.start(0)
    while not running.ending:
        running.turn(1)
    sampled = [delivery.rows[at][0] for delivery in downstream.queue for at, _ in delivery.stamps]
    assert [(record - 300) // FIRST_STRIDE for record in sampled] == list(range(len(sampled)))
    assert len(sampled) >= 700 // FIRST_STRIDE


def test_a_replayed_record_is_not_late_again() -> None:
    running = spout_of(CountingSpout(1_000), Constant(100.0), Downstream())
    running.restore(Snapshot(b"300", 300, 1))
    running.seen = 400
    running.start(0)
    running.turn(4_000_000_000)
    assert (running.position, running.meter.late_ns) == (401, 0)
    running.seen = 600
    running.turn(5_000_000_000)
    assert (running.position, running.meter.late_ns) == (501, 0)


@pytest.mark.parametrize("until", [300, 301, 555, 1_000])
def test_a_spout_with_an_until_ends_exactly_there_stopped_or_not(until: int) -> None:
    for stopped in (False, True):
        downstream = Downstream()
        running = spout_of(CountingSpout(1_000), Max(), downstream)
        running.restore(Snapshot(b"300", 300, 1))
        running.until = until
        running.start(0)
        if stopped:
            running.stop()
            assert not running.ending
        for _ in range(20):
            running.turn(1)
        assert describe_output(downstream.arrived) == [*range(300, until), "end"]
        assert running.drained


@pytest.mark.parametrize("seen", [0, 280, 555])
@pytest.mark.parametrize("reached", [0, 299, 300, 301, 800])
@pytest.mark.parametrize("turns", [0, 1])
def test_a_restored_spout_that_is_stopped_ends_at_its_position_but_not_before_the_reached_one(
    seen: int, reached: int, turns: int
) -> None:
    downstream = Downstream()
    running = spout_of(CountingSpout(1_000), Constant(100.0), downstream)
    running.restore(Snapshot(b"300", 300, 1))
    running.start(0, seen)
    # Three more records than at the barrier are due at this time.
    now = 3_025_000_000
    for _ in range(turns):
        running.turn(now)
    position = running.position
    assert position == 300 + 3 * turns
    running.stop(reached=reached)
    for _ in range(20):
        running.turn(now + 10_000_000_000)
    end = max(position, seen, reached)
    assert describe_output(downstream.arrived) == [*range(300, end), "end"]
    assert running.drained
    assert running.position == end


@given(ticking_spouts(), st.integers(0, 2**32), st.integers(0, 6))
def test_kills_between_barriers_change_neither_records_nor_ticks(given_spout: tuple, seed: int, kills: int) -> None:
    rate, spout, times, index, of = given_spout
    random = Random(seed)  # noqa: S311 - it must be repeatable
    snapshot = Snapshot(b"0", 0, 1)
    until: int | None = None
    committed: list[int | str] = []

    def new_epoch() -> tuple[BarrierRecorder, Downstream]:
        downstream = Downstream()
        spout.restore(b"0")
        running = spout_of(spout, rate, downstream, index, of)
        running.restore(snapshot)
        running.until = until
        return BarrierRecorder(running), downstream

    recorder, downstream = new_epoch()
    now, barrier, held = 0, 0, False
    while not recorder.running.ending:
        running = recorder.running
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
        if recorder.passed:
            ((number, snapshot),) = recorder.passed
            recorder.passed.clear()
            downstream.outgoing.flush()
            *before, mark = describe_output(downstream.arrived)
            assert mark == f"barrier {number}"
            committed += before
            downstream.queue.clear()
        elif chance > 0.8 and kills > 0:
            kills -= 1
            until = running.position if random.random() < 0.2 else until
            held = False
            recorder, downstream = new_epoch()
        elif held and kills == 0:
            held = False
            running.release()
    *expected, end = expected_output(times[: recorder.running.position], spout.tick_ns)
    # Other sources emit the ticks before a barrier, too, even if no record follows here.
    expected += [f"tick {at}" for at in range(1, snapshot.next_tick) if f"tick {at}" not in expected]
    assert committed + describe_output(downstream.arrived) == [*expected, end]
    assert recorder.running.position == len(times) or until is not None
