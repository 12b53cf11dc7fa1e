"""Campaigns on Flink: placements are followed, answers exact, killed processes reported; nothing is left running."""

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet
import pytest
from counter_replay import CounterReplay
from package_install import skipping_without_jars
from trees import meters

from agents.power.reader import ROOT_VARIABLE
from controller.host.process_identity import ProcessIdentity
from engines.selection import install_engine
from inventory.times import NS

pytestmark = [pytest.mark.flink, pytest.mark.loopback]

JOB_MANAGER, TASK_MANAGER = "StandaloneApplicationClusterEntryPoint", "TaskManagerRunner"

WORKLOAD = {
    "name": "wordcount",
    "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 3, "count": 2}},
    "rate": {"kind": "constant", "tuples_per_s": 100},
}
PACKED = {"nodes": [1, 2]}
"""Factor that gives two placements: all on one node, and on two."""


@pytest.fixture(scope="module", autouse=True)
def flink() -> None:
    """Install Flink, and compile Millrace's programs for it."""
    with skipping_without_jars():
        install_engine("flink", print)


def javas(workspace: Any, main: str) -> list[ProcessIdentity]:
    return [process for process in workspace.processes() if main in command_of(process)]


def command_of(process: ProcessIdentity) -> str:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def counts(places: dict[str, str]) -> Counter[tuple[str, str]]:
    """Return (component, worker) -> number of executors."""
    return Counter((name.partition("[")[0], worker) for name, worker in places.items())


@pytest.fixture
def others_work() -> Iterator[None]:
    """Keep a fifth of the host's cores busy with other processes."""
    command = ["nice", "-n", "19", sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(math.ceil((psutil.cpu_count() or 1) / 5))]
    yield
    for other in others:
        other.kill()
        other.wait()


@pytest.mark.usefixtures("others_work")
def test_wordcount_follows_two_placements_and_is_suspect_beside_other_processes(workspace: Any) -> None:
    agenda = workspace.agenda(engine="flink", workloads=[WORKLOAD], factors=PACKED, schedulers=["even"], duration_s=3)
    outcome = workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    packed, spread = workspace.results().values()
    for run in (packed, spread):
        assert (run["status"], run["verification"]["status"]) == ("ok", "passed"), run
        assert (run["engine"]["name"], run["engine"]["release"]) == ("flink", "2.3.0")
        (topology,) = run["placement"]["topologies"].values()
        assigned = {entry["executor"]: f"{entry['node']}/{entry['slot']}" for entry in topology["assignments"]}
        assert counts(run["engine"]["places"]) == counts(assigned)
        (reason,) = run["suspect"]
        assert reason.startswith("this host: ")
        assert reason.endswith(" of all cores worked for others than this run in the measured interval")
        measured = run["measured"]
        assert measured["source_tuples_per_s"] == pytest.approx(100, rel=0.1)
        assert measured["sink_tuples_per_s"] > 100
        assert 0 < measured["latency_ms"]["p50"] <= measured["latency_ms"]["p95"]
    assert packed["measured"]["hops"]["inter_node"] == 0 < spread["measured"]["hops"]["inter_node"]
    assert packed["engine"]["cost"]["inter_node_edges"] == 0 < spread["engine"]["cost"]["inter_node_edges"]
    (last,) = workspace.campaign.glob("runs/002-*/traces")
    channels = pyarrow.parquet.read_table(last / "channel.parquet").to_pylist()
    places = spread["engine"]["places"]
    assert {(row["source"], row["target"]) for row in channels} <= {(a, b) for a in places for b in places}
    for row in channels:
        here, there = places[row["source"]].split("/"), places[row["target"]].split("/")
        hop = "intra_worker" if here == there else "inter_worker" if here[0] == there[0] else "inter_node"
        assert row["hop"] == hop
    busy = pyarrow.parquet.read_table(last / "executor.parquet").to_pylist()
    assert {row["executor"] for row in busy if row["busy_ns"]} == set(places)
    workspace.wait_until_no_process()


