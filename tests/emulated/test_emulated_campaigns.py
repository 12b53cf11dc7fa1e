"""The operator's first hour on nodes of namespaces: provision, verify, run, break things, run again, restore.

Everything is done with the command line, as processes, over real SSH.
"""

import difflib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from emulating import host_state, inventory_in, left_of, on, said, up

from campaign.emulation.description import Description, description_in
from inventory.ansible_hosts import load_hosts
from inventory.cluster import cluster_of
from inventory.finding import find_inventory
from inventory.reading import read_cluster

pytestmark = [pytest.mark.emulated, pytest.mark.emulation, pytest.mark.timeout(900)]

MILLRACE = "from campaign.cli import main; main()"

WITHOUT_REPORT = """\
import click
from campaign.cli import main
from campaign.commands import run

run.command.callback = click.pass_obj(lambda settings, **given: run.conduct(settings, **given)[0])
main()
"""

ROOT = Path(__file__).parents[2]
PATIENCE_S = 300.0
NODES = 5

FOUND = (
    "grep -rs . /sys/devices/system/cpu/cpu*/online /sys/devices/system/cpu/online "
    "/sys/devices/system/cpu/cpufreq/boost "
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor /sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq; "
    "ip -o link; tc qdisc; cat /etc/passwd /etc/group; ls /opt /var/lib /etc; "
    "stat -Lc '%n %a %U:%G' /sys/class/powercap/*/energy_uj"
)
"""What provisioning may change on a node."""


def command(*words: str, program: str = MILLRACE) -> list[str]:
    return [sys.executable, "-c", program, *words]


def millrace(*words: str, program: str = MILLRACE, seconds: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words, program=program), capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
    )


def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.2)
    return False


