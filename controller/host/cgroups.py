"""Control groups of nodes: limits and usage of CPU time and memory.

The kernel has two interfaces: one hierarchy per controller (version 1) or one for all (version 2). A mounted cgroup2
file system does not imply version 2: what counts is which hierarchy has the controllers.
"""

import os
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep

from msgspec import Struct

from agents.sensors.kernel import group_cpu_ns
from inventory.errors import RunError, UnfitError
from inventory.times import NS

_PERIODS_US = (10_000, 100_000)
"""CFS periods, tried in this order: a short period keeps the pauses of a throttled node short."""

_SHORTEST_QUOTA_US = 1000
"""Shortest quota that the kernel accepts."""

SMALLEST_SHARE = _SHORTEST_QUOTA_US / _PERIODS_US[-1]
"""The smallest part of a core that a group can be limited to."""

_PATIENCE_S = 10.0
_OURS = re.compile(r"mr[0-9a-f]{8}")


class Hierarchy(Struct, frozen=True):
    """Mount points of the controllers `cpu`, `cpuacct` and `memory`."""

    version: int
    cpu: str
    cpuacct: str
    memory: str

    @property
    def folders(self) -> Sequence[str]:
        """The distinct mount points."""
        return list(dict.fromkeys((self.cpu, self.cpuacct, self.memory)))


def find_hierarchy(root: Path = Path("/")) -> Hierarchy:
    """Return the mount points of this host's controllers.

    Raises:
        UnfitError: one of them is missing.
    """
    mounts = [line.split() for line in (root / "proc/self/mounts").read_text().splitlines()]
    for fields in mounts:
        if fields[2] == "cgroup2":
            controllers = (root / fields[1].lstrip("/") / "cgroup.controllers").read_text().split()
            if {"cpu", "memory"} <= set(controllers):
                return Hierarchy(2, fields[1], fields[1], fields[1])
    split = {name: fields[1] for fields in mounts if fields[2] == "cgroup" for name in fields[3].split(",")}
    missing = {"cpu", "cpuacct", "memory"} - split.keys()
    if missing:
        raise UnfitError(f"no control group with {', '.join(sorted(missing))} is mounted: nodes cannot be limited")
    return Hierarchy(1, split["cpu"], split["cpuacct"], split["memory"])


