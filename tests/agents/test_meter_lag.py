"""Lag of external meters: found for known delays, undecided without enough evidence, and applied to readings."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis_examples import one_in
from slow_meter import NS, load_curve, meter_curve
from trees import meters

from agents.power.energy import Curve
from agents.power.external import LATEST, PULSES, External, find_lag, pulses
from agents.power.reader import MeteredHost
from agents.power.settings import MeterProgram, PowerSettings, completed_settings, meter_settings
from inventory.values import EnergyModel, MeterLag

LOAD = load_curve(NS)


def lag_of(power: Curve, load: Curve = LOAD, unit_ns: int = NS) -> MeterLag | str:
    return find_lag(load, [power], 0, unit_ns)


@pytest.mark.parametrize("lag_s", [0.4, 3.0, 0.0, -1.0])
@pytest.mark.parametrize("period_s", [0.1, 1.0, 2.0])
def test_a_known_delay_is_found_within_its_margin_for_any_period_of_the_meter(lag_s: float, period_s: float) -> None:
    lag = lag_of(meter_curve(LOAD, NS, lag_s, period_s, 2.0, 1))
    assert isinstance(lag, MeterLag)
    assert lag.lag_s == pytest.approx(lag_s, abs=lag.margin_s + 1e-6)
    assert lag.margin_s < 1.5
    assert lag.correlation is not None
    assert lag.correlation > 0.7


@settings(max_examples=one_in(3))
@given(st.floats(-3, 25), st.floats(0.2, 1.0), st.floats(0, 8), st.integers(0, 1000))
def test_noise_makes_the_margin_wider_but_not_the_lag_wrong(
    lag_s: float, period_s: float, noise_watts: float, seed: int
) -> None:
    lag = lag_of(meter_curve(LOAD, NS, lag_s, period_s, noise_watts, seed))
    assert isinstance(lag, MeterLag)
    assert lag.lag_s == pytest.approx(lag_s, abs=lag.margin_s + 0.2)


def test_the_unit_of_time_scales_everything() -> None:
    load = load_curve(NS // 10)
    lag = lag_of(meter_curve(load, NS // 10, 0.4, 0.05, 2.0, 1), load, NS // 10)
    assert isinstance(lag, MeterLag)
    assert lag.lag_s == pytest.approx(0.4, abs=lag.margin_s + 1e-6)
    assert lag.margin_s < 0.15


def test_several_domains_are_one_machine() -> None:
    power = meter_curve(LOAD, NS, 2.0, 0.5, 1.0, 1, watts=20.0)
    other = meter_curve(LOAD, NS, 2.0, 0.7, 1.0, 2, watts=1.0)
    lag = find_lag(LOAD, [power, other], 0, NS)
    assert isinstance(lag, MeterLag)
    assert lag.lag_s == pytest.approx(2.0, abs=lag.margin_s + 1e-6)


@pytest.mark.parametrize("noise_watts", [0.0, 2.0])
@pytest.mark.parametrize("seed", range(2))
def test_a_flat_meter_is_undecided(noise_watts: float, seed: int) -> None:
    reason = lag_of(meter_curve(LOAD, NS, 2.0, 1.0, noise_watts, seed, watts=0.0))
    assert isinstance(reason, str)
    assert "does not follow the load" in reason


def test_power_that_falls_with_load_is_undecided() -> None:
    assert isinstance(lag_of(meter_curve(LOAD, NS, 2.0, 1.0, 1.0, 1, watts=-20.0)), str)


def test_a_delay_beyond_the_search_range_is_undecided() -> None:
    assert isinstance(lag_of(meter_curve(LOAD, NS, LATEST + 0.2, 0.2, 1.0, 1)), str)


def test_a_meter_with_few_readings_is_undecided() -> None:
    reason = lag_of(meter_curve(LOAD, NS, 2.0, 10.0, 0.0, 1))
    assert isinstance(reason, str)
    assert "too few readings" in reason
    assert isinstance(find_lag(LOAD, [], 0, NS), str)


def test_the_load_is_repeatable_and_unambiguous() -> None:
    assert list(pulses()) == list(pulses())
    assert sum(units for _, units in pulses()) == PULSES
    assert {share for share, _ in pulses()} == {0.0, 1.0}
    itself = find_lag(LOAD, [load_curve(NS)], 0, NS)
    # The load matches itself at no other lag.
    assert isinstance(itself, str) or itself.lag_s == pytest.approx(0.0, abs=0.1)


def test_a_lag_shifts_readings_back_and_adds_its_margin_to_their_bound() -> None:
    lag = MeterLag(3.0, 0.5, 0.9)
    line = json.dumps({"t": time.time(), "watts": 100.0}) + "\n"
    readings = []
    for each in (None, lag):
        program = MeterProgram(("sh", "-c", f"echo '{line.strip()}'; sleep 600"), lag=each)
        reader = External(MeteredHost(), PowerSettings(external=program))
        assert ("lag 3.00 s" in reader.probe().reason) is (each is not None)
        reader.open()
        try:
            deadline = time.monotonic() + 60
            while not (read := reader.read()):
                assert time.monotonic() < deadline
                time.sleep(0.02)
        finally:
            reader.close()
        readings.append(read[0])
    prompt, late = readings
    # The two clocks are read at two moments.
    assert (prompt.t_ns - late.t_ns) / NS == pytest.approx(3.0, abs=0.05)
    assert (late.half_ns - prompt.half_ns) / NS == pytest.approx(0.5)


def test_a_nodes_settings_file_takes_precedence_over_its_calibration(tmp_path: Path) -> None:
    host = MeteredHost(meters.plant(tmp_path, {"etc/millrace/power.yaml": "external: {command: [meter]}"}))
    model, lag = EnergyModel(1, 2), MeterLag(2.0)
    known = completed_settings(meter_settings(host), model, lag)
    assert known.model == model
    assert known.external == MeterProgram(("meter",), lag=lag)
    assert known.external.patience_s == 12.0
    (tmp_path / "etc/millrace/power.yaml").write_text("external: {command: [meter], lag: {lag_s: -1}}")
    external = completed_settings(meter_settings(host), model, lag).external
    assert external is not None
    assert external.lag == MeterLag(-1.0)
    assert external.patience_s == 10.0
    assert completed_settings(PowerSettings(), None, lag).external is None
