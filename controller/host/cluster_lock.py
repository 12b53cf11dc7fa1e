"""Lock of a cluster: one campaign at a time uses its nodes, and the CPUs of this host on which its workers run.

A campaign has a lock file in the user's state folder, which says what it uses (`ClusterClaim`). It holds a `flock` on
the file; the kernel releases it with the last descriptor, so that a killed campaign does not block others. A new
campaign compares its claim with those of all files that are held. A lock of an owner from an earlier boot, which a file
server may have kept, is ignored. Campaigns that wait have files, too: the first one that waits is the first to get the
cluster.
"""

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from agents.cpu.topology import as_list
from controller.host.disk import state_folder
from controller.host.ownership import Owner, exclusive, this_owner
from controller.host.process_identity import boot_id
from inventory.errors import UnfitError

LOCKS = "cluster-*.lock"
"""Names of lock files in the state folder."""

_WAITING = "cluster-waiting-"
_WAIT_S = 0.5
_MOST_NAMED = 3


class InUseError(UnfitError):
    """Another campaign uses the cluster, or CPUs of this host that it needs."""


class ClusterClaim(Struct, frozen=True, forbid_unknown_fields=True):
    """Resources that a campaign uses alone.

    Attributes:
        cluster: name of the cluster in messages, with its article.
        nodes: places that serve one campaign at a time: addresses of this host, machines, or the folder of an emulated
            cluster.
        cpus: CPUs of this host on which its workers run; empty if they run elsewhere.
    """

    cluster: str
    nodes: tuple[str, ...]
    cpus: tuple[int, ...] = ()

    def conflict(self, other: "ClusterClaim", user: object) -> str:
        """Return why it cannot be met beside another one, which `user` holds; empty if it can."""
        if nodes := sorted({*self.nodes} & {*other.nodes}):
            if self.nodes == other.nodes:
                return f"{self.cluster} is in use by {user}"
            return f"{self.cluster} has {_listed(nodes)} in common with {other.cluster}, which is in use by {user}"
        if cpus := sorted({*self.cpus} & {*other.cpus}):
            return (
                f"{self.cluster} is free, but its workers would share CPU {as_list(cpus)} of this host with those of "
                f"{other.cluster}, which is in use by {user}; campaigns that run on different CPUs (taskset -c ...) "
                "do not exclude each other"
            )
        return ""


def merged(claims: Iterable[ClusterClaim]) -> ClusterClaim:
    """Return the claim of a campaign on several clusters, of which one is up at a time."""
    distinct = list(dict.fromkeys(claims))
    return ClusterClaim(
        " and ".join(dict.fromkeys(claim.cluster for claim in distinct)),
        tuple(dict.fromkeys(node for claim in distinct for node in claim.nodes)),
        tuple(sorted({cpu for claim in distinct for cpu in claim.cpus})),
    )


def usable_cpus(process: int = 0) -> tuple[int, ...]:
    """Return the CPUs that a process may use, which its children inherit; by default those of this one."""
    return tuple(sorted(os.sched_getaffinity(process)))


class Holder(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a lock file."""

    owner: Owner
    claim: ClusterClaim


def lock_path(claim: ClusterClaim) -> Path:
    """Return the lock file of a claim."""
    # The hash distinguishes names that differ only in characters that file names cannot have.
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", claim.cluster)[:60]
    digest = hashlib.sha256("\n".join(claim.nodes).encode()).hexdigest()
    return state_folder() / f"cluster-{readable}-{digest[:12]}.lock"


class ClusterLock:
    """Lock on what a campaign claims, held during the block.

    >>> with ClusterLock(ClusterClaim("the loopback cluster", ("127.0.0.2",)), campaign_folder):  # doctest: +SKIP
    ...     run_everything()

    Raises (on entering):
        InUseError: another campaign holds it; the message gives its cluster, pid, user, folder and start.
        UnfitError: the lock file cannot be written.
    """

    def __init__(self, claim: ClusterClaim, campaign: Path, on_wait: Callable[[str], None] | None = None) -> None:
        """Prepare the lock.

        Args:
            claim: what is locked.
            campaign: folder of the campaign.
            on_wait: wait for the lock instead of raising `InUseError`, and call this whenever its holder changes.
        """
        self._claim, self._campaign, self._on_wait = claim, campaign, on_wait
        self._held: list[tuple[Path, int]] = []

    def __enter__(self) -> Self:
        try:
            self._acquire()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        with exclusive(state_folder()):
            self._release()

    @property
    def path(self) -> Path:
        """The lock file."""
        return lock_path(self._claim)

    def _acquire(self) -> None:
        shown = ""
        turn: Path | None = None
        folder = state_folder()
        while True:
            # `clean` removes lock files that are not held; it must not do so between our open and our flock.
            with exclusive(folder):
                reason = self._reason(folder, turn)
                if not reason:
                    return
                if self._on_wait is None:
                    raise InUseError(reason)
                if turn is None:
                    turn = folder / f"{_WAITING}{time.time_ns():020}-{os.getpid()}.lock"
                    self._hold(turn)
            if reason != shown:
                self._on_wait(reason)
                shown = reason
            time.sleep(_WAIT_S)

    def _reason(self, folder: Path, turn: Path | None) -> str:
        """Take the lock, or return the reason why it cannot be taken."""
        for path in sorted(folder.glob(LOCKS)):
            if path == turn or (path.name.startswith(_WAITING) and (turn is None or path > turn)) or not is_held(path):
                continue
            holder = read_holder(path)
            if holder is None:
                if path == lock_path(self._claim):
                    return f"{self._claim.cluster} is in use by a campaign that did not leave its name"
            elif reason := self._claim.conflict(holder.claim, holder.owner):
                return reason
        self._release()
        self._hold(lock_path(self._claim))
        return ""

    def _hold(self, path: Path) -> None:
        try:
            # A held file of an earlier boot, or of nobody, is replaced.
            path.unlink(missing_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as fault:
            raise UnfitError(f"{path}: the lock file cannot be opened: {fault.strerror}") from None
        self._held.append((path, handle))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(handle, msgspec.json.encode(Holder(this_owner(self._campaign), self._claim)))
        except OSError as fault:
            raise UnfitError(f"{path}: the lock file cannot be written: {fault.strerror}") from None

    def _release(self) -> None:
        while self._held:
            path, handle = self._held.pop()
            path.unlink(missing_ok=True)
            os.close(handle)


def holders() -> Iterator[Holder]:
    """Yield the holders of all locks, and those that wait for one; call it inside `exclusive`."""
    for path in sorted(state_folder().glob(LOCKS)):
        if is_held(path) and (holder := read_holder(path)):
            yield holder


def read_holder(path: Path) -> Holder | None:
    """Return the content of a lock file; None if it has none."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    return None


def is_held(path: Path) -> bool:
    """Return whether a process of this boot holds the lock; call it inside `exclusive`."""
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = read_holder(path)
        return holder is None or holder.owner.process.boot == boot_id()
    finally:
        os.close(handle)
    return False


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
