"""Counters that wrap, are reset or are sampled too rarely; and perf events.

Events are opened on the real kernel, where it permits that, and on recorded hosts, as their PMU describes them.
"""

import random
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from recorded_host import RecordedHost
from trees import meters

from agents.power.perf import Perf
from agents.power.reader import Domain, MeteredHost, Reading
from agents.power.series import Counter, Series, edge_joules
from agents.power.settings import PowerSettings

MICRO = 1e-6
WALKS = 20_000

SOFTWARE, CPU_CLOCK = 1, 0


def domain(raw_max: int | None, unit: float | None = None, most_watts: float = 1000.0) -> Domain:
    return Domain("package-0", "package", "rapl", "x", True, MICRO, raw_max, unit, most_watts)


def test_a_modelled_counter_that_is_written_every_50_ms_is_not_taken_for_reset() -> None:
    """Two samples 0.6 ms apart have the energy of 100 ms at 60 W between them; a kernel's counter cannot do that."""
    modelled = structs.replace(domain(None), flags=("modelled",))
    assert Counter(modelled).step(0, 6_000_000, 0.0006) == (6_000_000, ())
    assert Counter(domain(None)).step(0, 6_000_000, 0.0006) == (None, ("reset",))
    # A step above any possible power is a reset of either counter.
    assert Counter(modelled).step(0, 10**9, 0.0006) == (None, ("reset",))


def test_the_bound_of_a_modelled_counter_has_the_time_since_it_was_written() -> None:
    modelled = structs.replace(domain(None), flags=("modelled",))
    assert edge_joules(modelled, 0, 60.0) == pytest.approx(60 * 0.05 + 0.001)
    assert edge_joules(domain(None), 0, 60.0) == pytest.approx(60 * 0.001 + 0.001)


