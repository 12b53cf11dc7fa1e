"""A campaign on a machine with meters: energy per tuple, hop and consumer, and its report."""

import csv
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from counter_replay import CounterReplay
from trees import meters

from agents.power.reader import ROOT_VARIABLE
from analysis.figures.data import quantity

pytestmark = [pytest.mark.loopback, pytest.mark.long]

PACKAGE = f"{meters.POWERCAP}/intel-rapl:0/energy_uj"
MEMORY = f"{meters.POWERCAP}/intel-rapl:0:0/energy_uj"
TURN_UJ = meters.RANGE_61 + 61
UNIT = 61e-6


class Raced(NamedTuple):
    folder: Path
    replay: CounterReplay
    results: dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def raced(shared_workspace: Any, tmp_path_factory: pytest.TempPathFactory) -> Raced:
    """A campaign of two schedulers on a machine whose package draws 30 W and 90 W in turns, its memory 4 W.

    The counters wrap during the runs. Zones have no maximum power: the replay of counters may be delayed, and then
    catches up at once.
    """
    files = {**meters.zone("intel-rapl:0", "package-0"), **meters.zone("intel-rapl:0:0", "dram")}
    root = meters.plant(tmp_path_factory.mktemp("root"), files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ROOT_VARIABLE, str(root))
        with CounterReplay(
            root, {PACKAGE: (30.0, 90.0, 0.1, TURN_UJ), MEMORY: (4.0, 4.0, 1.0, TURN_UJ)}, TURN_UJ - 100_000_000
        ) as replay:
            agenda = shared_workspace.agenda(sensors=["cpu", "power"], idle={"settle_s": 0.2, "measure_s": 1.2})
            outcome = shared_workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    results = shared_workspace.results()
    assert {run["scheduler"] for run in results.values()} == {"even", "top-storm"}
    return Raced(shared_workspace.campaign / "runs", replay, results)


@pytest.fixture(scope="module")
def report(shared_workspace: Any, raced: Raced) -> Path:
    """Folder of the campaign's report."""
    outcome = shared_workspace.run("report", str(raced.folder.parent), program=shared_workspace.whole)
    assert outcome.status == 0, outcome
    return raced.folder.parent / "report"


