"""CPU affinity of an agent and its workers, restored after CPUs were offline.

Processes survive when a CPU goes offline, but their affinity does not fully come back with the CPU: a process that was
bound to that CPU alone may use all others from then on, and a cgroup v1 `cpuset` drops the CPU for all its processes.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from agents.cpu.topology import FOLDER, parse_list

_PROC, _ONLINE = Path("/proc"), Path("/", FOLDER, "online")
_FIELD = "Cpus_allowed_list:"


class BoundProcess(NamedTuple):
    """A process that was not allowed to use some online CPUs: its CPUs before, as wanted, and now."""

    process: int
    before: frozenset[int]
    wanted: frozenset[int]
    now: frozenset[int]

    @property
    def ok(self) -> bool:
        """Whether the process may use all wanted CPUs again."""
        return self.wanted <= self.now


class Affinity:
    """Affinity of this process at construction, to be restored later for it and other processes."""

    def __init__(self) -> None:
        self._wanted = _allowed(_PROC / str(os.getpid())) or frozenset()

    def restore_all(self, processes: Iterable[int]) -> list[BoundProcess]:
        """Allow processes the saved CPUs that are online, in addition to those that they may use already.

        Args:
            processes: process ids; processes that have ended are skipped.

        Returns:
            The processes that lacked some of these CPUs.
        """
        try:
            wanted = self._wanted & frozenset(parse_list(_ONLINE.read_text().strip()))
        except (OSError, ValueError):
            return []
        return [bound for process in processes for bound in _restore_affinity(process, wanted)]


def _restore_affinity(process: int, wanted: frozenset[int]) -> Iterator[BoundProcess]:
    folder = _PROC / str(process)
    before = _allowed(folder)
    tasks: list[Path] = []
    with suppress(OSError):
        tasks = list((folder / "task").iterdir())
    lacked = False
    for task in tasks:
        allowed = _allowed(task)
        if allowed is not None and not wanted <= allowed:
            lacked = True
            with suppress(OSError):
                os.sched_setaffinity(int(task.name), allowed | wanted)
    now = _allowed(folder)
    if lacked and before is not None and now is not None:
        yield BoundProcess(process, before, wanted, now)


def _allowed(folder: Path) -> frozenset[int] | None:
    """Return the CPUs that a task may use, offline ones included; None when it has ended."""
    try:
        lines = (folder / "status").read_text().splitlines()
        return frozenset(parse_list(next(line for line in lines if line.startswith(_FIELD)).split()[1]))
    except (OSError, StopIteration, ValueError):
        return None


def format_cpus(cpus: Iterable[int]) -> str:
    """Format CPUs as the kernel lists them, one by one: `0,2,3`."""
    return ",".join(map(str, sorted(cpus)))
