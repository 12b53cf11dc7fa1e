"""Two real Debian machines: provisioned, verified, used, restarted and restored.

The tests run in the order of this file; each continues in the state in which the previous one ended.
"""

import json
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import debian_image
import guest_powercap
import pytest
import yaml
from emulated_lab import ROOT, changes, command, millrace, wait_for
from guest import Guest
from guest_lab import ADDRESSES, Lab

HOST = "10.0.2.2"
"""This host, as guests see it."""

SINCE_1900_S = 2_208_988_800
SERVER, VERSION = 4, 4
STRATUM, POLL, PRECISION = 1, 6, -20
HEAD = struct.pack("!BBbbII4s", VERSION << 3 | SERVER, STRATUM, POLL, PRECISION, 0, 1, b"HOST")


def _stamp() -> bytes:
    """Return the time in NTP format: units of 2**-32 s since 1900."""
    return struct.pack("!Q", (time.time_ns() + SINCE_1900_S * 10**9 << 32) // 10**9 & (1 << 64) - 1)


def _serve(socket_: socket.socket) -> None:
    while True:
        request, sender = socket_.recvfrom(1024)
        if not request:
            return
        received = _stamp()
        originate = request[40:48]
        socket_.sendto(HEAD + received + originate + received + _stamp(), sender)


@contextmanager
def time_server() -> Iterator[str]:
    """Run a server within the block; yield its address and port in chrony's format."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        thread = threading.Thread(target=_serve, args=(listening,))
        thread.start()
        try:
            yield f"{HOST} port {port}"
        finally:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ending:
                ending.sendto(b"", ("127.0.0.1", port))
            thread.join()


pytestmark = [pytest.mark.vm, pytest.mark.timeout(3600)]

TIMEOUT_S = 2400.0
RATE_MBIT, DELAY_MS = 8, 40
CPU_SHARE, MEMORY_MB = 0.5, 512
SLICE = "/sys/fs/cgroup/user.slice/user-$(id -u millrace).slice"
EXCEED_MEMORY = f"held = bytearray({2 * MEMORY_MB} << 20); print(len(held))"
BURN = "import time\nend = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
CLOCK = {"millrace_cores": 1, "millrace_governor": "powersave", "millrace_min_ghz": 1.2, "millrace_max_ghz": 1.8}


GROUPS = """\
import json, subprocess, sys, time
from pathlib import Path
from controller.host.cgroups import ControlGroup, find_hierarchy, remove_group

hierarchy = find_hierarchy()
folder = Path(hierarchy.cpu) / "mr0123abcd"
group = ControlGroup(hierarchy, f"{folder.name}/n1")
enter = "import sys\\nfor path in sys.argv[1:]: open(path, 'w').write('0')\\n"

def inside(program):
    return subprocess.run([sys.executable, "-c", enter + program, *map(str, group.entrances)], capture_output=True)

group.make()
group.prefer(True)
group.limit_cpu(0.25)
group.limit_memory(64)
start = time.monotonic()
inside("import time\\nend = time.monotonic() + 4\\nwhile time.monotonic() < end: pass")
share = group.cpu_seconds() / (time.monotonic() - start)
killed = inside("held = bytearray(200 << 20)").returncode
events = dict(line.split() for line in (folder / "n1" / "memory.events").read_text().splitlines())
group.limit_cpu(None)
group.limit_memory(None)
limit = group.memory_limit()
remove_group(folder)
print(json.dumps({
    "version": hierarchy.version, "share": share, "killed": killed, "limit": limit, "left": folder.exists(),
    "events": {name: int(count) for name, count in events.items()},
}))
"""
"""Measure the limits of an emulated node on a kernel whose control groups systemd manages."""

ALIVE = """\
import json, urllib.request
workers = json.load(urllib.request.urlopen("http://127.0.0.1:8080/json/"))["workers"]
print(*sorted(worker["host"] for worker in workers if worker["state"] == "ALIVE"))
"""
"""Print the live Spark workers of the master, from its page."""

JOB = """\
from socket import gethostname
from pyspark.sql import SparkSession
context = SparkSession.builder.getOrCreate().sparkContext
hosts = context.parallelize(range(2), 2).map(lambda _: gethostname())
print("ran on", *sorted(hosts.collect()))
"""
"""Run a task on every worker: each has one core."""


@pytest.fixture(scope="module")
def inventory(lab: Lab) -> Iterator[Path]:
    """An inventory with limits and slow links of both machines, and cores and clock of one."""
    with time_server() as server:
        both: dict[str, object] = {
            "millrace_authorized_keys": [lab.key],
            "millrace_remove_packages": True,
            "millrace_time_servers": [server],
            "millrace_slots": 2,
            "millrace_links": [{"to": "*", "rate_mbit": RATE_MBIT, "delay_ms": DELAY_MS}],
            "millrace_cpu_share": CPU_SHARE,
            "millrace_memory_mb": MEMORY_MB,
            "millrace_spark_cores": 1,
            "millrace_spark_memory_mb": 512,
            # On a busy host a guest loses time that it cannot measure: tolerances are wide.
            "millrace_share_tolerance": 0.5,
            "millrace_rate_tolerance": 0.9,
            "millrace_trip_tolerance": 5.0,
            "millrace_offset_ms": 5000,
        }
        yield lab.inventory(both, n2=CLOCK)


@pytest.fixture(scope="module")
def bare(lab: Lab) -> dict[str, list[str]]:
    """State of the machines before any change."""
    return lab.state()


def changed_tasks(verb: str, inventory: Path, *words: str) -> dict[str, int]:
    """Run a playbook, which must succeed; return the number of changed tasks by host."""
    done = millrace(verb, str(inventory), *words, seconds=TIMEOUT_S)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    recaps = [line.split() for line in done.stdout.splitlines() if " changed=" in line]
    return {words[0]: int(words[3].partition("=")[2]) for words in recaps}


def as_agent(inventory: Path, node: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program as agents run: over a connection of the agents' user."""
    return millrace("exec", str(inventory), node, "--", "python3", "-c", program, seconds=TIMEOUT_S)


def slice_counter(node: Guest, file: str, key: str) -> int:
    """Return a counter of the slice of agents."""
    return int(node.output_of(f"sed -n 's/^{key} //p' {SLICE}/{file}"))


def spark_workers(lab: Lab) -> str:
    """Return the addresses of live Spark workers; none until the master replies."""
    return lab.nodes["n1"].ssh("python3 -", ALIVE.encode()).stdout.decode().strip()


def verified(inventory: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Verify the machines; return the checks by node and subject."""
    done = millrace("verify", str(inventory), "--json", seconds=TIMEOUT_S)
    report = json.loads(done.stdout)
    print(yaml.safe_dump(report["checks"]))
    assert report["ok"], done.stderr[-3000:]
    return {(check["node"], check["what"]): check for check in report["checks"]}


def test_a_dry_run_reports_changes_and_makes_none(lab: Lab, bare: dict[str, list[str]], inventory: Path) -> None:
    assert min(changed_tasks("provision", inventory, "--check").values()) > 5
    assert changes(bare, lab.state()) == []


def test_a_machine_that_was_reset_during_provisioning_is_restored(
    lab: Lab, bare: dict[str, list[str]], inventory: Path
) -> None:
    provision = command("provision", str(inventory), "--", "--skip-tags", "base,agent,power")
    process = subprocess.Popen(provision, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stderr is not None
    for line in process.stderr:
        if "clock : Install chrony" in line:
            break
    assert wait_for(
        lambda: process.poll() is not None or lab.nodes["n2"].ssh("pgrep -x dpkg").returncode == 0, TIMEOUT_S
    )
    assert process.poll() is None
    lab.nodes["n2"].reset()
    process.communicate(timeout=TIMEOUT_S)
    assert process.returncode not in (None, 0)
    assert lab.nodes["n2"].output_of("ls /var/lib/millrace") == "pre_state.json"
    changed_tasks("restore", inventory)
    assert changes(bare, lab.state()) == []


def test_a_second_provisioning_changes_nothing(lab: Lab, bare: dict[str, list[str]], inventory: Path) -> None:
    assert min(changed_tasks("provision", inventory).values()) > 5
    # On a busy host the second measurement of FLOPS may be higher: the index then keeps it, which is a change.
    assert set(changed_tasks("provision", inventory, "--", "--skip-tags", "index").values()) == {0}
    for node in lab.nodes.values():
        assert node.output_of("systemctl is-enabled chrony; systemctl is-active chrony").split() == [
            "enabled",
            "active",
        ]
        assert "netem" in node.output_of("tc qdisc show dev eth1")
        assert "netem" not in node.output_of("tc qdisc show dev eth0")
    assert lab.nodes["n1"].output_of("cat /sys/devices/system/cpu/online") == "0-3"
    assert lab.nodes["n2"].output_of("cat /sys/devices/system/cpu/online") == "0-1"


def test_requested_limits_are_measured(inventory: Path) -> None:
    checks = verified(inventory)
    for node in ("n1", "n2"):
        # The kernel never exceeds a limit; how much less it gives depends on the host.
        assert 0 < checks[node, "link"]["got"] <= RATE_MBIT * 1.05
        assert checks[node, "rtt"]["got"] >= 2 * DELAY_MS
        assert checks[node, "memory"]["got"] == MEMORY_MB
        assert 0 < checks[node, "cpu"]["got"] <= CPU_SHARE * 1.3
        assert checks[node, "clock offset"]["got"] is not None
    assert checks["n2", "cores on line"]["got"] == 1


def test_agents_get_no_more_than_their_limits(lab: Lab, inventory: Path) -> None:
    node = lab.nodes["n1"]
    where = as_agent(inventory, "n1", "print(open('/proc/self/cgroup').read())")
    assert f"/user.slice/user-{node.output_of('id -u millrace')}.slice/" in where.stdout, where.stderr
    killed = as_agent(inventory, "n1", EXCEED_MEMORY)
    assert killed.returncode != 0
    assert killed.stdout == ""
    assert "Memory cgroup out of memory" in node.output_of("dmesg")
    # The slice and its counters are there as long as the user has a session.
    session = subprocess.Popen(
        command("exec", str(inventory), "n1", "--", "sleep", "600"), stdout=subprocess.DEVNULL, cwd=ROOT
    )
    try:
        assert wait_for(lambda: node.ssh("pgrep -u millrace sleep").returncode == 0, TIMEOUT_S)
        before = slice_counter(node, "cpu.stat", "nr_throttled")
        assert as_agent(inventory, "n1", BURN).returncode == 0
        assert slice_counter(node, "cpu.stat", "nr_throttled") > before
    finally:
        session.terminate()
        session.wait(60)


def test_a_campaign_crosses_the_slow_link(lab: Lab, inventory: Path) -> None:
    agenda = lab.folder / "crossing.yaml"
    content = {
        "name": "crossing",
        "inventory": str(inventory),
        "repetitions": 1,
        "warmup_s": 2,
        "duration_s": 10,
        "workloads": [
            {
                "name": "wordcount",
                "params": {"parallelism": {"spout": 1, "split": 2, "count": 2}},
                "rate": {"kind": "constant", "tuples_per_s": 20},
            }
        ],
        "schedulers": ["even"],
        "sensors": ["cpu"],
    }
    agenda.write_text(yaml.safe_dump(content))
    results = lab.folder / "results"
    done = millrace("run", str(agenda), "--out", str(results), seconds=TIMEOUT_S)
    assert done.returncode == 0, done.stderr[-4000:]
    (path,) = (results / "crossing" / "latest" / "runs").glob("*/run.json")
    record = json.loads(path.read_text())
    assert (record["status"], record["tier"]) == ("ok", 0), record["reason"]
    assert record["verification"]["status"] == "passed"
    assert record["measured"]["hops"]["inter_node"] > 0
    assert (path.parent / "traces" / "throughput.parquet").is_file()
    assert (results / "crossing" / "latest" / "report" / "index.html").is_file()
    # The latency of a tuple over the link is at least the link's delay.
    assert record["measured"]["latency_ms"]["max"] >= DELAY_MS


def test_agents_may_read_energy_counters_that_the_kernel_adds_later(lab: Lab, inventory: Path) -> None:
    reason = guest_powercap.unsupported_reason()
    if reason:
        pytest.skip(reason)
    node = lab.nodes["n2"]
    # As when the driver of a processor is loaded late: udev applies the installed rule.
    node.output_of(
        "cat >/run/zones.ko; insmod /run/zones.ko; udevadm settle",
        guest_powercap.zones_module(debian_image.debian_image()).read_bytes(),
    )
    counter = "/sys/class/powercap/intel-rapl:0/energy_uj"
    assert node.output_of(f"stat -Lc '%G %a' {counter}") == "millrace 440"
    read = as_agent(inventory, "n2", f"print(int(open('{counter}').read()))")
    assert int(read.stdout) > 0, read.stderr


def test_limits_of_emulated_nodes_hold_with_control_groups_version_2(lab: Lab) -> None:
    output = lab.nodes["n1"].output_of("/opt/millrace/venv/bin/python -P -", GROUPS.encode())
    found = json.loads(output)
    assert found["version"] == 2
    # Never above the limit; the measured time includes the start of the process.
    assert 0.02 < found["share"] <= 0.25 * 1.1
    assert found["killed"] == -9
    assert found["events"]["oom_kill"] == 1
    assert found["limit"] is None
    assert not found["left"]


def test_settings_that_a_restart_loses_are_set_again_and_all_others_persist(lab: Lab, inventory: Path) -> None:
    node = lab.nodes["n2"]
    node.restart()
    node.output_of("systemctl is-system-running --wait")
    assert node.output_of("systemctl is-active chrony") == "active"
    assert "netem" not in node.output_of("tc qdisc show dev eth1")
    assert node.output_of("cat /sys/devices/system/cpu/online") == "0-3"
    limits = node.output_of("systemctl show user-$(id -u millrace).slice -p MemoryMax -p CPUQuotaPerSecUSec")
    assert f"MemoryMax={MEMORY_MB << 20}" in limits.splitlines()
    changed = changed_tasks("provision", inventory, "--", "--tags", "limits,network,cpu,cpufreq")
    assert changed["n1"] == 0
    assert changed["n2"] == 3
    assert node.output_of("cat /sys/devices/system/cpu/online") == "0-1"


def test_spark_is_a_service_that_starts_with_the_machine(lab: Lab, inventory: Path) -> None:
    play = [sys.executable, "-P", "-m", "ansible", "playbook", "-i", str(inventory), "ansible/spark.yml"]
    for changed in (True, False):
        done = subprocess.run(play, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=ROOT)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
        assert (done.stdout.count("changed=0 ") == len(lab.nodes)) != changed
    both = " ".join(ADDRESSES.values())
    assert wait_for(lambda: spark_workers(lab) == both, TIMEOUT_S)
    node = lab.nodes["n2"]
    node.restart()
    assert wait_for(lambda: node.ssh("systemctl is-active millrace-spark-worker").returncode == 0, TIMEOUT_S)
    # The master notices the lost worker by its connection; the new one registers.
    assert wait_for(lambda: spark_workers(lab) == both, TIMEOUT_S)
    submit = "SPARK_CONF_DIR=/var/lib/millrace/spark/conf $(echo /opt/millrace/spark-*)/bin/spark-submit"
    options = f"--master spark://{ADDRESSES['n1']}:7077 --executor-memory 512m --driver-memory 512m"
    local = f"--conf spark.driver.host={ADDRESSES['n1']} --conf spark.pyspark.python=/opt/millrace/venv/bin/python"
    lab.nodes["n1"].output_of("cat >/run/job.py", JOB.encode())
    output = lab.nodes["n1"].output_of(f"{submit} {options} {local} /run/job.py", seconds=TIMEOUT_S)
    assert output.endswith("ran on n1 n2")


def test_restored_machines_are_as_before_provisioning(lab: Lab, bare: dict[str, list[str]], inventory: Path) -> None:
    lab.nodes["n1"].reset()
    changed_tasks("restore", inventory)
    assert changes(bare, lab.state()) == []
    assert set(changed_tasks("restore", inventory).values()) == {0}
