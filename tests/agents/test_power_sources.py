"""Which source a node has, and what becomes of one that stops, fails, falls, sleeps or disagrees with another."""

import errno
from pathlib import Path

import pytest
from metered_machines import AMD, CLIENT, SERVER, metered, zones
from recorded_host import RecordedHost, Script, constant_power, fault, rapl_counter, square_wave
from trees import meters
from trees.meters import POWERCAP, UNIT_61

from agents.power.energy import energy
from agents.power.meter import History, PowerSampler, account
from agents.power.metering import Metering
from agents.power.rapl import Rapl
from agents.power.settings import PowerSettings


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (lambda _: "123456", "has not changed"),
        (lambda t: str(round(t * 2e7)) if t < 5 else fault(errno.EIO), "Input/output error"),
        (lambda t: str(round(t * 2e7)) if t < 5 else "rubbish", "not a number"),
        (lambda t: str(round(t * 2e7)) if t < 5 else str(round((t - 5) * 2e7) + 1), "a step is missing (reset)"),
    ],
)
def test_a_package_that_stops_fails_or_falls_is_missing_with_its_reason(
    script: Script, told: str, tmp_path: Path
) -> None:
    host = RecordedHost(meters.plant(tmp_path, meters.amd()), {f"{POWERCAP}/intel-rapl:0/energy_uj": script})
    answer = metered(host)
    package = next(d for d in answer.domains if d.domain == "package-0")
    assert (package.joules, package.watts, package.bound_joules) == (None, None, None)
    assert told in package.reason
    assert answer.total.joules is None


def test_a_reading_that_fails_now_and_then_costs_nothing(tmp_path: Path) -> None:
    good = rapl_counter(constant_power(40.0), UNIT_61)
    script = lambda t: fault(errno.EIO) if int(t * 3) % 2 and t < 9.5 else good(t)  # noqa: E731
    host = RecordedHost(meters.plant(tmp_path, meters.amd()), {f"{POWERCAP}/intel-rapl:0/energy_uj": script})
    answer = metered(host)
    assert answer.total.joules == pytest.approx(400, abs=answer.total.bound_joules)


def test_perf_comes_first_and_rapl_checks_it_for_a_minute(tmp_path: Path) -> None:
    scale = 2.0**-32
    events = {
        f"perf {config} {cpu}": (lambda t, watts=watts: int(watts * t / scale).to_bytes(8, "little"))
        for config, cpu, watts in ((2, 0, 80.0), (2, 18, 60.0), (3, 0, 9.0), (3, 18, 7.0))
    }
    host = RecordedHost(meters.plant(tmp_path, meters.perf_server()), {**SERVER, **events})
    metering, history = Metering(host, PowerSettings()), History()
    for _ in range(620):
        history.add(metering.sample())
        host.wait(0.1)
    notes = [note for note in metering.notes() if note.kind == "power_cross_check"]
    answer = account(history, metering, 1_000_000_000, 61_000_000_000)
    assert answer.total.source == "perf"
    assert answer.total.joules == pytest.approx(156 * 60, abs=answer.total.bound_joules)
    assert {d.source for d in answer.domains if d.in_total} == {"perf"}
    assert {note.subject for note in notes} == {"package-0", "package-1", "dram/package-0", "dram/package-1"}
    assert all(" agree" in note.detail and abs(note.value) < 0.005 for note in notes)
    assert {sample.domain.source for sample in metering.sample()} == {"perf"}


def test_two_ways_to_one_counter_that_differ_are_told(tmp_path: Path) -> None:
    events = {
        f"perf {config} {cpu}": (lambda t, watts=watts: int(watts * t * 2**32).to_bytes(8, "little"))
        for config, cpu, watts in ((2, 0, 82.0), (2, 18, 60.0), (3, 0, 9.0), (3, 18, 7.0))
    }
    host = RecordedHost(meters.plant(tmp_path, meters.perf_server()), {**SERVER, **events})
    metering = Metering(host, PowerSettings())
    for _ in range(620):
        metering.sample()
        host.wait(0.1)
    notes = {note.subject: note for note in metering.notes() if note.kind == "power_cross_check"}
    assert "DISAGREE" in notes["package-0"].detail
    assert notes["package-0"].value == pytest.approx(-2 / 82, rel=0.01)
    assert "DISAGREE" not in notes["package-1"].detail


def test_a_recordings_events_cannot_be_opened_so_that_rapl_is_the_source(tmp_path: Path) -> None:
    answer = metered(RecordedHost(meters.plant(tmp_path, meters.perf_server()), SERVER))
    assert answer.total.source == "rapl"
    assert answer.total.joules == pytest.approx(156 * 10, abs=answer.total.bound_joules)


def test_the_operator_may_prefer_another_reader(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.client(), **meters.laptop()})
    assert metered(RecordedHost(root, CLIENT)).total.source == "rapl"
    assert metered(RecordedHost(root, CLIENT), settings=PowerSettings(prefer=("battery",))).total.source == "battery"
    assert metered(RecordedHost(root, CLIENT), settings=PowerSettings(source="battery")).total.source == "battery"


