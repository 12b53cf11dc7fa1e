"""Programs on a node whose standard input and output are forwarded over SSH; and `millrace exec`, which runs one.

paramiko's channels block, so that every program has one thread for reading and one for writing.
"""

import asyncio
import os
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

import paramiko

from agents.protocol import MAX_LINE
from controller.ssh.connection import Connection
from controller.ssh.settings import ssh_settings
from inventory.ansible_hosts import InventoryHost
from inventory.errors import RunError

T = TypeVar("T")

_PIECE = 256 * 1024

LOST = 255
"""Exit status when the connection was lost before the program ended, as with OpenSSH."""

POLL_S = 0.02

SIGNALLED, MOST_SIGNALS = 128, 64

_MOST_COMPLAINT = 2000

_FORWARDED_BYTES = 64 * 1024


async def open_command(connection: Connection, command: str) -> paramiko.Channel:
    """Run a command in the login shell of a node; return its channel.

    Raises:
        MillraceError: the node cannot be reached.
        RunError: the command cannot be started.
    """
    channel = await connection.channel()
    try:
        await connection.run_blocking(channel.exec_command, command)
    except (paramiko.SSHException, EOFError, OSError) as fault:
        channel.close()
        raise RunError(f"node {connection.host.name}: {fault or 'the connection broke'}") from None
    except BaseException:
        channel.close()
        raise
    return channel


class RemoteProgram:
    """One command on a node; sshd runs it in a new session."""

    def __init__(self, channel: paramiko.Channel) -> None:
        """Take over the channel returned by `open_command`."""
        self._channel = channel
        self._reader = ThreadPoolExecutor(1, "ssh-read")
        self._writer = ThreadPoolExecutor(1, "ssh-write")
        self._waiting = bytearray()
        self._has_closed = False

    @property
    def pid(self) -> int | None:
        """None: it runs on another host."""
        return None

    @property
    def has_ended(self) -> bool:
        """True if it has ended, or its end can no longer be known."""
        return self._channel.exit_status_ready()

    @property
    def is_running(self) -> bool:
        """True if it still reads and writes, as far as is known here."""
        return not (self._has_closed or self.has_ended)

    async def read_line(self) -> bytes:
        searched = 0
        while True:
            end = self._waiting.find(b"\n", searched)
            if end >= 0:
                break
            searched = len(self._waiting)
            if searched > MAX_LINE:
                raise RunError(f"a line of more than {MAX_LINE} bytes")
            piece = b"" if self._has_closed else await self._run_in(self._reader, self._receive)
            if not piece:
                self._has_closed = True
                if not self._is_connected:
                    raise RunError("the SSH connection broke")
                end = len(self._waiting) - 1
                break
            self._waiting += piece
        line = bytes(self._waiting[: end + 1])
        del self._waiting[: end + 1]
        return line

    async def write(self, line: bytes) -> None:
        if self._has_closed:
            raise ConnectionError("it has ended")
        try:
            await self._run_in(self._writer, self._channel.sendall, line)
        except (OSError, EOFError, paramiko.SSHException) as fault:
            raise ConnectionError(str(fault)) from None

    def end_input(self) -> None:
        if not self._has_closed:
            self._writer.submit(self._shut)

    async def wait(self) -> int:
        """Wait for its end; return its exit status, negative for a signal, or `LOST` if it is unknown."""
        while not self.has_ended:
            await asyncio.sleep(POLL_S)
        status = self._channel.recv_exit_status()
        if status < 0:
            return LOST
        # Shells report a signal as 128 plus its number.
        return SIGNALLED - status if SIGNALLED < status <= SIGNALLED + MOST_SIGNALS else status

    def kill(self) -> None:
        """Close the channel, and with it the program's input and output."""
        self._has_closed = True
        self._channel.close()
        for thread in (self._reader, self._writer):
            thread.shutdown(wait=False)

    @property
    def complaint(self) -> str:
        """Beginning of its standard error on one line; read after its end."""
        text = self._channel.recv_stderr(_MOST_COMPLAINT) if self._channel.recv_stderr_ready() else b""
        return " ".join(text.decode(errors="replace").split())

    @property
    def _is_connected(self) -> bool:
        return bool(self._channel.get_transport().is_active())

    def _receive(self) -> bytes:
        try:
            return self._channel.recv(_PIECE)
        except (OSError, EOFError):
            return b""

    def _shut(self) -> None:
        with suppress(OSError, EOFError):
            self._channel.shutdown_write()

    async def _run_in(self, thread: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)


async def execute(host: InventoryHost, command: Sequence[str]) -> int:
    """Run a command on a host; return its exit status, or 128 plus the signal's number if a signal ended it.

    Args:
        host: the host.
        command: the program and its arguments, passed unchanged.

    Raises:
        MillraceError: the host cannot be reached, or the connection broke.
    """
    with ThreadPoolExecutor() as threads:
        connection = Connection(host, threads, ssh_settings(host))
        try:
            # The shell waits and turns a signal into an exit status, because paramiko ignores sshd's signal message.
            channel = await open_command(connection, shlex.join(["exec", "sh", "-c", '"$@"; exit $?', "sh", *command]))
            Thread(target=_forward_input, args=(channel,), daemon=True).start()
            error = connection.run_blocking(_forward_output, channel.recv_stderr, 2)
            await connection.run_blocking(_forward_output, channel.recv, 1)
            await error
            status = await connection.run_blocking(channel.recv_exit_status)
        finally:
            await connection.close()
    if status < 0:
        raise RunError(f"node {host.name}: the connection broke before the command ended")
    return status


def _forward_input(channel: paramiko.Channel) -> None:
    """Forward standard input until it or the channel ends."""
    try:
        while piece := os.read(0, _FORWARDED_BYTES):
            channel.sendall(piece)
        channel.shutdown_write()
    except (OSError, EOFError, paramiko.SSHException):
        return


def _forward_output(receive: Callable[[int], bytes], descriptor: int) -> None:
    """Forward the command's output until it ends."""
    while piece := receive(_FORWARDED_BYTES):
        while piece:
            piece = piece[os.write(descriptor, piece) :]
