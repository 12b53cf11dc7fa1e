"""The files and folders on a node.

    <node folder>/                the folder in the controller's `Welcome`
        inputs/<file>             prepared inputs, copied by the controller before `Start`
        logs/agent.log            output of the agent and its sensors
        <run>/                    one run
            jars/, lib-worker     of programs: libraries that are being copied, and a link to those that the node keeps
            kept-logs/            of programs: the ends of all logs, after their end
            traces/               trace files of the agent and of all workers of this node
            answer/               answer parts of the sinks of this node
            checkpoints/<barrier>/<executor>   snapshots
            logs/worker-<k>.log   output of the worker of slot k, including tracebacks
            profiles/             sampled stacks, if requested

A later epoch of the same run adds to the files of the earlier ones. To discard an attempt, a controller uses another
run id for the next one.
"""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from inventory.errors import RunError

WORK = "MILLRACE_WORK"
"""Environment variable of every process that a controller starts on a node: the node's work folder."""

KEPT = "engines"
"""Folder in the work folder with libraries that are kept for later campaigns."""

MOST_LOG_BYTES = 10_000_000
"""Longest log of a program that is kept."""

_PLAIN = re.compile(r"[A-Za-z0-9_+=,@-][A-Za-z0-9_.+=,@-]{0,199}")
"""Names that are safe as one path component: no separator, no leading dot."""


_LONGEST = 200
_KEPT = 100
"""Most characters of a generated file name, and the characters kept of a longer one."""

_LONGEST_ANYWHERE = 255
"""Bytes of a file name that every file system supports."""


def file_name(name: str) -> str:
    """Return a file name for any name; different names get different file names, and plain names stay unchanged.

    >>> file_name("count[3]"), file_name("../a b[0]")
    ('count[3]', '%2E.%2Fa%20b[0]')
    """
    encoded = quote(name, safe="[]+=,@")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if len(encoded) > _LONGEST:
        encoded = f"{encoded[:_KEPT]}~{hashlib.sha256(name.encode()).hexdigest()}"
    return encoded


def plain_name(kind: str, name: str) -> str:
    """Return `name` if it is safe as one path component.

    Raises:
        RunError: it is not; the message begins with `kind`.
    """
    if not _PLAIN.fullmatch(name):
        raise RunError(f"the {kind} {name!r} cannot be a file name: letters, digits and _.+=,@- only, no leading dot")
    return name


def component(name: str) -> str:
    """Return `name`, received from a node, if it is a single path component.

    Raises:
        RunError: it is not.
    """
    fits = name.isprintable() and 0 < len(name.encode()) <= _LONGEST_ANYWHERE
    if not fits or "/" in name or name.startswith("."):
        raise RunError(f"{name[:_LONGEST]!r} is no file name: printable, no '/', no leading dot")
    return name


def below(folder: Path, path: str) -> Path:
    """Return `folder / path` if that lies below `folder` after symbolic links are resolved.

    Raises:
        RunError: it does not.
    """
    target = folder / path
    try:
        inside = target.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # names too long, links in a circle, a NUL
        inside = False
    if not inside:
        raise RunError(f"{path[:_LONGEST]!r} does not lie below {folder}")
    return target


def kept_libraries(name: str) -> Path:
    """Return the folder of libraries that this node keeps for later campaigns.

    Raises:
        RunError: the name is no file name, or this node keeps none.
    """
    work = os.environ.get(WORK)
    if work is None:
        raise RunError(f"this node keeps no libraries: {WORK} is not set")
    return Path(work) / KEPT / component(name)


def copy_logs(source: Path, target: Path) -> None:
    """Copy the ends of all logs in a folder and those below it; parts of their paths become parts of their names."""
    target.mkdir(parents=True, exist_ok=True)
    for log in sorted(source.rglob("*.log*")):
        if log.is_file():
            with log.open("rb") as file:
                file.seek(max(0, log.stat().st_size - MOST_LOG_BYTES))
                (target / "-".join(log.relative_to(source).parts)).write_bytes(file.read())


def regular_files(folder: Path, pattern: str) -> list[Path]:
    """Return the regular files of a folder, sorted by name, without symbolic links, which may lead anywhere."""
    entries = sorted(folder.glob(pattern)) if folder.is_dir() else []
    return [path for path in entries if stat.S_ISREG(path.lstat().st_mode)]


@dataclass(frozen=True)
class NodeFolder:
    """The folder of one node."""

    path: Path

    @property
    def log(self) -> Path:
        """Log of the agent."""
        return self.path / "logs" / "agent.log"

    def input(self, file: str) -> Path:
        """Return the path of a prepared input by its file name."""
        return self.path / "inputs" / plain_name("input file", file)

    def run(self, run: str) -> "RunFolder":
        """Return the folder of one run."""
        return RunFolder(self.path / plain_name("run", run))


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run on one node."""

    path: Path

    @property
    def traces(self) -> Path:
        """Trace files of all processes; their names contain node and slot."""
        return self.path / "traces"

    @property
    def profiles(self) -> Path:
        """Sampled stacks of workers; file names contain node and slot."""
        return self.path / "profiles"

    @property
    def answers(self) -> Path:
        """Parts of the answer; file names contain table and executor."""
        return self.path / "answer"

    @property
    def logs(self) -> Path:
        """Logs of workers, or of programs."""
        return self.path / "logs"

    @property
    def log_ends(self) -> Path:
        """Ends of the logs of programs, after their end."""
        return self.path / "kept-logs"

    @property
    def copied_libraries(self) -> Path:
        """Libraries of programs that are being copied to a node which keeps none."""
        return self.path / "jars"

    @property
    def libraries(self) -> Path:
        """Link to the libraries that programs use; its name is Storm's."""
        return self.path / "lib-worker"

    def log(self, slot: int) -> Path:
        """Return the log of a slot's worker."""
        return self.logs / f"worker-{slot}.log"

    def checkpoint(self, barrier: int) -> Path:
        """Return the folder of the snapshots at a barrier, a file per executor."""
        return self.path / "checkpoints" / str(barrier)

    def snapshot(self, barrier: int, executor: str) -> Path:
        """Return the path of an executor's snapshot."""
        return self.checkpoint(barrier) / file_name(executor)

    def make(self) -> None:
        """Create missing folders.

        Raises:
            OSError: a folder cannot be created.
        """
        for folder in (self.traces, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
