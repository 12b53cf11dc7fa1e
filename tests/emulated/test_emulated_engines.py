"""Other engines on emulated nodes: processes run in the nodes, and quotas apply in the measured interval.

Flink uses the same code as Storm and takes half a minute; select it with -m "emulated and flink".
"""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow.parquet
import pytest
from emulated_lab import EmulatedLab, command, wait_for
from package_install import skipping_without_jars

from controller.host.cgroups import ControlGroup, find_hierarchy
from engines.installation import engines_unsupported_reason
from engines.selection import ENGINES, install_engine

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", autouse=True)
def _engines() -> None:
    required = "storm" in os.environ.get("MILLRACE_REQUIRE", "")
    if reason := engines_unsupported_reason():
        assert not required, reason
        pytest.skip(reason)
    with skipping_without_jars(required):
        for name in ENGINES:
            install_engine(name, print)


def group_of(lab: EmulatedLab, node: str) -> ControlGroup:
    return ControlGroup(find_hierarchy(), lab.description.members[node].group)


def java_pids(lab: EmulatedLab, node: str) -> list[int]:
    """Return the ids of Java processes in the control group of a node."""
    found = []
    for pid in map(int, group_of(lab, node).entrances[0].read_text().split()):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).name() == "java":
                found.append(pid)
    return found


@pytest.mark.parametrize(("engine", "processes"), [("storm", 3), pytest.param("flink", 1, marks=pytest.mark.flink)])
def test_an_engine_runs_in_the_nodes_and_within_their_quotas(
    provisioned: EmulatedLab, engine: str, processes: int
) -> None:
    agenda = provisioned.agenda(
        engine,
        engine=engine,
        factors={"nodes": [2]},
        workloads=[
            {
                "name": "wordcount",
                "params": {"workers": 2, "ackers": 0, "parallelism": {"spout": 1, "split": 2, "count": 2}},
                "rate": {"kind": "constant", "tuples_per_s": 50},
            }
        ],
        warmup_s=3,
        duration_s=3,
        sensors=["cpu", "memory", "network"],
    )
    nodes = ("n1", "n2")
    limits = {node: provisioned.description.members[node].machine.memory_mb << 20 for node in nodes}
    arguments = ("run", str(agenda), "--out", str(provisioned.results), "--accept-shortfall", "--no-report")
    with subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True) as process:
        try:
            assert wait_for(lambda: all(java_pids(provisioned, node) for node in nodes))
            assert {group_of(provisioned, node).memory_limit() for node in nodes} == {None}
            assert wait_for(lambda: provisioned.stage(engine) == "measuring", 120)
            assert {node: group_of(provisioned, node).memory_limit() for node in nodes} == limits
            for node in nodes:
                network = provisioned.description.network.endpoint(node).path.stat().st_ino
                namespaces = [Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in java_pids(provisioned, node)]
                assert len(namespaces) == processes  # Storm: a Supervisor, and a worker with its log writer
                assert set(namespaces) == {network}
            _, output = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 0, output[-3000:]
    assert {node: java_pids(provisioned, node) for node in nodes} == {"n1": [], "n2": []}
    assert {node: group_of(provisioned, node).memory_limit() for node in nodes} == limits
    (record,) = provisioned.records(engine)
    assert record["status"] == "ok", record["reason"]
    asked = {row["node"]: row["asked"] for row in record["calibration"] if row["what"] == "cpu"}
    quotas = record["engine"]["quotas"]
    assert {node: quota["cores"] for node, quota in quotas.items()} == {node: asked[node] for node in nodes}
    assert all(0 < quota["used"] <= quota["cores"] * 1.1 for quota in quotas.values())
    assert record["measured"]["hops"]["inter_node"] > 0
    (run,) = (provisioned.results / engine / "latest" / "runs").iterdir()
    memory = pyarrow.parquet.read_table(run / "traces" / "memory.parquet").to_pylist()
    assert {row["node"]: row["bytes"] for row in memory if row["kind"] == "total"} == limits
    network_rows = pyarrow.parquet.read_table(run / "traces" / "network.parquet").to_pylist()
    for node in nodes:
        sent = [row["tx_bytes"] for row in network_rows if row["node"] == node]
        assert sent[-1] > sent[0]
