"""Selection of a node's power source, and sources that stop, fail, decrease, sleep or disagree with another."""

import errno
import sys
import time
from pathlib import Path

import pytest
from recorded_host import (
    AMD,
    CLIENT,
    DENIED,
    SERVER,
    RecordedHost,
    Script,
    constant_power,
    fault,
    metered,
    rapl_counter,
    square_wave,
    zones,
)
from trees import meters
from trees.meters import POWERCAP, UNIT_61

from agents.power.energy import energy
from agents.power.meter import History, PowerSampler, metered_energy
from agents.power.metering import Metering, find_primary, probe_all
from agents.power.rapl import Rapl
from agents.power.reader import MeteredHost
from agents.power.settings import MeterProgram, PowerSettings
from inventory.values import EnergyModel


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
    result = metered(host)
    package = next(d for d in result.domains if d.domain == "package-0")
    assert (package.joules, package.watts, package.bound_joules) == (None, None, None)
    assert told in package.reason
    assert result.total.joules is None


def test_occasional_failed_readings_lose_no_energy(tmp_path: Path) -> None:
    good = rapl_counter(constant_power(40.0), UNIT_61)
    script = lambda t: fault(errno.EIO) if int(t * 3) % 2 and t < 9.5 else good(t)  # noqa: E731
    host = RecordedHost(meters.plant(tmp_path, meters.amd()), {f"{POWERCAP}/intel-rapl:0/energy_uj": script})
    result = metered(host)
    assert result.total.joules == pytest.approx(400, abs=result.total.bound_joules)


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
    result = metered_energy(history, metering, 1_000_000_000, 61_000_000_000)
    assert result.total.source == "perf"
    assert result.total.joules == pytest.approx(156 * 60, abs=result.total.bound_joules)
    assert {d.source for d in result.domains if d.in_total} == {"perf"}
    assert {note.subject for note in notes} == {"package-0", "package-1", "dram/package-0", "dram/package-1"}
    assert all(" agree" in note.detail and abs(note.value) < 0.005 for note in notes)
    assert {sample.domain.source for sample in metering.sample()} == {"perf"}


def test_disagreement_of_perf_and_rapl_is_reported(tmp_path: Path) -> None:
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
    result = metered(RecordedHost(meters.plant(tmp_path, meters.perf_server()), SERVER))
    assert result.total.source == "rapl"
    assert result.total.joules == pytest.approx(156 * 10, abs=result.total.bound_joules)


def test_the_operator_may_prefer_another_reader(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.client(), **meters.laptop()})
    assert metered(RecordedHost(root, CLIENT)).total.source == "rapl"
    assert metered(RecordedHost(root, CLIENT), settings=PowerSettings(prefer=("battery",))).total.source == "battery"
    assert metered(RecordedHost(root, CLIENT), settings=PowerSettings(source="battery")).total.source == "battery"


CARD = {
    f"{meters.HWMON}/hwmon4/name": "amdgpu",
    f"{meters.HWMON}/hwmon4/power1_average": "11000000",
    f"{meters.HWMON}/hwmon4/power1_label": "PPT",
}
"""A graphics card, whose sensor is not the node."""

STAT = {"proc/stat": "cpu  10 0 10 1000 0 0 0 0 0 0\ncpu0 10 0 10 1000 0 0 0 0 0 0\n"}
OTHERS: dict[str, tuple[meters.Files, PowerSettings, float]] = {
    "battery": (meters.laptop(power_now="14500000"), PowerSettings(), 14.5),
    "model": (STAT, PowerSettings(model=EnergyModel(20.0, 60.0)), 20.0),
}


