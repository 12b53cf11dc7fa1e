"""Durable writes: a crash or a full disk leaves the old file or the new one, never a partial file."""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inventory.errors import UnfitError

_FULL = {errno.ENOSPC, errno.EDQUOT}

_LEAST_BYTES = 256 * 1024


class DiskFullError(UnfitError):
    """The disk is full; results that were complete before are unchanged."""


@contextmanager
def converting_full_disk(*folders: Path) -> Iterator[None]:
    """Convert the OSError of a full disk into `DiskFullError`.

    Args:
        folders: folders that the block writes to; an error without a file name is attributed to those on full disks.

    Raises:
        DiskFullError: no space or no quota is left.
    """
    try:
        yield
    except OSError as fault:
        if fault.errno not in _FULL:
            raise
        full = [fault.filename] if fault.filename else [each for each in folders if not _has_room(each)] or folders
        raise DiskFullError(f"the disk of {' or '.join(map(str, full))} is full") from None


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Convert every OSError of a block that only writes files.

    Raises:
        DiskFullError: no space or no quota is left.
        UnfitError: writing failed for another reason.
    """
    try:
        with converting_full_disk(folder):
            yield
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UnfitError(f"{fault.filename or folder}: cannot be written: {reason}") from None


def check_room(folder: Path) -> None:
    """Check whether an error reported by another process may be due to a full disk.

    Raises:
        DiskFullError: the disk of `folder` has practically no space left.
    """
    if not _has_room(folder):
        raise DiskFullError(f"the disk of {folder} is full")


def _has_room(folder: Path) -> bool:
    found = os.statvfs(folder)
    # A disk may also run out of inodes; some file systems report none at all.
    return found.f_bavail * found.f_frsize >= _LEAST_BYTES and (found.f_favail > 0 or not found.f_files)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of `path` atomically and durably: readers see the old or the new content, never a mix.

    Raises:
        OSError: writing failed; `path` is unchanged.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with beside.open("wb") as target:
            target.write(content)
            target.flush()
            os.fsync(target.fileno())
        beside.replace(path)
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise
    sync_folder(path.parent)


def complete_folder(partial: Path, final: Path) -> None:
    """Sync a finished folder to disk and rename it to its final name.

    Raises:
        OSError: it failed; `partial` still exists under its old name.
    """
    for folder, _, files in os.walk(partial):
        for name in files:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))
    partial.rename(final)
    sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Sync the directory entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
