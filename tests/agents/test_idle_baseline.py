"""The idle baseline of a node: measured in parts, repeated when the node was not idle, or missing with a reason."""

from pathlib import Path

import pytest
from recorded_host import RecordedHost, Script, constant_power, rapl_counter, square_wave
from trees import meters

from agents.agent.idle_baseline import StoppedError, measure_idle
from agents.power.settings import meter_settings
from agents.protocol import IdleBaseline

PACKAGE = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
MEMORY = f"{meters.POWERCAP}/intel-rapl:0:0/energy_uj"
FILES = {**meters.zone("intel-rapl:0", "package-0"), **meters.zone("intel-rapl:0:0", "dram", meters.RANGE_15)}


def baseline(root: Path, package: Script, memory: Script | None = None, **files: str) -> IdleBaseline:
    memory = memory or rapl_counter(constant_power(3.0), meters.UNIT_15, 5)
    host = RecordedHost(meters.plant(root, {**FILES, **files}), {PACKAGE: package, MEMORY: memory})
    return measure_idle(host, meter_settings(host), 10.0, 30.0)


def test_an_idle_node_is_measured_once(tmp_path: Path) -> None:
    found = baseline(tmp_path, rapl_counter(constant_power(20.0), meters.UNIT_61, 5))
    assert found.watts == pytest.approx(23.0, rel=1e-3)
    assert found.domains == {"package-0": pytest.approx(20.0, rel=1e-3), "dram/package-0": pytest.approx(3.0, rel=1e-3)}
    assert found.stddev_watts is not None
    assert found.stddev_watts < 0.1
    assert found.seconds == pytest.approx(30.0, rel=1e-3)
    assert (found.attempts, found.flags, found.reason) == (1, (), "")


def test_power_that_changes_is_measured_again_and_then_flagged(tmp_path: Path) -> None:
    found = baseline(tmp_path, rapl_counter(square_wave(20.0, 26.0, 7.0), meters.UNIT_61, 5))
    assert (found.attempts, found.flags) == (2, ("unsteady",))
    assert found.watts == pytest.approx(26.0, rel=0.1)


def test_power_that_settles_late_is_steady_in_the_second_attempt(tmp_path: Path) -> None:
    found = baseline(tmp_path, rapl_counter(lambda t: 20.0 * t + 10 * min(t, 25.0), meters.UNIT_61, 5))
    assert (found.attempts, found.flags) == (2, ())
    assert found.watts == pytest.approx(23.0, rel=1e-3)


def test_a_busy_node_is_flagged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    busy_ns = iter(range(0, 10**12, 10**9))
    monkeypatch.setattr("agents.agent.idle_baseline.core_busy_ns", lambda: {"0": next(busy_ns)})
    found = baseline(tmp_path, rapl_counter(constant_power(20.0), meters.UNIT_61, 5))
    assert found.flags == ("loaded",)
    assert found.load == pytest.approx(1 / 30, rel=1e-3)


def test_a_counter_that_is_reset_leaves_the_baseline_missing(tmp_path: Path) -> None:
    falls = rapl_counter(lambda t: 20.0 * (t % 12.0), meters.UNIT_61, 5)
    found = baseline(tmp_path, falls)
    assert found.watts is None
    assert "package-0: a step is missing" in found.reason


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({f"{meters.POWERCAP}/intel-rapl/modelled": ""}, "its energy follows a model"),
        ({"etc/millrace/power.yaml": "source: battery"}, "battery: no battery"),
    ],
)
def test_without_a_measured_source_there_is_no_wait(tmp_path: Path, files: dict[str, str], reason: str) -> None:
    host = RecordedHost(
        meters.plant(tmp_path, {**FILES, **files}),
        {
            PACKAGE: rapl_counter(constant_power(20.0), meters.UNIT_61, 5),
            MEMORY: rapl_counter(constant_power(3.0), meters.UNIT_15, 5),
        },
    )
    found = measure_idle(host, meter_settings(host), 10.0, 30.0)
    assert found.watts is None
    assert reason in found.reason
    assert host.seconds < 5


def test_the_measurement_ends_when_it_is_stopped(tmp_path: Path) -> None:
    host = RecordedHost(meters.plant(tmp_path, FILES), {PACKAGE: rapl_counter(constant_power(20.0), meters.UNIT_61, 5)})
    with pytest.raises(StoppedError):
        measure_idle(host, meter_settings(host), 10.0, 30.0, lambda: True)
