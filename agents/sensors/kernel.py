"""CPU time, memory and network traffic, as the kernel counts them.

CPU time is that of every core, every worker and the agent, with the package (socket) on which each of them runs.
Processes are read from their CPU-time clocks (`clock_getcpuclockid(3)`): nanoseconds, all threads including ended ones,
one system call each. Cores are read from `/proc/stat`, which counts in ticks of usually 10 ms. For a node made of
namespaces that file shows the whole host, so the CPU time of its control group is read instead. The package of a
process is known by its CPU affinity or by its last CPU.
"""

import ipaddress
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil

from agents.cpu.plan import is_real_sysfs
from agents.cpu.topology import FOLDER
from agents.host_files import HostFiles
from agents.power.reader import MeteredHost
from agents.sensors import Host, Row, Sensor
from inventory.times import NS

_HOST = Path("/")
_PROC = Path("/proc")

_PROCESSOR = 36
"""Index of field 39 of `/proc/PID/stat`, counted after the name of the program."""

_STAT = Path("/proc/stat")

GROUP_ACCOUNTS = ("sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpuacct/cpuacct.usage")
"""Files with the CPU time of a node's own control group, of version 2 and 1, as in a container."""

_SHORTEST_TICKS_NS = 200_000_000
_SHORTEST_CLOCK_NS = 20_000_000
"""Shortest intervals for a rate. After a forced sample a row waits for the next one, because its error is too large."""

_SCHEDULED = 2
"""CPUCLOCK_SCHED of the kernel's dynamic clock ids: the time that a process was scheduled."""


class PackagePlace(NamedTuple):
    """Package of a process since the last call.

    Attributes:
        package: its number; None if there may be several.
        known_by: `affinity`: all CPUs that the process may use are in it; `last_cpu`: the process was in it at the last
            call and at this one; None without a package.
    """

    package: int | None
    known_by: str | None


NOWHERE = PackagePlace(None, None)


class HostPackages:
    """The packages of a host's CPUs, and the last known packages of processes."""

    def __init__(self, host: HostFiles) -> None:
        self._host = host
        self._of: dict[int, int | None] = {}
        self._seen: dict[int, int | None] = {}

    def of(self, cpu: int) -> int | None:
        """Return the package of a CPU that is on line; None if unknown."""
        if cpu not in self._of:
            text = self._host.read_if_there(f"{FOLDER}/cpu{cpu}/topology/physical_package_id") or ""
            self._of[cpu] = int(text) if re.fullmatch(r"\d+", text) else None
        return self._of[cpu]

    def locate(self, process: int, online: Collection[int]) -> PackagePlace:
        """Return the package of a process since the last call.

        Args:
            process: its id.
            online: the CPUs on line.
        """
        try:
            allowed = {self.of(cpu) for cpu in os.sched_getaffinity(process) if cpu in online}
        except OSError:
            return NOWHERE
        before = self._seen.get(process)
        is_bound = len(allowed) == 1
        now = self._seen[process] = allowed.pop() if is_bound else self._last(process)
        if now is None or now != before:
            return NOWHERE
        return PackagePlace(now, "affinity" if is_bound else "last_cpu")

    def forget(self, processes: Collection[int]) -> None:
        """Forget all processes except these."""
        self._seen = {process: package for process, package in self._seen.items() if process in processes}

    def _last(self, process: int) -> int | None:
        """Return the package of the last CPU of a process's first thread."""
        try:
            text = (_PROC / str(process) / "stat").read_text()
        except OSError:
            return None
        # The name of the program, in brackets, may contain anything.
        fields = text.rpartition(")")[2].split()
        return self.of(int(fields[_PROCESSOR])) if len(fields) > _PROCESSOR else None


def process_cpu_ns(pid: int) -> int | None:
    """Return the CPU time of a process in ns, user and system, or None if there is no such process."""
    try:
        return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)
    except OSError:
        return None


def core_busy_ns(stat: Path | None = None) -> dict[str, int]:
    """Return CPU number -> busy time in ns since boot, of the cores on line.

    Busy is user, nice, system, irq and softirq (guests are part of user), without idle, iowait and steal.

    Raises:
        OSError: `stat`, which is `/proc/stat` unless given, cannot be read.
    """
    tick_ns = NS // os.sysconf("SC_CLK_TCK")
    busy: dict[str, int] = {}
    for line in (stat or _STAT).read_text().splitlines():
        name, *fields = line.split()
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, _idle, _iowait, irq, softirq = map(int, fields[:7])
            busy[name.removeprefix("cpu")] = (user + nice + system + irq + softirq) * tick_ns
    return busy