class ControlGroup:
    """A group with the same name in every hierarchy.

    >>> group = ControlGroup(find_hierarchy(), "mr0123abcd/n1")  # doctest: +SKIP
    >>> group.make(); group.limit_cpu(0.4); group.limit_memory(512)  # doctest: +SKIP
    """

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self._hierarchy = hierarchy
        self.name = name

    @property
    def folders(self) -> list[Path]:
        """Its folder in every hierarchy."""
        return [Path(folder) / self.name for folder in self._hierarchy.folders]

    @property
    def entrances(self) -> list[Path]:
        """Files to which a process writes its pid to join, together with its future children."""
        return [folder / "cgroup.procs" for folder in self.folders]

    def make(self) -> None:
        """Create the group and its parents.

        Raises:
            UnfitError: this host does not permit it.
        """
        try:
            for folder in self.folders:
                for above in reversed(folder.parents[: self.name.count("/") + 1]):
                    if self._hierarchy.version == 2:
                        _write(above / "cgroup.subtree_control", "+cpu +memory")
                    (above / folder.relative_to(above).parts[0]).mkdir(exist_ok=True)
        except OSError as fault:
            raise UnfitError(f"the control group {self.name} cannot be made: {fault}") from None

    def prefer(self, preferred: bool) -> None:
        """Give it the highest CPU weight on this host, or the usual one again; its quota still applies.

        Raises:
            RunError: the kernel refuses the value.
        """
        folder = Path(self._hierarchy.cpu) / self.name
        if self._hierarchy.version == 2:
            self._set(folder / "cpu.weight", "10000" if preferred else "100")
        else:
            self._set(folder / "cpu.shares", "262144" if preferred else "1024")

    def limit_cpu(self, share: float | None) -> None:
        """Limit its CPU time to `share` cores; None removes the limit.

        Raises:
            RunError: the kernel refuses the value.
        """
        folder = Path(self._hierarchy.cpu) / self.name
        quota, period = quota_of(share)
        if self._hierarchy.version == 2:
            self._set(folder / "cpu.max", f"{'max' if quota < 0 else quota} {period}")
        else:
            # Without this, the kernel refuses a longer period for which the old quota is too small a share.
            self._set(folder / "cpu.cfs_quota_us", "-1")
            self._set(folder / "cpu.cfs_period_us", f"{period}")
            self._set(folder / "cpu.cfs_quota_us", f"{quota}")

    def limit_memory(self, mib: int | None) -> None:
        """Limit its memory, in MiB; None removes the limit.

        Raises:
            RunError: the kernel refuses the value.
        """
        folder = Path(self._hierarchy.memory) / self.name
        size = None if mib is None else mib << 20
        if self._hierarchy.version == 2:
            self._set(folder / "memory.max", "max" if size is None else f"{size}")
        elif size is None:
            _write(folder / "memory.limit_in_bytes", "-1")
        else:
            self._set(folder / "memory.limit_in_bytes", f"{size}")

    def memory_limit(self) -> int | None:
        """Return the memory limit in force, in bytes; None without one."""
        folder = Path(self._hierarchy.memory) / self.name
        if self._hierarchy.version == 2:
            text = (folder / "memory.max").read_text().strip()
            return None if text == "max" else int(text)
        limit = int((folder / "memory.limit_in_bytes").read_text())
        return None if limit >= 1 << 60 else limit

    def memory_used(self) -> int:
        """Return its current memory usage in bytes, including page cache and tmpfs."""
        name = "memory.current" if self._hierarchy.version == 2 else "memory.usage_in_bytes"
        return int((Path(self._hierarchy.memory) / self.name / name).read_text())

    @property
    def account(self) -> Path:
        """File in which the kernel accounts the CPU time of its members."""
        name = "cpu.stat" if self._hierarchy.version == 2 else "cpuacct.usage"
        return Path(self._hierarchy.cpuacct) / self.name / name

    def cpu_seconds(self) -> float:
        """Return the CPU time that its members have used since its creation."""
        return group_cpu_ns(self.account) / NS

    def _set(self, path: Path, text: str) -> None:
        """Write a value and read it back, because the kernel may ignore it silently."""
        try:
            _write(path, text)
            read_back = path.read_text().strip()
        except OSError as fault:
            raise RunError(f"{path}: {text} is refused: {fault.strerror}") from None
        if read_back != text:
            raise RunError(f"{path}: wrote {text}, read back {read_back}")


def quota_of(share: float | None) -> tuple[int, int]:
    """Return (quota, period) in microseconds for a share of cores; a quota of -1 means no limit.

    Raises:
        RunError: the share is too small for any period.
    """
    if share is None:
        return -1, _PERIODS_US[-1]
    for period in _PERIODS_US:
        if round(share * period) >= _SHORTEST_QUOTA_US:
            return round(share * period), period
    raise RunError(f"a CPU share of {share:g} cores is too small: the minimum is {SMALLEST_SHARE:g}")


def remove_group(folder: Path) -> bool:
    """Kill all members of an emulated cluster's group and its subgroups, and remove these; return whether it existed.

    Raises:
        RunError: it is no such group, or a process or group remains.
    """
    if not _OURS.fullmatch(folder.name):
        raise RunError(f"{folder}: not a group of an emulated cluster")
    if not folder.is_dir():
        return False
    deadline = monotonic() + _PATIENCE_S
    groups = [folder, *_below(folder)]
    while pids := [pid for group in groups for pid in _members(group)]:
        if monotonic() > deadline:
            raise RunError(f"{folder}: process {min(pids)} cannot be ended")
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        sleep(0.01)
    for group in reversed(groups):
        while True:
            try:
                group.rmdir()
                break
            except OSError as fault:
                # Processes that have just ended may count as members for a moment.
                if monotonic() > deadline:
                    raise RunError(f"{group}: cannot be removed: {fault.strerror}") from None
                sleep(0.01)
    return True


def _below(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.is_dir():
            yield entry
            yield from _below(entry)


def _members(group: Path) -> list[int]:
    try:
        return [int(word) for word in (group / "cgroup.procs").read_text().split() if int(word) != os.getpid()]
    except FileNotFoundError:
        return []


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
