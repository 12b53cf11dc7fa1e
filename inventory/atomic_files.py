"""Atomic replacement of files and folders: readers see the old content or the new one, never a part of it."""

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from inventory.errors import UnfitError
from inventory.own_files import OutputFolder


@contextmanager
def replacing_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; a file or link made there replaces it when the block succeeds."""
    partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}.partial")
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


@contextmanager
def replacing_file(path: Path, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces `path` when the block succeeds; if `durable`, it is on disk then."""
    with replacing_path(path) as partial, partial.open("xb") as file:
        yield file
        file.flush()
        if durable:
            os.fsync(file.fileno())
    if durable:
        sync(path.parent)


def replace_file(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace the content of `path`; if `durable`, it is on disk when this returns.

    Raises:
        OSError: writing failed; `path` is unchanged.
    """
    with replacing_file(path, durable=durable) as file:
        file.write(content)


def sync_file(path: Path) -> None:
    """Sync a file and its name to disk."""
    sync(path)
    sync(path.parent)


def complete_folder(partial: Path, final: Path) -> None:
    """Sync a finished folder to disk and rename it to its final name.

    Raises:
        OSError: it failed; `partial` still exists under its old name.
    """
    for folder, _, files in os.walk(partial):
        for name in files:
            sync(Path(folder) / name)
        sync(Path(folder))
    partial.rename(final)
    sync(final.parent)


def sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_PARTIAL = ".partial"
_MARK = ".millrace-partial"
"""File in a temporary folder; only folders with it are removed, since others may have such a name, too."""


@contextmanager
def replacing_folder(target: Path, kind: OutputFolder | None = None) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that replaces it when the block succeeds.

    Temporary folders left by killed processes are removed first.

    Args:
        target: the folder.
        kind: what may be replaced; None: any folder, in a place that is not the user's.

    Raises:
        InputError: `target` was not made by this command.
        UnfitError: the folder cannot be written (also inside the block, when the disk is full); `target` is unchanged.
    """
    if kind is not None:
        kind.check(target)
    target = Path(os.path.abspath(target))  # noqa: PTH100 - `resolve` would follow a link and replace what it points to
    partial: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for abandoned in target.parent.glob(f".{glob.escape(target.name)}.*{_PARTIAL}"):
            if not (abandoned / _MARK).is_file():
                continue
            with suppress(FileNotFoundError), _held(abandoned) as is_ours:
                if is_ours:
                    shutil.rmtree(abandoned, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_PARTIAL, dir=target.parent))
        partial.chmod(0o755)
        with _held(partial):
            (partial / _MARK).touch()
            yield partial
            (partial / _MARK).unlink()
            if kind is not None:
                if kind.listing:
                    kind.list_files(partial)
                kind.check(target)
            _swap(partial, target)
    except OSError as fault:
        raise UnfitError(f"{fault.filename or target}: cannot be written: {fault.strerror or fault}") from None
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Lock a folder for the duration of the block, or of this process. Yield False if another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _swap(partial: Path, target: Path) -> None:
    """Rename `partial` to `target`; an older target is moved away first and restored on failure."""
    if not target.exists():
        partial.rename(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent))
    target.rename(aside / "old")
    try:
        partial.rename(target)
    except OSError:
        (aside / "old").rename(target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
