"""Real emulated nodes: their own files, limits and SSH servers, effects of writes to /sys, and complete removal."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
from emulated_clusters import (
    MACHINES,
    host_state,
    isolated_state,
    leftovers,
    output_on,
    run_on,
    start_cluster,
    write_hosts,
    write_inventory,
)

from agents.sensors.kernel import group_cpu_ns
from campaign.runner.clean import clean_all
from controller.emulation.backend import EmulatedNodes
from controller.emulation.calibration import calibrate_cpu, calibrate_memory, shortfall_of
from controller.emulation.cluster import ask, emulation_unsupported_reason, use_running
from controller.emulation.description import Description, description_in, request_of
from controller.host.cgroups import ControlGroup, find_hierarchy
from controller.host.disk import state_folder
from controller.host.process_identity import identify
from inventory.ansible_hosts import load_hosts
from inventory.errors import InputError, UnfitError

pytestmark = [pytest.mark.emulation, pytest.mark.timeout(180)]

CPU = "/sys/devices/system/cpu"
TIMEOUT_S = 20.0


def wait_for(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module", autouse=True)
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with isolated_state(tmp_path_factory.mktemp("state")) as folder:
        yield folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Description]:
    """Two running nodes; afterwards nothing of them is left, and the host is unchanged."""
    before = host_state()
    running = start_cluster(write_hosts(tmp_path_factory.mktemp("emulated")))
    description = running.description
    assert leftovers(description.network.prefix)
    yield description
    running.down()
    assert leftovers(description.network.prefix) == []
    assert description_in(Path(description.request.folder)) is None
    assert host_state() == before


def group_of(cluster: Description, node: str) -> ControlGroup:
    return ControlGroup(find_hierarchy(), cluster.members[node].group)


def shares(cluster: Description) -> dict[str, float]:
    return {name: round(share, 6) for name, share in ask(Path(cluster.request.folder), "status").shares.items()}


def test_a_node_has_its_own_name_address_processes_and_host_key(cluster: Description) -> None:
    assert output_on(cluster, 1, "hostname; cat /etc/hostname").split() == ["n1", "n1"]
    assert "10.77.0.2/24" in output_on(cluster, 2, "ip -o -4 addr show dev eth0")
    assert "node_init" in output_on(cluster, 1, "tr '\\0' ' ' < /proc/1/cmdline")
    keys = {output_on(cluster, node, "cat /etc/ssh/ssh_host_*_key.pub") for node in (1, 2)}
    assert len(keys) == 2
    assert output_on(cluster, 1, "getent hosts n2").startswith("10.77.0.2")


def test_files_and_users_of_a_node_are_visible_in_that_node_only(cluster: Description) -> None:
    output_on(
        cluster,
        1,
        "echo mine > /etc/millrace-test; useradd --create-home tester; touch /usr/bin/millrace-test; ls /root",
    )
    assert output_on(cluster, 1, "cat /etc/millrace-test; id -un tester").split() == ["mine", "tester"]
    assert run_on(cluster, 2, "test -e /etc/millrace-test || id tester").returncode != 0
    assert not Path("/etc/millrace-test").exists()
    assert not Path("/usr/bin/millrace-test").exists()
    assert "tester" not in Path("/etc/passwd").read_text()


def test_ssh_keys_of_the_host_are_not_in_its_nodes(cluster: Description) -> None:
    assert output_on(cluster, 1, "ls -A ~/.ssh") == "authorized_keys"
    assert len(output_on(cluster, 1, "cat ~/.ssh/authorized_keys").splitlines()) == 1
    hosts_key = Path("/etc/ssh/ssh_host_ed25519_key.pub")
    if hosts_key.exists():
        assert hosts_key.read_text().split()[1] not in output_on(cluster, 1, "cat /etc/ssh/*.pub")


def test_a_node_shows_the_hardware_of_its_machine(cluster: Description) -> None:
    output = output_on(cluster, 1, "lscpu -p=cpu,socket; grep -c ^processor /proc/cpuinfo; grep MemTotal /proc/meminfo")
    *table, processors, memory = [line for line in output.splitlines() if not line.startswith("#")]
    assert table == ["0,0", "1,0", "2,1", "3,1"]
    assert processors == "4"
    assert memory.split()[1] == str(256 * 1024)
    assert output_on(cluster, 2, "ls /sys/class/powercap") == "intel-rapl\nintel-rapl:0"
    assert output_on(cluster, 1, "ls -d /sys/devices/system/cpu/cpu[0-9]* | wc -l") == "4"


def test_a_process_of_the_host_joins_the_network_and_the_group_of_a_node(cluster: Description) -> None:
    nodes = EmulatedNodes(cluster)
    for name, node in nodes.nodes.items():
        command = node.command(["sh", "-c", "echo $$; cat /proc/$$/cgroup; ip -o -4 addr show dev eth0; pwd"])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            output, _ = process.communicate(timeout=30)
        assert int(output.splitlines()[0]) == process.pid
        joined = {line.split(":", 2)[2] for line in output.splitlines() if f"/{cluster.members[name].group}" in line}
        assert joined == {f"/{cluster.members[name].group}"}
        assert f"{node.address}/24" in output
        assert output.splitlines()[-1] == str(Path.cwd())
        assert (node.root / "etc/hostname").read_text() == f"{name}\n"
        assert group_cpu_ns(node.account or Path()) > 0
        assert (node.cores, node.memory_mb) == (
            cluster.members[name].machine.cores,
            cluster.members[name].machine.memory_mb,
        )
    addresses = subprocess.run(
        nodes.controller.command(["ip", "-o", "-4", "addr"]), capture_output=True, text=True, check=True
    )
    assert f"{nodes.controller.address}/24" in addresses.stdout


def test_cores_off_and_slower_clocks_shrink_the_quota_at_once(cluster: Description) -> None:
    folder = Path(cluster.request.folder)
    ask(folder, "limit")
    assert shares(cluster) == {"n1": 0.4, "n2": 0.24}
    output_on(cluster, 1, f"echo 0 > {CPU}/cpu3/online; echo 0 > {CPU}/cpu2/online")
    output_on(cluster, 1, f"echo powersave > {CPU}/cpufreq/policy1/scaling_governor")
    # Core 0 at 3.0 of 3.0 GHz, core 1 at 1.2: 0.1 + 0.04.
    assert wait_for(lambda: shares(cluster)["n1"] == 0.14)
    assert output_on(
        cluster, 1, f"cat {CPU}/online; ls {CPU}/cpufreq; cat {CPU}/cpufreq/policy1/scaling_cur_freq"
    ).split() == [
        "0-1",
        *(f"policy{cpu}" for cpu in range(4)),
        "1200000",
    ]
    assert output_on(cluster, 1, "grep -c ^processor /proc/cpuinfo") == "2"
    output_on(cluster, 2, f"echo 0 > {CPU}/cpufreq/boost")
    assert wait_for(lambda: shares(cluster)["n2"] == 0.2)
    output_on(cluster, 1, f"echo 1 > {CPU}/cpu2/online; echo 1 > {CPU}/cpu3/online")
    output_on(cluster, 1, f"echo performance > {CPU}/cpufreq/policy1/scaling_governor")
    output_on(cluster, 2, f"echo 1 > {CPU}/cpufreq/boost")
    assert wait_for(lambda: shares(cluster) == {"n1": 0.4, "n2": 0.24})


def test_a_node_sees_the_cpu_time_of_its_own_control_group_and_can_not_change_it(cluster: Description) -> None:
    def reported_cpu_s(node: int) -> float:
        output = output_on(
            cluster, node, "cat /sys/fs/cgroup/cpuacct/cpuacct.usage /sys/fs/cgroup/cpu.stat 2>&- || true"
        )
        return int(output.split()[1]) / 1e6 if output.startswith("usage_usec") else int(output) / 1e9

    before = [reported_cpu_s(1), reported_cpu_s(2)]
    output_on(cluster, 1, "timeout 5 sh -c 'while :; do :; done' || true")
    group = group_of(cluster, "n1")
    low, high = group.cpu_seconds(), [reported_cpu_s(1), reported_cpu_s(2)]
    assert low <= high[0] <= group.cpu_seconds()
    # n1 was busy for all of that time; n2 only replied.
    assert high[0] - before[0] > 4 * (high[1] - before[1]) > 0
    assert run_on(cluster, 1, "echo 0 > /sys/fs/cgroup/cpuacct/cpuacct.usage || rm /sys/fs/cgroup/cpu.stat").returncode


def test_invalid_values_are_restored_and_reported(cluster: Description) -> None:
    folder = Path(cluster.request.folder)
    before = len(ask(folder, "status").refused)
    output_on(cluster, 2, f"echo banana > {CPU}/cpufreq/policy0/scaling_governor")
    assert wait_for(lambda: output_on(cluster, 2, f"cat {CPU}/cpufreq/policy0/scaling_governor") == "performance")
    refused = ask(folder, "status").refused[before:]
    assert [(one.node, one.path, one.value) for one in refused] == [
        ("n2", f"{CPU}/cpufreq/policy0/scaling_governor", "banana")
    ]


def test_joules_advance_with_time_and_never_fall(cluster: Description) -> None:
    zone = "/sys/class/powercap/intel-rapl:1/energy_uj"
    readings = [int(output_on(cluster, 1, f"cat {zone}")) for _ in range(5)]
    assert readings == sorted(readings)
    assert wait_for(lambda: int(output_on(cluster, 1, f"cat {zone}")) > readings[-1])


def test_limits_hold_and_are_lifted_while_a_node_is_provisioned(cluster: Description) -> None:
    folder = Path(cluster.request.folder)
    ask(folder, "limit")
    assert group_of(cluster, "n1").memory_limit() == 256 << 20
    assert shortfall_of(calibrate_memory(cluster)) == ""
    ask(folder, "lift")
    assert group_of(cluster, "n1").memory_limit() is None
    ask(folder, "limit")


def test_all_nodes_get_their_cpu_share_at_the_same_time(cluster: Description) -> None:
    found = calibrate_cpu(cluster)
    assert [(one.node, round(one.asked, 6)) for one in found] == [("n1", 0.4), ("n2", 0.24)]
    # The quota is an upper limit, however busy the host is.
    assert all(one.error < 0.05 for one in found)
    if shortfall_of(found, 0.9):
        pytest.skip("host busy")


def test_a_node_that_gets_less_than_requested_is_reported(cluster: Description) -> None:
    group = group_of(cluster, "n1")
    assert ask(Path(cluster.request.folder), "limit").shares["n1"] == pytest.approx(0.4)
    group.limit_cpu(0.2)
    try:
        found = calibrate_cpu(cluster)
    finally:
        group.limit_cpu(0.4)
    assert shortfall_of(found).startswith("n1: cpu 0.")
    assert next(one.got for one in found if one.node == "n1") < 0.25


def test_a_node_that_takes_more_memory_than_it_has_loses_that_process_only(cluster: Description) -> None:
    ask(Path(cluster.request.folder), "limit")
    assert output_on(cluster, 1, "python3 -c 'print(len(b\"1\" * (400 << 20)))'; echo ended by $?") == "ended by 137"


def test_a_full_disk_of_a_node_does_not_affect_other_nodes(cluster: Description) -> None:
    done = run_on(cluster, 2, "dd if=/dev/zero of=/var/filler bs=1M count=64")
    assert "No space left" in done.stderr
    output_on(cluster, 1, "dd if=/dev/zero of=/var/filler bs=1M count=8; rm /var/filler")
    output_on(cluster, 2, "rm /var/filler; echo room > /var/room")


def test_an_ssh_server_that_is_killed_is_restarted(cluster: Description) -> None:
    run_on(cluster, 1, "kill -9 $(cat /proc/1/task/1/children | cut -d' ' -f1)")
    assert wait_for(lambda: run_on(cluster, 1, "true").returncode == 0)


BRING_UP = """
import sys, time
from pathlib import Path
from emulated_clusters import start_cluster, write_hosts
cluster = start_cluster(write_hosts(Path(sys.argv[1])))
if sys.argv[2] == "stay":
    cluster.stay()
