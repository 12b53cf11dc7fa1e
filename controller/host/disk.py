"""The controller's disk: where a user's campaigns keep their state, and the errors of a full disk.

The state folder has the state files and locks of a user's campaigns on this machine. It persists across sessions and
reboots, unlike `XDG_RUNTIME_DIR`: a campaign that continues after a logout must be found by the next session.
"""

import errno
import os
import platform
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inventory.errors import UnfitError

_ROOTS = Path("/var/lib")
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))

_FULL = {errno.ENOSPC, errno.EDQUOT}

_LEAST_BYTES = 256 * 1024


def find_state_folder() -> Path:
    """Return the path of the user's state folder, which may not exist yet.

    It is `$XDG_STATE_HOME/millrace/<machine id>`; without the variable it is in `/var/lib` for root and in
    `~/.local/state` for others. The machine id is needed because several machines may share a home folder.

    Raises:
        UnfitError: the user has no home folder.
    """
    return _home() / "millrace" / _machine_id()


def state_folder() -> Path:
    """Return the user's state folder; create it if necessary.

    Raises:
        UnfitError: it cannot be created, or other users could write to it.
    """
    folder = find_state_folder()
    try:
        # Parent folders stay accessible to others, because on a node they may also hold files of its user.
        for missing in reversed([path for path in folder.parents if not path.exists()]):
            missing.mkdir(mode=0o755, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status, above = folder.lstat(), folder.parent.stat()
    except OSError as fault:
        raise UnfitError(
            f"{folder}: the folder for state files and locks cannot be made: {fault.strerror}; "
            "set XDG_STATE_HOME to a folder of yours on this machine"
        ) from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UnfitError(f"{folder}: must be a folder of {user_name()} with mode 0700: other users could write to it")
    if above.st_uid != os.geteuid() or above.st_mode & 0o022:
        raise UnfitError(f"{folder.parent}: must be a folder of {user_name()} and writable by no other user")
    return folder


def user_name() -> str:
    """Return the name of this process's user, or `user UID` without one."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _home() -> Path:
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The variable survives `su` and then names another user's folder.
    if given.is_absolute() and _owner_of(given) == os.geteuid():
        return given
    if os.geteuid() == 0:
        return _ROOTS
    home = Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111 - `Path.home` raises where this stays relative
    if not home.is_absolute():
        raise UnfitError(f"{user_name()} has no home folder for state files and locks; set XDG_STATE_HOME to a folder")
    return home


def _owner_of(folder: Path) -> int | None:
    """Return the owner's user id of a folder, or of the nearest existing parent."""
    for path in (folder, *folder.parents):
        try:
            return path.stat().st_uid
        except FileNotFoundError:
            continue
        except OSError:
            break
    return None


def _machine_id() -> str:
    """Return the machine id, or the host name without one, as in many containers."""
    for path in _MACHINE_IDS:
        with suppress(OSError):
            if matched := re.fullmatch(r"[0-9a-f]{32}", path.read_text(encoding="ascii", errors="replace").strip()):
                return matched.group()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", platform.node()).strip(".") or "localhost"


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
    usage = os.statvfs(folder)
    # A disk may also run out of inodes; some file systems report none at all.
    return usage.f_bavail * usage.f_frsize >= _LEAST_BYTES and (usage.f_favail > 0 or not usage.f_files)
