"""Identity of a process that stays unique: its pid with start time, boot id and pid namespace.

The kernel reuses pids, so a pid read from a file may belong to another process by now. The start time (in clock ticks
since boot, field 22 of `/proc/PID/stat`) distinguishes two processes with one pid, the boot id two boots, and the pid
namespace pids that are valid here from others.
"""

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from agents.host_files import HostFiles
from inventory.errors import UnfitError

PATIENCE_S = 2.0
"""Time between SIGTERM and SIGKILL."""


class ProcessIdentity(Struct, frozen=True, forbid_unknown_fields=True):
    """One process of this host, now or in the past.

    Attributes:
        pid: its pid in the namespace `space`.
        start: its start, in clock ticks since boot.
        boot: the kernel's random id of that boot.
        space: inode of the pid namespace of `pid`.
    """

    pid: int
    start: int
    boot: str
    space: int

    def is_foreign(self) -> bool:
        """Return whether the pid is of another pid namespace, so that the process cannot be checked from here."""
        return self.boot == boot_id() and self.space != _space()

    def is_alive(self) -> bool:
        """Return whether exactly this process still runs; zombies do not count."""
        return self.boot == boot_id() and self.space == _space() and _start(self.pid) == self.start


def boot_id() -> str:
    """Return the kernel's random id of this boot; empty without /proc."""
    return HostFiles().boot_id or ""


def identify(pid: int) -> ProcessIdentity | None:
    """Return the process that has `pid` now, or None when there is none."""
    start = _start(pid)
    return None if start is None else ProcessIdentity(pid, start, boot_id(), _space())


def this_process() -> ProcessIdentity:
    """Return the calling process.

    Raises:
        UnfitError: /proc is not mounted.
    """
    process = identify(os.getpid())
    if process is None:
        raise UnfitError("/proc is not mounted: processes cannot be told apart")
    return process


def marked(marker: bytes) -> list[ProcessIdentity]:
    """Return the processes that were started with `marker` (`NAME=value`) in their environment.

    Environments are inherited, so this includes descendants. Processes of other users cannot be read and are not found.
    The caller itself is left out.
    """
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        # The process may have ended meanwhile, or belong to another user.
        with suppress(OSError):
            process = identify(int(entry.name))
            if process and marker in (entry / "environ").read_bytes().split(b"\0"):
                processes.append(process)
    return sorted(processes, key=lambda p: p.start)


def end_processes(processes: Iterable[ProcessIdentity], patience_s: float | None = None) -> list[ProcessIdentity]:
    """End processes: SIGTERM, then SIGKILL after `patience_s` (`PATIENCE_S`); return those still alive.

    Signals are sent through a pidfd, and the start time is checked after opening it, so that no other process that has
    got the pid meanwhile can receive one.
    """
    held: list[tuple[ProcessIdentity, int]] = []
    try:
        for process in processes:
            with suppress(OSError):
                handle = os.pidfd_open(process.pid)
                held.append((process, handle))
        for number in (signal.SIGTERM, signal.SIGKILL):
            alive = [handle for process, handle in held if process.is_alive()]
            for handle in alive:
                with suppress(OSError):
                    signal.pidfd_send_signal(handle, number)
            _await_ends(alive, PATIENCE_S if patience_s is None else patience_s)
        return [process for process, _ in held if process.is_alive()]
    finally:
        for _, handle in held:
            os.close(handle)


def _await_ends(handles: list[int], seconds: float) -> None:
    """Wait until every pidfd is readable (its process has ended) or `seconds` have passed."""
    poll = select.poll()
    for handle in handles:
        poll.register(handle, select.POLLIN)
    waiting = set(handles)
    deadline = time.monotonic() + seconds
    while waiting:
        ended = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
        if not ended:
            return
        for handle, _ in ended:
            poll.unregister(handle)
            waiting.discard(handle)


def _start(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command name, in parentheses, may contain blanks and parentheses: count fields from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in {b"Z", b"X"} else int(fields[19])


def _space() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino
