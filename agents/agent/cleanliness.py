"""What a run leaves behind in its agent and on the node, which the next run would inherit.

An agent that is kept for the next run compares itself with its own state before its first run. Memory is compared with
that after the first run, because the agent imports meters and sensors with the first run that uses them.
"""

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

MOST_GROWTH_BYTES = 16 * 1024 * 1024
"""Largest growth of a process since the end of its first run."""

MOST_LISTED = 3
"""Number of descriptors and processes that a description names."""

_STANDARD = {0, 1, 2}
"""Descriptors of the standard input and of the log, which is another file in every run."""

_INODE = re.compile(r":\[\d+\]$")


class Cleanliness:
    """State of an agent before its first run, for comparisons between its runs."""

    def __init__(self) -> None:
        """Record the open descriptors; call it before the first run."""
        self._descriptors = open_descriptors()
        self._memory_bytes: Mapping[int, int] = {}

    def leftovers(self, folder: Path, server: int | None) -> Sequence[str]:
        """Return a description of everything that the last run has left behind; call it after the end of its workers.

        Args:
            folder: folder of the node in the last run, which the controller has removed.
            server: process id of the fork server, the only child that an agent has between runs.
        """
        return [*self._descriptors_left(), *_processes_left(server), *self._memory_grown(server), *_files_left(folder)]

    def _descriptors_left(self) -> Sequence[str]:
        left = open_descriptors() - self._descriptors
        return [f"{left.total()} more open descriptors: {_listed(sorted(left.elements()))}"] if left else []

    def _memory_grown(self, server: int | None) -> Sequence[str]:
        now = {pid: bytes_ for pid in (os.getpid(), server) if pid is not None and (bytes_ := _rss(pid))}
        before, self._memory_bytes = self._memory_bytes, {**now, **self._memory_bytes}
        return [
            f"process {pid} has grown by {(now[pid] - before[pid]) / 1e6:.0f} MB"
            for pid in now.keys() & before.keys()
            if now[pid] - before[pid] > MOST_GROWTH_BYTES
        ]


def open_descriptors() -> Counter[str]:
    """Return what the descriptors of this process refer to, without inode numbers; standard ones are left out."""
    targets: Counter[str] = Counter()
    for entry in Path("/proc/self/fd").iterdir():
        # The descriptor used to list the folder is closed already.
        with suppress(OSError):
            if int(entry.name) not in _STANDARD:
                targets[_INODE.sub("", str(entry.readlink()))] += 1
    return targets


def _processes_left(server: int | None) -> Sequence[str]:
    left = [child for child in psutil.Process().children(recursive=True) if child.pid != server]
    described: list[str] = []
    for child in left:
        with suppress(psutil.Error):
            described.append(f"{child.pid} ({child.name()})")
    return [f"{len(described)} processes: {_listed(described)}"] if described else []


def _files_left(folder: Path) -> Sequence[str]:
    try:
        entries = sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
    return [f"files in {folder}: {_listed(entries)}"] if entries else []


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_LISTED
    return ", ".join(names[:MOST_LISTED]) + (f" and {more} more" if more > 0 else "")


def _rss(pid: int) -> int | None:
    try:
        rss: int = psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
    return rss
