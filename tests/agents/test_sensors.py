"""Readings of the built-in sensors, compared with what processes measure of themselves."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from agents.sensors import Host, Row, kernel
from agents.sensors.kernel import CpuSensor, MemorySensor, NetworkSensor, core_busy_ns, interface_of, process_cpu_ns


def _host(workers: dict[int, int] | None = None, address: str = "127.0.0.2", shared: bool = True) -> Host:
    return Host("n1", address, shared, os.getpid(), lambda: workers or {})


SAY = """
import json, os, sys, threading, time
def say(what):
    print(json.dumps(what), flush=True)
    sys.stdin.readline()
"""


@contextmanager
def _child(code: str) -> Iterator[subprocess.Popen]:
    """A Python child that waits after every line it prints until it gets one."""
    child = subprocess.Popen([sys.executable, "-c", SAY + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def _next_line(child: subprocess.Popen):
    return json.loads(child.stdout.readline())


def _resume(child: subprocess.Popen) -> None:
    child.stdin.write(b"\n")
    child.stdin.flush()


def _by_name(rows: list[Row], scope: str) -> dict[str, float]:
    return {row.values[1]: row.values[2] for row in rows if row.values[0] == scope}


BURN = """
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
say(time.process_time())
thread = threading.Thread(target=burn, args=(0.2,))
thread.start()
thread.join()
burn(0.3)
say(time.process_time())
"""


def test_cpu_time_of_a_worker_includes_ended_threads():
    with _child(BURN) as child:
        sensor = CpuSensor(_host({3: child.pid}))
        assert sensor.probe() is None
        before = _next_line(child)
        begin = time.monotonic_ns()
        assert _by_name(list(sensor.read(begin)), "worker") == {}
        _resume(child)
        after = _next_line(child)
        end = time.monotonic_ns()
        rows = list(sensor.read(end))
        used = _by_name(rows, "worker")["3"] * (end - begin) / 1e9
        assert used == pytest.approx(after - before, abs=0.05)
        assert used > 0.45
        assert all((row.table, row.t_ns, row.values[-1]) == ("cpu", end, begin) for row in rows)


def test_a_node_on_a_shared_machine_is_its_agent_and_its_workers_including_new_ones():
    workers: dict[int, int] = {}
    sensor = CpuSensor(Host("n1", "127.0.0.2", True, os.getpid(), lambda: workers))
    sensor.probe()
    begin = time.monotonic_ns()
    agent_before = process_cpu_ns(os.getpid())
    sensor.read(begin)
    with _child(BURN) as child:
        _next_line(child)
        _resume(child)
        used_s = _next_line(child)
        workers[0] = child.pid
        end = time.monotonic_ns()
        rows = list(sensor.read(end))
        agent_after = process_cpu_ns(os.getpid())
        assert _by_name(rows, "worker") == {}
        node = _by_name(rows, "node")["n1"] * (end - begin) / 1e9
        assert node == pytest.approx(used_s + (agent_after - agent_before) / 1e9, abs=0.05)


def test_a_node_without_an_agent_on_a_shared_machine_is_its_workers():
    with _child(BURN) as child:
        sensor = CpuSensor(Host("n1", "127.0.0.2", True, None, lambda: {0: child.pid}))
        _next_line(child)
        list(sensor.read(time.monotonic_ns()))
        _resume(child)
        _next_line(child)
        rows = list(sensor.read(time.monotonic_ns()))
        assert not _by_name(rows, "agent")
        assert _by_name(rows, "node")["n1"] == _by_name(rows, "worker")["0"] > 0


def test_a_worker_that_has_ended_has_no_row_rather_than_zero():
    with _child("say(1)") as child:
        workers = {0: child.pid}
        processor, memory = CpuSensor(_host(workers)), MemorySensor(_host(workers))
        _next_line(child)
        assert "worker" in {row.values[0] for row in memory.read(1)}
        list(processor.read(time.monotonic_ns()))
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        # Not yet reaped: it has no memory any more, but the CPU time it used is still known.
        assert "worker" not in {row.values[0] for row in memory.read(2)}
        child.wait()
        assert "worker" not in {row.values[0] for row in memory.read(3)}
        assert "worker" not in {row.values[0] for row in processor.read(time.monotonic_ns() + 10**9)}


def test_cores_are_those_on_line_and_add_up_over_any_two_samples():
    sensor = CpuSensor(_host(shared=False))
    sensor.probe()
    before_first = core_busy_ns()
    begin = time.monotonic_ns()
    sensor.read(begin)
    after_first = core_busy_ns()
    counted = dict.fromkeys(after_first, 0.0)
    # The second sample is too close for clock ticks: the third has its time, too.
    assert _by_name(list(sensor.read(begin + 10_000_000)), "core") == {}
    last = dict.fromkeys(after_first, begin)
    for wait_s in (0.5, 0.3):
        time.sleep(wait_s)
        now = time.monotonic_ns()
        before_last = core_busy_ns()
        for name, cores in _by_name(list(sensor.read(now)), "core").items():
            assert cores >= 0
            counted[name] += cores * (now - last[name]) / 1e9
            last[name] = now
        after_last = core_busy_ns()
    assert set(counted) == {str(n) for n in range(os.cpu_count())}
    for name, seconds in counted.items():
        # On a busy host any time may pass between two readings.
        assert (before_last[name] - after_first[name]) / 1e9 - 0.05 <= seconds
        assert seconds <= (after_last[name] - before_first[name]) / 1e9 + 0.05


def test_a_node_on_its_own_machine_is_the_sum_of_the_cores():
    sensor = CpuSensor(_host(address="192.0.2.7", shared=False))
    sensor.probe()
    sensor.read(time.monotonic_ns())
    time.sleep(0.3)
    rows = list(sensor.read(time.monotonic_ns()))
    assert _by_name(rows, "node")["n1"] == pytest.approx(sum(_by_name(rows, "core").values()))
    assert not any(row.values[3] for row in rows)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("sys/fs/cgroup/cpuacct/cpuacct.usage", "{ns}\n"),
        ("sys/fs/cgroup/cpu.stat", "nr_periods 7\nusage_usec {us}\nuser_usec 1\n"),
    ],
)
def test_cpu_time_of_a_node_of_namespaces_is_that_of_its_control_group_and_cores_are_shared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str, text: str
):
    account = tmp_path / path
    account.parent.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text("none /sys overlay rw 0 0\n")
    topology = tmp_path / "sys/devices/system/cpu/cpu0/topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text("1\n")
    monkeypatch.setenv("MILLRACE_SYSFS", str(tmp_path))

    def used(ns: int) -> None:
        account.write_text(text.format(ns=ns, us=ns // 1000))

    used(5_000_000_000)
    sensor = CpuSensor(_host({2: os.getppid()}, address="192.0.2.7", shared=False))
    begin = time.monotonic_ns()
    sensor.read(begin)
    used(5_480_000_000)
    rows = list(sensor.read(begin + 1_000_000_000))
    assert _by_name(rows, "node") == {"n1": pytest.approx(0.48)}
    assert {row.values[0]: row.values[3] for row in rows} == {
        **dict.fromkeys(("agent", "worker", "node"), False),
        "core": True,
    }
    # The host's cores are not those of the sockets that the node shows.
    assert {row.values[4:6] for row in rows} == {(None, None)}


def test_a_machine_with_its_own_sys_is_no_namespace_whatever_its_control_groups_contain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu.stat").write_text("usage_usec 1\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text("sysfs /sys sysfs rw 0 0\n")
    monkeypatch.setenv("MILLRACE_SYSFS", str(tmp_path))
    sensor = CpuSensor(_host(address="192.0.2.7", shared=False))
    begin = time.monotonic_ns()
    sensor.read(begin)
    time.sleep(0.3)
    rows = list(sensor.read(time.monotonic_ns()))
    assert _by_name(rows, "node")["n1"] == pytest.approx(sum(_by_name(rows, "core").values()))


def test_without_proc_stat_the_cpu_sensor_is_absent(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(kernel, "_STAT", tmp_path / "stat")
    assert "cannot be read" in CpuSensor(_host()).probe()
    (tmp_path / "stat").write_text("intr 1 2 3\n")
    assert "lists no CPU" in CpuSensor(_host()).probe()


def test_memory_of_workers_and_of_the_host_is_reported():
    with _child("say(1)\nheld = b'x' * (64 << 20)\nsay(2)") as child:
        sensor = MemorySensor(_host({1: child.pid}))
        assert sensor.probe() is None

        def rss() -> int:
            rows = list(sensor.read(5))
            return next(r.values[3] for r in rows if r.values[:3] == ("worker", "1", "rss"))

        _next_line(child)
        before = rss()
        _resume(child)
        _next_line(child)
        assert rss() - before == pytest.approx(64 << 20, rel=0.2)  # the kernel may reclaim pages of libraries
    rows = {row.values[:3]: row.values[3:] for row in sensor.read(5)}
    assert rows["host", "n1", "total"] == (psutil.virtual_memory().total, True)
    assert 0 < rows["host", "n1", "available"][0] < rows["host", "n1", "total"][0]
    assert rows["agent", "n1", "rss"][0] > 1 << 20


@pytest.mark.loopback
def test_network_counts_traffic_of_the_data_address():
    sensor = NetworkSensor(_host(address="127.0.0.5"))
    assert sensor.probe() is None
    (before,) = sensor.read(1)
    sent = 3_000_000
    with socket.create_server(("127.0.0.5", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            for _ in range(sent // 10_000):
                ours.sendall(b"x" * 10_000)
                left = 10_000
                while left:
                    left -= len(theirs.recv(left))
    (after,) = sensor.read(2)
    interface, rx, tx, rx_packets, tx_packets, shared = after.values
    assert (interface, shared) == ("lo", True)
    assert rx - before.values[1] >= sent
    assert tx - before.values[2] >= sent
    assert rx_packets > before.values[3]
    assert tx_packets > before.values[4]


def test_an_address_that_no_interface_has_makes_the_network_sensor_absent():
    assert (
        "no network interface carries the data address 192.0.2.1" in NetworkSensor(_host(address="192.0.2.1")).probe()
    )
    assert interface_of("127.3.4.5") == "lo"


def test_the_interface_of_an_address_is_the_one_that_lists_it():
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family == socket.AF_INET and not entry.address.startswith("127."):
                assert interface_of(entry.address) == name


def test_sensors_outside_of_a_node_made_of_namespaces_read_the_node_s_own_files(tmp_path: Path) -> None:
    for name, text in {
        "sys/fs/cgroup/cpuacct/cpuacct.usage": "1000000000\n",
        "proc/meminfo": "MemTotal:         524288 kB\nMemFree:  1000 kB\nMemAvailable:     262144 kB\n",
        "proc/1/net/dev": "Inter-|   Receive\n face |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n"
        "  eth0:   100    2    0    0    0    0    0    0      300    4    0    0    0    0    0    0\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    host = Host("n1", "10.77.0.1", False, None, dict, root=tmp_path)
    cpu, memory, network = CpuSensor(host), MemorySensor(host), NetworkSensor(host)
    assert [sensor.probe() for sensor in (cpu, memory, network)] == [None, None, None]
    list(cpu.read(10**9))
    (tmp_path / "sys/fs/cgroup/cpuacct/cpuacct.usage").write_text("1500000000\n")
    assert _by_name(list(cpu.read(3 * 10**9)), "node") == {"n1": 0.25}
    assert [row.values for row in memory.read(0)] == [
        ("host", "n1", "total", 512 * 2**20, False),
        ("host", "n1", "available", 256 * 2**20, False),
    ]
    assert [row.values for row in network.read(0)] == [("eth0", 100, 300, 2, 4, False)]
