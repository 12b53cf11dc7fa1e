"""Spout executors for tests: rates, records with times, and the expected output."""

from bisect import bisect_right
from collections.abc import Sequence

from executor_harness import CountingSpout, Downstream
from hypothesis import strategies as st

from agents.worker.channels.channel import Barrier, End, Mark, Tick
from agents.worker.executors.executor import LatencySampler, RunningExecutor, Snapshot
from agents.worker.executors.spout import SpoutExecutor
from workloads.operators import STEP_NS, Row, Spout
from workloads.rates import Constant, Max, Rate, Replay, Steps
from workloads.source_clock import source_clock
from workloads.topology import Executor

S = 1_000_000_000

MAX_ROWS = SpoutExecutor.MAX_ROWS


def spout_of(spout: Spout, rate: Rate, downstream: Downstream, index: int = 0, of: int = 1) -> SpoutExecutor:
    clock = source_clock(rate, spout, index, of, 0)
    return SpoutExecutor(index, Executor("s", index), spout, downstream.router, clock, LatencySampler(0))


RATES: st.SearchStrategy[Rate] = st.one_of(
    st.builds(Constant, st.sampled_from([0.5, 3.0, 1_000.0, 12_345.6])),
    st.builds(
        lambda a, pause, b: Steps(((0.0, a), (0.25, 0.0 if pause else b), (0.5, b))),
        st.sampled_from([0.0, 10.0, 700.0]),
        st.booleans(),
        st.sampled_from([5.0, 2_000.0]),
    ),
)


class TimedSpout(CountingSpout):
    """Spout that emits (0,), (1,), ..., each with a recorded time."""

    recorded = True

    def __init__(self, times: Sequence[int], tick_ns: int) -> None:
        super().__init__(len(times), tick_ns)
        self.times = RecordedTimes(times)


class RecordedTimes:
    """Recorded times in memory."""

    def __init__(self, times: Sequence[int]) -> None:
        self._times = times

    def due_ns(self, record: int) -> int:
        return self._times[record]

    def due_count(self, elapsed_ns: int) -> int:
        return bisect_right(self._times, elapsed_ns)


def expected_output(times: Sequence[int], tick_ns: int) -> list[int | str]:
    """Return the expected output for records at these stream times: numbers of records, and ticks, in order."""
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


def describe_output(arrived: Sequence[Row | Mark]) -> list[int | str]:
    """Return what has arrived, in the notation of `expected_output`."""
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
def ticking_spouts(draw: st.DrawFn) -> tuple[Rate, Spout, list[int], int, int]:
    """Draw a rate, a spout, the stream times of its records, its index and the number of spouts."""
    of = draw(st.integers(1, 3))
    index = draw(st.integers(0, of - 1))
    count = draw(st.integers(0, 40))
    tick_ns = draw(st.sampled_from([1, 3, 10, 400])) * STEP_NS
    kind = draw(st.sampled_from(["max", "constant", "replay", "recorded at max", "recorded at a rate"]))
    rate = Constant(1e9 / STEP_NS) if kind in ("constant", "recorded at a rate") else Max()
    if kind in ("max", "constant"):
        return rate, CountingSpout(count, tick_ns), [(at * of + index) * STEP_NS for at in range(count)], index, of
    gaps = draw(st.lists(st.sampled_from([0, 1, STEP_NS, 25 * STEP_NS]), min_size=count, max_size=count))
    times = [sum(gaps[: at + 1]) for at in range(count)]
    if kind == "replay":
        rate = Replay(draw(st.sampled_from([1.0, 2.0, 0.3])))
    return rate, TimedSpout(times, tick_ns), times, index, of


class BarrierRecorder:
    """Spout executor, with its snapshots at the barriers that it passed."""

    def __init__(self, running: SpoutExecutor) -> None:
        self.running = running
        self.passed: list[tuple[int, Snapshot]] = []
        running.on_barrier = self._on_barrier
        running.start(0)

    def _on_barrier(self, running: RunningExecutor, number: int) -> None:
        assert running is self.running
        self.passed.append((number, Snapshot.read(b"".join(running.snapshot().pieces()))))

    def run(self, turns: int, now: int) -> None:
        for _ in range(turns):
            self.running.turn(now)
