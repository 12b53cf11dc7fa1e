"""A node's disk in memory: snapshots and parts of answers, there when the test says so."""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.protocol.node_folders import NodeFolder
from agents.worker.executors.executor import Snapshot
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.interfaces import AnswerRows

_FOLDER = NodeFolder(Path()).run("scripted")

LAST = f"{_FOLDER.answers}/999999999-"
"""How names of parts of answers begin that no checkpoint settled: they are behind all barriers."""


def _barrier_of(name: str) -> int:
    """Of a snapshot, or of a part of an answer."""
    below = Path(name).relative_to(_FOLDER.path)
    return int(below.parts[1].partition("-")[0])


class Disk:
    """The files of a node, in memory, by name: snapshots and parts of answers."""

    def __init__(self) -> None:
        self.files: dict[str, Snapshot | AnswerRows] = {}


class Shelf:
    """A worker's way to its disk; what it stores is there when the test says so."""

    def __init__(self, disk: Disk) -> None:
        self.files = disk.files
        self._coming: deque[tuple[int, str, Snapshot, Sequence[AnswerRows]]] = deque()

    def read(self, barrier: int, executor: str) -> Snapshot:
        """See `interfaces.Store.read`; what is read has been bytes in between."""
        kept = self.files[str(_FOLDER.snapshot(barrier, executor))]
        assert isinstance(kept, Snapshot)
        return Snapshot.read(b"".join(kept.pieces()))

    def save(self, barrier: int, executor: str, snapshot: Snapshot, settled: Sequence[AnswerRows] = ()) -> None:
        """See `interfaces.Store.save`."""
        self._coming.append((barrier, executor, snapshot, settled))

    def delete_before(self, before: int) -> None:
        """See `interfaces.Store.delete_before`."""
        for name in [name for name in self.files if _barrier_of(name) < before]:
            del self.files[name]

    def write_answer(self, executor: str, answer: AnswerRows) -> Mapping[str, tuple[str, ...]]:
        """See `interfaces.Store.write_answer`."""
        name = f"{LAST}{executor}@{answer.table}"
        self.files[name] = answer
        return {answer.table: (name,)}

    def work(self, tasks: EpochTasks) -> bool:
        """Let the disk do one thing; return whether there was one."""
        if not self._coming:
            return False
        barrier, executor, snapshot, settled = self._coming.popleft()
        name = str(_FOLDER.snapshot(barrier, executor))
        self.files[name] = snapshot
        answers: dict[str, tuple[str, ...]] = {}
        for part in settled:
            file = f"{_FOLDER.answers}/{barrier}-{executor}@{part.table}"
            answers[part.table] = (file,)
            self.files[file] = part
        nbytes = sum(map(len, snapshot.pieces()))
        tasks.stored(barrier, executor, name, nbytes, snapshot.position, answers)
        return True
