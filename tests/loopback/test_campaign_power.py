"""Campaigns on a machine with energy counters, which wrap during the run: the measured energy is right."""

import json
import re
from html import unescape
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from counter_replay import CounterReplay
from trees import meters

from agents.power.reader import ROOT_VARIABLE

pytestmark = pytest.mark.loopback

PACKAGE = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
MEMORY = f"{meters.POWERCAP}/intel-rapl:0:0/energy_uj"
TURN_UJ = 100_000_000


def rows(run: Path, table: str) -> list[dict]:
    return pq.read_table(run / "traces" / f"{table}.parquet").to_pylist()


def at(samples: list[dict], t_ns: int) -> tuple[float, float]:
    """Return the joules of the first sample at or after a time, and their error bound."""
    after = next(row for row in samples if row["t_ns"] >= t_ns)
    return after["joules"], after["bound_joules"] + (after["t_ns"] - t_ns) / 1e9 * 100


def test_a_run_on_metered_nodes_has_the_energy_that_the_counters_counted(workspace, tmp_path, monkeypatch) -> None:
    files = {
        **meters.zone("intel-rapl:0", "package-0", TURN_UJ - 1),
        **meters.zone("intel-rapl:0:0", "dram", TURN_UJ - 1),
    }
    root = meters.plant(tmp_path / "root", files)
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    with CounterReplay(root, {PACKAGE: (20.0, 80.0, 0.3, TURN_UJ), MEMORY: (2.0, 6.0, 0.5, TURN_UJ)}) as replay:
        outcome = workspace.run(
            "run", workspace.agenda(sensors=["cpu", "power"], schedulers=["even"], idle={"measure_s": 0})
        )
    assert outcome.status == 0, outcome
    (run,) = workspace.campaign.glob("runs/*")
    assert json.loads((run / "run.json").read_text())["status"] == "ok"
    events, power = rows(run, "event"), rows(run, "power")
    for node in ("n1", "n2"):
        marks = {row["kind"]: row["t_ns"] for row in events if row["node"] == node}
        start_ns, end_ns = marks["measure_start"], marks["measure_end"]
        for domain, path in (("package-0", PACKAGE), ("dram/package-0", MEMORY)):
            samples = [row for row in power if row["node"] == node and row["domain"] == domain]
            assert {(row["source"], row["in_total"], row["shared"]) for row in samples} == {("rapl", True, True)}
            assert [row["joules"] for row in samples] == sorted(row["joules"] for row in samples)
            (begin, begin_bound), (end, end_bound) = at(samples, start_ns), at(samples, end_ns)
            least, most = replay.joules_between(path, start_ns, end_ns)
            assert least - begin_bound - end_bound <= end - begin <= most + begin_bound + end_bound
            # Each mark has a sample of its own right after it.
            assert end_bound < 0.5 * (end - begin)
        readers = {row["subject"]: row["detail"] for row in events if row["kind"] == "power_reader"}
        assert readers["rapl"].startswith("ok")
    flags = {flag for row in power for flag in row["flags"].split(",") if row["domain"] == "package-0"}
    assert "wrap" in flags


def test_a_run_on_nodes_without_a_meter_says_so_and_has_no_energy(workspace, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(ROOT_VARIABLE, str(tmp_path))
    outcome = workspace.run("run", workspace.agenda(sensors=["power"], schedulers=["even"], duration_s=0.5))
    assert outcome.status == 0, outcome
    (run,) = workspace.campaign.glob("runs/*")
    assert rows(run, "power") == []
    absent = [row for row in rows(run, "event") if row["kind"] == "sensor_absent"]
    assert {(row["node"], row["subject"], row["value"]) for row in absent} == {
        ("n1", "power", None),
        ("n2", "power", None),
    }
    assert all("no zone with an energy counter" in row["detail"] for row in absent)


@pytest.mark.spark
@pytest.mark.long
def test_a_campaign_without_meters_uses_the_energy_model_and_the_report_states_its_parameters(
    workspace, tmp_path, monkeypatch
) -> None:
    root = meters.plant(
        tmp_path / "root",
        {"etc/millrace/power.yaml": "model: {p_s: 6, p_d: 9, kappa: 2.4, mape: 0.05}", "sys/devices/empty": ""},
    )
    (root / "proc").symlink_to("/proc")
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    agenda = workspace.agenda(sensors=["cpu", "power"], schedulers=["even"])
    outcome = workspace.run("run", agenda, program=workspace.whole)
    assert outcome.status == 0, outcome
    (folder,) = workspace.campaign.glob("runs/*")
    run = json.loads((folder / "run.json").read_text())
    energy = run["measured"]["energy"]
    assert (energy["sources"], energy["modelled"]) == (["model"], True)
    start_ns, end_ns = (run["times"][mark] for mark in ("measure_start_ns", "measure_end_ns"))
    assert 6 - energy["bound_joules"] < energy["joules"] / ((end_ns - start_ns) / 1e9) < 15 + energy["bound_joules"]
    assert energy["idle_joules"] is None
    # There is no idle measurement either, and no wait for one.
    assert energy["machines"][0]["idle"]["before"]["reason"] == "its energy follows a model, and nothing is measured"
    report = workspace.campaign / "report"
    assert f"report: results/short/{workspace.campaign.name}/report/index.html" in outcome.out
    html = (report / "index.html").read_text()
    sentence = "It follows a model (P = 6 W + 9 W (f/f_ref)^2.4 u, calibrated, +-5.0%) and was not measured"
    assert sentence in unescape(html)
    assert "energy is modelled, not measured, in 1 of 1 runs" in html
    for caption in re.findall(r"Source: ([^<.]*)", html):
        assert caption == "model (node), modelled"
    hatched = [figure.name for figure in (report / "figures").glob("*.svg") if "pattern" in figure.read_text()]
    assert {"wordcount-energy-model-node-modelled.svg", "wordcount-power.svg"} <= set(hatched)
    assert "wordcount-throughput.svg" not in hatched
