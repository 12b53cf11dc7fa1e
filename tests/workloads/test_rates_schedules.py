"""Properties of all schedules, and those of poisson, bursts and sine."""

import json
import subprocess
import sys
from itertools import pairwise
from math import cos, exp, pi, sqrt
from pathlib import Path
from statistics import correlation, fmean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inventory.errors import InputError
from inventory.times import NS
from workloads.rates import Bursts, Constant, Max, Poisson, Replay, Sine, Steps, rate_of

tuples_per_s = st.one_of(st.sampled_from([1.0, 3.0, 1e3, 1e9]), st.floats(1e-3, 1e9))
seconds = st.one_of(st.sampled_from([0.001, 1.0, 86400.0]), st.floats(1e-3, 1e6))
shares = st.sampled_from([0.0, 1.0]) | st.floats(0, 1)
schedules = st.one_of(
    st.builds(Constant, tuples_per_s),
    st.builds(Steps, st.tuples(st.tuples(st.just(0.0), tuples_per_s), st.tuples(seconds, tuples_per_s))),
    st.builds(Poisson, tuples_per_s),
    st.builds(
        Bursts, on_s=seconds, off_s=seconds, tuples_per_s=tuples_per_s, off_tuples_per_s=st.just(0.0) | tuples_per_s
    ),
    st.builds(Sine, mean_tuples_per_s=tuples_per_s, amplitude=shares, period_s=seconds),
).flatmap(lambda rate: st.builds(rate.schedule, st.integers(0, 2**80)))
records = st.integers(0, 1000) | st.integers(0, 10**15)


@given(schedules, records)
def test_due_count_inverts_due_ns(schedule, record):
    due = schedule.due_ns(record)
    assert due >= 0
    assert schedule.due_count(due) > record
    assert schedule.due_count(due - 1) <= record


@given(schedules, st.integers(0, 10**18))
def test_due_ns_inverts_due_count(schedule, elapsed_ns):
    count = schedule.due_count(elapsed_ns)
    assert schedule.due_ns(count) > elapsed_ns
    assert count == 0 or schedule.due_ns(count - 1) <= elapsed_ns


@given(schedules, records, st.lists(st.integers(0, 2000), max_size=20))
def test_later_records_are_never_due_earlier_and_counts_never_fall(schedule, first, ahead):
    dues = [schedule.due_ns(first + more) for more in sorted(ahead)]
    assert all(a <= b for a, b in pairwise(dues))
    counts = [schedule.due_count(at) for at in dues]
    assert all(a <= b for a, b in pairwise(counts))
    assert schedule.due_count(-1) == 0


def some(seed: int) -> list[int]:
    """Return due times and counts of several kinds of rates; child processes call this, too."""
    rates = [
        Poisson(1234.5),
        Bursts(on_s=1.5, off_s=0.3, tuples_per_s=700.1, off_tuples_per_s=3.0),
        Sine(mean_tuples_per_s=77.7, amplitude=0.9, period_s=3600.0),
    ]
    found = []
    for schedule in (rate.schedule(seed) for rate in rates):
        found += [schedule.due_ns(record) for record in (0, 1, 63, 64, 10**6, 10**12, 5)]
        found += [schedule.due_count(at) for at in (0, NS, 10**15, 7)]
    return found


def test_times_are_the_same_in_every_process():
    folder, name = str(Path(__file__).parent), Path(__file__).stem
    code = f"import json, sys; sys.path.insert(0, {folder!r}); import {name}; print(json.dumps({name}.some(7)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == some(7)
    assert some(7) == some(7) != some(8)


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=8), st.integers(0, 2**64))
def test_poisson_times_do_not_depend_on_earlier_calls(numbers, seed):
    schedule = Poisson(5e4).schedule(seed)
    found = []
    for record in numbers:
        found.append(schedule.due_ns(record))
        schedule.due_count(record * 3)
    assert found == [Poisson(5e4).schedule(seed).due_ns(record) for record in numbers]


