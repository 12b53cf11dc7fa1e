"""The controller's end of a node's keeper (`controller.ssh.node_lease_daemon`): one per connection, started with it."""

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
from controller.ssh.connection import Connection
from controller.ssh.node_lease_daemon import WAIT_S
from controller.ssh.program import RemoteProgram, open_command
from inventory.errors import RunError, UnfitError
from inventory.foreign import printable

START_S = WAIT_S + 30.0
"""How long a keeper may take to have the node."""

ANSWER_S = 120.0
"""How long an answer may take; checksums of large files need the node's disk."""

LEAVE_S = 10.0
"""How long it may take to clean up."""

MISSING = 127
"""Status of a shell that does not find the program."""


SHA256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]


class Answer(TypedDict, total=False):
    """What a keeper says; each answer has what belongs to its question."""

    version: str
    refused: str
    failed: str
    files: list[tuple[str, Count, SHA256]]
    sha256: SHA256 | None
    free_bytes: Count
    ended: Count


NEEDED: Mapping[str, str] = {"list": "files", "sum": "sha256", "free": "free_bytes"}
"""Question -> what its answer must have."""


class NodeLease:
    """A node, kept for one campaign; opened again with the connection when that breaks."""

    def __init__(self, connection: Connection, campaign: str, owner: str) -> None:
        """Describe it.

        Args:
            connection: to the node.
            campaign: the name of its folder on the node.
            owner: whom a second campaign is told of.
        """
        self.connection = connection
        self.folder = f"{connection.host.work}/{campaign}"
        self._campaign, self._owner = campaign, owner
        self._program: RemoteProgram | None = None
        self._beating: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def ask(self, do: str, **what: str) -> Answer:
        """One request; opens what is not open.

        Raises:
            RunError: the node cannot be reached, or cannot do it.
            UnfitError: it cannot be used.
        """
        async with self._turn:
            answer = await self._ask(await self._open(), ANSWER_S, {"do": do, **what})
        if "failed" in answer:
            raise RunError(f"node {self.name}: {answer['failed']}")
        if do in NEEDED and NEEDED[do] not in answer:
            raise RunError(f"node {self.name}: its keeper answers {do!r} without {NEEDED[do]!r}")
        return answer

    async def open(self) -> None:
        """Have the node, if that is not so already.

        Raises:
            MillraceError: see `ask`.
        """
        async with self._turn:
            await self._open()

    async def close(self) -> None:
        """Have the node cleaned up and free; one that cannot be reached does that by itself."""
        async with self._turn:
            program = self._program
            if program is not None and program.is_running:
                with suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(LEAVE_S):
                        await program.write(_line({"do": "leave"}))
                        await program.wait()
            await self._end()

    @property
    def name(self) -> str:
        """Of the node."""
        return self.connection.host.name

    @property
    def is_open(self) -> bool:
        """Whether the node is ours, as far as is known here."""
        return self._program is not None and self._program.is_running

    async def _open(self) -> RemoteProgram:
        if self._program is not None and self._program.is_running:
            return self._program
        await self._end()
        host = self.connection.host
        python = f"{host.home}/venv/bin/python"
        words = [python, "-P", "-m", "controller.ssh.node_lease_daemon", host.work, self._campaign, self._owner]
        program = RemoteProgram(await open_command(self.connection, f"cd / && exec {shlex.join(words)}"))
        try:
            async with asyncio.timeout(START_S):
                said = _decoded(await program.read_line())
            if said is None:
                status, complaint = await program.wait(), program.complaint
                if status == MISSING:
                    complaint = f"there is no {python}; provision the node first"
                raise UnfitError(
                    f"node {self.name}: {printable(complaint) or f'its keeper ended with status {status}'}"
                )
        except TimeoutError:
            program.kill()
            raise RunError(f"node {self.name}: its keeper did not start within {START_S:.0f} s") from None
        except BaseException as fault:
            program.kill()
            if isinstance(fault, RunError):
                raise RunError(f"node {self.name}: {fault}") from None
            raise
        if "refused" in said:
            raise UnfitError(f"node {self.name}: {printable(said['refused'])}")
        theirs = said.get("version", "of an unknown version")
        if theirs != version("millrace"):
            program.kill()
            raise UnfitError(
                f"node {self.name} has Millrace {printable(theirs)}, this is {version('millrace')}; provision it again"
            )
        self._program = program
        self._beating = asyncio.create_task(self._beat(program))
        return program

    async def _ask(self, program: RemoteProgram, seconds: float, request: Mapping[str, str]) -> Answer:
        """Ask, and wait for the answer. A keeper that has not answered one question is asked no other."""
        answer = None
        try:
            with suppress(ConnectionError, RunError):
                async with asyncio.timeout(seconds):
                    await program.write(_line(request))
                    answer = _decoded(await program.read_line())
        except TimeoutError:
            await self.connection.give_up()
        finally:
            if answer is None:
                program.kill()
        if answer is None:
            raise RunError(f"node {self.name}: the keeper of the node does not answer")
        return answer

    async def _beat(self, program: RemoteProgram) -> None:
        with suppress(RunError):
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                async with self._turn:
                    await self._ask(program, SILENCE_S, {"do": "beat"})

    async def _end(self) -> None:
        program, self._program = self._program, None
        beating, self._beating = self._beating, None
        if beating is not None:
            # It may wait for its turn, which is ours; it does nothing more when it gets it.
            beating.cancel()
        if program is not None:
            program.kill()


def _line(request: Mapping[str, str]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _decoded(line: bytes) -> Answer | None:
    """What it said; None when it has ended or speaks nonsense."""
    try:
        return msgspec.json.decode(line, type=Answer)
    except NONSENSE:
        return None