def test_random_walks_of_one_to_three_wraps_are_counted_completely() -> None:
    """Each walk has a register of random width and unit, which is sampled irregularly during one to three wraps."""
    draw = random.Random(7)  # noqa: S311
    wrap_counts = set()
    for _ in range(WALKS):
        bits, unit = draw.randint(8, 40), draw.choice([1.0, 15.3, 61.035, 100.0, 1000.0])
        size = 2**bits
        shown_max = int((size - 1) * unit)
        counter = Counter(domain(shown_max, unit))
        register = start = draw.randrange(size)
        distance = round(draw.uniform(1, 3) * size)
        shown, total, elapsed_s = int((register % size) * unit), 0.0, 0.0
        moved = wraps = 0
        while moved < distance:
            # At most half of what the domain could draw until the counter is ambiguous.
            step = min(1 + int(draw.random() * (size // 3)), distance - moved)
            moved += step
            register += step
            elapsed_s = step * unit * MICRO / (400 + 500 * draw.random())
            now = int((register % size) * unit)
            counts, flags = counter.step(shown, now, elapsed_s)
            assert counts is not None
            assert counts >= 0
            wraps += "wrap" in flags
            total += counts
            shown = now
        true_wraps = register // size - start // size
        assert wraps == true_wraps
        assert total == pytest.approx(moved * unit, abs=unit * (true_wraps + 1))
        wrap_counts.add(true_wraps)
    assert {1, 2, 3} <= wrap_counts


@given(
    raw_max=st.integers(1000, 2**62),
    before=st.integers(0, 2**62),
    wraps=st.integers(1, 3),
    rest=st.integers(0, 2**62),
    share=st.floats(0.05, 1.0),
    most_watts=st.floats(1.0, 2000.0),
)
def test_a_lost_wrap_is_always_flagged(raw_max, before, wraps, rest, share, most_watts) -> None:
    """At any power up to the limit, a full wrap takes longer than an unflagged step."""
    counter = Counter(domain(raw_max, 1, most_watts))
    before %= raw_max + 1
    counts = wraps * (raw_max + 1) + rest % (raw_max + 1)
    elapsed_s = counts * MICRO / (most_watts * share)
    _, flags = counter.step(before, (before + counts) % (raw_max + 1), elapsed_s)
    assert "ambiguous" in flags or flags == ("reset",)


@given(
    raw_max=st.integers(1, 2**62), before=st.integers(0, 2**62), now=st.integers(0, 2**62), seconds=st.floats(0, 1e6)
)
def test_no_step_is_negative_whatever_the_values(raw_max, before, now, seconds) -> None:
    counts, _ = Counter(domain(raw_max)).step(before, now, seconds)
    assert counts is None or counts >= 0


@given(share=st.floats(0.01, 1.0), raw_max=st.integers(10**6, 2**62))
def test_steps_within_the_longest_period_are_never_ambiguous(share, raw_max) -> None:
    counter = Counter(domain(raw_max, 1))
    step = counter.step(0, 1, counter.longest_period_s * share)
    assert step.flags == ()


def test_a_wrap_has_one_unit_more_than_the_highest_value() -> None:
    assert Counter(domain(999, 1)).step(990, 5, 0.1).counts == 15
    # Nothing is added if the unit is unknown.
    assert Counter(domain(999)).step(990, 5, 0.1).counts == 14


def test_a_decrease_without_a_range_or_without_the_time_for_a_wrap_is_a_reset() -> None:
    assert Counter(domain(None)).step(500, 400, 1.0) == (None, ("reset",))
    assert Counter(domain(262143328850, 61.035)).step(10**10, 5, 0.1) == (None, ("reset",))
    # So is an increase above any possible power.
    assert Counter(domain(262143328850, 61.035)).step(5, 10**10, 0.1) == (None, ("reset",))


def test_a_step_shorter_than_the_counters_update_interval_is_accepted() -> None:
    # A forced sample right after a regular one: the energy of a millisecond arrives in ten microseconds.
    assert Counter(domain(262143328850, 61.035)).step(0, 200_000, 1e-5).counts == 200_000


def add(series: Series, t_s: float, value: int, asleep_s: float = 0.0):
    return series.add(Reading(series.domain, round(t_s * 1e9), 500, value), round(asleep_s * 1e9), False)


def test_after_a_reset_the_series_goes_on_from_the_new_value() -> None:
    series = Series(domain(None))
    assert add(series, 0, 1000).flags == ("first",)
    assert add(series, 1, 2_001_000).joules == pytest.approx(2.0)
    lost = add(series, 2, 50)
    assert (lost.joules, lost.watts, lost.flags) == (None, None, ("reset",))
    assert add(series, 3, 1_000_050).joules == pytest.approx(3.0)


def test_sleep_is_flagged_and_counts_as_time_of_the_step() -> None:
    series = Series(domain(262143328850, 61.035))
    add(series, 0, 0)
    # 2000 J in a tenth of a second would be a reset; in an hour of sleep it is half a watt.
    slept = add(series, 0.1, 2_000_000_000, asleep_s=3600)
    assert slept.flags == ("gap", "ambiguous")
    assert slept.joules == pytest.approx(2000)
    assert slept.watts == pytest.approx(2000 / 3600.1)


def test_a_counter_that_stands_still_is_missing_after_a_second_and_back_when_it_moves() -> None:
    series = Series(domain(None))
    add(series, 0, 500)
    assert add(series, 0.5, 500).watts is None
    still = add(series, 1.5, 500)
    assert still.is_silent
    assert still.joules is None
    assert "has not changed" in still.reason
    assert add(series, 2.0, 4_000_500).joules == pytest.approx(4.0)


def test_a_counter_that_is_updated_less_often_than_it_is_read_is_not_taken_for_reset() -> None:
    """Every 0.4 s it advances by the energy of 0.4 s at 45 W, which would be 900 W in the 20 ms since the last read."""
    series = Series(domain(262143328850, 61.035, most_watts=122.0))
    for at in range(100):
        sample = add(series, at * 0.02, at // 20 * 18_000_000)
        assert "reset" not in sample.flags
    assert sample.known_joules == pytest.approx(4 * 18)
    # Time in which it has not changed excuses no more than that.
    assert add(series, 2.0, 5 * 18_000_000 + 10**8).flags == ("reset",)


def test_watts_are_integrated_between_readings_and_a_long_silence_is_a_gap() -> None:
    series = Series(Domain("board", "board", "hwmon", "x", True, longest_s=1.0))
    add(series, 0, 100)
    sample = add(series, 0.5, 140)
    assert sample.joules == pytest.approx(60)
    assert sample.drift_joules == pytest.approx(10)
    lost = add(series, 3.0, 140)
    assert (lost.joules, lost.flags) == (None, ("gap",))
    assert lost.watts == 140
    assert add(series, 3.5, 140).joules == pytest.approx(130)


@pytest.mark.parametrize("watts", [0, -5, float("nan"), float("inf"), 1e12])
def test_an_implausible_power_is_missing_with_a_reason(watts: float) -> None:
    series = Series(Domain("board", "board", "hwmon", "x", True))
    sample = add(series, 0, watts)
    assert sample.is_silent
    assert sample.watts is None
    assert "implausible power" in sample.reason


def test_an_event_of_this_kernel_counts() -> None:
    """The event is the clock of a CPU, which every kernel counts; energy events are opened in the same way."""
    try:
        event = MeteredHost().perf_event(SOFTWARE, CPU_CLOCK, 0)
    except PermissionError:
        pytest.skip("this user may not open perf events of a whole CPU")
    first = int.from_bytes(event.read(), sys.byteorder)
    deadline = time.monotonic() + 60
    while int.from_bytes(event.read(), sys.byteorder) <= first:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    event.close()


def test_an_unknown_event_is_an_error_with_a_message() -> None:
    with pytest.raises(OSError, match=r"\w"):
        MeteredHost().perf_event(999_999, 1, 0)


def test_a_recording_has_no_events(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="recording"):
        MeteredHost(tmp_path).perf_event(24, 2, 0)


def opened(root: Path) -> list[tuple[str, str, str, bool]]:
    """Open every event of a tree; return each domain with the arguments of its system call."""
    calls: list[str] = []

    class CallRecorder(RecordedHost):
        def perf_event(self, kind, config, cpu):
            calls.append(f"{kind} {config:#x} {cpu}")
            self.scripts[f"perf {config} {cpu}"] = lambda _: bytes(8)
            return super().perf_event(kind, config, cpu)

    reader = Perf(CallRecorder(root), PowerSettings())
    reader.open()
    return [(d.name, d.role, a, d.in_total) for d, a in zip(reader.domains, calls, strict=True)]


def test_each_event_is_opened_once_per_socket_and_the_platform_once(tmp_path: Path) -> None:
    pmu = meters.PMU
    files = {
        **meters.perf_server(),
        f"{pmu}/events/energy-psys": "event=0x05",
        f"{pmu}/events/energy-psys.scale": "1e-9",
    }
    assert opened(meters.plant(tmp_path, files)) == [
        ("package-0", "package", "24 0x2 0", True),
        ("package-1", "package", "24 0x2 18", True),
        ("psys", "platform", "24 0x5 0", False),
        ("dram/package-0", "dram", "24 0x3 0", True),
        ("dram/package-1", "dram", "24 0x3 18", True),
    ]


def test_counters_of_dies_are_named_and_event_bits_follow_the_format(
    tmp_path: Path,
) -> None:
    cpu = "sys/devices/system/cpu"
    files = {
        **meters.perf_server(),
        f"{meters.PMU}/cpumask": "0,8-9",
        f"{meters.PMU}/format/event": "config:8-15",
        **{f"{cpu}/cpu{n}/topology/physical_package_id": s for n, s in ((0, "0"), (8, "0"), (9, "1"))},
        **{f"{cpu}/cpu{n}/topology/die_id": d for n, d in ((0, "0"), (8, "1"), (9, "0"))},
    }
    assert opened(meters.plant(tmp_path, files))[:3] == [
        ("package-0-die-0", "package", "24 0x200 0", True),
        ("package-0-die-1", "package", "24 0x200 8", True),
        ("package-1", "package", "24 0x200 9", True),
    ]


@pytest.mark.parametrize("broken", ["type", "cpumask", "events/energy-pkg.scale"])
def test_an_invalid_description_of_a_pmu_is_refused_and_not_guessed(broken: str, tmp_path: Path) -> None:
    reader = Perf(
        RecordedHost(meters.plant(tmp_path, {**meters.perf_server(), f"{meters.PMU}/{broken}": "?"})), PowerSettings()
    )
    with pytest.raises(OSError, match="cannot be opened"):
        reader.open()
    reader.close()