def group_cpu_ns(account: Path) -> int:
    """Return the CPU time in ns that the members of a control group have used since its creation.

    Args:
        account: its `cpu.stat` (version 2) or `cpuacct.usage` (version 1).

    Raises:
        OSError, ValueError, KeyError: the file cannot be read, or has another format.
    """
    text = account.read_text()
    if account.name != "cpu.stat":
        return int(text)
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) * 1000


def group_account(host: MeteredHost) -> Path | None:
    """Return the CPU account of this node's control group if the node consists of namespaces, else None."""
    return None if is_real_sysfs(host) else _shown_account(host)


def _shown_account(host: HostFiles) -> Path | None:
    return next((host.root / path for path in GROUP_ACCOUNTS if host.exists(path)), None)


class CpuSensor(Sensor):
    """Fills the table `cpu`.

    Scope `node` is the sum of the cores; for a node made of namespaces, the CPU time of its control group; on a machine
    shared with other nodes, that of the node's own processes: the agent and its workers. The CPU time of a worker
    between the last sample and its end is lost. Rows of cores and workers contain the package (socket), if known.
    """

    summary = "CPU time of every core, every worker and the agent"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._last: dict[tuple[str, str, int], tuple[int, int]] = {}
        self._seen: dict[int, int] = {}
        self._workers_ns = 0
        files = MeteredHost.here()
        self._packages = HostPackages(files)
        account = group_account(files) if host.root == _HOST else _shown_account(HostFiles(host.root))
        self._account = None if host.shared else account
        self._shares_cores = host.shared or self._account is not None

    def probe(self) -> str | None:
        try:
            cores = core_busy_ns()
        except (OSError, ValueError) as fault:
            return f"{_STAT} cannot be read: {fault}"
        return None if cores else f"{_STAT} lists no CPU"

    def read(self, now_ns: int) -> Iterable[Row]:
        rows: list[Row | None] = []
        node = self.host.node
        cores = core_busy_ns()
        online = {int(name) for name in cores}
        agent_ns: int | None = 0  # also of a node without an agent
        if self.host.agent is not None and (agent_ns := process_cpu_ns(self.host.agent)) is not None:
            rows.append(self._row(now_ns, "agent", node, self.host.agent, agent_ns))
        workers = self.host.workers()
        self._packages.forget(workers.values())
        for slot, pid in sorted(workers.items()):
            worker_ns = process_cpu_ns(pid)
            if worker_ns is not None:
                self._workers_ns += worker_ns - self._seen.get(pid, 0)
                self._seen[pid] = worker_ns
                place = partial(self._place_of_worker, pid, online)
                rows.append(self._row(now_ns, "worker", str(slot), pid, worker_ns, place))
        for name, busy_ns in cores.items():
            rows.append(self._row(now_ns, "core", name, 0, busy_ns, partial(self._place_of_core, int(name))))
        if self._account is not None:
            rows.append(self._row(now_ns, "node", node, 0, group_cpu_ns(self._account)))
        elif not self.host.shared:
            rows.append(self._row(now_ns, "node", node, len(cores), sum(cores.values())))
        elif agent_ns is not None:
            rows.append(self._row(now_ns, "node", node, 0, agent_ns + self._workers_ns))
        return [row for row in rows if row is not None]

    def _place_of_core(self, number: int) -> PackagePlace:
        # A node made of namespaces has no sockets of its own.
        package = None if self._account else self._packages.of(number)
        return PackagePlace(package, None if package is None else "topology")

    def _place_of_worker(self, pid: int, online: Collection[int]) -> PackagePlace:
        return NOWHERE if self._account else self._packages.locate(pid, online)

    def _row(
        self,
        now_ns: int,
        scope: str,
        name: str,
        holder: int,
        cpu_ns: int,
        place: Callable[[], PackagePlace] = lambda: NOWHERE,
    ) -> Row | None:
        """Return the rate since the last row of the same scope, name and holder (process, or number of cores summed).

        `place` returns the package; it is only called when a rate interval starts or ends.
        """
        key = (scope, name, holder)
        before = self._last.get(key)
        counts_ticks = scope == "core" or (scope == "node" and not self._shares_cores)
        shortest_ns = _SHORTEST_TICKS_NS if counts_ticks else _SHORTEST_CLOCK_NS
        if before is not None and now_ns - before[0] < shortest_ns:
            return None
        self._last[key] = (now_ns, cpu_ns)
        where = place()
        # A counter that decreased belongs to a core that was off line, so its work is unknown.
        if before is None or cpu_ns < before[1]:
            return None
        cores = (cpu_ns - before[1]) / (now_ns - before[0])
        return Row("cpu", now_ns, (scope, name, cores, self._shares_cores and scope == "core", *where, before[0]))


