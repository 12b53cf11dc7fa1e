"""Clock of a spout executor: due times and stream times of its records."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spouts import RecordedTimes

from inventory.errors import InputError, RunError
from inventory.times import NS
from workloads.apps.wordcount import WordCount
from workloads.operators import STEP_NS, Spout
from workloads.rates import Bursts, Constant, Max, Poisson, Rate, Replay, Sine, Steps
from workloads.source_clock import SourceClock, check_rate, source_clock
from workloads.workload import load_workload


class Generated(Spout):
    """Spout without recorded times."""


class Recorded(Spout):
    """Spout with recorded times."""

    recorded = True

    def __init__(self, times: list[int] | None) -> None:
        self.times = None if times is None else RecordedTimes(times)


SCHEDULED: list[Rate] = [
    Constant(70.0),
    Steps(((0.0, 0.0), (0.1, 50.0), (0.5, 900.0))),
    Poisson(70.0),
    Bursts(on_s=0.1, off_s=0.3, tuples_per_s=500.0),
    Sine(mean_tuples_per_s=70.0, amplitude=1.0, period_s=0.7),
]
shares = st.integers(1, 7).flatmap(lambda of: st.tuples(st.integers(0, of - 1), st.just(of)))
recordings = st.lists(st.integers(0, 3 * NS), min_size=1, max_size=30).map(sorted)
speedups = st.one_of(st.sampled_from([1.0, 2.0, 0.1, 1000.0]), st.floats(1e-3, 1e6))


def assert_inverse(clock: SourceClock, record: int) -> None:
    due = clock.due_ns(record)
    assert due is not None
    assert clock.due_count(due) > record >= clock.due_count(due - 1)
    assert clock.due_count(-1) == 0


@given(st.sampled_from(SCHEDULED), shares, st.integers(0, 10_000))
def test_the_executors_of_a_spout_divide_a_schedule_record_by_record(rate, share, record):
    index, of = share
    whole = rate.schedule(5)
    clock = source_clock(rate, Generated(), index, of, seed=5)
    assert clock.due_ns(record) == clock.stream_ns(record) == whole.due_ns(record * of + index)
    assert_inverse(clock, record)


@given(st.sampled_from(SCHEDULED), st.integers(1, 7), st.integers(-1, 20 * NS))
def test_the_executors_due_counts_add_up(rate, of, elapsed_ns):
    counts = [source_clock(rate, Generated(), index, of, seed=3).due_count(elapsed_ns) for index in range(of)]
    assert sum(counts) == rate.schedule(3).due_count(elapsed_ns)


@given(st.sampled_from(SCHEDULED), shares, st.integers(0, 20 * NS))
def test_a_tick_in_intended_time_is_due_at_its_time_and_separates_records_before_and_after_it(rate, share, time_ns):
    clock = source_clock(rate, Generated(), *share, seed=0)
    before = clock.stream_count(time_ns)
    assert before == 0 or clock.stream_ns(before - 1) < time_ns
    assert clock.stream_ns(before) >= time_ns
    assert clock.tick_due_ns(time_ns) == time_ns


@given(shares, st.integers(0, 10**9))
def test_at_rate_max_stream_time_is_the_records_number(share, record):
    index, of = share
    clock = source_clock(Max(), Generated(), index, of, seed=0)
    assert clock.due_ns(record) is None
    assert clock.due_count(0) > record
    time = clock.stream_ns(record)
    assert time == (record * of + index) * STEP_NS
    assert (clock.stream_count(time), clock.stream_count(time + 1)) == (record, record + 1)
    assert clock.tick_due_ns(time) is None


@given(recordings, speedups, shares)
def test_a_replay_keeps_the_recorded_times_of_the_executors_own_records(times, speedup, share):
    clock = source_clock(Replay(speedup), Recorded(times), *share, seed=0)
    for record, time in enumerate(times):
        due = clock.due_ns(record)
        # The first nanosecond that is not before its time; the check itself uses floats, with a tolerance.
        assert time / speedup <= due * (1 + 1e-12)
        assert due <= time / speedup * (1 + 1e-12) + 1
        assert clock.due_count(due) > record
        assert clock.due_count(due - 1) <= record
        assert clock.stream_ns(record) == time


@given(recordings, speedups)
def test_after_the_last_record_of_a_recording_one_more_is_due_so_that_the_end_is_found(times, speedup):
    clock = source_clock(Replay(speedup), Recorded(times), 0, 1, seed=0)
    end = len(times)
    assert (clock.due_ns(end), clock.stream_ns(end)) == (None, None)
    last = clock.due_ns(end - 1)
    assert clock.due_count(last) == clock.due_count(last + 10 * NS) == end + 1
    assert clock.due_count(last - 1) < end


def test_a_replay_at_its_own_speed_is_exact():
    clock = source_clock(Replay(), Recorded([0, 5, 5, 900]), 0, 1, seed=0)
    assert [clock.due_ns(record) for record in range(4)] == [0, 5, 5, 900]
    assert [clock.due_count(at) for at in (-1, 0, 4, 5, 899)] == [0, 1, 1, 3, 3]
    fast = source_clock(Replay(4.0), Recorded([0, 5, 6, 900]), 0, 1, seed=0)
    assert [fast.due_ns(record) for record in range(4)] == [0, 2, 2, 225]


@given(recordings, speedups, st.integers(0, 3 * NS))
def test_a_tick_of_a_replay_is_due_between_the_records_before_and_after_it(times, speedup, time_ns):
    clock = source_clock(Replay(speedup), Recorded(times), 0, 1, seed=0)
    due = clock.tick_due_ns(time_ns)
    before = clock.stream_count(time_ns)
    assert before == 0 or clock.due_ns(before - 1) <= due
    assert before >= len(times) or clock.due_ns(before) >= due


@given(st.sampled_from(SCHEDULED), recordings, shares)
def test_a_recording_at_another_rate_keeps_its_stream_time_and_ticks_follow_the_records(rate, times, share):
    index, of = share
    clock = source_clock(rate, Recorded(times), index, of, seed=1)
    plain = source_clock(rate, Generated(), index, of, seed=1)
    for record, time in enumerate(times):
        assert clock.stream_ns(record) == time
        assert clock.due_ns(record) == plain.due_ns(record)
    edges = [times[0], *(time + 1 for time in times)]
    dues = [clock.tick_due_ns(edge) for edge in edges]
    assert dues[0] == 0
    assert all(clock.due_ns(clock.stream_count(edge) - 1) == due for edge, due in zip(edges[1:], dues[1:], strict=True))
    assert all(a <= b for a, b in pairwise(dues))


def test_a_recording_at_rate_max_keeps_its_stream_time():
    clock = source_clock(Max(), Recorded([3, 8]), 1, 2, seed=0)
    assert (clock.due_ns(0), clock.stream_ns(1), clock.stream_count(8), clock.tick_due_ns(8)) == (None, 8, 1, None)


@pytest.mark.parametrize("rate", [Replay(), Constant(1.0), Max()])
def test_a_spout_that_declares_recorded_times_but_has_none_is_named(rate):
    with pytest.raises(RunError, match="Recorded gives no recorded times"):
        source_clock(rate, Recorded(None), 0, 1, seed=0)


def test_only_recordings_can_be_replayed():
    with pytest.raises(RunError, match="Generated gives no recorded times"):
        source_clock(Replay(), Generated(), 0, 1, seed=0)


class Logs(WordCount):
    """Workload whose spout reads a recording."""

    def operator(self, component):
        return Recorded([1, 2]) if component == "spout" else super().operator(component)


def test_a_replay_without_recorded_times_is_refused_before_anything_starts():
    plain = load_workload("wordcount", {})
    with pytest.raises(InputError, match="those of wordcount's spout 'spout' have none; 'constant' or"):
        check_rate(Replay(), plain)
    check_rate(Replay(), Logs(plain.params))
    for rate in SCHEDULED:
        check_rate(rate, plain)
