"""SSH connection to one node, opened on demand and reopened after it broke.

The host key must be known. Logins use keys only, from the SSH agent or from files, so that no password can appear on a
command line or in a log. paramiko blocks; every blocking call runs in a thread pool.
"""

import asyncio
import logging
import random
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import fabric
import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from controller.ssh.settings import HostSettings, SshSettings, arguments_of, file_of
from inventory.ansible_hosts import InventoryHost
from inventory.errors import RunError, UnfitError

CONNECT_S = 8.0
"""Timeout of each step of an attempt: connection, banner, login."""

TRIES = 3
PAUSE_S = 0.7
"""Base pause between two attempts, up to doubled at random: sshd rejects some of many simultaneous connections."""

KEEPALIVE_S = 5
DEAD_S = 15.0
"""Keep-alive interval, so that firewalls keep the connection, and time without reply after which it counts as dead."""

ANSWER_S = 30.0
"""Timeout for opening a channel and for transferring a block of a file."""

_PORT = 22

T = TypeVar("T")

logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Connection:
    """SSH connection to one node."""

    def __init__(self, host: InventoryHost, threads: Executor, settings: SshSettings) -> None:
        """Prepare the connection; nothing is opened yet.

        Args:
            host: the node.
            threads: executor for blocking calls.
            settings: OpenSSH's settings for the host.
        """
        self.host, self._settings = host, settings
        self._threads = threads
        self._lock = asyncio.Lock()
        self._fabric: Any = None
        self._sftp: paramiko.SFTPClient | None = None

    async def run_blocking(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a blocking call in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def open(self) -> paramiko.Transport:
        """Return the open connection; open it if necessary.

        Raises:
            UnfitError: the host key is unknown or differs from the known one, or the login fails.
            RunError: the host cannot be reached.
        """
        async with self._lock:
            if transport := self._transport:
                return transport
            self._drop()
            for left in reversed(range(TRIES)):
                try:
                    self._fabric, transport = await self._attempt()
                except (OSError, EOFError, paramiko.SSHException) as fault:
                    if not left:
                        raise RunError(
                            f"node {self.host.name}: {self._target} cannot be reached: {_message(fault)}"
                        ) from None
                else:
                    return transport
                await asyncio.sleep(PAUSE_S * (1 + random.random()))  # noqa: S311 - so that many do not come back at once
            raise AssertionError("the last try returns or raises")

    async def _attempt(self) -> tuple[Any, paramiko.Transport]:
        """Make one attempt; if it is cancelled, close the connection as soon as it is open."""
        connecting = asyncio.get_running_loop().run_in_executor(self._threads, self._connect)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(lambda done: None if done.exception() else _close(done.result()[0]))
            raise

    async def channel(self) -> paramiko.Channel:
        """Return a channel for one command.

        Raises:
            MillraceError: see `open`.
        """
        transport = await self.open()
        try:
            return await self.run_blocking(lambda: transport.open_session(timeout=ANSWER_S))
        except (paramiko.SSHException, EOFError, OSError) as fault:
            self._drop()
            raise RunError(f"node {self.host.name}: no channel over SSH: {_message(fault)}") from None

    async def sftp(self) -> paramiko.SFTPClient:
        """Return the node's SFTP client; all callers share it and must use it sequentially.

        Raises:
            MillraceError: see `open`.
        """
        transport = await self.open()
        if self._sftp is None:
            try:
                self._sftp = await self.run_blocking(transport.open_sftp_client)
            except (paramiko.SSHException, EOFError, OSError) as fault:
                self._drop()
                raise RunError(f"node {self.host.name}: no SFTP: {_message(fault)}") from None
            if self._sftp is None:
                raise UnfitError(f"node {self.host.name}: its sshd offers no SFTP")
            if channel := self._sftp.get_channel():
                channel.settimeout(ANSWER_S)
        return self._sftp

    def drop_sftp(self) -> None:
        """Drop the client after a failed transfer; the next one opens another, and another connection if needed."""
        client, self._sftp = self._sftp, None
        if client is not None:
            # The connection may be broken without having been noticed yet.
            with suppress(OSError, EOFError, paramiko.SSHException):
                client.close()

    async def discard(self) -> None:
        """Close a connection that does not answer; the next use opens another."""
        await self.run_blocking(self._drop)

    async def close(self) -> None:
        """Close the connection, with all its channels."""
        async with self._lock:
            await self.run_blocking(self._drop)

    @property
    def _target(self) -> str:
        return " ".join(shlex.quote(each) for each in ("ssh", *arguments_of(self.host)))

    @property
    def _transport(self) -> paramiko.Transport | None:
        transport = None if self._fabric is None else self._fabric.client.get_transport()
        return transport if transport is not None and transport.is_active() else None

    def _drop(self) -> None:
        connection, self._fabric, self._sftp = self._fabric, None, None
        _close(connection)

    def _connect(self) -> tuple[Any, paramiko.Transport]:
        """Make one attempt; return Fabric's connection and its transport.

        Raises:
            OSError, EOFError, SSHException: another attempt may succeed.
            MillraceError: no attempt will succeed.
        """
        settings = self._settings
        made = fabric.Connection(self.host.ssh_host, config=settings.config)
        try:
            for hop in _chain(made):
                self._prepare(hop, settings.hosts[hop.original_host])
            made.open()
            for hop in _chain(made):
                _keep_alive(hop.client.get_transport())
            return made, made.client.get_transport()
        except paramiko.BadHostKeyException as fault:
            _close(made)
            entry = next(_entry(hop) for hop in _chain(made) if hop.host == fault.hostname)
            raise UnfitError(
                f"node {self.host.name}: {entry} has another key than the known one: {fault.key.get_name()} "
                f"{fault.key.fingerprint}, expected {fault.expected_key.fingerprint}; somebody may be in between. "
                f"If the host was set up anew, forget its old key: ssh-keygen -R {shlex.quote(entry)}"
            ) from None
        except paramiko.SSHException as fault:
            no_login = isinstance(fault, paramiko.AuthenticationException) or any(
                map(_is_unauthenticated, _chain(made))
            )
            _close(made)
            if not no_login:
                raise
            raise UnfitError(
                f"node {self.host.name}: no login by key ({_message(fault)}); "
                f"this must work without a question: {self._target} true"
            ) from None
        except BaseException:
            _close(made)
            raise

    def _prepare(self, hop: Any, known: HostSettings) -> None:
        """Configure host key checking and login by key, for the node itself or a jump host."""
        itself = hop.original_host == self.host.ssh_host
        arguments = arguments_of(self.host) if itself else [*file_of(self.host.ssh_args), hop.original_host]
        hop.client.set_missing_host_key_policy(_RefuseUnknownKeys(self.host.name, arguments))
        # The user's files are read last, because the last key of a type counts.
        for path in reversed(known.known_hosts):
            if path.is_file():
                try:
                    hop.client.load_system_host_keys(str(path))
                except OSError as fault:
                    raise UnfitError(f"node {self.host.name}: {path} cannot be read: {fault.strerror}") from None
        hop.connect_timeout = CONNECT_S
        hop.connect_kwargs = {
            **hop.connect_kwargs,
            "allow_agent": known.allows_agent,
            "look_for_keys": False,
            "banner_timeout": CONNECT_S,
            "auth_timeout": CONNECT_S,
            "channel_timeout": ANSWER_S,
        }


class _RefuseUnknownKeys(paramiko.MissingHostKeyPolicy):
    """Refuses a host with an unknown key; the error contains the command that accepts it."""

    def __init__(self, node: str, arguments: Sequence[str]) -> None:
        self._node, self._arguments = node, arguments

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        command = shlex.join(["ssh", "-o", "StrictHostKeyChecking=accept-new", *self._arguments, "true"])
        raise UnfitError(
            f"node {self._node}: the host key of {hostname} is not known: {key.get_name()} {key.fingerprint}. "
            f"If this is the key of that host, accept it: {command}"
        )


def _chain(connection: Any) -> Iterator[Any]:
    """Yield a connection and those of its jump hosts."""
    while isinstance(connection, fabric.Connection):
        yield connection
        connection = connection.gateway


def _close(connection: Any) -> None:
    for hop in _chain(connection):
        # Fabric leaves connections open whose login failed.
        hop.client.close()


def _is_unauthenticated(hop: Any) -> bool:
    """Return whether the host is connected, but has refused the login."""
    transport = hop.client.get_transport()
    return transport is not None and transport.is_active() and not transport.is_authenticated()


def _keep_alive(transport: paramiko.Transport) -> None:
    transport.set_keepalive(KEEPALIVE_S)
    if isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(DEAD_S * 1000))


def _entry(hop: Any) -> str:
    """Return the host's name in known_hosts files."""
    return str(hop.host) if hop.port == _PORT else f"[{hop.host}]:{hop.port}"


def _message(fault: Exception) -> str:
    """Return the error's message on one line."""
    if isinstance(fault, NoValidConnectionsError):
        fault = next(iter(fault.errors.values()))
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    text = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    return " ".join(text.split()) or type(fault).__name__
