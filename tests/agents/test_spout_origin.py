"""Recordings with times far from 0: their first tick is the first one after the first record of the whole input."""

from collections.abc import Sequence

import pytest
from executor_harness import CountingSpout, Downstream
from spouts import RecordedTimes

from agents.worker.channels.channel import Tick
from agents.worker.executors.executor import LatencySampler, Snapshot
from agents.worker.executors.spout import SpoutExecutor
from workloads.rates import Max, Rate, Replay
from workloads.source_clock import source_clock
from workloads.topology import Executor

S = 1_000_000_000
ORIGIN = 1_377_986_401 * S
FIRST = 1_377_986_430 // 30


class Recorded(CountingSpout):
    """Emits (0,), (1,), ... of an input whose first record lies at `ORIGIN`."""

    recorded = True
    origin_ns = ORIGIN

    def __init__(self, seconds: Sequence[int]) -> None:
        super().__init__(len(seconds), 30 * S)
        self.times = RecordedTimes([ORIGIN + second * S for second in seconds])


def executor_of(spout: Recorded, rate: Rate, downstream: Downstream) -> SpoutExecutor:
    clock = source_clock(rate, spout, 0, 1, 0)
    return SpoutExecutor(0, Executor("s", 0), spout, downstream.router, clock, LatencySampler(0))


def emitted(downstream: Downstream) -> list[object]:
    return [entry.number - FIRST if isinstance(entry, Tick) else entry for entry in downstream.arrived[:-1]]


@pytest.mark.parametrize("rate", [Max(), Replay(60.0)])
@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([0, 28, 29, 70], [(0,), (1,), 0, (2,), 1, (3,), 2]),
        # Another executor has the first record: ticks before the own first one are the same for all.
        ([100], [0, 1, 2, (0,), 3]),
        ([], []),
    ],
)
def test_ticks_start_after_the_first_record_of_the_whole_input(
    rate: Rate, seconds: list[int], expected: list[object]
) -> None:
    downstream = Downstream()
    running = executor_of(Recorded(seconds), rate, downstream)
    running.start(5)
    now = 5
    while not running.ending:
        now = running.next_ns if running.next_ns is not None and running.next_ns > now else now
        running.turn(now)
    downstream.outgoing.flush()
    assert emitted(downstream) == expected
    assert all(mark.time_ns == mark.number * 30 * S for mark in downstream.marks if isinstance(mark, Tick))


def test_a_replay_takes_as_long_as_the_recording_at_its_speed() -> None:
    downstream = Downstream()
    running = executor_of(Recorded([0, 60]), Replay(10.0), downstream)
    running.start(0)
    while running.turn(0):
        pass
    assert running.position == 1
    assert running.next_ns == 29 * S // 10
    assert not running.turn(29 * S // 10 - 1)


def test_a_restored_source_continues_with_the_tick_of_its_snapshot() -> None:
    running = executor_of(Recorded([0, 28, 29, 70]), Max(), Downstream())
    assert running.next_tick == FIRST
    running.restore(Snapshot(b"3", 3, FIRST + 1))
    assert running.next_tick == FIRST + 1


def test_a_source_without_an_origin_starts_with_tick_1() -> None:
    for tick_ns in (0, 7):
        spout = CountingSpout(1, tick_ns)
        clock = source_clock(Max(), spout, 0, 1, 0)
        assert SpoutExecutor(0, Executor("s", 0), spout, Downstream().router, clock, LatencySampler(0)).next_tick == 1
