"""The agent's side of the fork server: starting it, requesting workers, and replacing it when it dies or hangs."""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple, Self

from agents.worker.process.fork_server import ARROW_REQUEST, FAILED, MAX_ANSWER_BYTES, REQUEST
from inventory.errors import RunError
from inventory.libc import ADOPTS_ORPHANS, set_property

WORKER = (sys.executable, "-P", "-m", "agents.worker")
"""The command that starts a fork server of workers."""

START_S = 60.0
ANSWER_S = 20.0
"""Time-outs for the start of a fork server, and for its answers."""

_ATTEMPTS = 3

_log = logging.getLogger(__name__)


class Spawned(NamedTuple):
    """A new child process: the agent's ends of its pipes, and `exit`, a descriptor that is readable after its end."""

    pid: int
    stdin: int
    stdout: int
    exit: int

    def reap(self) -> int | None:
        """Close all descriptors except `stdin`; return the status as `subprocess` does, None if unknown."""
        os.close(self.exit)
        os.close(self.stdout)
        try:
            _pid, status = os.waitpid(self.pid, 0)
        except ChildProcessError:
            return None
        return os.waitstatus_to_exitcode(status)


class Spawner:
    """Spawns worker processes, one at a time."""

    def __init__(self, command: Sequence[str] = WORKER, first: tuple[int, socket.socket] | None = None) -> None:
        """Create a spawner.

        Args:
            command: starts a fork server.
            first: a running server, from `fork_server.start_fork_server`; reaped here.
        """
        self._command = command
        self._server = None if first is None else _Server(*first)
        self._one_at_a_time = asyncio.Lock()
        self._closed = False

    @property
    def process(self) -> int | None:
        """Process id of the running server; None without one."""
        return None if self._server is None or self._server.ended else self._server.pid

    async def warm(self) -> None:
        """Start a server in advance; if that fails, the next `spawn` raises the reason."""
        async with self._one_at_a_time:
            with suppress(OSError):
                await self._ready()

    async def spawn(self, log: int, folder: int, columns: bool = False) -> Spawned:
        """Fork a worker.

        Args:
            log: descriptor of its standard error.
            folder: descriptor of its working directory.
            columns: whether its operators process columns.

        Raises:
            OSError, RunError: it cannot be started.
        """
        async with self._one_at_a_time:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return await self._attempt(log, folder, ARROW_REQUEST if columns else REQUEST)
                except (ConnectionError, TimeoutError) as fault:
                    if attempt == _ATTEMPTS or self._closed:
                        raise RunError(f"a worker cannot be started: the fork server {fault}") from None
                    _log.warning("the fork server %s; another one is started", fault)
        raise AssertionError

    async def close(self) -> None:
        """End the server, after which `spawn` fails; workers continue."""
        self._closed = True
        if self._server is not None:
            self._server.kill()
        async with self._one_at_a_time:
            if self._server is not None:
                await self._server.end()

    async def _attempt(self, log: int, folder: int, request: bytes) -> Spawned:
        # Every attempt has its own pipes, so that a worker from a failed attempt finds the end of its input and exits.
        server = await self._ready()
        with ExitStack() as theirs, ExitStack() as ours:
            stdin, writing = os.pipe()
            theirs.callback(os.close, stdin)
            ours.callback(os.close, writing)
            reading, stdout = os.pipe()
            theirs.callback(os.close, stdout)
            ours.callback(os.close, reading)
            pid = await server.fork(request, stdin, stdout, log, folder)
            process = Spawned(pid, writing, reading, os.pidfd_open(pid))
            ours.pop_all()
        return process

    async def _ready(self) -> "_Server":
        if self._closed:
            raise ConnectionAbortedError("has been closed")
        if self._server is None or self._server.ended:
            self._server = _Server.start(self._command)
        if not self._server.ready:
            await self._server.receive(START_S)
            self._server.ready = True
        return self._server


class _Server:
    """A child process that forks workers (`agents.worker.process.fork_server`)."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        """Take ownership of the process and of `channel`, the socket to it."""
        self.pid, self._channel = pid, channel
        self._exit = os.pidfd_open(pid)
        self._status: int | None = None
        self.ready = self.ended = False
        channel.setblocking(False)

    @classmethod
    def start(cls, command: Sequence[str]) -> Self:
        """Start a server, which sends a message once it is ready.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            input_only = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)]
            try:
                pid = os.posix_spawn(command[0], [*command], os.environ, file_actions=input_only, setsid=True)
            except OSError:
                ours.close()
                raise
        return cls(pid, ours)

    async def fork(self, request: bytes, *descriptors: int) -> int:
        """Request a worker with these descriptors; return its process id.

        Raises:
            ConnectionError, TimeoutError: as `receive`.
            RunError: the server cannot fork.
        """
        # The agent is a subreaper only during a fork, so that it does not adopt orphans of other processes.
        set_property(ADOPTS_ORPHANS, True)
        try:
            with suppress(ConnectionError):
                socket.send_fds(self._channel, [request], descriptors)
            answer = await self.receive(ANSWER_S)
        finally:
            set_property(ADOPTS_ORPHANS, False)
        if answer.startswith(FAILED):
            raise RunError(f"a worker cannot be forked: {answer.removeprefix(FAILED).decode(errors='replace')}")
        return int(answer)

    async def receive(self, patience_s: float) -> bytes:
        """Return the next message of the server; end the server when there is none.

        Raises:
            ConnectionError: it has ended.
            TimeoutError: it did not send a message in time.
        """
        answer = b""
        try:
            async with asyncio.timeout(patience_s):
                with suppress(ConnectionError):
                    answer = await asyncio.get_running_loop().sock_recv(self._channel, MAX_ANSWER_BYTES)
        except TimeoutError:
            raise TimeoutError(f"did not answer for {patience_s:g} s") from None
        finally:
            if not answer:
                await self.end()
        if not answer:
            raise ConnectionResetError(f"has ended with status {self._status}")
        return answer

    def kill(self) -> None:
        """Send SIGKILL; a pending `receive` raises the exit."""
        if not self.ended:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._exit, signal.SIGKILL)

    async def end(self) -> None:
        """Kill and reap the server; no `receive` may be pending."""
        if self.ended:
            return
        self.kill()
        self.ended = True
        self._channel.close()
        await _readable(self._exit)
        os.close(self._exit)
        _pid, status = os.waitpid(self.pid, 0)
        self._status = os.waitstatus_to_exitcode(status)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(descriptor, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
