"""CPU time that others than a run have used of a host.

There are two counts, and the smaller one holds. The kernel counts the busy time of cores in ticks, and attributes a
whole tick to what runs at its moment: where processes wake by timers, that may be a tenth of all cores too much. It
includes interrupts, mainly those of the run's own networking. The CPU time of all other processes is exact, but lacks
those that ended without being waited for; it is only known where all processes of the host can be seen.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from os import sysconf
from pathlib import Path
from typing import NamedTuple

from agents.power.reader import MeteredHost
from agents.sensors.kernel import core_busy_ns, process_cpu_ns
from inventory.times import NS

INITIAL_NAMESPACE = 0xEFFFFFFC
"""Inode number of the host's own PID namespace (Linux, `include/linux/proc_ns.h`, `PROC_PID_INIT_INO`)."""

PARENT, _TIMES, _BEGIN = 1, slice(11, 15), 19
"""Positions of the parent's id, of utime, stime, cutime and cstime, and of the start time, in `process_fields`."""


class ProcessUsage(NamedTuple):
    """CPU time of a process, and of its ended children that it has waited for, in ns."""

    own: int
    ended: int


Table = Mapping[tuple[int, int], ProcessUsage]
"""Process id and start time -> CPU time."""


class HostLoad:
    """CPU time of all cores of a host, and of those of its processes that belong to a run, since `begin`."""

    def __init__(self, host: MeteredHost) -> None:
        self._host = host
        self._proc = host.root / "proc"
        self._begin_ns = self._ours_ns = 0
        self._cores: dict[str, int] = {}
        self._seen: dict[int, int] = {}
        self._table: Table | None = None

    def begin(self, processes: Iterable[int]) -> None:
        """Start counting."""
        self._begin_ns = self._host.monotonic_ns()
        self._cores = self._busy_ns()
        self._table = all_processes(self._proc) if sees_all_processes(self._proc) else None
        self._seen = {}
        self.update(processes)
        self._ours_ns = 0

    def update(self, processes: Iterable[int]) -> None:
        """Add the CPU time of these processes; the time of a process after its last update is lost when it ends."""
        for process in processes:
            used_ns = process_cpu_ns(process)
            if used_ns is not None:
                self._ours_ns += used_ns - self._seen.get(process, 0)
                self._seen[process] = used_ns

    def share(self) -> float | None:
        """Return the fraction of all cores used by others; None if unknown."""
        now = self._busy_ns()
        length_ns = self._host.monotonic_ns() - self._begin_ns
        if not self._begin_ns or not length_ns or not now or now.keys() != self._cores.keys():
            return None
        others_ns = sum(now.values()) - sum(self._cores.values()) - self._ours_ns
        if self._table is not None:
            others_ns = min(others_ns, used_by_others(self._table, all_processes(self._proc), self._seen))
        return max(0.0, others_ns / (length_ns * len(now)))

    def _busy_ns(self) -> dict[str, int]:
        with suppress(OSError, ValueError):
            return core_busy_ns(self._proc / "stat")
        return {}


def sees_all_processes(proc: Path) -> bool:
    """Return whether the process table has all processes of the host: none are hidden, by a namespace or an option."""
    try:
        return (proc / "self/ns/pid").stat().st_ino == INITIAL_NAMESPACE and bool((proc / "1/stat").read_bytes())
    except OSError:
        return False


def process_fields(proc: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield all living processes: id, and the fields of `/proc/PID/stat` after the program's name."""
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # The program name in parentheses may contain any character.
                yield int(entry.name), (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()


def all_processes(proc: Path) -> Table:
    """Return the CPU time of all living processes; its resolution is a tick, usually 10 ms."""
    tick_ns = NS // sysconf("SC_CLK_TCK")
    table: dict[tuple[int, int], ProcessUsage] = {}
    for process, fields in process_fields(proc):
        user, system, ended_user, ended_system = (int(ticks) * tick_ns for ticks in fields[_TIMES])
        table[process, int(fields[_BEGIN])] = ProcessUsage(user + system, ended_user + ended_system)
    return table


def used_by_others(begin: Table, end: Table, ours: Iterable[int]) -> int:
    """Return the CPU time in ns of processes other than `ours` between two tables.

    An ended process counts with the parent that waited for it, and with all of its time: what it had used before is
    taken off.
    """
    known = frozenset(ours)
    living = lasting = 0
    for process, usage in end.items():
        if process[0] not in known:
            before = begin.get(process, ProcessUsage(0, 0))
            living += usage.own - before.own
            lasting += usage.ended - before.ended
    for process, usage in begin.items():
        if process not in end and process[0] not in known:
            lasting -= usage.own + usage.ended
    return living + max(0, lasting)
