"""An interval metered by an external program with lag: energy is that of the interval, including its edges."""

import json
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest
from trees import meters

from agents.collected_traces import collect
from agents.power.reader import ROOT_VARIABLE
from agents.sensors import Host
from agents.sensors.sampler import Sampler
from agents.trace import AGENT, TraceWriter
from analysis.measure.energy_attribution import metered
from inventory.values import MeterLag

NS = 1_000_000_000
LAG_S, LOW, HIGH = 2.0, 100.0, 300.0

PROGRAM = f"""
import json, sys, time
from pathlib import Path
path = Path(sys.argv[1])
while True:
    now = time.time()
    edge = float(path.read_text() or 1e12) if path.exists() else 1e12
    print(json.dumps({{"t": now, "watts": {LOW} if now - {LAG_S} < edge else {HIGH}}}), flush=True)
    path.with_name("spoken").touch()
    time.sleep(0.1)
"""


@pytest.mark.parametrize("lag", [MeterLag(LAG_S, 0.01), None])
def test_the_energy_is_that_of_the_interval_and_late_readings_are_awaited(
    lag: MeterLag | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = tmp_path / "edge"
    settings = {"external": {"command": [sys.executable, "-c", PROGRAM, str(edge)], "silence_s": 30}}
    root = meters.plant(tmp_path / "root", {"etc/millrace/power.yaml": json.dumps(settings)})
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    host = Host("n1", "10.0.0.1", False, 1, dict, meter_lag=lag)
    faults: list[str] = []
    sampler = Sampler(["power"], host, TraceWriter(tmp_path, "r", "n1", AGENT), faults.append)
    sampler.start()
    deadline = time.monotonic() + 60
    while not (tmp_path / "spoken").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)
    edge.write_text(str(time.time() + 1))
    edge_ns = time.monotonic_ns() + NS
    start_ns = time.monotonic_ns()
    sampler.mark("measure_start")
    _sleep_until(edge_ns + NS)
    sampler.mark("measure_end")
    end_ns = time.monotonic_ns()
    assert sampler.stop(30.0, wait_s=30.0)
    assert not faults
    collect([tmp_path], tmp_path / "out")
    (domain,) = metered(pyarrow.parquet.read_table(tmp_path / "out/power.parquet"), "n1", start_ns, end_ns)
    found = domain.energy
    assert found.joules is not None, found.reason
    assert found.bound_joules is not None
    true = (LOW * (edge_ns - start_ns) + HIGH * (end_ns - edge_ns)) / NS
    if lag is None:
        # Without a known lag, the readings are those of an earlier interval.
        assert found.joules < true - 100
    else:
        # The meter reports ten times per second, less often on a busy host: the edge may lie between two readings.
        assert found.joules == pytest.approx(true, abs=found.bound_joules + 20)


def _sleep_until(t_ns: int) -> None:
    time.sleep(max(0.0, (t_ns - time.monotonic_ns()) / NS))
