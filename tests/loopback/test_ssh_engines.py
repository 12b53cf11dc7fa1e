"""Campaigns on Storm and Flink over SSH: placement, measurement, kills and clean-up."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psutil
import pyarrow.parquet
import pytest
import yaml
from package_install import skipping_without_jars
from sshd import Lab, lab

from engines.selection import install_engine

pytestmark = [pytest.mark.loopback, pytest.mark.sshd]

storm, flink = pytest.mark.storm, pytest.mark.flink

CLOCK_OFFSET_S = 5000 if os.geteuid() == 0 else 0
"""Offset of the clock of n2 from that of this host; only root can shift it."""

WORKLOAD = {
    "name": "wordcount",
    "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 2, "split": 3, "count": 2}},
    "rate": {"kind": "constant", "tuples_per_s": 100},
}


@pytest.fixture(scope="module")
def installed() -> Callable[[str], None]:
    """Function that installs an engine, or skips a test."""

    def install(name: str) -> None:
        with skipping_without_jars():
            install_engine(name, print)

    return install


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with lab(tmp_path_factory.mktemp("lab"), clock_offset_s={"n2": CLOCK_OFFSET_S}) as made:
        document = yaml.safe_load(made.inventory.read_text())
        document["workers"]["vars"]["millrace_closed_network"] = "127.0.0.0/8"
        made.inventory.write_text(yaml.safe_dump(document))
        yield made


def agenda_of(workspace: Any, nodes: Lab, engine: str, **changes: Any) -> str:
    entries = {"inventory": str(nodes.inventory), "workloads": [WORKLOAD], "schedulers": ["even"], "duration_s": 3}
    name: str = workspace.agenda(engine=engine, **entries | changes)
    return name


def nothing_is_left(workspace: Any, nodes: Lab) -> bool:
    return not workspace.processes() and not any(node.campaign_processes() for node in nodes.nodes.values())


def running(nodes: Lab, node: str, main: str) -> list[int]:
    """Return the Java processes of a node whose command contains `main`."""
    found = []
    for pid in nodes.nodes[node].campaign_processes():
        with suppress(psutil.Error):
            command = psutil.Process(pid).cmdline()
            if main in " ".join(command) and command[0].endswith("java"):
                found.append(pid)
    return found


def listening(pid: int) -> set[str]:
    """Return the addresses on which a process listens."""
    sockets = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.ip.removeprefix("::ffff:") for each in sockets if each.status == psutil.CONN_LISTEN}


def check_run(workspace: Any, run: dict[str, Any], engine: str) -> None:
    assert (run["status"], run["verification"]["status"]) == ("ok", "passed"), run
    assert run["engine"]["name"] == engine
    measured = run["measured"]
    assert measured["source_tuples_per_s"] == pytest.approx(100, rel=0.1)
    assert measured["hops"]["inter_node"] > 0
    bound_ms = measured["latency_ms"]["bound"]
    # Without the correction, latencies would be 5000 s, or 0.
    assert bound_ms < measured["latency_ms"]["p95"] < 5000
    clock = run["nodes"]["n2"]["clock"]
    assert abs(clock["offset_ns"] - CLOCK_OFFSET_S * 10**9) <= clock["bound_ns"]
    traces = workspace.campaign / "runs" / list(workspace.results())[-1] / "traces"
    cpu = pyarrow.parquet.read_table(traces / "cpu.parquet").to_pylist()
    assert {row["node"] for row in cpu if row["scope"] == "worker" and row["cores"]} == {"n1", "n2"}


@storm
def test_storm_runs_on_nodes_with_different_clocks_and_leaves_only_its_jars_also_when_a_daemon_is_killed(
    workspace: Any, nodes: Lab, installed: Callable[[str], None]
) -> None:
    installed("storm")
    agenda = agenda_of(workspace, nodes, "storm", repetitions=2, order="sequential", duration_s=6)
    process = workspace.start("run", agenda)
    workspace.wait_for_stage(1, "measuring")
    os.kill(running(nodes, "n2", "daemon.supervisor.Supervisor")[0], signal.SIGKILL)
    outcome = workspace.wait_for_end(process)
    assert outcome.status == 1, outcome
    failed, run = workspace.results().values()
    assert failed["status"] == "failed"
    assert "the Supervisor of n2 was killed by SIGKILL" in failed["reason"]
    check_run(workspace, run, "storm")
    (topology,) = run["placement"]["topologies"].values()
    placed = {entry["executor"]: f"{entry['node']}/{entry['slot']}" for entry in topology["assignments"]}
    assert run["engine"]["places"] == placed
    logs = {path.name for path in (workspace.campaign / "runs" / "002-wordcount-even-r2" / "logs").iterdir()}
    assert {"master-daemon.log", "n1-daemon.log", "n2-daemon.log"} < logs
    assert sum(name.endswith("worker.log") for name in logs) == 2
    assert nothing_is_left(workspace, nodes)
    assert not list(workspace.temporary.iterdir())
    for node in nodes.nodes.values():
        assert sorted(path.name for path in node.work.iterdir()) == [".lock", "engines"]


@flink
def test_flink_runs_on_nodes_and_leaves_nothing_when_its_taskmanager_or_the_controller_is_killed(
    workspace: Any, nodes: Lab, installed: Callable[[str], None]
) -> None:
    installed("flink")
    process = workspace.start(
        "run", agenda_of(workspace, nodes, "flink", repetitions=2, order="sequential", duration_s=5)
    )
    workspace.wait_for_stage(1, "measuring")
    manager = running(nodes, "n2", "TaskManagerRunner")[0]
    assert listening(manager) == {nodes.nodes["n2"].address}
    os.kill(manager, signal.SIGKILL)
    outcome = workspace.wait_for_end(process)
    assert outcome.status == 1, outcome
    failed, run = workspace.results().values()
    assert failed["status"] == "failed"
    assert failed["reason"].startswith("the TaskManager of n2, slot ")
    check_run(workspace, run, "flink")
    assert nothing_is_left(workspace, nodes)
    process = workspace.start("run", agenda_of(workspace, nodes, "flink"))
    workspace.wait_for(lambda: bool(running(nodes, "n1", "TaskManagerRunner")), "a TaskManager on n1")
    process.kill()
    workspace.wait_for_end(process)
    workspace.wait_for(lambda: nothing_is_left(workspace, nodes), "the end of all processes")
