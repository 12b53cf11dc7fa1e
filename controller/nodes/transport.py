"""How the controller reaches one node: start a program there, put files, take folders back, remove them.

The rest of the campaign knows only `Transport` and `Remote`; whether a node is a child process or a machine behind
SSH is decided here.
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

Moved = Callable[[int, int], None]
"""Is told of a file on its way to a node: how many bytes have left, and of how many; never of what need not move."""


def untold(sent: int, of: int) -> None:
    """For whom it may be on its way."""


class Remote(Protocol):
    """A program that runs on a node and speaks lines on its standard input and output."""

    @property
    def pid(self) -> int | None:
        """Its pid on this host; None where it runs elsewhere."""
        ...

    async def read_line(self) -> bytes:
        """The next line with its newline; `b""` when its output has ended.

        Raises:
            RunError: the line is longer than `MAX_LINE`.
        """
        ...

    async def write(self, line: bytes) -> None:
        """Send one line; waits while the pipe is full.

        Raises:
            ConnectionError: it reads no more.
        """
        ...

    def end_input(self) -> None:
        """Let it see the end of its input."""
        ...

    async def wait(self) -> int:
        """Its exit status, negative for a signal, once it has ended."""
        ...

    def kill(self) -> None:
        """End it now, with all that it shares a session with."""
        ...


class Transport(Protocol):
    """One node, as the controller reaches it; `folder` is where the node keeps its files, a path on the node."""

    folder: str

    async def start(self, module: str) -> Remote:
        """Start `python -P -m module` in a session of its own, its working folder being `folder`.

        Raises:
            RunError: it cannot be started.
        """
        ...

    async def put(self, source: Path, target: str, moved: Moved = untold) -> None:
        """Copy a file to `target` below the node's folder.

        Raises:
            RunError: the node cannot be reached, or `target` does not lie there.
        """
        ...

    async def keep(self, source: str, target: Path) -> None:
        """Have a second copy of the file `source` below the node's folder, safe on this host's disk as `target`.

        Raises:
            RunError: the node has no such file, or cannot be reached; the file does not lie there.
            OSError: the copy cannot be written.
        """
        ...

    async def fetch(self, source: str, pattern: str) -> Path:
        """Return a local folder that has the files of the folder `source` below the node's folder, if it has any.

        Args:
            source: the folder; what lies in folders below it is not meant.
            pattern: which files, with `*` and `?`; there may be others.

        Raises:
            RunError: the node cannot be reached, or gives names that are no file names.
        """
        ...

    async def remove(self) -> None:
        """Remove the node's folder, if the node can be reached."""
        ...


class LoopbackTransport:
    """A node on this host: a child process and a folder; `through` is the command that runs others where it is."""

    def __init__(self, folder: Path, through: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder
        self._through = through
        self.folder = str(folder)

    async def start(self, module: str) -> Remote:
        """See `Transport.start`; what it prints before it has a log of its own goes to `stderr.log`."""
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

    async def put(self, source: Path, target: str, moved: Moved = untold) -> None:
        """See `Transport.put`; a hard link where the file system allows it."""
        _link(source, below(self._path, target))

    async def keep(self, source: str, target: Path) -> None:
        """See `Transport.keep`; a hard link where the file system allows it."""
        found = below(self._path, source).resolve()
        if not found.is_file():
            raise RunError(f"there is no file {source} in {self._path}")

        def keep() -> None:
            _link(found, target)
            with target.open("rb") as file:
                os.fsync(file.fileno())
            sync_folder(target.parent)

        await asyncio.to_thread(keep)

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
        # The child leads its session, so that its number is that of the group, too; unless it has been waited for.
        if self._child.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