print(cluster.description.network.prefix, flush=True)
time.sleep(600)
"""


@contextmanager
def starting_process(folder: Path, mode: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Process that has started a cluster, and the prefix of the cluster's names."""
    support = str(Path(__file__).parents[1] / "support")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([support, str(Path(__file__).parents[2])])}
    command = [sys.executable, "-c", BRING_UP, str(folder), mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as starter:
        assert starter.stdout is not None
        try:
            yield starter, starter.stdout.readline().strip()
        finally:
            starter.kill()


def test_a_killed_daemon_leaves_nothing_behind_after_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with starting_process(tmp_path, "stay") as (_, prefix):
        description = description_in(tmp_path / "cluster")
        assert prefix
        assert description is not None
        first = identify(description.members["n1"].pid)
        os.kill(description.daemon.pid, signal.SIGKILL)
        assert wait_for(lambda: not description.daemon.is_alive())
        outcome = clean_all()
        assert outcome.failed == []
        assert not (tmp_path / "cluster").exists()
    assert wait_for(lambda: leftovers(prefix) == [])
    assert first is not None
    assert wait_for(lambda: not first.is_alive())
    assert wait_for(lambda: not list(state_folder().glob("campaign-*")))
    assert clean_all().failed == []


def test_a_cluster_of_another_process_shows_its_origin_shares_no_connection_and_ends_with_that_process(
    cluster: Description, tmp_path: Path
) -> None:
    lines: list[str] = []
    assert use_running(load_hosts(Path(cluster.request.folder).parent / "emulated.yml"), lines.append) == cluster
    assert lines == []
    with starting_process(tmp_path, "go") as (starter, prefix):
        other = use_running(load_hosts(tmp_path / "emulated.yml"), lines.append)
        (message,) = lines
        assert other is not None
        first = identify(other.members["n1"].pid)
        # A connection that is kept open serves no node of another cluster.
        options = ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "root@10.77.0.1"]
        output_on(cluster, 1, "touch /run/first")
        for folder, status in ((cluster.request.folder, 0), (other.request.folder, 1)):
            command = [f"{folder}/ssh", *options, "test -e /run/first"]
            run = partial(subprocess.run, command, check=False, timeout=30, stderr=subprocess.DEVNULL)
            # On a busy host a connection may fail, with 255.
            assert wait_for(lambda run=run, status=status: run().returncode == status)
        starter.kill()
    assert f"uses the emulated cluster in {tmp_path / 'cluster'} (up since 2" in message
    assert f"brought up by process {starter.pid} from {Path(__file__).parents[2]})" in message
    assert prefix == other.network.prefix
    assert wait_for(lambda: leftovers(prefix) == [])
    assert first is not None
    assert wait_for(lambda: not first.is_alive())
    assert clean_all().failed == []


