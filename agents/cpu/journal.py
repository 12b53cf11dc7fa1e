"""Original CPU settings of a host, kept in a journal on disk before any change; and the lock against a second run."""

import dataclasses
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from agents.cpu.topology import FOLDER, Core
from agents.host_files import HostFiles
from inventory.atomic_files import replace_file
from inventory.errors import InputError, UnfitError

VERSION = 1

RUN_FOLDER = "run/millrace"
JOURNAL, LOCK = "cpu-journal.json", "cpu.lock"
PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class CpuSnapshot:
    """Every file that can be set, with its value; stored as JSON in the journal and by provisioning.

    Attributes:
        boot_id: the boot of the snapshot; a reboot resets all settings. None: unknown.
        values: path -> text, before any change.
        later: path -> text of files that appeared afterwards, when they appeared: CPUs that are offline have no
            clock files until they come online.
        unreadable: files that exist but could not be read; they are never written.
        cores: the CPUs of each core; the kernel reports them only for online CPUs.
    """

    boot_id: str | None
    values: Mapping[str, str]
    later: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    cores: tuple[Core, ...] = ()

    def value(self, path: str) -> str | None:
        """Return the value of a file when first seen; None for a file that was never seen."""
        return self.values.get(path, self.later.get(path))

    def with_later(self, values: Mapping[str, str]) -> "CpuSnapshot":
        """Return a copy with files that have just appeared."""
        return dataclasses.replace(self, later={**self.later, **values})

    def is_of_this_boot(self, host: HostFiles) -> bool:
        """Return whether the host has not rebooted since; an unknown boot counts as the same."""
        return self.boot_id is None or self.boot_id == host.boot_id

    def to_document(self) -> dict[str, Any]:
        """Return the snapshot as JSON."""
        return {
            "version": VERSION,
            "boot_id": self.boot_id,
            "values": dict(self.values),
            "later": dict(self.later),
            "unreadable": list(self.unreadable),
            "cores": [{"socket": core.socket, "cpus": list(core.cpus)} for core in self.cores],
        }

    @classmethod
    def from_document(cls, document: Any, where: str = "before") -> Self:
        """Read the output of `to_document`.

        Raises:
            InputError: the document is invalid, or names files outside of the CPU folder.
        """
        try:
            if document["version"] != VERSION:
                raise InputError(f"{where}: version: got {document['version']!r}, expected {VERSION}")
            values, later = dict(document["values"]), dict(document["later"])
            cores = tuple(Core(int(c["socket"]), tuple(map(int, c["cpus"]))) for c in document["cores"])
            snapshot = cls(document["boot_id"], values, later, tuple(document["unreadable"]), cores)
        except (KeyError, TypeError, ValueError, AttributeError) as fault:
            raise InputError(f"{where}: not the CPU settings of a host: {type(fault).__name__}: {fault}") from None
        for path, value in [*values.items(), *later.items()]:
            # These files are written by root.
            if not (isinstance(path, str) and path.startswith(FOLDER + "/")) or ".." in path.split("/"):
                raise InputError(f"{where}: {path!r} is not a file below /{FOLDER}")
            if not isinstance(value, str):
                raise InputError(f"{where}: {path}: got {value!r}, expected text")
        return snapshot


@dataclass(frozen=True, slots=True)
class CpuJournal:
    """Owner of a host's changed CPU settings, and the settings before."""

    owner: str
    before: CpuSnapshot


def journal_path(root: Path) -> Path:
    """Return the path of a host's only journal."""
    return root / RUN_FOLDER / JOURNAL


def read_journal(root: Path) -> CpuJournal | None:
    """Read a host's journal; return None when there is none.

    Raises:
        UnfitError: it cannot be read.
    """
    path = journal_path(root)
    try:
        document = json.loads(path.read_text())
        return CpuJournal(str(document["owner"]), CpuSnapshot.from_document(document["before"], str(path)))
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
    try:
        text = json.dumps({"owner": journal.owner, "before": journal.before.to_document()}, indent=1)
        replace_file(path, text.encode(), durable=True)
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
        path = root / RUN_FOLDER / LOCK
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
