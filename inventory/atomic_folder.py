"""Atomic replacement of folders."""

import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inventory.errors import UnfitError

_PARTIAL = ".partial"


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that replaces it when the block succeeds.

    Temporary folders left by killed processes are removed first.

    Raises:
        UnfitError: the folder cannot be written (also inside the block, when the disk is full); `target` is unchanged.
    """
    target = Path(os.path.abspath(target))  # noqa: PTH100 - `resolve` would follow a link and replace what it points to
    partial: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for abandoned in target.parent.glob(f".{glob.escape(target.name)}.*{_PARTIAL}"):
            with suppress(FileNotFoundError), _held(abandoned) as is_ours:
                if is_ours:
                    shutil.rmtree(abandoned, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_PARTIAL, dir=target.parent))
        partial.chmod(0o755)
        with _held(partial):
            yield partial
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
