"""The folder in which a user's campaigns on this machine keep state files and locks.

It outlives sessions and restarts, which the folder of a session (`XDG_RUNTIME_DIR`) does not: a campaign that goes on
after a logout must be found by the next session, to be refused or cleaned up after.
"""

import os
import platform
import pwd
import re
import stat
from contextlib import suppress
from pathlib import Path

from inventory.errors import UnfitError

_ROOTS = Path("/var/lib")
_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


def find_state_folder() -> Path:
    """Return where the user's folder is, which need not be there yet.

    It is `$XDG_STATE_HOME/millrace/<machine id>`; without the variable it lies in `/var/lib` for root, and in
    `~/.local/state` for others. A home folder may be that of many machines: each has its own processes and locks.

    Raises:
        UnfitError: the user has no home folder.
    """
    return _home() / "millrace" / _machine_id()


def state_folder() -> Path:
    """Return the user's folder, made if need be.

    Raises:
        UnfitError: it cannot be made, or somebody else could write to it.
    """
    folder = find_state_folder()
    try:
        # Others may pass through the folders above: on a node its user's files are in one of them.
        for missing in reversed([path for path in folder.parents if not path.exists()]):
            missing.mkdir(mode=0o755, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found, above = folder.lstat(), folder.parent.stat()
    except OSError as fault:
        raise UnfitError(
            f"{folder}: the folder for state files and locks cannot be made: {fault.strerror}; "
            "set XDG_STATE_HOME to a folder of yours on this machine"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise UnfitError(f"{folder}: must be a folder of {user_name()} with mode 0700; somebody else could write to it")
    if above.st_uid != os.geteuid() or above.st_mode & 0o022:
        raise UnfitError(f"{folder.parent}: must be a folder of {user_name()} to which nobody else can write")
    return folder


def user_name() -> str:
    """Return the name of this process's user, or what stands for it."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"user {os.geteuid()}"


def _home() -> Path:
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The variable survives `su` and then names a folder of somebody else.
    if given.is_absolute() and _owner_of(given) == os.geteuid():
        return given
    if os.geteuid() == 0:
        return _ROOTS
    home = Path(os.path.expanduser("~/.local/state"))  # noqa: PTH111 - `Path.home` raises where this stays relative
    if not home.is_absolute():
        raise UnfitError(f"{user_name()} has no home folder for state files and locks; set XDG_STATE_HOME to a folder")
    return home


def _owner_of(folder: Path) -> int | None:
    """The user id of the owner of a folder, or of the one in which it would be made."""
    for path in (folder, *folder.parents):
        try:
            return path.stat().st_uid
        except FileNotFoundError:
            continue
        except OSError:
            break
    return None


def _machine_id() -> str:
    """Return the id of this installation, or the host's name where it has none, as in many containers."""
    for path in _MACHINE_IDS:
        with suppress(OSError):
            if found := re.fullmatch(r"[0-9a-f]{32}", path.read_text(encoding="ascii", errors="replace").strip()):
                return found.group()
    return re.sub(r"[^A-Za-z0-9._-]+", "-", platform.node()).strip(".") or "localhost"