class MemorySensor(Sensor):
    """Fills the table `memory`: `total` and `available` of the host, resident set size of the processes."""

    summary = "memory of the host, of every worker and of the agent"

    def probe(self) -> str | None:
        try:
            psutil.virtual_memory()
        except (OSError, RuntimeError, ValueError) as fault:
            return f"the host's memory cannot be read: {fault}"
        return None

    def read(self, now_ns: int) -> Iterable[Row]:
        total, available = self._of_host()
        node, shared = self.host.node, self.host.shared
        rows = [
            Row("memory", now_ns, ("host", node, "total", total, shared)),
            Row("memory", now_ns, ("host", node, "available", available, shared)),
        ]
        processes = [("agent", node, self.host.agent)] if self.host.agent is not None else []
        processes += [("worker", str(slot), pid) for slot, pid in sorted(self.host.workers().items())]
        for scope, name, pid in processes:
            rss = _rss(pid)
            if rss is not None:
                rows.append(Row("memory", now_ns, (scope, name, "rss", rss, False)))
        return rows

    def _of_host(self) -> tuple[int, int]:
        """Return the total and the available memory, in bytes."""
        if self.host.root == _HOST:
            memory = psutil.virtual_memory()
            return memory.total, memory.available
        lines = (self.host.root / "proc/meminfo").read_text().splitlines()
        kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
        return kib["MemTotal"] * 1024, kib["MemAvailable"] * 1024


def _rss(pid: int) -> int | None:
    try:
        rss: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    # A zombie has no resident memory; its value is unknown rather than 0.
    return rss or None


class NetworkSensor(Sensor):
    """Fills the table `network` with the kernel's counters, which increase while the interface exists.

    All nodes on loopback have the same interface, so its rows are `shared`.
    """

    summary = "traffic of the interface that carries the data address"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._interface = ""

    def probe(self) -> str | None:
        if self.host.root != _HOST:
            # The network of a node made of namespaces has one interface beside loopback.
            interface = next((name for name in self._counters() if name != "lo"), None)
        else:
            interface = interface_of(self.host.address)
        if interface is None:
            return f"no network interface carries the data address {self.host.address}"
        if interface not in self._counters():
            return f"the kernel counts no traffic of {interface}"
        self._interface = interface
        return None

    def read(self, now_ns: int) -> Iterable[Row]:
        traffic = self._counters().get(self._interface)
        if traffic is None:
            raise OSError(f"the interface {self._interface} is gone")
        return [Row("network", now_ns, (self._interface, *traffic, self.host.shared))]

    def _counters(self) -> Mapping[str, tuple[int, int, int, int]]:
        """Return interface -> bytes received and sent, packets received and sent."""
        if self.host.root == _HOST:
            counters = psutil.net_io_counters(pernic=True, nowrap=False)
            return {
                name: (each.bytes_recv, each.bytes_sent, each.packets_recv, each.packets_sent)
                for name, each in counters.items()
            }
        # That of the node's first process, not of the one that reads.
        lines = (self.host.root / "proc/1/net/dev").read_text().splitlines()[2:]
        counts = {name.strip(): list(map(int, values.split())) for name, _, values in (x.partition(":") for x in lines)}
        return {name: (fields[0], fields[8], fields[1], fields[9]) for name, fields in counts.items()}


def interface_of(address: str) -> str | None:
    """Return the name of the interface that has `address`, or None.

    All of 127.0.0.0/8 belongs to the loopback interface, although only one of its addresses is listed.
    """
    wanted = ipaddress.ip_address(address)
    for name, entries in sorted(psutil.net_if_addrs().items()):
        for entry in entries:
            try:
                carried = ipaddress.ip_address(entry.address.partition("%")[0])
            except ValueError:
                continue  # a hardware address
            if carried == wanted or (carried.is_loopback and wanted.is_loopback and carried.version == wanted.version):
                return name
    return None
