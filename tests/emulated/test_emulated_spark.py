"""Spark standalone in two namespaces analyses a campaign that ran on them with unprivileged agents.

All steps use an operator's commands: `millrace`, and `ansible-playbook` by hand.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml
from emulated_clusters import host_state, leftovers, output_on, write_inventory

from controller.emulation.description import Description, description_in

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.spark, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
MASTER = "10.77.0.1"
TIMEOUT_S = 300.0

# A Spark worker with an executor needs more than the nodes of the shipped inventory have.
MACHINE: dict[str, object] = {"cores": 2, "ghz": 3.0, "share_per_core": 0.45, "memory_mb": 4096}
MACHINES = (MACHINE, MACHINE)

AS_AGENTS = {
    "millrace_user": "millrace",
    "millrace_authorized_keys": ["{{ lookup('ansible.builtin.file', ansible_ssh_private_key_file + '.pub') }}"],
}
"""Variables as on machines: campaigns log in as a separate user, with a key that the playbook installs."""

AGENDA = {
    "name": "short",
    "repetitions": 1,
    "warmup_s": 1,
    "duration_s": 4,
    "workloads": [{"name": "wordcount", "rate": {"kind": "constant", "tuples_per_s": 200}}],
    "schedulers": ["even"],
    "sensors": ["cpu"],
}

RUN = """\
import click
from millrace.__main__ import main
from campaign.commands import run

run.run_command.callback = click.pass_obj(lambda settings, no_report, **given: run.run_campaign(settings, **given)[0])
main()
"""
"""`millrace run` without its analysis, which would use this host."""


def run_checked(command: Sequence[str], **environment: str) -> str:
    """Run a command, which must succeed, and return its output."""
    finished = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    assert finished.returncode == 0, finished.stdout[-3000:] + finished.stderr[-3000:]
    return finished.stdout


def millrace(*arguments: str, program: str = "from millrace.__main__ import main; main()") -> str:
    return run_checked([sys.executable, "-c", program, *arguments])


def play(name: str, inventory: Path, *options: str) -> str:
    """Run a playbook by hand and return its recap."""
    command = [sys.executable, "-P", "-m", "ansible", "playbook", "-i", str(inventory), f"ansible/{name}.yml", *options]
    return run_checked(command).rpartition("PLAY RECAP")[2]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Folder that nodes see at the same path, and therefore not below `/tmp`, which every node has for itself."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="millrace-") as name:
        path = Path(name)
        # The user of the agents must be able to read the results.
        path.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", f"{name}/state")
            yield path


@pytest.fixture(scope="module")
def nodes(folder: Path) -> Iterator[tuple[Path, Description]]:
    """Inventory and description of two provisioned nodes."""
    before = host_state()
    inventory = write_inventory(folder, MACHINES, **AS_AGENTS)
    millrace("provision", str(inventory))
    description = description_in(folder / "cluster")
    assert description is not None
    try:
        yield inventory, description
    finally:
        millrace("clean", str(inventory))
        assert leftovers(description.network.prefix) == []
        assert host_state() == before


@pytest.fixture(scope="module")
def campaign(nodes: tuple[Path, Description], folder: Path) -> Path:
    """Folder of a campaign that ran on both nodes."""
    inventory, _ = nodes
    agenda = folder / "short.yaml"
    agenda.write_text(yaml.safe_dump(AGENDA | {"inventory": str(inventory)}))
    millrace("run", str(agenda), "--out", str(folder / "results"), "--accept-shortfall", program=RUN)
    return (folder / "results" / "short" / "latest").resolve()


def test_a_second_provisioning_by_hand_changes_nothing(nodes: tuple[Path, Description]) -> None:
    inventory, _ = nodes
    assert play("provision", inventory).count("changed=0 ") == len(MACHINES)


def test_agents_are_not_root_and_tuples_are_sent_between_nodes(nodes: tuple[Path, Description], campaign: Path) -> None:
    _, description = nodes
    (path,) = campaign.glob("runs/*/run.json")
    record = json.loads(path.read_text())
    assert (record["status"], record["verification"]["status"]) == ("ok", "passed")
    assert record["measured"]["hops"]["inter_node"] > 0
    assert output_on(description, 1, "stat -c '%U:%G %a' /var/lib/millrace/work") == "millrace:millrace 2770"
    assert output_on(description, 1, "stat -c %U /var/lib/millrace/work/.* | sort -u") in ("millrace", "millrace\nroot")


def test_collect_copies_files_of_nodes_to_the_controller(nodes: tuple[Path, Description], folder: Path) -> None:
    inventory, description = nodes
    output_on(description, 2, "echo left > /var/lib/millrace/work/left.log")
    play("collect", inventory, "-e", f"millrace_collect_to={folder}/collected")
    with tarfile.open(folder / "collected" / "n2.tar.gz") as archive:
        log = archive.extractfile("./left.log")
        assert log is not None
        assert log.read() == b"left\n"
    assert (folder / "collected" / "n1.tar.gz").is_file()


@pytest.mark.skipif(
    any(Path(sys.prefix).is_relative_to(own) for own in ("/tmp", "/run")),  # noqa: S108 - the folders that nodes have
    reason=f"nodes have a /tmp and a /run of their own, and do not see {sys.prefix}",
)
def test_spark_on_both_nodes_writes_the_report(nodes: tuple[Path, Description], campaign: Path, folder: Path) -> None:
    inventory, description = nodes
    play("spark", inventory)
    control = description.network.controller
    arguments = ["report", str(campaign), "--master", f"spark://{MASTER}:7077"]
    run_checked(
        [
            "nsenter",
            f"--net={control.path}",
            sys.executable,
            "-c",
            "from millrace.__main__ import main; main()",
            *arguments,
        ],
        SPARK_CONF_DIR=str(folder / "facts" / "spark"),
        SPARK_LOCAL_IP=control.address,
    )
    assert "even" in (campaign / "report" / "index.html").read_text()
    for node in (1, 2):
        assert output_on(description, node, "ls /var/lib/millrace/spark/work | grep -c ^app-") == "1"


def test_restoring_ends_spark_and_removes_the_user(nodes: tuple[Path, Description]) -> None:
    inventory, description = nodes
    play("restore", inventory)
    # Nodes see the host's files, and a controller that has run as root has its state there.
    of_host = sum("millrace" in path.name for folder in ("/var/lib", "/opt") for path in Path(folder).iterdir())
    for node in (1, 2):
        assert output_on(description, node, "ls /var/lib /opt | grep -c millrace || true") == str(of_host)
        assert output_on(description, node, "ls /var/lib/millrace/*.json 2>/dev/null || true") == ""
        assert output_on(description, node, "grep -c ^millrace: /etc/passwd || true") == "0"
        assert output_on(description, node, "ps -e | grep -c java || true") == "0"
