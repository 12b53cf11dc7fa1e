"""Processes of an engine on this host, in namespaces of their own.

    python -P -m engines.sandbox

Engines listen on all addresses of a host, without asking anybody who he is. In a network namespace with nothing but the
loopback interface nobody outside can connect, and no port is ever taken. All processes are in a process namespace, too:
the kernel ends them, whatever they have started, when its first process ends, and that ends with the controller.

The program reads a line of JSON, a list of `EngineProcess`, and starts them. It writes `started` or an error, and then
a line for each of them that ends. It ends at the end of its input.
"""

import asyncio
import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import psutil
from msgspec import Struct

from controller.host.namespaces import (
    NEW_MOUNTS,
    NEW_NETWORK,
    NEW_PIDS,
    NEW_USERS,
    PRIVATE,
    RECURSIVE,
    die_with_parent,
    mount,
    unshare,
)
from engines.child_processes import EngineProcess, how_ended, start_process
from inventory.errors import RunError, UnfitError

_START_S = 30.0
_END_S = 30.0
_SET_FLAGS = 0x8914
_UP = 0x41
"""`SIOCSIFFLAGS`, and `IFF_UP | IFF_RUNNING` (netdevice(7))."""


class SandboxLine(Struct, frozen=True, omit_defaults=True):
    """A line of the program: ids of the started processes, an error, or name and exit status of one that has ended."""

    started: dict[str, int] = {}
    error: str = ""
    ended: str = ""
    status: int = 0


class Sandbox:
    """Processes in namespaces of their own; a context manager that starts and ends them.

    Attributes:
        failed: completes with one line about what ended, when the first of the processes has ended by itself.
    """

    failed: "asyncio.Future[str]"

    def __init__(self, processes: Sequence[EngineProcess]) -> None:
        """Prepare the sandbox of these processes."""
        self._processes = processes
        self._host_pids: dict[int, int] = {}

    async def __aenter__(self) -> Self:
        """Start the processes.

        Raises:
            UnfitError: this host has no namespaces for this user.
            RunError: a process could not be started.
        """
        self.failed = asyncio.get_running_loop().create_future()
        self._program = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "engines.sandbox"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            assert self._program.stdin is not None  # noqa: S101 # a pipe was asked for
            self._program.stdin.write(msgspec.json.encode(self._processes) + b"\n")
            first = await asyncio.wait_for(self._line(), _START_S)
            if first is None or not first.started:
                reason = "its program ended" if first is None else first.error
                kind = RunError if first is None else UnfitError
                raise kind(f"the engine's processes cannot be started apart from others: {reason}")
        except BaseException:
            await self._end()
            raise
        self._pids = first.started
        self._watching = asyncio.create_task(self._watch())
        return self

    def pid(self, name: str) -> int:
        """Return the id, on this host, of one of the processes."""
        return self.host_pid(self._pids[name]) or 0

    def host_pid(self, pid: int) -> int | None:
        """Return the id, on this host, of a process with an id in the namespaces; None if there is no such process."""
        known = self._host_pids.get(pid)
        if known is not None:
            return known if psutil.pid_exists(known) else None
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(self._program.pid).children(recursive=True):
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8", errors="replace")
                    ids = next(line for line in status.splitlines() if line.startswith("NSpid:"))
                    self._host_pids[int(ids.split()[-1])] = process.pid
        return self._host_pids.get(pid)

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes of the namespaces; none is left when this returns."""
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._watching
        await self._end()

    async def _watch(self) -> None:
        line = await self._line()
        if not self.failed.done():
            self.failed.set_result(
                "the program with all processes ended" if line is None else how_ended(line.ended, line.status)
            )

    async def _line(self) -> SandboxLine | None:
        assert self._program.stdout is not None  # noqa: S101 # a pipe was asked for
        line = await self._program.stdout.readline()
        return msgspec.json.decode(line, type=SandboxLine) if line.endswith(b"\n") else None

    async def _end(self) -> None:
        assert self._program.stdin is not None  # noqa: S101 # a pipe was asked for
        self._program.stdin.close()
        try:
            await asyncio.wait_for(self._program.wait(), _END_S)
        except TimeoutError:
            self._program.kill()
            await self._program.wait()


def _enter() -> None:
    """Move this process, and for its processes' ids its children, into new namespaces."""
    user, group = os.geteuid(), os.getegid()
    unshare(NEW_NETWORK | NEW_PIDS | NEW_MOUNTS | (NEW_USERS if user else 0))
    if user:
        # The kernel requires this before an unprivileged user may map a group.
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    mount("none", Path("/"), flags=PRIVATE | RECURSIVE)


def _first_process(processes: Sequence[EngineProcess]) -> None:
    """Be the first process of the namespaces: start the others, and report those that end."""
    mount("proc", Path("/proc"), "proc")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP))
    running = {start_process(each): each.name for each in processes}
    _say(SandboxLine(started={name: pid for pid, name in running.items()}))
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            time.sleep(1)  # everything has ended; the controller decides what happens
            continue
        if pid in running:
            _say(SandboxLine(ended=running.pop(pid), status=os.waitstatus_to_exitcode(status)))


def _say(line: SandboxLine) -> None:
    os.write(1, msgspec.json.encode(line) + b"\n")


def _end_with_input() -> None:
    while os.read(0, 1 << 16):
        pass
    os._exit(0)


def main() -> int:
    """Serve one sandbox on standard input and output; return the exit status."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 0
    processes = msgspec.json.decode(line, type=list[EngineProcess])
    try:
        _enter()
    except OSError as fault:
        _say(SandboxLine(error=f"this host has no namespaces for this user: {fault}"))
        return 3
    first = os.fork()
    if first:
        # The kernel has ended all processes of the namespace when its first process can be waited for.
        os.waitpid(first, 0)
        return 0
    die_with_parent(signal.SIGKILL)
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _first_process(processes)
    except OSError as fault:
        _say(SandboxLine(error=str(fault)))
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