class Desk:
    """A folder with an inventory and agendas, and the cluster that is up."""

    def __init__(self, folder: Path, inventory: Path, description: Description) -> None:
        self.folder, self.inventory, self.description = folder, inventory, description

    def agenda(self, name: str, **changes: Any) -> Path:
        content = {
            "name": name,
            "inventory": str(self.inventory),
            "repetitions": 1,
            "warmup_s": 1,
            "duration_s": 4,
            "workloads": [
                {
                    "name": "wordcount",
                    "params": {"parallelism": {"spout": 2, "split": 3, "count": 3}},
                    "rate": {"kind": "constant", "tuples_per_s": 200},
                }
            ],
            "schedulers": ["even"],
            "sensors": ["cpu"],
        } | changes
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(content))
        return path

    def run(self, agenda: Path, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a campaign; a host that is too busy to be a cluster gets three attempts."""
        for _ in range(3):
            done = millrace("run", str(agenda), "--out", str(self.results), *words, program=WITHOUT_REPORT)
            _, short, reason = done.stderr.partition("calibration fell short")
            if not short:
                return done
        pytest.skip(f"host busy{reason.splitlines()[0]}")

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def records(self, name: str) -> list[dict[str, Any]]:
        paths = sorted((self.results / name / "latest" / "runs").glob("*/run.json"))
        return [json.loads(path.read_text()) for path in paths]

    def stage(self, name: str) -> str:
        path = self.results / name / "latest" / "live.json"
        return str(json.loads(path.read_text()).get("stage")) if path.is_file() else ""

    def found(self) -> dict[str, list[str]]:
        return {f"n{node}": on(self.description, node, FOUND).stdout.splitlines() for node in range(1, NODES + 1)}

    def begun(self, agenda: Path) -> "subprocess.Popen[str]":
        """A campaign that has come to the measured interval."""
        run = subprocess.Popen(
            command("run", str(agenda), "--out", str(self.results), "--accept-shortfall", program=WITHOUT_REPORT),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        name = agenda.stem
        assert eventually(lambda: self.stage(name) == "measuring" or run.poll() is not None, 120)
        if run.poll() is not None:
            pytest.fail(f"it ended too early: {run.communicate()[0]}")
        return run


@pytest.fixture(scope="module", autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """State files and locks of our own: other campaigns of this host are none of our business."""
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        yield


def changes(before: dict[str, list[str]], after: dict[str, list[str]]) -> list[str]:
    """What is not as it was, by node."""
    return [
        f"{node}: {line}" for node in before for line in difflib.ndiff(before[node], after[node]) if line[0] in "+-"
    ]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The shipped inventory in a folder of its own, with wishes that change something; its cluster is up, and bare."""
    folder = tmp_path_factory.mktemp("desk")
    text = find_inventory("emulated").read_text().replace("/run/millrace/emulated", str(folder / "cluster"))
    content = yaml.safe_load(text)
    hosts = content["all"]["children"]["workers"]["hosts"]
    hosts["n1"] |= {"millrace_cores": 2}
    hosts["n2"] |= {"millrace_governor": "schedutil", "millrace_max_ghz": 2.0}
    # Its disk can be filled before its memory, in which the disk is.
    hosts["n4"]["millrace_emulate"] |= {"memory_mb": 1536, "disk_mb": 768}
    inventory = folder / "emulated.yml"
    inventory.write_text(yaml.safe_dump(content, sort_keys=False))
    before = host_state()
    cluster = up(load_hosts(inventory))
    cluster.stay()
    yield Desk(folder, inventory, cluster.description)
    cluster.down()
    assert left_of(cluster.description.network.prefix) == []
    assert host_state() == before


@pytest.fixture(scope="module")
def bare(desk: Desk) -> dict[str, list[str]]:
    """What the nodes were like before anything was done to them."""
    return desk.found()


@pytest.fixture(scope="module")
def provisioned(desk: Desk, bare: dict[str, list[str]]) -> Desk:
    """After provisioning was killed half-way, put back, and done again."""
    half = subprocess.Popen(command("provision", str(desk.inventory)), stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert half.stderr is not None
    for line in half.stderr:
        if "cpu : Turn cores" in line:
            break
    time.sleep(1.0)
    half.kill()
    half.communicate()
    back = millrace("restore", str(desk.inventory), "--", "--limit", "all")
    assert back.returncode == 0, back.stderr[-3000:]
    assert changes(bare, desk.found()) == []
    done = millrace("provision", str(desk.inventory))
    assert done.returncode == 0, done.stderr[-3000:]
    return desk


def test_provisioned_nodes_are_what_was_asked_for(provisioned: Desk) -> None:
    assert said(provisioned.description, 1, "cat /sys/devices/system/cpu/online") in ("0,2", "0-1")
    policy = "/sys/devices/system/cpu/cpufreq/policy0"
    assert said(provisioned.description, 2, f"cat {policy}/scaling_governor {policy}/scaling_max_freq").split() == [
        "schedutil",
        "2000000",
    ]
    verified = millrace("verify", str(provisioned.inventory), "--json")
    answer = json.loads(verified.stdout)
    assert {check["what"] for check in answer["checks"]} >= {"link", "rtt"}
    wrong = [check for check in answer["checks"] if not check["ok"] and check["what"] not in ("link", "rtt")]
    assert wrong == []


def test_facts_order_the_nodes_by_their_computing_power(provisioned: Desk) -> None:
    cluster = cluster_of(read_cluster(provisioned.inventory))
    power = {node.id: node.sockets * node.cores * (node.ghz or 0) for node in cluster.nodes}
    # n1 has two of its four cores on line at 3.0 GHz, n2 four at 2.0, n3 two at 3.4, n4 and n5 two at 2.4.
    assert sorted(power, key=lambda node: (-power[node], node)) == ["n2", "n3", "n1", "n4", "n5"]
    assert power["n4"] == power["n5"]


def test_a_campaign_crosses_the_nodes_and_its_answer_is_right(provisioned: Desk) -> None:
    done = provisioned.run(provisioned.agenda("crossing"))
    assert done.returncode == 0, done.stderr[-3000:]
    (record,) = provisioned.records("crossing")
    assert record["status"] == "ok"
    assert record["tier"] == 2
    assert record["verification"]["status"] == "passed"
    assert record["measured"]["hops"]["inter_node"] > 0
    rows = record["calibration"]
    cpu = {row["node"]: row for row in rows if row["what"] == "cpu"}
    # n1 is half of itself, n2 at 2.0 of 2.8 GHz.
    assert {name: round(row["asked"], 3) for name, row in cpu.items()} == {
        "n1": 0.25,
        "n2": 0.229,
        "n3": 0.254,
        "n4": 0.2,
        "n5": 0.2,
    }
    assert all(row["got"] >= 0.95 * row["asked"] for row in cpu.values())
    assert {(row["node"], row["to"]) for row in rows if row["what"] == "link"} == {
        ("n1", "n4"),
        ("n1", "n5"),
        ("n4", "n1"),
        ("n5", "n1"),
    }


def test_nonsense_that_a_node_writes_fails_the_run_in_which_it_happens(provisioned: Desk) -> None:
    run = provisioned.begun(provisioned.agenda("nonsense", duration_s=6, on_failure={"retry": 0, "then": "skip"}))
    said(provisioned.description, 3, "echo turbo > /sys/devices/system/cpu/cpufreq/policy0/scaling_governor")
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1, output
    (record,) = provisioned.records("nonsense")
    assert "'turbo' was written" in record["reason"]


def test_a_link_that_is_cut_for_five_seconds_is_survived(provisioned: Desk) -> None:
    run = provisioned.begun(provisioned.agenda("cut", duration_s=15))
    namespace = provisioned.description.network.endpoint("n4").namespace
    subprocess.run(["ip", "-n", namespace, "link", "set", "dev", "eth0", "down"], check=True)
    time.sleep(5)
    subprocess.run(["ip", "-n", namespace, "link", "set", "dev", "eth0", "up"], check=True)
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, output
    (record,) = provisioned.records("cut")
    assert record["verification"]["status"] == "passed"


def test_ssh_servers_that_are_killed_in_mid_run_do_not_end_the_campaign(provisioned: Desk) -> None:
    run = provisioned.begun(provisioned.agenda("servers", duration_s=10, on_failure={"retry": 2, "then": "stop"}))
    on(provisioned.description, 4, "pkill -KILL sshd")
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, output
    (record,) = provisioned.records("servers")
    assert (record["status"], record["verification"]["status"]) == ("ok", "passed")


HOG = "python3 -c 'held = []\nwhile True: held.append(bytearray(8 << 20))'"


def test_memory_that_a_node_does_not_have_is_not_taken_from_the_host(provisioned: Desk) -> None:
    run = provisioned.begun(provisioned.agenda("memory", duration_s=10, on_failure={"retry": 2, "then": "stop"}))
    hog = on(provisioned.description, 5, HOG, seconds=120)
    # Killed: its shell says so, or its SSH client, which is not told of an exit status.
    assert hog.returncode in (137, 255), hog.stderr
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, output
    assert provisioned.records("memory")[0]["verification"]["status"] == "passed"


FULL = "/var/lib/full"


def test_a_full_disk_ends_a_run_and_not_the_campaign(provisioned: Desk) -> None:
    run = provisioned.begun(provisioned.agenda("disk", duration_s=10, on_failure={"retry": 0, "then": "stop"}))
    on(provisioned.description, 4, f"cat /dev/zero > {FULL}")
    output, _ = run.communicate(timeout=PATIENCE_S)
    again = provisioned.run(provisioned.agenda("full"))
    said(provisioned.description, 4, f"rm {FULL}")
    assert run.returncode == 1, output
    assert "space" in provisioned.records("disk")[0]["reason"]
    assert again.returncode == 1, again.stderr
    assert "MB free, and a run needs" in again.stderr
    folder = (provisioned.results / "disk" / "latest").resolve()
    done = millrace("run", "--resume", str(folder), "--accept-shortfall", program=WITHOUT_REPORT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["status"] for record in provisioned.records("disk")] == ["ok"]


def test_a_controller_that_is_killed_leaves_nothing_running_and_the_campaign_goes_on(provisioned: Desk) -> None:
    run = provisioned.begun(provisioned.agenda("killed", duration_s=10))
    run.kill()
    run.communicate()

    def idle(node: int) -> bool:
        return on(provisioned.description, node, "ps -eo args | grep -c '[p]ython.* -m agents'").stdout.strip() == "0"

    assert all(eventually(lambda node=node: idle(node)) for node in range(1, NODES + 1))  # type: ignore[misc]
    folder = (provisioned.results / "killed" / "latest").resolve()
    done = millrace("run", "--resume", str(folder), "--accept-shortfall", program=WITHOUT_REPORT)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [record["status"] for record in provisioned.records("killed")] == ["ok"]


def test_restoring_gives_every_node_back_as_it_was_found(provisioned: Desk, bare: dict[str, list[str]]) -> None:
    done = millrace("restore", str(provisioned.inventory), "--", "--limit", "all")
    assert done.returncode == 0, done.stderr[-3000:]
    assert changes(bare, provisioned.found()) == []
    assert millrace("restore", str(provisioned.inventory)).returncode == 0
    assert description_in(Path(provisioned.description.wish.folder)) is None


STRONG, WEAK = 0.9, 0.36
ATTEMPTS = 3


def test_throughput_is_as_unequal_as_the_nodes(tmp_path: Path) -> None:
    """One of two nodes does all the work, as fast as it can, then the other."""
    machine: dict[str, object] = {"cores": 1, "ghz": 3.0, "memory_mb": 768}
    inventory = inventory_in(tmp_path, [machine | {"share_per_core": share} for share in (STRONG, WEAK)])
    done = millrace("provision", str(inventory))
    description = description_in(tmp_path / "cluster")
    ratios = []
    try:
        assert done.returncode == 0, done.stderr[-3000:]
        assert description is not None
        desk = Desk(tmp_path, inventory, description)
        for attempt in range(ATTEMPTS):
            (strong, strong_cores), (weak, weak_cores) = (alone(desk, node, attempt) for node in (1, 2))
            ratios.append(weak / strong)
            # Whatever the host gives, rows cost what they cost.
            assert weak / strong == pytest.approx(weak_cores / strong_cores, rel=0.1)
            if ratios[-1] == pytest.approx(WEAK / STRONG, rel=0.1):
                return
    finally:
        millrace("clean")
    pytest.skip(f"host busy: throughput as {ratios}, {WEAK / STRONG:g} was asked for")


def alone(desk: Desk, node: int, attempt: int) -> tuple[float, float]:
    """Throughput of a run on one node only, and the cores that its worker got meanwhile."""
    content = yaml.safe_load(desk.inventory.read_text())
    for name, host in content["all"]["children"]["workers"]["hosts"].items():
        host["millrace_available"] = name == f"n{node}"
    desk.inventory.write_text(yaml.safe_dump(content))
    params = {"workers": 1, "operators": 2, "tasks": 1, "cost_us": 200}
    workloads = [{"name": "linear", "params": params, "rate": {"kind": "max"}}]
    agenda = desk.agenda(f"only-{node}-{attempt}", duration_s=8, sensors=["cpu"], workloads=workloads)
    finished = desk.run(agenda)
    assert finished.returncode == 0, finished.stderr[-3000:]
    (record,) = desk.records(agenda.stem)
    (traces,) = (desk.results / agenda.stem / "latest" / "runs").glob("*/traces")
    events = {row["kind"]: row["t_ns"] for row in pq.read_table(traces / "event.parquet").to_pylist()}
    cores = [
        row["cores"]
        for row in pq.read_table(traces / "cpu.parquet").to_pylist()
        if row["scope"] == "worker" and events["measure_start"] < row["t_ns"] <= events["measure_end"]
    ]
    return record["measured"]["throughput_tuples_per_s"], sum(cores) / len(cores)
