"""Cluster lock: one campaign per cluster; the lock names its owner and is released when the owner ends.

The lock is a `flock` on a file named after the cluster. The kernel releases it with the last descriptor, so a killed
campaign does not block others. The file names the owner. A lock of an owner from an earlier boot, which a file server
may have kept, is ignored.
"""

import fcntl
import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from controller.host.cleanup_log import Owner, exclusive, this_owner
from controller.host.process_identity import boot_id
from controller.host.state_folder import state_folder
from inventory.errors import UnfitError


def lock_path(cluster: str) -> Path:
    """Return the lock file of the cluster with this id."""
    # The hash distinguishes ids that differ only in characters that file names cannot have.
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", cluster)[:60]
    return state_folder() / f"cluster-{readable}-{hashlib.sha256(cluster.encode()).hexdigest()[:12]}.lock"


class ClusterLock:
    """Lock on `cluster` for a campaign, held during the block.

    >>> with ClusterLock("loopback", campaign_folder):  # doctest: +SKIP
    ...     run_everything()

    Raises (on entering):
        UnfitError: another campaign holds the cluster; the message gives its pid, user, folder and start.
    """

    def __init__(self, cluster: str, campaign: Path) -> None:
        self._cluster = cluster
        self._campaign = campaign

    def __enter__(self) -> Self:
        self.path = lock_path(self._cluster)
        # `clean` removes lock files that are not held; it must not do so between our open and our flock.
        with exclusive(self.path.parent):
            try:
                if self.path.exists() and not is_held(self.path):
                    self.path.unlink()
                self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as fault:
                raise UnfitError(f"{self.path}: the lock file cannot be opened: {fault.strerror}") from None
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.truncate(self._handle, 0)
                os.write(self._handle, msgspec.json.encode(this_owner(self._campaign)))
            except BlockingIOError:
                os.close(self._handle)
                owner = read_owner(self.path) or "a campaign that did not leave its name"
                raise UnfitError(f"the cluster {self._cluster!r} is in use by {owner}") from None
            except OSError as fault:
                os.close(self._handle)
                raise UnfitError(f"{self.path}: the lock file cannot be written: {fault.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with exclusive(self.path.parent):
            self.path.unlink(missing_ok=True)
            os.close(self._handle)


def read_owner(path: Path) -> Owner | None:
    """Return the owner named in the lock file; None without one."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Owner)
    return None


def is_held(path: Path) -> bool:
    """Return whether a process of this boot holds the lock; call it inside `exclusive`."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = read_owner(path)
        return owner is None or owner.process.boot == boot_id()
    finally:
        os.close(handle)
    return False
