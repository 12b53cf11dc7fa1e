"""Writing results so that a crash or a full disk leaves the old file or the new one, never half of one."""

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
    """There is no room for results; what was complete before is untouched."""


@contextmanager
def noticing_full_disk(*folders: Path) -> Iterator[None]:
    """Turn the fault of a full disk into one message.

    Args:
        folders: where the block writes; a fault that names no file is that of those whose disks are full.

    Raises:
        DiskFullError: no space, or no quota, is left.
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
    """Turn whatever the file system refuses inside the block, which does nothing but write, into one message.

    Raises:
        DiskFullError: no space, or no quota, is left.
        UnfitError: it cannot be written for another reason.
    """
    try:
        with noticing_full_disk(folder):
            yield
    except OSError as fault:
        reason = fault.strerror or str(fault)
        raise UnfitError(f"{fault.filename or folder}: cannot be written: {reason}") from None


def check_room(folder: Path) -> None:
    """Find out whether a fault that somebody else reported may be that of a full disk.

    Raises:
        DiskFullError: there is practically no room where `folder` lies.
    """
    if not _has_room(folder):
        raise DiskFullError(f"the disk of {folder} is full")


def _has_room(folder: Path) -> bool:
    found = os.statvfs(folder)
    # A disk may run out of files, too; some count none.
    return found.f_bavail * found.f_frsize >= _LEAST_BYTES and (found.f_favail > 0 or not found.f_files)


def replace_file(path: Path, content: bytes) -> None:
    """Write `path` durably: readers see the old content or all of the new one, also after a power cut.

    Raises:
        OSError: it could not be written; `path` is as it was.
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
    """Give a finished folder its final name, after all that is in it has reached the disk.

    Raises:
        OSError: it could not be done; `partial` is still there under its own name.
    """
    for folder, _, files in os.walk(partial):
        for name in files:
            with (Path(folder) / name).open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(Path(folder))
    partial.rename(final)
    sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