def test_a_cpu_that_blurs_its_counters_has_flagged_samples(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.amd(), "proc/cpuinfo": "processor : 0\nflags : fpu sgx sse2\n"})
    answer = metered(RecordedHost(root, AMD))
    assert answer.total.flags == ("filtered",)
    assert answer.total.joules == pytest.approx(550, abs=answer.total.bound_joules)


@pytest.mark.parametrize("half_s", [0.05, 0.37, 2.0])
def test_a_square_wave_comes_back_through_turns_and_sleep(half_s: float, tmp_path: Path) -> None:
    """The host sleeps, and the counter goes on meanwhile; the register turns over again and again."""
    turn_units, unit_uj = 2**24, 15.259
    raw_max = (turn_units - 1) * 15259 // 1000
    root = meters.plant(tmp_path, meters.zone("intel-rapl:0", "package-0", raw_max, most_uw=60_000_000))
    load = square_wave(20.0, 110.0, half_s)

    def counter(seconds: float) -> str:
        return str(int(load(seconds) * 1e6 / unit_uj) % turn_units * 15259 // 1000)

    host = RecordedHost(root, {f"{POWERCAP}/intel-rapl:0/energy_uj": counter}, sleeps=[(10.03, 20.0)])
    answer = metered(host, 30.0)
    truth = load(answer.end_ns / 1e9 + 20) - load(answer.start_ns / 1e9)
    assert {"wrap", "gap"} <= set(answer.total.flags)
    turns = truth / (turn_units * unit_uj / 1e6)
    assert turns > 10
    # Twenty seconds are many turns: what was lost in them is told, and is no more than whole turns.
    lost = (truth - answer.total.joules) / (turn_units * unit_uj / 1e6)
    assert "ambiguous" in answer.total.flags
    assert abs(lost - round(lost)) * turn_units * unit_uj / 1e6 <= answer.total.bound_joules
    assert answer.domains[0].watts is None


@pytest.mark.parametrize("half_s", [0.05, 0.37, 2.0])
def test_a_square_wave_comes_back_through_a_turn_in_a_sleep_that_is_short_enough(half_s: float, tmp_path: Path) -> None:
    files = meters.zone("intel-rapl:0", "package-0", most_uw=60_000_000)
    load = square_wave(20.0, 110.0, half_s)
    script = rapl_counter(load, UNIT_61, start_units=2**32 - 20_000_000)
    root = meters.plant(tmp_path, files)
    host = RecordedHost(root, {f"{POWERCAP}/intel-rapl:0/energy_uj": script}, sleeps=[(10.03, 20.0)])
    answer = metered(host, 30.0)
    truth = load(answer.end_ns / 1e9 + 20) - load(answer.start_ns / 1e9)
    assert set(answer.total.flags) == {"wrap", "gap"}
    assert answer.total.joules == pytest.approx(truth, abs=answer.total.bound_joules)
    assert answer.total.bound_joules < 0.001 * truth


def test_counters_that_follow_a_model_are_flagged_so(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.amd(), f"{POWERCAP}/intel-rapl/modelled": "1"})
    host = RecordedHost(root, AMD)
    answer = metered(host)
    assert answer.total.flags == ("modelled",)
    assert "nothing is measured" in Rapl(host, PowerSettings()).probe().reason


def test_a_register_that_turns_over_soon_is_looked_at_more_often_than_was_wished(tmp_path: Path) -> None:
    # 100 J at no more than 2 x 50 W: half a turn is half a second, in which two samples lie.
    files = meters.zone("intel-rapl:0", "package-0", 100_000_000, most_uw=50_000_000)
    host = RecordedHost(meters.plant(tmp_path, files), zones({"intel-rapl:0": 30.0}))
    for wish, period_s in ((0.1, 0.25), (10.0, 0.1)):
        sampler = PowerSampler(Metering(host, PowerSettings(rate_hz=wish)), lambda _: None)
        begin_ns = sampler.deadlines.due_ns
        sampler.deadlines.advance(begin_ns)
        assert sampler.deadlines.due_ns - begin_ns == pytest.approx(period_s * 1e9, rel=1e-6)
        sampler.stop()


@pytest.mark.parametrize("wish", [0.1, 1.0, 3.0])
def test_a_sensor_is_looked_at_before_its_word_is_too_old(wish: float, tmp_path: Path) -> None:
    host = RecordedHost(meters.plant(tmp_path, meters.laptop()))
    history = History()
    sampler = PowerSampler(Metering(host, PowerSettings(rate_hz=wish)), history.add)
    sampler.force()
    begin_ns = host.monotonic_ns()
    while host.monotonic_ns() - begin_ns < 31e9:
        sampler.deadlines.advance(host.monotonic_ns())
        host.wait((sampler.deadlines.due_ns - host.monotonic_ns()) / 1e9)
        sampler.force()
    sampler.stop()
    (domain,) = history.domains
    found = energy(history.of(domain), begin_ns, begin_ns + round(30e9))
    assert found.joules == pytest.approx(8.2 * 30), found.reason
