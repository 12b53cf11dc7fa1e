"""One command on a node, with the caller's own standard input, output and error: `millrace exec`."""

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
    """Run a command on a host; return its exit status, 128 and the number of the signal if one ended it.

    Args:
        host: where.
        command: the program and its arguments, which arrive as they are.

    Raises:
        MillraceError: the host cannot be reached, or the connection broke.
    """
    with ThreadPoolExecutor() as threads:
        connection = Connection(host, threads, settings_of(host))
        try:
            # The shell waits, so that it can tell of a signal: paramiko passes over what sshd says of one.
            channel = await open_command(connection, shlex.join(["exec", "sh", "-c", '"$@"; exit $?', "sh", *command]))
            Thread(target=_give, args=(channel,), daemon=True).start()
            error = connection.do(_pass, channel.recv_stderr, 2)
            await connection.do(_pass, channel.recv, 1)
            await error
            status = await connection.do(channel.recv_exit_status)
        finally:
            await connection.close()
    if status < 0:
        raise RunError(f"node {host.name}: the connection broke before the command ended")
    return status


def _give(channel: paramiko.Channel) -> None:
    """Pass on our standard input until one of both ends."""
    try:
        while piece := os.read(0, _PIECE):
            channel.sendall(piece)
        channel.shutdown_write()
    except (OSError, EOFError, paramiko.SSHException):
        return


def _pass(receive: Callable[[int], bytes], descriptor: int) -> None:
    """Pass on what the command writes until it writes no more."""
    while piece := receive(_PIECE):
        while piece:
            piece = piece[os.write(descriptor, piece) :]
