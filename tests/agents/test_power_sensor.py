"""Sensor `power`: rows with their own times and sources, forced samples, silent meters, and one-time events."""

import json
import os
import sys
import time
from itertools import takewhile
from pathlib import Path

import pytest
from counter_replay import CounterReplay
from trees import meters

from agents.collected_traces import TABLES, collect
from agents.power.reader import ROOT_VARIABLE
from agents.sensors import Host, Row
from agents.sensors.power import PowerSensor
from agents.trace import AGENT, TraceWriter

RAPL = f"{meters.POWERCAP}/intel-rapl:0"
COLUMNS = TABLES["power"].names[4:]


def sensor_on(root: Path, monkeypatch: pytest.MonkeyPatch) -> PowerSensor:
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    return PowerSensor(Host("n1", "127.0.0.2", True, os.getpid(), dict))


def power(rows: list[Row]) -> list[dict]:
    return [{"t_ns": row.t_ns, **dict(zip(COLUMNS, row.values, strict=True))} for row in rows if row.table == "power"]


def events(rows: list[Row]) -> list[tuple]:
    return [row.values for row in rows if row.table == "event"]


def test_every_row_has_its_own_time_and_source_and_fits_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = meters.plant(tmp_path / "root", meters.amd())
    with CounterReplay(root, {f"{RAPL}/energy_uj": (30.0, 60.0, 0.2, meters.RANGE_61 + 61)}) as replay:
        sensor = sensor_on(root, monkeypatch)
        assert sensor.probe() is None
        # The core's counter does not change: only its first rows, and an event with the reason.
        rows = reads_until(
            sensor, lambda rows: ("power_missing", "core/package-0 (rapl)") in {e[:2] for e in events(rows)}
        )
        sensor.close()
    package = [row for row in power(rows) if row["domain"] == "package-0"]
    assert len(package) >= 5
    assert {(row["role"], row["source"], row["in_total"], row["shared"]) for row in package} == {
        ("package", "rapl", True, True)
    }
    assert [row["t_ns"] for row in package] == sorted({row["t_ns"] for row in package})
    assert package[0]["flags"].startswith("first")
    assert package[0]["watts"] is None
    # When this process is delayed, the replayed counter jumps by more than a package can draw. That step is missing,
    # and joules start again after it.
    compared = list(takewhile(lambda row: row["joules"] is not None, package[1:]))
    assert compared
    for row in compared:
        least, most = replay.joules_between(f"{RAPL}/energy_uj", package[0]["t_ns"], row["t_ns"])
        # The bound has the mean power of the steps at an end; the power there may be the higher of the two.
        bound = row["bound_joules"] + (package[0]["t_half_ns"] + row["t_half_ns"]) / 1e9 * 60
        assert least - bound <= row["joules"] <= most + bound
        assert row["watts"] is None or row["watts"] > 0
    reported = events(rows)
    assert ("power_reader", "rapl") in {event[:2] for event in reported}
    assert {event[1] for event in reported if event[0] == "power_domain"} == {"package-0", "core/package-0"}
    assert any(event[0] == "power_host" and event[1] == "kernel" for event in reported)
    writer = TraceWriter(tmp_path / "traces", "r", "n1", AGENT)
    for row in rows:
        writer.check(row.table, [(row.t_ns, *row.values)])
        writer.add(row.table, row.t_ns, *row.values)
    writer.close()
    assert collect([tmp_path / "traces"], tmp_path / "out")["power"] == len(power(rows))


def test_each_read_takes_a_sample_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = meters.plant(tmp_path, {**meters.laptop(), "etc/millrace/power.yaml": "rate_hz: 0.1"})
    sensor = sensor_on(root, monkeypatch)
    assert sensor.probe() is None
    before = time.monotonic_ns()
    row = power(list(sensor.read(before)))[-1]
    sensor.close()
    assert before < row["t_ns"] < time.monotonic_ns()
    assert (row["domain"], row["source"], row["watts"]) == ("battery", "battery", 8.2)


def test_without_a_meter_the_sensor_is_absent_with_the_reason_of_every_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = sensor_on(tmp_path, monkeypatch)
    reason = sensor.probe()
    sensor.close()
    assert reason is not None
    for reader in ("perf", "rapl", "hwmon", "external", "battery"):
        assert f"{reader}: " in reason


def program(tmp_path: Path, code: str, silence_s: float = 0.4) -> Path:
    settings = {"external": {"command": [sys.executable, "-c", code], "silence_s": silence_s}}
    return meters.plant(tmp_path, {"etc/millrace/power.yaml": json.dumps(settings)})


