"""CPU time of every core, every worker and the agent.

Processes are read from their CPU-time clocks (`clock_getcpuclockid(3)`): nanoseconds, all threads including ended ones,
one system call each. Cores are read from `/proc/stat`, which counts in ticks of usually 10 ms. For a node made of
namespaces that file shows the whole host, so the CPU time of its control group is read instead.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path

from agents.cpu.plan import is_real_sysfs
from agents.power.host import MeteredHost
from agents.sensors.base import Host, Row, Sensor
from agents.sensors.packages import NOWHERE, Packages, Place

_STAT = Path("/proc/stat")

GROUP_ACCOUNTS = ("sys/fs/cgroup/cpu.stat", "sys/fs/cgroup/cpuacct/cpuacct.usage")
"""Files with the CPU time of a node's own control group, of version 2 and 1, as in a container."""

_SHORTEST_TICKS_NS = 200_000_000
_SHORTEST_CLOCK_NS = 20_000_000
"""Shortest intervals for a rate. After a forced sample a row waits for the next one, because its error is too large."""

_SCHEDULED = 2
"""CPUCLOCK_SCHED of the kernel's dynamic clock ids: the time that a process was scheduled."""


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
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
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
    if is_real_sysfs(host):
        return None
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
        self._packages = Packages(files)
        self._account = None if host.shared else group_account(files)
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
        agent_ns = process_cpu_ns(self.host.agent)
        if agent_ns is not None:
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

    def _place_of_core(self, number: int) -> Place:
        # A node made of namespaces has no sockets of its own.
        package = None if self._account else self._packages.of(number)
        return Place(package, None if package is None else "topology")

    def _place_of_worker(self, pid: int, online: Collection[int]) -> Place:
        return NOWHERE if self._account else self._packages.look(pid, online)

    def _row(
        self,
        now_ns: int,
        scope: str,
        name: str,
        holder: int,
        cpu_ns: int,
        place: Callable[[], Place] = lambda: NOWHERE,
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
        return Row("cpu", now_ns, (scope, name, cores, self._shares_cores and scope == "core", *where))
