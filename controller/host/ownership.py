"""Clean-up log of a campaign, which lists everything that it owns, for `millrace clean`.

The clean-up log is a record of everything that a campaign creates on this host. Every campaign has one state file in
the user's state folder (`controller.host.disk`) for as long as it may have processes. A file whose campaign is dead
therefore lists what may remain:

- processes: those with the campaign's random marker in their environment, which children inherit, and those recorded
  by pid and start time. The marker is on disk before the first process starts, so no process can be missed;
- folders whose name ends in `.partial`, recorded before they are created: incomplete results;
- network namespaces and control groups of an emulated cluster, recorded before they are created; all processes in
  them belong to the cluster.

The format is one JSON object per line, starting with a `Header`; a last line truncated by a crash is ignored.
"""

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from controller.host.cgroups import remove_group
from controller.host.disk import state_folder, user_name
from controller.host.namespaces import has_namespace, remove_namespace
from controller.host.process_identity import ProcessIdentity, boot_id, end_processes, identify, marked, this_process
from inventory.errors import MillraceError, RunError, UnfitError
from inventory.times import utc_in_words

MARKER = "MILLRACE_CAMPAIGN"
"""Environment variable that every process of a campaign inherits."""

PARTIAL = ".partial"
"""Suffix of incomplete folders; `clean` removes no other folders."""


class Owner(Struct, frozen=True, forbid_unknown_fields=True):
    """Owner of a lock or state file: the campaign's process, user, folder and start (UTC)."""

    process: ProcessIdentity
    user: str
    campaign: str
    since: str

    def __str__(self) -> str:
        return f"pid {self.process.pid} of {self.user}, campaign {self.campaign}, since {self.since}"


CAMPAIGN, CALIBRATION = "campaign", "calibration"
"""Kinds of state files."""


