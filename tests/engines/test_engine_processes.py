"""Processes of engines on emulated nodes: their namespaces, control groups, addresses and cores."""

from pathlib import Path

import pytest
import yaml

from agents.protocol import Slot
from controller.nodes.local_nodes import LocalNode
from engines.flink.processes import FlinkProcesses
from engines.installation import Engine
from engines.job import EngineJob
from engines.storm.processes import StormProcesses
from workloads.topology import Component, Input, Topology

TOPOLOGY = Topology(
    "t",
    (
        Component("source", "spout", 1, outputs={"default": {"x": "int"}}),
        Component("sink", "bolt", 1, inputs=(Input("source"),)),
    ),
)
NODES = {
    name: LocalNode(f"10.77.0.{at}", Path(f"/run/netns/mr-{at}"), (Path(f"/groups/mr/{name}/cgroup.procs"),), cores)
    for at, (name, cores) in enumerate({"n1": 4, "n2": 2}.items(), 1)
}
CONTROLLER = LocalNode("10.77.0.254", Path("/run/netns/mr-ctl"))
PORTS = {"": 7000, "n1": 7002, "n2": 7010}


def job_in(folder: Path) -> EngineJob:
    places = {"source[0]": Slot("n1", 0), "sink[0]": Slot("n2", 1)}
    addresses = {name: node.address for name, node in NODES.items()}
    options = {"nodes": NODES, "controller": CONTROLLER, "master": CONTROLLER.address}
    job = EngineJob("run", "replay", TOPOLOGY, places, addresses, folder, **options)  # type: ignore[arg-type]
    job.write_properties()
    return job


@pytest.mark.parametrize(("kind", "master"), [(StormProcesses, "Nimbus"), (FlinkProcesses, "the JobManager")])
def test_processes_run_in_their_nodes_and_the_master_runs_beside_the_controller(
    tmp_path: Path, kind: type[StormProcesses | FlinkProcesses], master: str
) -> None:
    processes = kind(job_in(tmp_path), Engine("any", tmp_path), tmp_path / "programs.jar")._processes(
        "/usr/bin/java", PORTS
    )
    commands = {program.name: program.command for _, program in processes}
    assert commands.pop(master)[:5] == ("nsenter", "--net=/run/netns/mr-ctl", "sh", "-c", 'exec "$@"')
    assert len(commands) == 2
    for (name, command), node, at, cores in zip(sorted(commands.items()), ("n1", "n2"), (1, 2), (4, 2), strict=True):
        assert f" of {node}" in name
        join_group = f"echo 0 > /groups/mr/{node}/cgroup.procs && " + 'exec "$@"'
        assert command[:6] == ("nsenter", f"--net=/run/netns/mr-{at}", "sh", "-c", join_group, "sh")
        assert command[6] == "/usr/bin/java"
        assert f"-XX:ActiveProcessorCount={cores}" in command


def test_processes_of_nodes_expect_the_master_at_the_address_of_the_controller(tmp_path: Path) -> None:
    StormProcesses(job_in(tmp_path), Engine("storm", tmp_path), tmp_path / "programs.jar")._processes("java", PORTS)
    master, node = (yaml.safe_load((tmp_path / "conf" / name / "storm.yaml").read_text()) for name in ("master", "n2"))
    assert master["storm.local.hostname"] == CONTROLLER.address
    assert node["nimbus.seeds"] == node["storm.zookeeper.servers"] == [CONTROLLER.address]
    assert node["storm.local.hostname"] == "10.77.0.2"
    assert "-XX:ActiveProcessorCount=2" in node["worker.childopts"]
    FlinkProcesses(job_in(tmp_path), Engine("flink", tmp_path), tmp_path / "programs.jar")._processes("java", PORTS)
    values = yaml.safe_load((tmp_path / "flink" / "n2-1" / "config.yaml").read_text())
    assert values["jobmanager.rpc.address"] == CONTROLLER.address
    assert values["taskmanager.host"] == values["taskmanager.bind-host"] == "10.77.0.2"
