"""On which package (socket) a process works: by the CPUs that it may use, or by the one that it was last seen on."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from agents.cpu.topology import FOLDER
from agents.host_files import HostFiles

_PROC = Path("/proc")

_PROCESSOR = 36
"""Field 39 of `/proc/PID/stat`, counted from behind the name of the program."""


class Place(NamedTuple):
    """Where a process has worked since the last look.

    Attributes:
        package: its number; None when it may have been several.
        known_by: `affinity`: all CPUs that it may use are there; `last_cpu`: it was there at the last look and at this
            one; None without a package.
    """

    package: int | None
    known_by: str | None


NOWHERE = Place(None, None)


class Packages:
    """The packages of a host's CPUs, and where processes were seen."""

    def __init__(self, host: HostFiles) -> None:
        """Take note of the host; CPUs that are off may come later."""
        self._host = host
        self._of: dict[int, int | None] = {}
        self._seen: dict[int, int | None] = {}

    def of(self, cpu: int) -> int | None:
        """The package of a CPU that works; None when the kernel does not say."""
        if cpu not in self._of:
            text = self._host.read_if_there(f"{FOLDER}/cpu{cpu}/topology/physical_package_id") or ""
            self._of[cpu] = int(text) if re.fullmatch(r"\d+", text) else None
        return self._of[cpu]

    def look(self, process: int, online: Collection[int]) -> Place:
        """Where a process has worked since it was looked at before.

        Args:
            process: its id.
            online: the CPUs that work.
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
        """Keep what was seen of these processes only."""
        self._seen = {process: package for process, package in self._seen.items() if process in processes}

    def _last(self, process: int) -> int | None:
        """The package of the CPU that the first thread of a process ran on last."""
        try:
            text = (_PROC / str(process) / "stat").read_text()
        except OSError:
            return None
        # The name of the program, in brackets, may hold anything.
        fields = text.rpartition(")")[2].split()
        return self.of(int(fields[_PROCESSOR])) if len(fields) > _PROCESSOR else None
