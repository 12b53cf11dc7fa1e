"""Files between here and a node, over SFTP: resumed where they broke off, and checked by SHA-256 as a whole."""

import asyncio
import glob
import hashlib
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import paramiko

from agents.protocol.node_folders import below, component
from controller.host.durable_files import sync_folder
from controller.nodes.transport import Moved, untold
from controller.ssh.node_lease import NodeLease
from inventory.errors import RunError, UnfitError

T = TypeVar("T")

TRIES = 4
"""How often a file is tried; what has arrived before is not moved again unless it is wrong."""

PAUSE_S = 1.0

CACHE = "cache"
"""Folder of the campaign on a node where files lie under their SHA-256, however often they are put."""

PARTIAL = ".partial"

_PIECE = 1024 * 1024


class BrokenTransfer(Exception):  # noqa: N818 - not a fault of ours
    """The node's end of a move broke, or what arrived is wrong; it may go better another time."""


class RemoteFiles:
    """The files of one node below the campaign's folder there. Moves take turns."""

    def __init__(self, keeping: NodeLease) -> None:
        """Move nothing yet."""
        self._keeping = keeping
        self._turn = asyncio.Lock()
        self._sums: dict[tuple[Path, int, int], str] = {}

    async def put(self, source: Path, target: str, moved: Moved = untold) -> None:
        """Copy a file to the node; one that it has already gets a second name.

        Args:
            source: the file.
            target: its path below the campaign's folder there.
            moved: is told how far it is, from another thread.

        Raises:
            RunError: the node cannot be reached.
            UnfitError: it has no room.
        """
        sha256 = await self._sum(source)
        kept = f"{CACHE}/{sha256}"
        async with self._turn:
            if await self._sum_there(kept) != sha256:
                await self._check_room(source)
                await self._again(lambda: self._upload(source, kept, sha256, moved), f"{source} cannot be put there")
            await self._keeping.ask("place", source=kept, target=target)

    async def fetch(self, source: str, pattern: str, target: Path) -> None:
        """Copy the files in a folder of the node, not those further below, into the folder `target`.

        Raises:
            RunError: the node cannot be reached, a name is no file name, or there is no room here for what it has.
            OSError: they cannot be written.
        """
        for name, size, sha256 in (await self._keeping.ask("list", folder=source, pattern=pattern))["files"]:
            try:
                here = below(target, component(name))
            except RunError as fault:
                raise RunError(f"node {self._keeping.name}: a file in {source}: {fault}") from None
            await self._get(f"{source}/{name}", size, sha256, here)

    async def keep(self, source: str, target: Path) -> None:
        """Have a copy of one file of the node, safe on this host's disk.

        Raises:
            RunError: the node has no such file, or cannot be reached.
            OSError: the copy cannot be written.
        """
        folder, _, name = source.rpartition("/")
        listed = (await self._keeping.ask("list", folder=folder, pattern=glob.escape(name)))["files"]
        if not listed:
            raise RunError(f"node {self._keeping.name}: there is no file {source} in {self._keeping.folder}")
        _, size, sha256 = listed[0]
        await self._get(source, size, sha256, target)

        def settle() -> None:
            with target.open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(target.parent)

        await self._keeping.connection.do(settle)

    async def _get(self, source: str, size: int, sha256: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if size > free:
            raise RunError(
                f"node {self._keeping.name}: {source} has {size / 1e6:,.1f} MB, "
                f"and {target.parent} has {free / 1e6:,.1f} MB free"
            )
        async with self._turn:
            await self._again(lambda: self._download(source, size, sha256, target), f"{source} cannot be fetched")

    async def _again(self, move: Callable[[], Awaitable[None]], otherwise: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                return await move()
            except (BrokenTransfer, RunError) as fault:
                self._keeping.connection.forget_sftp()
                if not left:
                    raise RunError(f"node {self._keeping.name}: {otherwise}: {fault}") from None
            await asyncio.sleep(PAUSE_S)
        return None

    async def _download(self, source: str, size: int, sha256: str, target: Path) -> None:
        sftp, partial = await self._keeping.connection.sftp(), target.with_name(target.name + PARTIAL)

        def move() -> str:
            with partial.open("ab") as here:
                if here.tell() > size:
                    here.truncate(0)
                begin = here.seek(0, os.SEEK_END)
                with _there(sftp.open, f"{self._keeping.folder}/{source}", "rb") as there:
                    there.seek(begin)
                    there.prefetch(size)
                    while (left := size - here.tell()) and (piece := _there(there.read, min(_PIECE, left))):
                        here.write(piece)
            return _sum(partial)

        if await self._keeping.connection.do(move) != sha256:
            partial.unlink()
            raise BrokenTransfer("what arrived is not what is there")
        partial.replace(target)

    async def _upload(self, source: Path, target: str, sha256: str, moved: Moved) -> None:
        sftp, partial = await self._keeping.connection.sftp(), f"{target}{PARTIAL}"
        path = f"{self._keeping.folder}/{partial}"

        def move() -> None:
            with suppress(BrokenTransfer):
                _there(sftp.mkdir, f"{self._keeping.folder}/{CACHE}", 0o700)
            with source.open("rb") as here, _there(sftp.open, path, "ab") as there:
                begin, size = _there(there.stat).st_size or 0, source.stat().st_size
                if begin > size:
                    _there(there.truncate, 0)
                    begin = 0
                here.seek(begin)
                there.set_pipelined(True)
                while piece := here.read(_PIECE):
                    _there(there.write, piece)
                    moved(here.tell(), size)

        await self._keeping.connection.do(move)
        if await self._sum_there(partial) != sha256:
            await self._keeping.connection.do(_there, sftp.remove, path)
            raise BrokenTransfer("what arrived is not what was sent")
        await self._keeping.connection.do(_there, sftp.posix_rename, path, f"{self._keeping.folder}/{target}")

    async def _check_room(self, source: Path) -> None:
        free, needed = (await self._keeping.ask("free"))["free_bytes"], source.stat().st_size
        if free < needed:
            raise UnfitError(
                f"node {self._keeping.name}: {self._keeping.folder} has {free / 1e6:,.1f} MB free, "
                f"and {source.name} has {needed / 1e6:,.1f} MB"
            )

    async def _sum(self, path: Path) -> str:
        state = path.stat()
        key = (path, state.st_size, state.st_mtime_ns)
        if key not in self._sums:
            self._sums[key] = await self._keeping.connection.do(_sum, path)
        return self._sums[key]

    async def _sum_there(self, file: str) -> str | None:
        found: str | None = (await self._keeping.ask("sum", file=file))["sha256"]
        return found


def _there(work: Callable[..., T], *arguments: Any) -> T:
    """Do something on the node.

    Raises:
        Broken: it cannot be done, or the connection broke.
    """
    try:
        return work(*arguments)
    except (OSError, EOFError, paramiko.SSHException) as fault:
        raise BrokenTransfer(
            "no answer in time" if isinstance(fault, TimeoutError) else str(fault) or "the connection broke"
        ) from None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
