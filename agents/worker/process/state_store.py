"""Snapshots and answers on this node's disk.

A snapshot file is either complete or absent: it is written under another name, synced and renamed, and its folder is
synced, once for all snapshots that wait. That takes many milliseconds, so a thread does it, wakes the event loop, and
the loop collects the results.
"""

import os
import shutil
import socket
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from agents.protocol.node_folders import NodeFolder, file_name
from agents.worker.executors.executor import Snapshot
from agents.worker.process.answer_files import write_answer_rows
from agents.worker.task_graph.interfaces import AnswerRows
from inventory.atomic_files import replacing_path, sync
from inventory.errors import RunError


class StoredSnapshot(NamedTuple):
    """A snapshot on disk; `file` and `answers` are relative to the node's folder."""

    barrier: int
    executor: str
    file: str
    nbytes: int
    position: int
    answers: Mapping[str, tuple[str, ...]]


class _Task(NamedTuple):
    barrier: int
    executor: str
    snapshot: Snapshot
    settled: Sequence[AnswerRows]


class StateStore:
    """The snapshots and answers of one run on one node, as one worker uses them."""

    def __init__(self, folder: Path, run: str) -> None:
        """Open the store in the node's `folder`; nothing is created before the first snapshot."""
        self._node, self._run = folder, NodeFolder(folder).run(run)
        self._tasks: SimpleQueue[_Task | int | None] = SimpleQueue()
        self._done: deque[StoredSnapshot | BaseException] = deque()
        self.waker, self._wake = socket.socketpair()
        self.waker.setblocking(False)
        self._wake.setblocking(False)
        self._thread: Thread | None = None

    def read(self, barrier: int, executor: str) -> Snapshot:
        path = self._run.snapshot(barrier, executor)
        try:
            return Snapshot.read(path.read_bytes())
        except OSError as fault:
            raise RunError(f"the snapshot {path} cannot be read: {fault.strerror}") from None
        except RunError as fault:
            raise RunError(f"{path} is {fault}") from None

    def save(self, barrier: int, executor: str, snapshot: Snapshot, settled: Sequence[AnswerRows] = ()) -> None:
        self._put(_Task(barrier, executor, snapshot, settled))

    def delete_before(self, before: int) -> None:
        self._put(before)

    def write_answer(self, executor: str, answer: AnswerRows) -> Mapping[str, tuple[str, ...]]:
        return self._write_rows(f"{answer.table}-{executor}", executor, answer)

    def done(self) -> list[StoredSnapshot]:
        """Return the snapshots stored since the last call.

        Raises:
            RunError: one could not be stored.
        """
        with suppress(BlockingIOError):
            self.waker.recv(4096)
        snapshots: list[StoredSnapshot] = []
        while self._done:
            kept = self._done.popleft()
            if isinstance(kept, BaseException):
                kind = "" if isinstance(kept, OSError | RunError) else f"{type(kept).__name__}: "
                raise RunError(f"a snapshot cannot be stored: {kind}{kept}") from kept
            snapshots.append(kept)
        return snapshots

    def close(self) -> None:
        """Finish all pending work and end the thread."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join()
        self.waker.close()
        self._wake.close()

    def _put(self, task: _Task | int) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name="snapshots", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        ended = False
        while not ended:
            waiting = [self._tasks.get()]
            while not self._tasks.empty():
                waiting.append(self._tasks.get())
            ended = waiting[-1] is None
            self._done += self._do([task for task in waiting if task is not None])
            with suppress(BlockingIOError):
                self._wake.send(b"\0")

    def _do(self, tasks: Iterable[_Task | int]) -> list[StoredSnapshot | BaseException]:
        """Write and delete in this order; return what is on disk then, and errors."""
        outcomes: list[StoredSnapshot | BaseException] = []
        folders: set[Path] = set()
        for task in tasks:
            try:
                if isinstance(task, int):
                    _sync_all(folders)  # one of them may be deleted
                    self._remove(task)
                else:
                    outcomes.append(self._write(task, folders))
            except BaseException as fault:  # noqa: BLE001 - if this thread ended, checkpoints would never complete
                outcomes.append(fault)
        try:
            _sync_all(folders)
        except OSError as fault:
            return [fault]
        return outcomes

    def _write(self, task: _Task, folders: set[Path]) -> StoredSnapshot:
        """Write a snapshot and settled rows, and add the folders that have to be synced."""
        path = self._run.snapshot(task.barrier, task.executor)
        path.parent.mkdir(parents=True, exist_ok=True)
        pieces = task.snapshot.pieces()
        with replacing_path(path) as partial, partial.open("xb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        folders.add(path.parent)
        answers: dict[str, tuple[str, ...]] = {}
        for part in task.settled:
            name = f"{part.table}-{task.executor}@{task.barrier}"
            answers |= self._write_rows(name, task.executor, part)
            for name in answers[part.table]:
                sync(self._node / name)
                folders.add((self._node / name).parent)
        size = sum(map(len, pieces))
        return StoredSnapshot(task.barrier, task.executor, self._below(path), size, task.snapshot.position, answers)

    def _remove(self, before: int) -> None:
        """Delete snapshots at lower barriers; other workers of this node may delete them at the same time."""
        checkpoints = self._run.checkpoint(before).parent
        for folder in checkpoints.iterdir() if checkpoints.is_dir() else ():
            if folder.name.isdecimal() and int(folder.name) < before:
                shutil.rmtree(folder, ignore_errors=True)

    def _write_rows(self, name: str, executor: str, answer: AnswerRows) -> Mapping[str, tuple[str, ...]]:
        path = self._run.answers / f"{file_name(name)}.part"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_answer_rows(path, executor, answer.schema, answer.rows)
        return {answer.table: (self._below(path),)}

    def _below(self, path: Path) -> str:
        return str(path.relative_to(self._node))


def _sync_all(folders: set[Path]) -> None:
    """Sync the names in these folders to disk, and empty the set."""
    while folders:
        sync(folders.pop())
