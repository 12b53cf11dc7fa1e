"""File transfer over SFTP: interrupted transfers resume, and every file is verified by SHA-256."""

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
from controller.nodes.transport import OnProgress, ignore_progress
from controller.ssh.node_lease import NodeLease
from inventory.atomic_files import sync_file
from inventory.errors import RunError, UnfitError

T = TypeVar("T")

TRIES = 4
"""Number of attempts per file; each resumes the one before, unless the received part is wrong."""

PAUSE_S = 1.0

CACHE = "cache"
"""Folder of the campaign on a node that stores each file once, named by its SHA-256."""

PARTIAL = ".partial"

_PIECE = 1024 * 1024


class BrokenTransfer(Exception):  # noqa: N818 - not a fault of ours
    """A transfer broke or its result is wrong; another attempt may succeed."""


class RemoteFiles:
    """Files of one node below the campaign's folder there; one transfer at a time."""

    def __init__(self, lease: NodeLease) -> None:
        """Prepare transfers over `lease`."""
        self._lease = lease
        self._lock = asyncio.Lock()
        self._sums: dict[tuple[Path, int, int], str] = {}

    async def put(self, source: Path, target: str, on_progress: OnProgress = ignore_progress) -> None:
        """Copy a file to the node; a file that the node has already is only linked.

        Args:
            source: the file.
            target: its path below the campaign's folder on the node.
            on_progress: called with the progress, from another thread.

        Raises:
            RunError: the node cannot be reached.
            UnfitError: its disk is full.
        """
        sha256 = await self._sum(source)
        kept = f"{CACHE}/{sha256}"
        async with self._lock:
            if await self._remote_sum(kept) != sha256:
                await self._check_room(source)
                await self._retry(
                    lambda: self._upload(source, kept, sha256, on_progress), f"{source} cannot be put there"
                )
            await self._lease.request("place", source=kept, target=target)

    async def fetch(self, source: str, pattern: str, target: Path) -> None:
        """Copy the files in a folder of the node, without its subfolders, into the folder `target`.

        Raises:
            RunError: the node cannot be reached, a file name is invalid, or the disk here is too small.
            OSError: they cannot be written.
        """
        for name, size, sha256 in (await self._lease.request("list", folder=source, pattern=pattern))["files"]:
            try:
                here = below(target, component(name))
            except RunError as fault:
                raise RunError(f"node {self._lease.name}: a file in {source}: {fault}") from None
            await self._get(f"{source}/{name}", size, sha256, here)

    async def replicate(self, source: str, target: Path) -> None:
        """Copy one file of the node to `target`, and sync it to disk.

        Raises:
            RunError: the node has no such file or cannot be reached.
            OSError: the copy cannot be written.
        """
        folder, _, name = source.rpartition("/")
        listed = (await self._lease.request("list", folder=folder, pattern=glob.escape(name)))["files"]
        if not listed:
            raise RunError(f"node {self._lease.name}: there is no file {source} in {self._lease.folder}")
        _, size, sha256 = listed[0]
        await self._get(source, size, sha256, target)

        await self._lease.connection.run_blocking(lambda: sync_file(target))

    async def _get(self, source: str, size: int, sha256: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(target.parent).free
        if size > free:
            raise RunError(
                f"node {self._lease.name}: {source} has {size / 1e6:,.1f} MB, "
                f"and {target.parent} has {free / 1e6:,.1f} MB free"
            )
        async with self._lock:
            await self._retry(lambda: self._download(source, size, sha256, target), f"{source} cannot be fetched")

    async def _retry(self, move: Callable[[], Awaitable[None]], otherwise: str) -> None:
        for left in reversed(range(TRIES)):
            try:
                return await move()
            except (BrokenTransfer, RunError) as fault:
                self._lease.connection.drop_sftp()
                if not left:
                    raise RunError(f"node {self._lease.name}: {otherwise}: {fault}") from None
            await asyncio.sleep(PAUSE_S)
        return None

    async def _download(self, source: str, size: int, sha256: str, target: Path) -> None:
        sftp, partial = await self._lease.connection.sftp(), target.with_name(target.name + PARTIAL)

        def move() -> str:
            with partial.open("ab") as here:
                if here.tell() > size:
                    here.truncate(0)
                begin = here.seek(0, os.SEEK_END)
                with _sftp_call(sftp.open, f"{self._lease.folder}/{source}", "rb") as there:
                    there.seek(begin)
                    there.prefetch(size)
                    while (left := size - here.tell()) and (piece := _sftp_call(there.read, min(_PIECE, left))):
                        here.write(piece)
            return _sum(partial)

        if await self._lease.connection.run_blocking(move) != sha256:
            partial.unlink()
            raise BrokenTransfer("the received file differs from the node's")
        partial.replace(target)

    async def _upload(self, source: Path, target: str, sha256: str, on_progress: OnProgress) -> None:
        sftp, partial = await self._lease.connection.sftp(), f"{target}{PARTIAL}"
        path = f"{self._lease.folder}/{partial}"

        def move() -> None:
            with suppress(BrokenTransfer):
                _sftp_call(sftp.mkdir, f"{self._lease.folder}/{CACHE}", 0o700)
            with source.open("rb") as here, _sftp_call(sftp.open, path, "ab") as there:
                begin, size = _sftp_call(there.stat).st_size or 0, source.stat().st_size
                if begin > size:
                    _sftp_call(there.truncate, 0)
                    begin = 0
                here.seek(begin)
                there.set_pipelined(True)
                while piece := here.read(_PIECE):
                    _sftp_call(there.write, piece)
                    on_progress(here.tell(), size)

        await self._lease.connection.run_blocking(move)
        if await self._remote_sum(partial) != sha256:
            await self._lease.connection.run_blocking(_sftp_call, sftp.remove, path)
            raise BrokenTransfer("the file on the node differs from the one sent")
        await self._lease.connection.run_blocking(_sftp_call, sftp.posix_rename, path, f"{self._lease.folder}/{target}")

    async def _check_room(self, source: Path) -> None:
        free, needed = (await self._lease.request("free"))["free_bytes"], source.stat().st_size
        if free < needed:
            raise UnfitError(
                f"node {self._lease.name}: {self._lease.folder} has {free / 1e6:,.1f} MB free, "
                f"and {source.name} has {needed / 1e6:,.1f} MB"
            )

    async def _sum(self, path: Path) -> str:
        state = path.stat()
        key = (path, state.st_size, state.st_mtime_ns)
        if key not in self._sums:
            self._sums[key] = await self._lease.connection.run_blocking(_sum, path)
        return self._sums[key]

    async def _remote_sum(self, file: str) -> str | None:
        sha256: str | None = (await self._lease.request("sum", file=file))["sha256"]
        return sha256


def _sftp_call(work: Callable[..., T], *arguments: Any) -> T:
    """Call an SFTP operation.

    Raises:
        BrokenTransfer: it failed, or the connection broke.
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