def rows(raced: Raced, run: str, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(raced.folder / run / "traces" / f"{table}.parquet").to_pylist()
    return found


def interval(raced: Raced, run: str, node: str = "n1") -> tuple[int, int]:
    """Return the measured interval by the marks of a node."""
    marks = {e["kind"]: e["t_ns"] for e in rows(raced, run, "event") if (e["node"], e["worker"]) == (node, -1)}
    return marks["measure_start"], marks["measure_end"]


def test_the_stages_are_the_whole_time_of_a_run_with_two_idle_measurements(raced: Raced) -> None:
    for run in raced.results.values():
        times = run["times"]
        took = datetime.fromisoformat(times["ended_utc"]) - datetime.fromisoformat(times["created_utc"])
        assert sum(times["stages_s"].values()) == pytest.approx(took.total_seconds(), abs=0.7)


def test_energy_per_tuple_of_each_scheduler_is_counted_energy_over_tuples_at_sinks(raced: Raced) -> None:
    for name, run in raced.results.items():
        energy = run["measured"]["energy"]
        start_ns, end_ns = interval(raced, name)
        truth = [raced.replay.joules_between(path, start_ns, end_ns) for path in (PACKAGE, MEMORY)]
        least, most = (sum(each) for each in zip(*truth, strict=True))
        assert least - energy["bound_joules"] <= energy["joules"] <= most + energy["bound_joules"]
        assert energy["sources"] == ["rapl"]
        assert energy["modelled"] is False
        assert energy["reason"] is None
        assert energy["tuples"] == pytest.approx(delivered(raced, name), rel=0.02)
        assert energy["joules_per_tuple"] == pytest.approx(energy["joules"] / energy["tuples"], rel=1e-3)
        # Both nodes are this machine: its joules count once.
        assert [machine["nodes"] for machine in energy["machines"]] == [["n1", "n2"]]


@pytest.mark.spark
@pytest.mark.long
def test_the_reports_figures_are_those_of_the_runs(raced: Raced, report: Path) -> None:
    assert (report / "index.html").stat().st_size > 0
    with (report / "tables" / "runs.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert rows.keys() == raced.results.keys()
    for name, row in rows.items():
        assert row["counts"] == "true"
        measured = raced.results[name]["measured"]
        # Two computations: the report uses the interval in run.json, the campaign the marks in the traces.
        for column in ("source_tuples_per_s", "sink_tuples_per_s"):
            assert float(row[column]) == pytest.approx(measured[column], rel=0.5)
        assert float(row["latency_p50_ms"]) == pytest.approx(measured["latency_ms"]["p50"], rel=0.5)


@pytest.mark.spark
@pytest.mark.long
def test_the_report_has_the_energy_per_tuple_of_an_independent_computation_for_each_scheduler(
    raced: Raced, report: Path
) -> None:
    with (report / "tables" / "energy.csv").open(newline="") as file:
        energy_rows = {row["run"]: row for row in csv.DictReader(file)}
    assert {row["scheduler"] for row in energy_rows.values()} == {"even", "top-storm"}
    page = (report / "index.html").read_text()
    for name, row in energy_rows.items():
        start_ns, end_ns = interval(raced, name)
        truth = [raced.replay.joules_between(path, start_ns, end_ns) for path in (PACKAGE, MEMORY)]
        joules = sum(sum(each) / 2 for each in truth)
        # Tuples delivered to sinks; a row covers the time since the previous one.
        tuples = delivered(raced, name)
        bound = float(row["bound_joules"]) / joules + 0.02
        assert float(row["joules_per_tuple"]) == pytest.approx(joules / tuples, rel=bound)
        assert (row["source"], row["modelled"], row["domains"]) == ("rapl", "false", "dram/package-0, package-0")
        assert f">{quantity(float(row['joules_per_tuple']))}<" in page
        # Whole seconds of the figure lie inside the interval; the memory draws 4 W all the time.
        with (report / "tables" / "power.csv").open(newline="") as file:
            power = [r for r in csv.DictReader(file) if r["run"] == name and r["domain"] == "dram/package-0"]
        assert {each["node"] for each in power} == {"n1"}
        known = [float(each["watts"]) for each in power if each["watts"]]
        assert known
        assert known == pytest.approx([4.0] * len(known), rel=0.25)


def delivered(raced: Raced, run: str) -> float:
    """Return tuples sent to sinks in the sender's measured interval; rows count by the share of their time inside."""
    sinks = {row["executor"] for row in rows(raced, run, "throughput") if row["role"] == "sink"}
    marks = {(e["node"], e["worker"], e["kind"]): e["t_ns"] for e in rows(raced, run, "event")}
    last: dict[tuple[str, str], int] = {}
    found = 0.0
    for row in sorted(rows(raced, run, "channel"), key=lambda row: row["t_ns"]):
        if row["target"] not in sinks:
            continue
        since = last.get((row["source"], row["target"]), row["t_ns"] - 1_000_000_000)
        last[row["source"], row["target"]] = row["t_ns"]
        start, end = (marks[row["node"], row["worker"], kind] for kind in ("measure_start", "measure_end"))
        inside = max(0, min(row["t_ns"], end) - max(since, start))
        found += row["tuples"] * inside / max(1, row["t_ns"] - since)
    return found


def test_idle_is_metered_before_and_after_and_net_stands_beside_gross(raced: Raced) -> None:
    for name, run in raced.results.items():
        (machine,) = run["measured"]["energy"]["machines"]
        baselines = [machine["idle"][when] for when in ("before", "after")]
        for baseline in baselines:
            assert baseline["reason"] is None
            assert baseline["seconds"] >= 1.2
            assert set(baseline["domains"]) == {"package-0", "dram/package-0"}
            assert min(baseline["domains"].values()) > 0
            assert baseline["watts"] == pytest.approx(sum(baseline["domains"].values()))
        start_ns, end_ns = interval(raced, name)
        watts = sum(baseline["watts"] for baseline in baselines) / 2
        assert machine["idle_joules"] == pytest.approx(watts * (end_ns - start_ns) / 1e9)
        assert machine["net_joules"] == pytest.approx(machine["joules"] - machine["idle_joules"])


def test_consumers_hops_and_trace_rows_add_up_to_the_measured_energy(raced: Raced) -> None:
    for name, run in raced.results.items():
        energy = run["measured"]["energy"]
        (machine,) = energy["machines"]
        parts = rows(raced, name, "energy")
        for domain in machine["domains"]:
            of_domain = sum(part["joules"] for part in parts if part["domain"] == domain["domain"])
            assert of_domain == pytest.approx(domain["joules"], rel=1e-3, abs=UNIT)
        assert sum(energy["consumers"].values()) == pytest.approx(energy["joules"], rel=1e-3, abs=UNIT)
        by_workers = sum(worker["joules"] for worker in machine["workers"])
        assert by_workers == pytest.approx(energy["consumers"]["executors"] + energy["consumers"]["transport"])
        assert by_workers >= 0
        assert {(part["node"], part["worker"]) for part in parts if part["consumer"] == "executor"} <= {
            (worker["node"], worker["worker"]) for worker in machine["workers"]
        }
        bolts = [e for e in machine["executors"] if not e["executor"].startswith("spout")]
        assert {e["executor"] for e in bolts} == {"split[0]", "split[1]", "count[0]", "count[1]"}
        hops = energy["hops"]
        assert {hop: each["tuples"] for hop, each in hops.items()} == run["measured"]["hops"]
        for each in hops.values():
            assert (each["joules"] is None) == (each["tuples"] == 0)
        of_hops = sum(each["joules"] or 0.0 for each in hops.values())
        assert sum(bolt["joules"] for bolt in bolts) <= of_hops * (1 + 1e-9) <= by_workers * (1 + 1e-9)
