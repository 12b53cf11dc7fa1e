"""One connection to one node, opened when it is needed, and opened again after it broke.

The host's key must be known. Logins are by key only, from the SSH agent or from files: there is no password that could
be on a command line or in a log. paramiko works with threads; everything that may wait is done in one of `threads`.
"""

import asyncio
import logging
import random
import shlex
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NoReturn, TypeVar

import fabric
import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from controller.ssh.settings import SshSettings, Way, arguments_of, file_of
from inventory.ansible_hosts import Host
from inventory.errors import RunError, UnfitError

CONNECT_S = 8.0
"""How long one try may take for each of: connection, banner, login."""

TRIES = 3
PAUSE_S = 0.7
"""Up to twice this between two tries: sshd turns away some of many that come at the same moment."""

KEEPALIVE_S = 5
DEAD_S = 15.0
"""A word every so often keeps firewalls from forgetting the connection; it is given up when nothing gets through."""

ANSWER_S = 30.0
"""How long a node may take to open a channel, or to move a piece of a file."""

_PORT = 22

T = TypeVar("T")

logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Connection:
    """A node's SSH connection."""

    def __init__(self, host: Host, threads: Executor, settings: SshSettings) -> None:
        """Describe it; nothing is opened yet.

        Args:
            host: the node.
            threads: where everything that may wait is done.
            settings: what OpenSSH says of the host.
        """
        self.host, self._settings = host, settings
        self._threads = threads
        self._opening = asyncio.Lock()
        self._fabric: Any = None
        self._sftp: paramiko.SFTPClient | None = None

    async def do(self, work: Callable[..., T], *arguments: Any) -> T:
        """Call something that may wait, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    async def open(self) -> paramiko.Transport:
        """The open connection.

        Raises:
            UnfitError: the host's key is not known, or is another one; no login.
            RunError: the host cannot be reached.
        """
        async with self._opening:
            if transport := self._transport:
                return transport
            self._drop()
            for left in reversed(range(TRIES)):
                try:
                    self._fabric, transport = await self._connected()
                except (OSError, EOFError, paramiko.SSHException) as fault:
                    if not left:
                        raise RunError(
                            f"node {self.host.name}: {self._target} cannot be reached: {_words(fault)}"
                        ) from None
                else:
                    return transport
                await asyncio.sleep(PAUSE_S * (1 + random.random()))  # noqa: S311 - so that many do not come back at once
            raise AssertionError("the last try returns or raises")

    async def _connected(self) -> tuple[Any, paramiko.Transport]:
        """One try; a connection for which nobody waits any more is closed as soon as it is there."""
        connecting = asyncio.get_running_loop().run_in_executor(self._threads, self._connect)
        try:
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            connecting.add_done_callback(lambda done: None if done.exception() else _close(done.result()[0]))
            raise

    async def channel(self) -> paramiko.Channel:
        """A channel for one command.

        Raises:
            MillraceError: see `open`.
        """
        transport = await self.open()
        try:
            return await self.do(lambda: transport.open_session(timeout=ANSWER_S))
        except (paramiko.SSHException, EOFError, OSError) as fault:
            self._drop()
            raise RunError(f"node {self.host.name}: no channel over SSH: {_words(fault)}") from None

    async def sftp(self) -> paramiko.SFTPClient:
        """The node's files; one client for all who ask, so that they have to take turns.

        Raises:
            MillraceError: see `open`.
        """
        transport = await self.open()
        if self._sftp is None:
            try:
                self._sftp = await self.do(transport.open_sftp_client)
            except (paramiko.SSHException, EOFError, OSError) as fault:
                self._drop()
                raise RunError(f"node {self.host.name}: no SFTP: {_words(fault)}") from None
            if self._sftp is None:
                raise UnfitError(f"node {self.host.name}: its sshd offers no SFTP")
            if channel := self._sftp.get_channel():
                channel.settimeout(ANSWER_S)
        return self._sftp

    def forget_sftp(self) -> None:
        """A move broke: the next one takes another client, and another connection if this one is broken, too."""
        client, self._sftp = self._sftp, None
        if client is not None:
            client.close()

    async def give_up(self) -> None:
        """It does not answer; who needs it next opens another."""
        await self.do(self._drop)

    async def close(self) -> None:
        """End it, with all that runs over it."""
        async with self._opening:
            await self.do(self._drop)

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
        """One try: Fabric's connection, and what is beneath it.

        Raises:
            OSError, EOFError, SSHException: it may go better another time.
            MillraceError: it will not.
        """
        settings = self._settings
        made = fabric.Connection(self.host.ssh_host, config=settings.config)
        try:
            for hop in _chain(made):
                self._prepare(hop, settings.ways[hop.original_host])
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
            no_login = isinstance(fault, paramiko.AuthenticationException) or any(map(_is_at_the_door, _chain(made)))
            _close(made)
            if not no_login:
                raise
            raise UnfitError(
                f"node {self.host.name}: no login by key ({_words(fault)}); "
                f"this must work without a question: {self._target} true"
            ) from None
        except BaseException:
            _close(made)
            raise

    def _prepare(self, hop: Any, way: Way) -> None:
        """Check the key and log in by key, on the node itself or on a jump host."""
        itself = hop.original_host == self.host.ssh_host
        arguments = arguments_of(self.host) if itself else [*file_of(self.host.ssh_args), hop.original_host]
        hop.client.set_missing_host_key_policy(_Refusing(self.host.name, arguments))
        # Of two keys of one kind the user's own counts, which is therefore read last.
        for path in reversed(way.known_hosts):
            if path.is_file():
                try:
                    hop.client.load_system_host_keys(str(path))
                except OSError as fault:
                    raise UnfitError(f"node {self.host.name}: {path} cannot be read: {fault.strerror}") from None
        hop.connect_timeout = CONNECT_S
        hop.connect_kwargs = {
            **hop.connect_kwargs,
            "allow_agent": way.allows_agent,
            "look_for_keys": False,
            "banner_timeout": CONNECT_S,
            "auth_timeout": CONNECT_S,
            "channel_timeout": ANSWER_S,
        }


class _Refusing(paramiko.MissingHostKeyPolicy):
    """Refuses a host whose key nobody has accepted, and says how that is done."""

    def __init__(self, node: str, arguments: Sequence[str]) -> None:
        self._node, self._arguments = node, arguments

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> NoReturn:
        command = shlex.join(["ssh", "-o", "StrictHostKeyChecking=accept-new", *self._arguments, "true"])
        raise UnfitError(
            f"node {self._node}: the host key of {hostname} is not known: {key.get_name()} {key.fingerprint}. "
            f"If this is the key of that host, accept it: {command}"
        )


def _chain(connection: Any) -> Iterator[Any]:
    """A connection, and those to the jump hosts on its way."""
    while isinstance(connection, fabric.Connection):
        yield connection
        connection = connection.gateway


def _close(connection: Any) -> None:
    for hop in _chain(connection):
        # Fabric leaves those open that did not come to a login.
        hop.client.close()


def _is_at_the_door(hop: Any) -> bool:
    """Whether it is connected to, but has not let us in."""
    transport = hop.client.get_transport()
    return transport is not None and transport.is_active() and not transport.is_authenticated()


def _keep_alive(transport: paramiko.Transport) -> None:
    transport.set_keepalive(KEEPALIVE_S)
    if isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(DEAD_S * 1000))


def _entry(hop: Any) -> str:
    """The host as files of known hosts call it."""
    return str(hop.host) if hop.port == _PORT else f"[{hop.host}]:{hop.port}"


def _words(fault: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(fault, NoValidConnectionsError):
        fault = next(iter(fault.errors.values()))
    if isinstance(fault, TimeoutError):
        return "no answer in time"
    text = fault.strerror if isinstance(fault, OSError) and fault.strerror else str(fault)
    return " ".join(text.split()) or type(fault).__name__