def test_a_cluster_of_another_version_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    identity = identify(os.getpid())
    (folder / "cluster.json").write_bytes(msgspec.json.encode({"daemon": identity, "colour": "blue"}))
    with pytest.raises(UnfitError, match=f"another version of Millrace .* process {os.getpid()} keeps"):
        start_cluster(load_hosts(write_inventory(tmp_path, MACHINES[1:])))


def test_a_cluster_of_more_cores_than_there_are_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    machine = {"cores": 64, "ghz": 3, "share_per_core": 1, "memory_mb": 128}
    assert emulation_unsupported_reason() is None
    with pytest.raises(InputError, match=r"need 256 cores of this host"):
        start_cluster(load_hosts(write_inventory(tmp_path, [machine] * 4)))
    assert not (tmp_path / "cluster").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cors": 2}, "did you mean 'cores'"),
        ({"cores": 3, "sockets": 2}, "cannot be spread evenly over 2 sockets"),
        ({"min_ghz": 4}, "must lie between"),
        ({"share_per_core": 0.001}, "n1: millrace_emulate.share_per_core: got 0.001"),
    ],
)
def test_a_wrong_machine_is_named_with_its_file_and_host(tmp_path: Path, change: dict[str, object], words: str) -> None:
    inventory = write_inventory(tmp_path, [MACHINES[0] | change])
    with pytest.raises(InputError, match=words) as fault:
        request_of(load_hosts(inventory))
    assert "emulated.yml:" in str(fault.value)
