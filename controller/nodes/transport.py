"""Transport to one node: programs and files; and the collection of a run's files from its nodes.

Programs are started, files copied to the node, folders fetched and removed. Replicas of files are on several nodes.
Traces, answers, logs and profiles of a run are collected into the run's folder. Other modules depend only on
`Transport` and `Remote`, whether a node is a child process or a machine reached over SSH.
"""

import asyncio
import glob
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pyarrow.parquet
from msgspec.structs import replace

from agents.collected_traces import UnreportedRows, collect
from agents.protocol import MAX_LINE, Profile
from agents.protocol.node_folders import below, component, regular_files
from agents.trace import FILES
from agents.worker.process.answer_files import Fields, read_answer_rows
from analysis.records.conditions import ProfileRecord
from controller.coordinator.reports import HERE
from inventory.atomic_files import sync_file
from inventory.errors import MillraceError, RunError
from workloads.operators import Row

STDERR_LOG = "stderr.log"
"""File in the node's folder with what programs write to standard error before they have logs of their own."""

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
        """See `Transport.start`; standard error goes to the file `STDERR_LOG`."""
        try:
            with (self._path / STDERR_LOG).open("ab") as log:
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
        path = below(self._path, source).resolve()

        def copy() -> None:
            try:
                if not path.is_file():
                    raise FileNotFoundError
                _link(path, target)
            except FileNotFoundError:  # of the source, which may also disappear meanwhile: the target's folder is made
                raise RunError(f"there is no file {source} in {self._path}") from None
            sync_file(target)

        await asyncio.to_thread(copy)

    async def fetch(self, source: str, pattern: str) -> Path:
        """See `Transport.fetch`; the folder itself."""
        return below(self._path, source)

    async def remove(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._path, ignore_errors=True)


class FolderReplicas:
    """`ReplicaStore` in a folder; the name of a replica is its path there."""

    def __init__(self, folder: Path, transports: Mapping[str, Transport]) -> None:
        self._folder, self._transports = folder, transports

    def path(self, name: str) -> Path:
        """Return the path of a replica.

        Raises:
            RunError: it is not below the folder.
        """
        return below(self._folder, name)

    async def replicate(self, node: str, file: str, name: str) -> None:
        await self._transports[node].replicate(file, self.path(name))

    async def restore(self, name: str, node: str, file: str) -> None:
        await self._transports[node].put(self.path(name), file)

    async def drop(self, folder: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self.path(folder), ignore_errors=True)


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


Nodes = Mapping[str, Transport]

LOGS = "*.log"


async def collect_traces(
    nodes: Nodes, run: str, ours: Path, target: Path, unreported: Sequence[UnreportedRows] = ()
) -> dict[str, int]:
    """Write `target/<table>.parquet` from the trace files of all nodes and our own; return rows per table.

    Raises:
        RunError: a trace file is not of this version.
        OSError: they cannot be written.
    """
    below = str(HERE.run(run).traces)
    fetched = await asyncio.gather(*(transport.fetch(below, FILES) for transport in nodes.values()))
    return await asyncio.to_thread(collect, [*fetched, ours], target, unreported)


def collect_answer(
    parts: Iterable[tuple[str, Path]], target: Path, tables: Mapping[str, Fields]
) -> dict[str, Sequence[Row]]:
    """Write the sinks' answer as `target/<table>/part-<k>.parquet` and return its rows by table.

    Args:
        parts: (table, file) of each part.
        target: folder of the tables.
        tables: all tables; one without parts has no rows.

    Raises:
        RunError: a part is missing, damaged, or has other columns than its table.
        OSError: they cannot be written.
    """
    rows: dict[str, list[Row]] = {table: [] for table in tables}
    written: dict[str, int] = {}
    for table, path in parts:
        rows_table = read_answer_rows(path, tables[table])
        number = written.get(table, 0)
        written[table] = number + 1
        folder = target / table
        folder.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(rows_table, folder / f"part-{number:05d}.parquet")
        rows[table].extend(zip(*(column.to_pylist() for column in rows_table.columns), strict=True))
    return dict(rows)


async def collect_logs(nodes: Nodes, run: str, target: Path) -> None:
    """Copy the logs of agents and workers to `target/<node>/`; empty ones are left out.

    Nodes that cannot be reached are skipped: the logs of the others may show why.

    Raises:
        OSError: they cannot be written.
    """

    async def collect(node: str, transport: Transport) -> None:
        for path in (HERE.path, HERE.log.parent, HERE.run(run).log(0).parent):
            folder = await transport.fetch(str(path), LOGS)
            for log in regular_files(folder, LOGS):
                if log.stat().st_size:
                    (target / node).mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(log, target / node / log.name)

    outcomes = await asyncio.gather(*(collect(*each) for each in nodes.items()), return_exceptions=True)
    for fault in outcomes:
        if fault is not None and not isinstance(fault, MillraceError):
            raise fault


async def collect_profiles(
    nodes: Nodes, run: str, profiles: Mapping[str, Sequence[Profile]], target: Path
) -> list[ProfileRecord]:
    """Copy the sampled stacks of all workers to `target`; return their entries for `run.json`.

    Raises:
        RunError: a node cannot be reached or gives an invalid file name.
        OSError: they cannot be written.
    """
    target.mkdir(exist_ok=True)
    listed: list[ProfileRecord] = []
    for node, transport in nodes.items():
        if node not in profiles:
            listed.append(ProfileRecord(node=node, reason=f"the agent of {node} did not answer in time"))
        for profile in profiles.get(node, ()):
            record = ProfileRecord(node=node, slot=profile.slot, reason=profile.reason)
            if profile.file:
                name = component(Path(profile.file).name)
                folder = await transport.fetch(str(HERE.run(run).profiles), glob.escape(name))
                if folder / name in regular_files(folder, glob.escape(name)):
                    shutil.copyfile(folder / name, target / name)
                    record = replace(record, file=f"{target.name}/{name}", samples=profile.samples, reason=None)
                else:
                    record = replace(record, reason=f"{node} has no file {profile.file}")
            listed.append(record)
    return listed