def gaps_from(first: int, count: int, rate: float, seed: int) -> list[float]:
    """Return the gaps before `count` records from `first` on, in units of the mean gap."""
    schedule = Poisson(rate).schedule(seed)
    dues = [0 if first == 0 else schedule.due_ns(first - 1), *map(schedule.due_ns, range(first, first + count))]
    return [(b - a) * rate / NS for a, b in pairwise(dues)]


# Seeds are fixed, so that these tests are deterministic; about one seed in 10,000 exceeds a bound.


@pytest.mark.parametrize(("first", "rate"), [(0, 1000.0), (10**13 + 17, 0.5), (3 * 10**10, 1e6)])
def test_poisson_gaps_are_exponential_and_independent(first, rate):
    count = 20_000
    gaps = gaps_from(first, count, rate, seed=11)
    assert abs(fmean(gaps) - 1) < 4 / sqrt(count)
    assert abs(variance(gaps) - 1) < 4 * sqrt(8 / count)
    assert abs(correlation(gaps[:-1], gaps[1:])) < 4 / sqrt(count)
    # Kolmogorov-Smirnov distance from 1 - exp(-x).
    distance = max(
        max((at + 1) / count - (1 - exp(-gap)), 1 - exp(-gap) - at / count) for at, gap in enumerate(sorted(gaps))
    )
    assert distance < 2.2 / sqrt(count)


def test_poisson_counts_of_equal_times_vary_as_much_as_their_mean():
    # Intervals within a leaf of 32 records, over a few leaves, and over many.
    for mean in (3, 100, 5000):
        schedule = Poisson(1000.0).schedule(5)
        step = mean * NS // 1000
        counts = [schedule.due_count(at * step) for at in range(4001)]
        found = [b - a for a, b in pairwise(counts)]
        assert abs(fmean(found) / mean - 1) < 4 / sqrt(4000 * mean)
        assert abs(variance(found) / mean - 1) < 4 * sqrt((2 + 1 / mean) / 4000)


def test_poisson_variance_over_seeds_is_that_of_a_long_sum():
    # The time of record 10^8 over many seeds: sums neither drift nor vary too little.
    count = 400
    dues = [Poisson(1e5).schedule(seed).due_ns(10**8 - 1) / NS for seed in range(count)]
    deviations = [(due - 1000) / (1000 / sqrt(10**8)) for due in dues]
    assert abs(fmean(deviations)) < 4 / sqrt(count)
    assert abs(variance(deviations) - 1) < 4 * sqrt(2 / count)


def test_poisson_keeps_its_rate_for_a_year_in_bounded_memory():
    schedule = Poisson(100_000.0).schedule(1)
    year = 366 * 86400
    for day in range(1, 367):
        count = schedule.due_count(day * 86400 * NS)
        assert abs(count - day * 86400 * 10**5) < 5 * sqrt(day * 86400 * 1e5)
        schedule.due_ns(count)
    assert abs(schedule.due_ns(year * 10**5) / NS - year) < 5 * sqrt(year * 1e5) / 1e5
    caches = [value for value in vars(schedule).values() if isinstance(value, list)]
    assert all(len(value) <= 60 for value in caches)


@given(
    st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)
)
def test_bursts_emit_rate_times_duration_in_every_phase(on_ms, off_ms, rate, off_rate, period):
    schedule = Bursts(
        on_s=on_ms / 1000, off_s=off_ms / 1000, tuples_per_s=rate * 1000.0, off_tuples_per_s=off_rate * 1000.0
    ).schedule()
    start = period * (on_ms + off_ms) * 10**6
    counts = [schedule.due_count(at - 1) for at in (start, start + on_ms * 10**6, start + (on_ms + off_ms) * 10**6)]
    assert [b - a for a, b in pairwise(counts)] == [rate * on_ms, off_rate * off_ms]
    assert schedule.due_ns(counts[0]) == start


def test_bursts_carry_over_fractions_of_a_record():
    schedule = Bursts(on_s=1.0, off_s=1.0, tuples_per_s=2.5).schedule()
    counts = [schedule.due_count(2 * at * NS - 1) for at in range(5)]
    assert counts == [0, 3, 5, 8, 10]
    assert schedule.due_ns(3) == 2 * NS + 200_000_000


