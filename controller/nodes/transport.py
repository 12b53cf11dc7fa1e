"""Transport to one node: start programs, copy files to the node, fetch folders, remove them.

Other modules depend only on `Transport` and `Remote`, whether a node is a child process or a machine reached over SSH.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from agents.protocol import MAX_LINE
from agents.protocol.node_folders import below
from controller.host.durable_files import sync_folder
from inventory.errors import RunError

OnProgress = Callable[[int, int], None]
"""Called during the copy of a file to a node, with bytes sent and bytes in total; not called if no copy is needed."""


def ignore_progress(sent: int, of: int) -> None:
    """Ignore the progress of a copy."""


class Remote(Protocol):
    """A program on a node that reads and writes lines on its standard input and output."""

    @property
    def pid(self) -> int | None:
        """Its pid; None if it runs on another host."""
        ...

    async def read_line(self) -> bytes:
        """Return the next line with its newline; `b""` at the end of its output.

        Raises:
            RunError: the line is longer than `MAX_LINE`.
        """
        ...

    async def write(self, line: bytes) -> None:
        """Send one line; wait while the pipe is full.

        Raises:
            ConnectionError: the program has closed its input.
        """
        ...

    def end_input(self) -> None:
        """Close its input."""
        ...

    async def wait(self) -> int:
        """Wait for its end; return its exit status, negative for a signal."""
        ...

    def kill(self) -> None:
        """Kill all processes of its session."""
        ...


class Transport(Protocol):
    """Transport to one node; `folder` is the path of its files on the node."""

    folder: str

    async def start(self, module: str) -> Remote:
        """Start `python -P -m module` in a new session with `folder` as its working directory.

        Raises:
            RunError: it cannot be started.
        """
        ...

    async def put(self, source: Path, target: str, on_progress: OnProgress = ignore_progress) -> None:
        """Copy a file to `target` below the node's folder.

        Raises:
            RunError: the node cannot be reached, or `target` is outside its folder.
        """
        ...

    async def replicate(self, source: str, target: Path) -> None:
        """Copy the file `source` below the node's folder to `target` on this host, and sync it to disk.

        Raises:
            RunError: the node has no such file or cannot be reached, or `source` is outside its folder.
            OSError: the copy cannot be written.
        """
        ...

    async def fetch(self, source: str, pattern: str) -> Path:
        """Return a local folder with the files of the folder `source` below the node's folder.

        Args:
            source: the folder; its subfolders are left out.
            pattern: pattern of file names, with `*` and `?`; the local folder may contain other files.

        Raises:
            RunError: the node cannot be reached, or gives invalid file names.
        """
        ...

    async def remove(self) -> None:
        """Remove the node's folder, if the node can be reached."""
        ...


class LoopbackTransport:
    """Transport to a node on this host: child processes and a folder; `through` is a command prefix for programs."""

    def __init__(self, folder: Path, through: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder
        self._through = through
        self.folder = str(folder)

    async def start(self, module: str) -> Remote:
        """See `Transport.start`; standard error goes to `stderr.log`."""
        try:
            with (self._path / "stderr.log").open("ab") as log:
                child = await asyncio.create_subprocess_exec(
                    *self._through,
                    sys.executable,
                    "-P",
                    "-m",
                    module,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    cwd=self._path,
                    start_new_session=True,
                    limit=MAX_LINE,
                )
        except OSError as fault:
            raise RunError(f"python -m {module} cannot be started in {self.folder}: {fault.strerror}") from None
        return _Child(child)

    async def put(self, source: Path, target: str, on_progress: OnProgress = ignore_progress) -> None:
        """See `Transport.put`; a hard link where the file system allows it."""
        _link(source, below(self._path, target))

    async def replicate(self, source: str, target: Path) -> None:
        """See `Transport.replicate`; a hard link where the file system allows it."""
        found = below(self._path, source).resolve()
        if not found.is_file():
            raise RunError(f"there is no file {source} in {self._path}")

        def copy() -> None:
            _link(found, target)
            with target.open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(target.parent)

        await asyncio.to_thread(copy)

    async def fetch(self, source: str, pattern: str) -> Path:
        """See `Transport.fetch`; the folder itself."""
        return below(self._path, source)

    async def remove(self) -> None:
        """See `Transport.remove`."""
        await asyncio.to_thread(shutil.rmtree, self._path, ignore_errors=True)


def _link(source: Path, target: Path) -> None:
    """Make `target` the same file as `source`, or a copy of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        target.unlink()
    try:
        target.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, target)


class _Child:
    """A child process as `Remote`."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        if child.stdin is None or child.stdout is None:
            raise RunError("a child process without pipes")
        self._child, self._input, self._output = child, child.stdin, child.stdout

    @property
    def pid(self) -> int | None:
        return self._child.pid

    async def read_line(self) -> bytes:
        try:
            return await self._output.readline()
        except ValueError:
            raise RunError(f"a line of more than {MAX_LINE} bytes") from None

    async def write(self, line: bytes) -> None:
        self._input.write(line)
        await self._input.drain()

    def end_input(self) -> None:
        self._input.close()

    async def wait(self) -> int:
        return await self._child.wait()

    def kill(self) -> None:
        # The child leads its session, so its pid is the process group's id, unless it has been reaped already.
        if self._child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