class Header(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """First line of a state file."""

    owner: Owner
    marker: str
    what: str = CAMPAIGN


class Entry(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Any other line: one process, folder, network namespace (name) or control group (folder)."""

    process: ProcessIdentity | None = None
    what: str = ""
    folder: str = ""
    namespace: str = ""
    group: str = ""

    def __str__(self) -> str:
        return f"control group {self.group}" if self.group else f"network namespace {self.namespace}"

    def is_there(self) -> bool:
        """Return whether its group or namespace exists; `Record` checks other entries."""
        return Path(self.group).is_dir() if self.group else bool(self.namespace) and has_namespace(self.namespace)


class Record(Struct, frozen=True):
    """A state file as read back."""

    path: Path
    header: Header
    entries: tuple[Entry, ...]

    @property
    def is_cluster(self) -> bool:
        """True if it belongs to an emulated cluster; only these create control groups."""
        return any(entry.group for entry in self.entries)

    @property
    def is_campaign(self) -> bool:
        """True if it belongs to a campaign, which has a folder of results."""
        return self.header.what == CAMPAIGN and not self.is_cluster

    def made_in_kernel(self) -> list[Entry]:
        """Return control groups and namespaces that may remain; none remain from an earlier boot."""
        is_of_this_boot = self.header.owner.process.boot == boot_id()
        return [entry for entry in self.entries if is_of_this_boot and (entry.group or entry.namespace)]

    def processes(self) -> dict[ProcessIdentity, str]:
        """Return its live processes, each with a description."""
        known = {e.process: e.what for e in self.entries if e.process and e.process.is_alive()}
        for process in marked(f"{MARKER}={self.header.marker}".encode()):
            known.setdefault(process, "a process that it started")
        return known

    def folders(self) -> list[Path]:
        """Return its incomplete folders that still exist."""
        paths = (Path(e.folder) for e in self.entries if e.folder.endswith(PARTIAL))
        return [p for p in paths if p.is_absolute() and p.is_dir() and not p.is_symlink()]

    def left(self) -> list[str]:
        """Return descriptions of everything that remains."""
        return [
            *(_described(process, what) for process, what in self.processes().items()),
            *(str(entry) for entry in self.made_in_kernel() if entry.is_there()),
            *(f"folder {folder}" for folder in self.folders()),
        ]


def this_owner(campaign: Path) -> Owner:
    """Return the calling process as the owner of `campaign`."""
    return Owner(this_process(), user_name(), str(campaign.absolute()), utc_in_words())


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lock the folder: only one process at a time creates or cleans up state files."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class CleanupLog:
    """State file of one campaign; a context manager around everything that the campaign starts.

    >>> with CleanupLog(campaign_folder) as state:  # doctest: +SKIP
    ...     work = state.partial(campaign_folder / "runs" / "001-wordcount-even-r1")
    ...     work.mkdir()
    ...     agent = subprocess.Popen(...)
    ...     state.started(agent.pid, "agent n1")

    Processes started inside the block inherit `MARKER` and are found without a line of their own; a line adds a
    description. Leaving the block always ends remaining processes, and removes incomplete folders and then the file.
    """

    def __init__(self, campaign: Path, what: str = CAMPAIGN) -> None:
        self._campaign, self._what = campaign, what
        self._outer: str | None = None

    def __enter__(self) -> Self:
        folder = state_folder()
        marker = secrets.token_hex(16)
        self.path = folder / f"campaign-{marker}.jsonl"
        header = Header(this_owner(self._campaign), marker, self._what)
        with exclusive(folder):
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
                self._handle = os.open(self.path, flags, 0o600)
            except OSError as fault:
                raise UnfitError(f"{self.path}: the state file cannot be made: {fault.strerror}") from None
            self._write(header)
        self._outer = os.environ.get(MARKER)
        os.environ[MARKER] = marker
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outer is None:
            os.environ.pop(MARKER, None)
        else:
            os.environ[MARKER] = self._outer
        os.close(self._handle)
        with exclusive(self.path.parent):
            record = read_state(self.path)
            if record is not None:
                undo_campaign(record)

    def started(self, pid: int, what: str) -> None:
        """Record a process of the campaign, unless it has ended already."""
        process = identify(pid)
        if process is not None:
            self._write(Entry(process=process, what=what))

    def partial(self, final: Path) -> Path:
        """Record and return the folder, not created yet, that holds `final` until it is complete and renamed.

        Raises:
            UnfitError: there is such a folder, which clean-up must not take for the campaign's.
        """
        folder = final.absolute().with_name(final.name + PARTIAL)
        if os.path.lexists(folder):
            raise UnfitError(f"{folder}: is there already; move it away")
        self._write(Entry(folder=str(folder)))
        return folder

    def namespace(self, name: str) -> None:
        """Record a network namespace, not created yet; clean-up also ends all processes in it."""
        self._write(Entry(namespace=name))

    def group(self, folder: Path) -> None:
        """Record a control group, not created yet; clean-up also ends its members and removes its subgroups."""
        self._write(Entry(group=str(folder)))

    def _write(self, line: Struct) -> None:
        text = msgspec.json.encode(line) + b"\n"
        try:
            if os.write(self._handle, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as fault:
            raise RunError(f"{self.path}: the state file cannot be written: {fault.strerror}") from None


def read_state(path: Path) -> Record | None:
    """Return the state file at `path`, or None when its first line cannot be read."""
    first, *rest = path.read_bytes().split(b"\n")
    try:
        header = msgspec.json.decode(first, type=Header)
    except msgspec.DecodeError:
        return None
    entries = []
    for line in rest:
        # The last line may be truncated because the campaign was killed or the disk was full.
        with suppress(msgspec.DecodeError):
            entries.append(msgspec.json.decode(line, type=Entry))
    return Record(path, header, tuple(entries))


def undo_campaign(record: Record) -> tuple[list[str], list[str]]:
    """End the processes of a campaign, remove its groups, namespaces and incomplete folders, then its state file.

    Call it inside `exclusive`. Returns descriptions of what succeeded and of what failed; the file is kept if anything
    failed.
    """
    done: list[str] = []
    failed: list[str] = []
    survivors: set[ProcessIdentity] = set()
    # Processes may start others while they are ended: repeat until none is found.
    while left := {p: what for p, what in record.processes().items() if p not in survivors}:
        survivors.update(end_processes(left))
        for process, what in left.items():
            (failed if process in survivors else done).append(_described(process, what))
    for entry in record.made_in_kernel():
        try:
            if (entry.group and remove_group(Path(entry.group))) or (
                entry.namespace and remove_namespace(entry.namespace)
            ):
                done.append(str(entry))
        except MillraceError as fault:
            failed.append(f"{entry}: {fault}")
    for folder in record.folders():
        try:
            shutil.rmtree(folder)
            done.append(f"folder {folder}")
        except OSError as fault:
            failed.append(f"folder {folder}: {fault.strerror}")
    if not failed:
        # Other files of this name are logs beside it.
        for path in record.path.parent.glob(f"{record.path.stem}.*"):
            path.unlink(missing_ok=True)
    return done, failed


def _described(process: ProcessIdentity, what: str) -> str:
    return f"process {process.pid} ({what})"
