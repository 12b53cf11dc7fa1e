"""Client of the lease daemon on a node (`controller.ssh.node_lease_daemon`), which it starts over the connection."""

import asyncio
import json
import shlex
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated, TypedDict

import msgspec
from msgspec import Meta

from agents.protocol import HEARTBEAT_S, NONSENSE, SILENCE_S, Count
from controller.host.cluster_lock import InUseError
from controller.ssh.connection import Connection
from controller.ssh.node_lease_daemon import WAIT_S
from controller.ssh.program import RemoteProgram, open_command
from inventory.errors import RunError, UnfitError
from inventory.foreign import printable

START_S = WAIT_S + 30.0
"""Timeout for the daemon to acquire the node."""

ANSWER_S = 120.0
"""Timeout of a reply; checksums of large files depend on the node's disk."""

LEAVE_S = 10.0
"""Timeout for the daemon's clean-up."""

MISSING = 127
"""Exit status of a shell that does not find the program."""


SHA256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class LeaseReply(TypedDict, total=False):
    """A reply of the daemon; which keys it has depends on the request."""

    version: str
    refused: str
    in_use: bool
    failed: str
    files: list[tuple[str, Count, SHA256]]
    sha256: SHA256 | None
    free_bytes: Count
    ended: Count


NEEDED: Mapping[str, str] = {"list": "files", "sum": "sha256", "free": "free_bytes"}
"""Request -> key that its reply must have."""


class NodeLease:
    """Lease of a node for one campaign; reacquired after the connection broke."""

    def __init__(self, connection: Connection, campaign: str, owner: str) -> None:
        """Prepare the lease.

        Args:
            connection: connection to the node.
            campaign: name of the campaign's folder on the node.
            owner: description of the campaign, shown to a second campaign.
        """
        self.connection = connection
        self.folder = f"{connection.host.work}/{campaign}"
        self._campaign, self._owner = campaign, owner
        self._program: RemoteProgram | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    async def request(self, do: str, **what: str) -> LeaseReply:
        """Send one request and return its reply; acquire the lease if necessary.

        Raises:
            RunError: the node cannot be reached, or the request fails there.
            InUseError: another campaign uses the node.
            UnfitError: the node cannot be used.
        """
        async with self._lock:
            reply = await self._exchange(await self._open(), ANSWER_S, {"do": do, **what})
        if "failed" in reply:
            raise RunError(f"node {self.name}: {reply['failed']}")
        if do in NEEDED and NEEDED[do] not in reply:
            raise RunError(f"node {self.name}: its lease daemon answers {do!r} without {NEEDED[do]!r}")
        return reply

    async def open(self) -> None:
        """Acquire the lease if necessary.

        Raises:
            MillraceError: see `request`.
        """
        async with self._lock:
            await self._open()

    async def close(self) -> None:
        """Clean up the node and release it; an unreachable node does that by itself."""
        async with self._lock:
            program = self._program
            if program is not None and program.is_running:
                with suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(LEAVE_S):
                        await program.write(_line({"do": "leave"}))
                        await program.wait()
            await self._end()

    @property
    def name(self) -> str:
        """Name of the node."""
        return self.connection.host.name

    @property
    def is_open(self) -> bool:
        """True if the lease is held, as far as is known here."""
        return self._program is not None and self._program.is_running

    async def _open(self) -> RemoteProgram:
        if self._program is not None and self._program.is_running:
            return self._program
        await self._end()
        host = self.connection.host
        python = f"{host.home}/venv/bin/python"
        command = [python, "-P", "-m", "controller.ssh.node_lease_daemon", host.work, self._campaign, self._owner]
        program = RemoteProgram(await open_command(self.connection, f"cd / && exec {shlex.join(command)}"))
        try:
            async with asyncio.timeout(START_S):
                reply = _decoded(await program.read_line())
            if reply is None:
                status, complaint = await program.wait(), program.complaint
                if status == MISSING:
                    complaint = f"there is no {python}; provision the node first"
                raise UnfitError(
                    f"node {self.name}: {printable(complaint) or f'its lease daemon ended with status {status}'}"
                )
        except TimeoutError:
            program.kill()
            raise RunError(f"node {self.name}: its lease daemon did not start within {START_S:.0f} s") from None
        except BaseException as fault:
            program.kill()
            if isinstance(fault, RunError):
                raise RunError(f"node {self.name}: {fault}") from None
            raise
        if "refused" in reply:
            kind = InUseError if reply.get("in_use") else UnfitError
            raise kind(f"node {self.name}: {printable(reply['refused'])}")
        remote_version = reply.get("version", "of an unknown version")
        if remote_version != version("millrace"):
            program.kill()
            raise UnfitError(
                f"node {self.name} has Millrace {printable(remote_version)}, this is "
                f"{version('millrace')}; provision it again"
            )
        self._program = program
        self._heartbeat_task = asyncio.create_task(self._send_heartbeats(program))
        return program

    async def _exchange(self, program: RemoteProgram, seconds: float, request: Mapping[str, str]) -> LeaseReply:
        """Send a request and wait for its reply; after a missing reply the daemon is not used again."""
        reply = None
        try:
            with suppress(ConnectionError, RunError):
                async with asyncio.timeout(seconds):
                    await program.write(_line(request))
                    reply = _decoded(await program.read_line())
        except TimeoutError:
            await self.connection.discard()
        finally:
            if reply is None:
                program.kill()
        if reply is None:
            raise RunError(f"node {self.name}: its lease daemon does not answer")
        return reply

    async def _send_heartbeats(self, program: RemoteProgram) -> None:
        with suppress(RunError):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                async with self._lock:
                    await self._exchange(program, SILENCE_S, {"do": "beat"})

    async def _end(self) -> None:
        program, self._program = self._program, None
        heartbeat_task, self._heartbeat_task = self._heartbeat_task, None
        if heartbeat_task is not None:
            # The task may be waiting for the lock that we hold; it ends there.
            heartbeat_task.cancel()
        if program is not None:
            program.kill()


def _line(request: Mapping[str, str]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _decoded(line: bytes) -> LeaseReply | None:
    """Return the decoded reply; None when the daemon has ended or the reply is invalid."""
    try:
        return msgspec.json.decode(line, type=LeaseReply)
    except NONSENSE:
        return None