def test_a_sine_keeps_the_mean_in_every_period_with_most_of_it_in_the_first_half():
    schedule = Sine(mean_tuples_per_s=1000.0, amplitude=0.5, period_s=60.0).schedule()
    for period in (0, 1, 2, 10**6):
        ends = [period * 60 * NS + at * NS for at in (0, 30, 60)]
        counts = [schedule.due_count(end - 1) for end in ends]
        first, second = (b - a for a, b in pairwise(counts))
        assert first + second == 60_000
        # The mean over half a sine is 2 / pi of its height.
        assert abs(first - 30_000 * (1 + 0.5 * 2 / pi)) <= 1
        assert schedule.due_ns(counts[0]) == ends[0]


@pytest.mark.parametrize("period_s", [1.0, 600.0, 86400.0])
@pytest.mark.parametrize("amplitude", [0.0, 0.3, 1.0])
def test_a_sine_follows_its_integral_closely(amplitude, period_s):
    mean = 1e5
    schedule = Sine(mean_tuples_per_s=mean, amplitude=amplitude, period_s=period_s).schedule()
    for at in range(1000):
        into = at / 997 * period_s
        turn = 2 * pi * into / period_s
        expected = mean * (into + amplitude * period_s / (2 * pi) * (1 - cos(turn)))
        assert abs(schedule.due_count(round(into * NS)) - expected) <= 1.5 + 1e-10 * mean * period_s


def test_a_sine_without_amplitude_is_constant():
    schedule = Sine(mean_tuples_per_s=8.0, amplitude=0.0, period_s=3.0).schedule()
    assert all(abs(schedule.due_ns(record) - record * NS // 8) <= 1 for record in range(50))


@pytest.mark.parametrize("rate", [Replay(), Max()])
def test_without_a_spout_neither_replay_nor_max_has_a_schedule(rate):
    assert rate.schedule(3) is None


def test_new_kinds_from_plain_data():
    assert rate_of({"kind": "poisson", "tuples_per_s": 5}) == Poisson(5.0)
    assert rate_of({"kind": "replay"}) == Replay(1.0)
    assert rate_of({"kind": "replay", "speedup": 60}) == Replay(60.0)
    assert rate_of({"kind": "bursts", "on_s": 1, "off_s": 2, "tuples_per_s": 3}) == Bursts(
        on_s=1.0, off_s=2.0, tuples_per_s=3.0, off_tuples_per_s=0.0
    )


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"kind": "poison", "tuples_per_s": 5}, "'poison' is none of the valid values; did you mean 'poisson'"),
        ({"kind": "poisson"}, "the key 'tuples_per_s' is missing"),
        ({"kind": "poisson", "tuples_per_s": 0}, "tuples_per_s: got 0: expected .*> 0"),
        ({"kind": "bursts", "on_s": 1, "tuples_per_s": 5}, "the key 'off_s' is missing"),
        ({"kind": "bursts", "on_s": 1, "off_s": 0, "tuples_per_s": 5}, "off_s: got 0: expected .*>= 0.001"),
        ({"kind": "bursts", "on_s": 1, "of_s": 0, "tuples_per_s": 5}, "unknown key 'of_s'; did you mean 'off_s'"),
        (
            {"kind": "bursts", "on_s": 1, "off_s": 1, "tuples_per_s": 5, "off_tuples_per_s": -1},
            "off_tuples_per_s: got -1",
        ),
        (
            {"kind": "sine", "mean_tuples_per_s": 9, "amplitude": 500, "period_s": 60},
            "amplitude: got 500: expected .*<= 1",
        ),
        ({"kind": "sine", "mean_tuples_per_s": 0, "amplitude": 0.5, "period_s": 60}, "mean_tuples_per_s: got 0"),
        ({"kind": "sine", "tuples_per_s": 9, "amplitude": 0.5, "period_s": 60}, "did you mean 'mean_tuples_per_s'"),
        ({"kind": "replay", "speedup": 0}, "speedup: got 0: expected .*>= 1e-06"),
        ({"kind": "replay", "speedup": "2x"}, 'speedup: got "2x": expected a number, got text'),
    ],
)
def test_a_wrong_value_is_explained(plain, said):
    with pytest.raises(InputError, match=said):
        rate_of(plain)
