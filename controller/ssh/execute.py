"""`millrace exec`: run one command on a node with the caller's standard input, output and error."""

import os
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread

import paramiko

from controller.ssh.connection import Connection
from controller.ssh.program import open_command
from controller.ssh.settings import settings_of
from inventory.ansible_hosts import Host
from inventory.errors import RunError

_PIECE = 64 * 1024


async def execute(host: Host, command: Sequence[str]) -> int:
    """Run a command on a host; return its exit status, or 128 plus the signal's number if a signal ended it.

    Args:
        host: the host.
        command: the program and its arguments, passed unchanged.

    Raises:
        MillraceError: the host cannot be reached, or the connection broke.
    """
    with ThreadPoolExecutor() as threads:
        connection = Connection(host, threads, settings_of(host))
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
        while piece := os.read(0, _PIECE):
            channel.sendall(piece)
        channel.shutdown_write()
    except (OSError, EOFError, paramiko.SSHException):
        return


def _forward_output(receive: Callable[[int], bytes], descriptor: int) -> None:
    """Forward the command's output until it ends."""
    while piece := receive(_PIECE):
        while piece:
            piece = piece[os.write(descriptor, piece) :]
