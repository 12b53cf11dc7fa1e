"""Journal of a host's original CPU settings, on disk before any change; and the lock that excludes a second run."""

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from agents.cpu.snapshot import Snapshot
from inventory.errors import InputError, UnfitError

FOLDER = "run/millrace"
JOURNAL, LOCK = "cpu-journal.json", "cpu.lock"
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class CpuJournal:
    """Owner of a host's changed CPU settings, and the settings before."""

    owner: str
    before: Snapshot


def journal_path(root: Path) -> Path:
    """Return the path of a host's only journal."""
    return root / FOLDER / JOURNAL


def read_journal(root: Path) -> CpuJournal | None:
    """Read a host's journal; return None when there is none.

    Raises:
        UnfitError: it cannot be read.
    """
    path = journal_path(root)
    try:
        document = json.loads(path.read_text())
        return CpuJournal(str(document["owner"]), Snapshot.from_document(document["before"], str(path)))
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise UnfitError(f"{path}: cannot be read: {fault.strerror}") from None
    except (ValueError, KeyError, TypeError, InputError) as fault:
        # The journal is renamed into place, so that a crash never leaves a partial one.
        raise UnfitError(f"{path}: not a journal of CPU settings ({fault}); remove it if it is not needed") from None


def write_journal(root: Path, journal: CpuJournal) -> None:
    """Write a journal; it is on disk when this returns.

    Raises:
        UnfitError: it cannot be written.
    """
    path = journal_path(root)
    partial = path.with_suffix(".partial")
    try:
        text = json.dumps({"owner": journal.owner, "before": journal.before.to_document()}, indent=1)
        with partial.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as fault:
        raise UnfitError(f"{path}: cannot be written: {fault.strerror}; CPU settings are left unchanged") from None


def remove_journal(root: Path) -> None:
    """Remove the journal after everything is restored."""
    journal_path(root).unlink(missing_ok=True)


class HeldError(UnfitError):
    """Raised when the CPU settings of a host are locked by `holder`."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the CPU settings of this host are held by {holder}")
        self.holder = holder


class Lock:
    """Lock on this host's CPU settings, held until every process that has the descriptor has closed it.

    Args:
        root: the host's root.
        owner: name shown to others that request the lock.
        patience_s: timeout for a lock held by another owner; the guardian of a campaign that has just died needs a
            moment. None: `PATIENCE_S`.

    Raises:
        HeldError: another owner holds it.
        UnfitError: the folder cannot be written.
    """

    def __init__(self, root: Path, owner: str, patience_s: float | None = None) -> None:
        path = root / FOLDER / LOCK
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as fault:
            raise UnfitError(f"{path}: cannot be written: {fault.strerror}; CPU settings need root") from None
        if not self._take(PATIENCE_S if patience_s is None else patience_s):
            holder = os.pread(self.descriptor, 4096, 0).decode(errors="replace") or "an owner that has just started"
            os.close(self.descriptor)
            raise HeldError(holder)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, owner.encode(), 0)

    def _take(self, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.05)
            else:
                return True

    def close(self) -> None:
        """Release the lock."""
        os.close(self.descriptor)
