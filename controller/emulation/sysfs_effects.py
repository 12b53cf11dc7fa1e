"""Effects of a node's writes to its `/sys`: on its CPU quota, and on the content of other files.

The files are those of `controller.emulation.sysfs`, accessed from outside the node. They are plain files, which accept
any text and have no effect by themselves. This module emulates the kernel behind them:

- a core counts `share_per_core` cores of this host at the machine's highest clock without turbo, proportionally less at
  a lower clock, and nothing when it is offline; the sum is the CPU quota of the node's control group;
- a value that a real kernel would refuse is restored and reported; a clock out of range is clamped, as by a kernel;
- energy counters advance by the machine's energy model and the load of the control group.
"""

import os
import struct
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, monotonic_ns

from msgspec import Struct

from agents.cpu.topology import as_list
from controller.emulation.sysfs import (
    CPU,
    ENERGY_RANGE_UJ,
    GOVERNORS,
    NO_SPEED,
    cpuinfo,
    energy_of,
    meminfo,
    overwrite,
    policy,
    topology_files,
    write_file,
)
from controller.host.cgroups import ControlGroup
from inventory.emulation import EmulatedMachine
from inventory.errors import nearest
from inventory.libc import LIBC, checked

_WRITTEN, _MOVED_IN, _ONLY_FOLDERS = 0x8, 0x80, 0x01000000
_EVENT = struct.Struct("iIII")
_BUFFER = 1 << 16
_OVERFLOWN = -1

DYNAMIC = ("conservative", "ondemand", "schedutil")
"""Governors that follow the load; as they may use the highest allowed clock, that clock determines the quota."""

_HEADROOM = 1.25
"""Factor by which a dynamic governor keeps the clock above the load (as schedutil does)."""

_MEMORY_S = 1.0
"""Interval of updates of `/proc/meminfo`."""


class FolderWatch:
    """Watch on folders, each with an owner; reports the owners whose files were written or replaced."""

    def __init__(self) -> None:
        self._descriptor = checked(LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "inotify")
        self._owners: dict[int, str] = {}

    def fileno(self) -> int:
        """Return the descriptor, which is readable when there are events."""
        return self._descriptor

    def add(self, owner: str, folders: Iterable[Path]) -> None:
        """Watch more folders for `owner`.

        Raises:
            OSError: a folder does not exist, or the user's limit of watches is reached.
        """
        for folder in folders:
            mask = _WRITTEN | _MOVED_IN | _ONLY_FOLDERS
            number = checked(LIBC.inotify_add_watch(self._descriptor, os.fsencode(folder), mask), f"watch {folder}")
            self._owners[number] = owner

    def written(self) -> set[str]:
        """Return the owners of folders in which files were written since the last call."""
        owners: set[str] = set()
        while True:
            try:
                events = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return owners
            at = 0
            while at < len(events):
                number, _, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                if number == _OVERFLOWN:
                    owners |= set(self._owners.values())
                elif number in self._owners:
                    owners.add(self._owners[number])

    def close(self) -> None:
        """Remove all watches."""
        os.close(self._descriptor)


class RefusedWrite(Struct, frozen=True):
    """A value that a real kernel would have refused.

    Attributes:
        node: the node that wrote it.
        path: path of the file on the node.
        value: the value written.
        expected: the values allowed.
        t_ns: time of detection on the monotonic clock.
    """

    node: str
    path: str
    value: str
    expected: str
    t_ns: int

    def __str__(self) -> str:
        return f"node {self.node}: {self.path}: {self.value!r} was written; {self.expected} was expected"


class CoreSettings:
    """Last valid settings of one core."""

    def __init__(self, machine: EmulatedMachine) -> None:
        self.online = True
        self.governor = "performance"
        self.lowest, self.highest = machine.khz[-1], machine.turbo_khz or machine.top_khz
        self.speed = self.highest
        self.shown = self.highest

    def clock(self) -> int:
        """Return the highest clock in kHz that the settings allow."""
        if self.governor == "powersave":
            return self.lowest
        if self.governor == "userspace":
            return min(max(self.speed, self.lowest), self.highest)
        return self.highest


