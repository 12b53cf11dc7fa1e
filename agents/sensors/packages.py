"""The package (socket) on which a process runs, by its CPU affinity or by its last CPU."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from agents.cpu.topology import FOLDER
from agents.host_files import HostFiles

_PROC = Path("/proc")

_PROCESSOR = 36
"""Index of field 39 of `/proc/PID/stat`, counted after the name of the program."""


class Place(NamedTuple):
    """Package of a process since the last look.

    Attributes:
        package: its number; None if there may be several.
        known_by: `affinity`: all CPUs that the process may use are in it; `last_cpu`: the process was in it at the last
            look and at this one; None without a package.
    """

    package: int | None
    known_by: str | None


NOWHERE = Place(None, None)


class Packages:
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

    def look(self, process: int, online: Collection[int]) -> Place:
        """Return the package of a process since the last look.

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
        return Place(now, "affinity" if is_bound else "last_cpu")

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