@pytest.mark.parametrize("hidden_by", ["a sensor", "a platform zone", "an unreadable package"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_reader_without_the_nodes_total_leaves_it_to_the_next(name: str, hidden_by: str, tmp_path: Path) -> None:
    files, settings, watts = OTHERS[name]
    shadow, scripts = {
        "a sensor": (CARD, {}),
        "a platform zone": (meters.zone("intel-rapl:0", "psys"), zones({"intel-rapl:0": 30.0})),
        "an unreadable package": (meters.server(), {**SERVER, f"{POWERCAP}/intel-rapl:2/energy_uj": lambda _: DENIED}),
    }[hidden_by]
    host = RecordedHost(meters.plant(tmp_path, {**files, **shadow}), scripts)
    result = metered(host, settings=settings)
    assert result.total.source == name
    assert result.total.joules == pytest.approx(watts * 10, abs=result.total.bound_joules)
    # What hides no longer is recorded nevertheless.
    assert {domain.source for domain in result.domains} == {name, "hwmon" if hidden_by == "a sensor" else "rapl"}
    assert find_primary(host, settings, probe_all(host, settings)) == name


def test_an_operators_program_is_the_source_beside_the_sensor_of_a_card(tmp_path: Path) -> None:
    line = 'import json, time; print(json.dumps({"t": time.time(), "watts": 50}), flush=True); time.sleep(60)'
    program = MeterProgram((sys.executable, "-c", line))
    host = MeteredHost(meters.plant(tmp_path, CARD))
    settings = PowerSettings(external=program)
    assert find_primary(host, settings, probe_all(host, settings)) == "external"
    metering, history = Metering(host, settings), History()
    deadline = time.monotonic() + 30
    while "outlet" not in {domain.name for domain in history.domains} and time.monotonic() < deadline:
        history.add(metering.sample())
        time.sleep(0.02)
    metering.close()
    assert metering.source == "external"
    assert {(domain.name, domain.in_total) for domain in history.domains} == {("amdgpu/PPT", False), ("outlet", True)}


@pytest.mark.parametrize(
    ("files", "keys"),
    [
        (CARD, ("amdgpu/PPT", "`hwmon: total`", "`prefer`", "`source`")),
        (meters.zone("intel-rapl:0", "psys"), ("psys", "`platform: true`", "`prefer`", "`source`")),
    ],
)
def test_a_total_that_no_reader_has_is_missing_with_the_key_that_helps(
    files: meters.Files, keys: tuple[str, ...], tmp_path: Path
) -> None:
    result = metered(RecordedHost(meters.plant(tmp_path, files)), 1.0)
    assert result.total.joules is None
    for key in keys:
        assert key in result.total.reason


def test_a_package_that_cannot_be_read_is_missing_with_the_key_that_leaves_it_out(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {**SERVER, f"{POWERCAP}/intel-rapl:2/energy_uj": lambda _: DENIED}
    total = metered(RecordedHost(meters.plant(tmp_path, meters.server()), scripts), 1.0).total
    assert "package-1: " in total.reason
    assert "`ignore`" in total.reason


def test_samples_of_a_cpu_that_filters_its_counters_are_flagged(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.amd(), "proc/cpuinfo": "processor : 0\nflags : fpu sgx sse2\n"})
    result = metered(RecordedHost(root, AMD))
    assert result.total.flags == ("filtered",)
    assert result.total.joules == pytest.approx(550, abs=result.total.bound_joules)


@pytest.mark.parametrize("half_s", [0.05, 0.37, 2.0])
def test_a_square_wave_is_measured_through_wraps_and_sleep(half_s: float, tmp_path: Path) -> None:
    """The host sleeps while the counter goes on; the register wraps many times."""
    wrap_units, unit_uj = 2**24, 15.259
    raw_max = (wrap_units - 1) * 15259 // 1000
    root = meters.plant(tmp_path, meters.zone("intel-rapl:0", "package-0", raw_max, most_uw=60_000_000))
    load = square_wave(20.0, 110.0, half_s)

    def counter(seconds: float) -> str:
        return str(int(load(seconds) * 1e6 / unit_uj) % wrap_units * 15259 // 1000)

    host = RecordedHost(root, {f"{POWERCAP}/intel-rapl:0/energy_uj": counter}, sleeps=[(10.03, 20.0)])
    result = metered(host, 30.0)
    truth = load(result.end_ns / 1e9 + 20) - load(result.start_ns / 1e9)
    assert {"wrap", "gap"} <= set(result.total.flags)
    wraps = truth / (wrap_units * unit_uj / 1e6)
    assert wraps > 10
    # Twenty seconds are many wraps: their loss is flagged, and is a whole number of wraps.
    lost = (truth - result.total.joules) / (wrap_units * unit_uj / 1e6)
    assert "ambiguous" in result.total.flags
    assert abs(lost - round(lost)) * wrap_units * unit_uj / 1e6 <= result.total.bound_joules
    assert result.domains[0].watts is None


@pytest.mark.parametrize("half_s", [0.05, 0.37, 2.0])
def test_a_square_wave_is_measured_through_a_wrap_in_a_short_sleep(half_s: float, tmp_path: Path) -> None:
    files = meters.zone("intel-rapl:0", "package-0", most_uw=60_000_000)
    load = square_wave(20.0, 110.0, half_s)
    script = rapl_counter(load, UNIT_61, start_units=2**32 - 20_000_000)
    root = meters.plant(tmp_path, files)
    host = RecordedHost(root, {f"{POWERCAP}/intel-rapl:0/energy_uj": script}, sleeps=[(10.03, 20.0)])
    result = metered(host, 30.0)
    truth = load(result.end_ns / 1e9 + 20) - load(result.start_ns / 1e9)
    assert set(result.total.flags) == {"wrap", "gap"}
    assert result.total.joules == pytest.approx(truth, abs=result.total.bound_joules)
    assert result.total.bound_joules < 0.001 * truth


def test_modelled_counters_are_flagged(tmp_path: Path) -> None:
    root = meters.plant(tmp_path, {**meters.amd(), f"{POWERCAP}/intel-rapl/modelled": "1"})
    host = RecordedHost(root, AMD)
    result = metered(host)
    assert result.total.flags == ("modelled",)
    assert "nothing is measured" in Rapl(host, PowerSettings()).probe().reason


def test_a_register_that_wraps_soon_is_sampled_more_often_than_requested(tmp_path: Path) -> None:
    # 100 J at no more than 2 x 50 W: half of the range is half a second, in which there are two samples.
    files = meters.zone("intel-rapl:0", "package-0", 100_000_000, most_uw=50_000_000)
    host = RecordedHost(meters.plant(tmp_path, files), zones({"intel-rapl:0": 30.0}))
    for rate_hz, period_s in ((0.1, 0.25), (10.0, 0.1)):
        sampler = PowerSampler(Metering(host, PowerSettings(rate_hz=rate_hz)), lambda _: None)
        begin_ns = sampler.deadlines.due_ns
        sampler.deadlines.advance(begin_ns)
        assert sampler.deadlines.due_ns - begin_ns == pytest.approx(period_s * 1e9, rel=1e-6)
        sampler.stop()


@pytest.mark.parametrize("wish", [0.1, 1.0, 3.0])
def test_a_sensor_is_sampled_before_its_last_reading_expires(wish: float, tmp_path: Path) -> None:
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