class SysfsEffects:
    """Emulation of the kernel behind the files of one node."""

    def __init__(
        self,
        node: str,
        machine: EmulatedMachine,
        root: Path,
        group: ControlGroup,
        refuse: Callable[[RefusedWrite], None],
    ) -> None:
        """Start with a node that has just booted.

        Args:
            node: its id.
            machine: the machine that it emulates.
            root: path of its root file system from outside.
            group: its control group.
            refuse: called with refused values.
        """
        self.node, self._machine, self._root, self._group, self._refuse = node, machine, root, group, refuse
        self._cores = [CoreSettings(machine) for _ in range(machine.cores)]
        self._boost = True
        self._limited = False
        self._quota: float | None = None
        self._joules = [0.0] * machine.sockets
        self._used = group.cpu_seconds()
        self._last_tick = monotonic()
        self._memory_written = 0.0
        self._host_cpuinfo = Path("/proc/cpuinfo").read_text()

    @property
    def folders(self) -> list[Path]:
        """Folders whose files the node may write."""
        cpus = [f"{CPU}/cpu{cpu}" for cpu in range(self._machine.cores)]
        policies = [policy(cpu) for cpu in range(self._machine.cores)]
        return [self._path(folder) for folder in (*cpus, f"{CPU}/cpufreq", *policies)]

    @property
    def share(self) -> float:
        """CPU quota of the node with its current settings, in cores of this host."""
        top, each = self._machine.top_khz, self._machine.share_per_core
        return sum(each * core.clock() / top for core in self._cores if core.online)

    def limit(self, limited: bool) -> None:
        """Apply or lift the node's limits of CPU time and memory.

        Raises:
            RunError: the kernel refuses the limit.
        """
        self._limited = limited
        self._group.limit_memory(self._machine.memory_mb if limited else None)
        self._apply_quota()

    def react(self) -> None:
        """Apply the values that the node has written.

        Raises:
            RunError: the kernel refuses the quota.
        """
        changed = self._read_online()
        self._read_boost()
        for cpu, core in enumerate(self._cores):
            self._read_policy(cpu, core)
        if changed:
            self._write_online()
        self._apply_quota()

    def tick(self) -> None:
        """Update values that change over time: clocks that follow the load, energy, memory in use."""
        now, used = monotonic(), self._group.cpu_seconds()
        seconds, work = now - self._last_tick, used - self._used
        if seconds <= 0:
            return
        self._last_tick, self._used = now, used
        load = min(1.0, work / (seconds * self.share))
        machine = self._machine
        for cpu, core in enumerate(self._cores):
            if core.online:
                self._write_clock(cpu, core, load)
                # Dynamic power is split over all existing cores; the part of offline cores is not drawn.
                part = (core.shown / machine.top_khz) ** machine.power.kappa * load / machine.cores
                self._joules[machine.socket_of(cpu)] += machine.power.p_d * part * seconds
        for socket in range(machine.sockets):
            self._joules[socket] += machine.power.p_s / machine.sockets * seconds
            self._write(energy_of(socket), f"{round(self._joules[socket] * 1e6) % ENERGY_RANGE_UJ}")
        if now - self._memory_written >= _MEMORY_S:
            self._memory_written = now
            self._write_in_place("proc/meminfo", meminfo(machine, self._group.memory_used()))

    def _read_online(self) -> bool:
        changed = False
        for cpu, core in enumerate(self._cores):
            path = f"{CPU}/cpu{cpu}/online"
            text = self._read(path) if cpu else None
            if text is None:
                continue
            if text not in ("0", "1"):
                self._restore(path, text, "1" if core.online else "0", "0 or 1")
            elif (text == "1") != core.online:
                core.online = not core.online
                changed = True
        return changed

    def _read_boost(self) -> None:
        path = f"{CPU}/cpufreq/boost"
        text = self._read(path)
        if text is None:
            return
        if text not in ("0", "1"):
            self._restore(path, text, str(int(self._boost)), "0 or 1")
        elif (text == "1") != self._boost:
            self._boost = not self._boost
            for cpu, core in enumerate(self._cores):
                self._write(f"{policy(cpu)}/cpuinfo_max_freq", f"{self._hard_limit}")
                core.highest = self._hard_limit
                self._write(f"{policy(cpu)}/scaling_max_freq", f"{core.highest}")

    @property
    def _hard_limit(self) -> int:
        return (self._boost and self._machine.turbo_khz) or self._machine.top_khz

    def _read_policy(self, cpu: int, core: CoreSettings) -> None:
        path = f"{policy(cpu)}/scaling_governor"
        text = self._read(path)
        if text is not None and text not in GOVERNORS:
            self._restore(path, text, core.governor, f"a governor{nearest(text, GOVERNORS)}")
        elif text is not None and text != core.governor:
            core.governor = text
            core.speed = core.shown
            self._write(f"{policy(cpu)}/scaling_setspeed", f"{core.speed}" if text == "userspace" else NO_SPEED)
        low, high = self._machine.khz[-1], self._hard_limit
        highest = self._clock(f"{policy(cpu)}/scaling_max_freq", core.highest)
        core.highest = min(max(highest, low), high)
        lowest = self._clock(f"{policy(cpu)}/scaling_min_freq", core.lowest)
        core.lowest = min(max(lowest, low), core.highest)
        for name, limit, kept in (("max", highest, core.highest), ("min", lowest, core.lowest)):
            if limit != kept:
                self._write(f"{policy(cpu)}/scaling_{name}_freq", f"{kept}")
        path = f"{policy(cpu)}/scaling_setspeed"
        if core.governor == "userspace":
            core.speed = self._clock(path, core.speed)
        elif (text := self._read(path)) not in (None, NO_SPEED):
            self._restore(path, text or "", NO_SPEED, "nothing, without the governor userspace,")

    def _clock(self, path: str, before: int) -> int:
        text = self._read(path)
        if text is None or text == f"{before}":
            return before
        if text.isascii() and text.isdigit():
            return int(text)
        self._restore(path, text, f"{before}", "a clock in kHz")
        return before

    def _write_online(self) -> None:
        """Update masks, topology and `/proc/cpuinfo` after cores went offline or came online."""
        online = [cpu for cpu, core in enumerate(self._cores) if core.online]
        self._write(f"{CPU}/online", as_list(online))
        self._write(f"{CPU}/offline", as_list(set(range(self._machine.cores)) - set(online)))
        for cpu, core in enumerate(self._cores):
            self._write(f"{policy(cpu)}/affected_cpus", f"{cpu}" if core.online else "")
        for cpu in online:
            self._write_all(topology_files(self._machine, cpu, online))
        clocks = {cpu: self._cores[cpu].shown for cpu in online}
        self._write_in_place("proc/cpuinfo", cpuinfo(self._machine, clocks, self._host_cpuinfo))

    def _write_clock(self, cpu: int, core: CoreSettings, load: float) -> None:
        clock = core.clock()
        if core.governor in DYNAMIC:
            steps = [
                khz for khz in self._machine.khz if core.lowest <= khz <= clock and khz >= load * _HEADROOM * clock
            ]
            clock = min(steps, default=clock)
        if clock != core.shown:
            core.shown = clock
            self._write(f"{policy(cpu)}/scaling_cur_freq", f"{clock}")

    def _apply_quota(self) -> None:
        quota = self.share if self._limited else None
        if quota != self._quota:
            self._group.limit_cpu(quota)
            self._quota = quota

    def _restore(self, path: str, text: str, value: str, expected: str) -> None:
        self._refuse(RefusedWrite(self.node, f"/sys/{path}", text[:80], expected, monotonic_ns()))
        self._write(path, value)

    def _path(self, path: str) -> Path:
        return self._root / "sys" / path

    def _read(self, path: str) -> str | None:
        """The text of a file; None when it is not there, or is just being written.

        However it was written, it then stands there as a kernel would show it, with one newline.
        """
        try:
            text = self._path(path).read_text(errors="replace")
        except OSError:
            return None
        value = text.strip()
        if value and text != f"{value}\n":
            self._write(path, value)
        return value or None

    def _write_all(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            self._write(path, text)

    def _write(self, path: str, text: str) -> None:
        # The node's tmpfs may be full; its files then keep their old content.
        with suppress(OSError):
            write_file(self._path(path), text)

    def _write_in_place(self, path: str, text: str) -> None:
        with suppress(OSError):
            overwrite(self._root / path, text)