VALID = """
import json, time
while True:
    print(json.dumps({"t": time.time(), "watts": 120.5, "domain": "outlet-3"}), flush=True)
    time.sleep(0.05)
"""
NO_JSON = "import time\nwhile True: print('120 watts', flush=True); time.sleep(0.05)"
BINARY = "import os, time\nwhile True: os.write(1, bytes(range(128, 256)) + b'\\n'); time.sleep(0.05)"
ANOTHER_SHAPE = 'import time\nwhile True: print(\'[{"t": 1, "watts": 9}]\', flush=True); time.sleep(0.05)'
NEGATIVE = 'import time\nwhile True: print(\'{"t": %f, "watts": -9}\' % time.time(), flush=True); time.sleep(0.05)'
WITHOUT_WATTS = "import time\nwhile True: print('{\"t\": %f}' % time.time(), flush=True); time.sleep(0.05)"
OLD = 'import time\nwhile True: print(\'{"t": 5, "watts": 9}\', flush=True); time.sleep(0.05)'
HANGS = VALID.replace("while True", "for _ in range(8)") + "\ntime.sleep(600)"
DIES = VALID.replace("while True", "for _ in range(8)") + "\nraise SystemExit(7)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + VALID


def reads_until(sensor: PowerSensor, enough) -> list[Row]:
    rows: list[Row] = []
    deadline = time.monotonic() + 60
    while not enough(rows):
        assert time.monotonic() < deadline, rows
        time.sleep(0.05)
        rows += sensor.read(time.monotonic_ns())
    return rows


def test_an_operators_program_is_a_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sensor = sensor_on(program(tmp_path, IGNORES_SIGTERM, silence_s=30.0), monkeypatch)
    assert sensor.probe() is None
    rows = power(reads_until(sensor, lambda rows: len(power(rows)) > 8))
    sensor.close()
    assert {(r["domain"], r["role"], r["source"], r["in_total"], r["watts"]) for r in rows} == {
        ("outlet-3", "outlet", "external", True, 120.5)
    }
    seconds = (rows[-1]["t_ns"] - rows[0]["t_ns"]) / 1e9
    assert rows[-1]["joules"] == pytest.approx(120.5 * seconds)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (NO_JSON, "not a reading"),
        (BINARY, "not a reading"),
        (ANOTHER_SHAPE, "not a reading"),
        (NEGATIVE, "without valid watts or joules"),
        (WITHOUT_WATTS, "without valid watts or joules"),
        (OLD, "apart"),
        ("raise SystemExit(3)", "has ended with status 3"),
    ],
)
def test_a_program_without_valid_readings_is_missing_with_a_reason(
    code: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = sensor_on(program(tmp_path, code), monkeypatch)
    assert sensor.probe() is None
    rows = reads_until(sensor, lambda rows: any(e[0] == "power_missing" and told in e[2] for e in events(rows)))
    sensor.close()
    assert power(rows) == []


@pytest.mark.parametrize(("code", "told"), [(HANGS, "no reading for"), (DIES, "has ended with status 7")])
def test_a_program_that_hangs_or_dies_is_missing_and_not_zero(
    code: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = sensor_on(program(tmp_path, code), monkeypatch)
    assert sensor.probe() is None
    rows = reads_until(sensor, lambda rows: any(e[0] == "power_missing" and told in e[2] for e in events(rows)))
    sensor.close()
    assert 1 <= len(power(rows)) <= 8
    assert {row["watts"] for row in power(rows)} == {120.5}


ONE_OF_TWO = """
import json, time
for n in range(10**6):
    for outlet in ("outlet-3", "outlet-4")[: 2 if n < 8 else 1]:
        print(json.dumps({"t": time.time(), "watts": 120.5, "domain": outlet}), flush=True)
    time.sleep(0.05)
"""


def test_an_outlet_that_falls_silent_is_missing_while_the_other_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor = sensor_on(program(tmp_path, ONE_OF_TWO, silence_s=1.0), monkeypatch)
    assert sensor.probe() is None
    rows = reads_until(
        sensor, lambda rows: any(e[:2] == ("power_missing", "outlet-4 (external)") for e in events(rows))
    )
    rows += reads_until(sensor, lambda rows: len(power(rows)) > 8)
    sensor.close()
    missing = {subject: detail for kind, subject, detail, *_ in events(rows) if kind == "power_missing"}
    assert missing["outlet-4 (external)"] == "no reading for 1 s"
    assert "outlet-3 (external)" not in missing
    assert power(rows)[-1]["domain"] == "outlet-3"