def test_energy_is_metered_and_attributed_as_on_agents(
    workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = "intel-rapl:0"
    root = meters.plant(tmp_path / "root", meters.zone(zone, "package-0"))
    monkeypatch.setenv(ROOT_VARIABLE, str(root))
    counter = f"{meters.POWERCAP}/{zone}/energy_uj"
    agenda = workspace.agenda(
        engine="flink",
        workloads=[WORKLOAD],
        schedulers=["even"],
        duration_s=4,
        sensors=["cpu", "memory", "power"],
        idle={"settle_s": 0.2, "measure_s": 1.2},
    )
    with CounterReplay(root, {counter: (30.0, 90.0, 0.1, meters.RANGE_61 + 61)}) as replay:
        outcome = workspace.run("run", agenda)
    assert outcome.status == 0, outcome
    ((name, run),) = workspace.results().items()
    energy = run["measured"]["energy"]
    assert (energy["sources"], energy["modelled"], energy["reason"]) == (["rapl"], False, None)
    (machine,) = energy["machines"]
    assert machine["nodes"] == ["n1", "n2"]
    traces = workspace.campaign / "runs" / name / "traces"
    tables = {
        table: pyarrow.parquet.read_table(traces / f"{table}.parquet").to_pylist() for table in ("event", "power")
    }
    marks = {(row["node"], row["kind"]): row["t_ns"] for row in tables["event"]}
    edges = [marks["n1", kind] for kind in ("measure_start", "measure_end")]
    least, most = replay.joules_between(counter, *edges)
    assert least - energy["bound_joules"] <= energy["joules"] <= most + energy["bound_joules"]
    # Marks of the sensors follow those of the executors.
    for edge, kind in zip(edges, ("measure_start_ns", "measure_end_ns"), strict=True):
        assert 0 <= edge - run["times"][kind] < 2 * NS
    assert {row["node"] for row in tables["power"]} == {"n1"}
    for when in ("before", "after"):
        assert machine["idle"][when]["watts"] == pytest.approx(60.0, rel=0.3)
    assert machine["net_joules"] == pytest.approx(machine["joules"] - machine["idle_joules"])
    assert sum(energy["consumers"].values()) == pytest.approx(energy["joules"], rel=1e-3)
    assert {each["executor"] for each in machine["executors"]} == set(run["engine"]["places"])
    assert energy["tuples"] == pytest.approx(run["measured"]["sink_tuples_per_s"] * 4, rel=0.2)
    assert {"metering without workers", "starting Apache Flink"} < run["times"]["stages_s"].keys()


def test_a_killed_job_manager_is_reported_and_its_run_tried_again(workspace: Any) -> None:
    """A killed TaskManager is in `test_ssh_engines.py`."""
    agenda = workspace.agenda(
        engine="flink", workloads=[WORKLOAD], schedulers=["even"], duration_s=6, on_failure={"retry": 1}
    )
    process = workspace.start("run", agenda)
    workspace.wait_for_stage(1, "measuring")
    for main in (TASK_MANAGER, JOB_MANAGER):
        assert_nothing_outside_can_connect(javas(workspace, main)[0])
    os.kill(javas(workspace, JOB_MANAGER)[0].pid, signal.SIGKILL)
    outcome = workspace.wait_for_end(process)
    assert outcome.status == 0, outcome
    assert [(run["status"], run["attempt"]) for run in workspace.results().values()] == [("ok", 2)]
    assert "the JobManager was killed by SIGKILL" in outcome.err
    workspace.wait_until_no_process()


def assert_nothing_outside_can_connect(process: ProcessIdentity) -> None:
    """Check that the process is in another network namespace, which has only the loopback interface."""
    here, there = (Path(f"/proc/{pid}/ns/net").readlink() for pid in ("self", process.pid))
    assert here != there
    interfaces = Path(f"/proc/{process.pid}/net/dev").read_text().splitlines()[2:]
    assert [line.split(":")[0].strip() for line in interfaces] == ["lo"]
