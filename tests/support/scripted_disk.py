"""Disk of a node in memory; a test decides when writes complete."""

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from agents.protocol.node_folders import NodeFolder
from agents.worker.executors.executor import Snapshot
from agents.worker.task_graph.epoch import EpochTasks
from agents.worker.task_graph.interfaces import AnswerRows

_FOLDER = NodeFolder(Path()).run("scripted")

LAST = f"{_FOLDER.answers}/999999999-"
"""Prefix of answer parts that no checkpoint settles; they sort after all barriers."""


def _barrier_of(name: str) -> int:
    """Return the barrier of a snapshot or of an answer part."""
    below = Path(name).relative_to(_FOLDER.path)
    return int(below.parts[1].partition("-")[0])


class Disk:
    """Files of a node in memory, by name: snapshots and answer parts."""

    def __init__(self) -> None:
        self.files: dict[str, Snapshot | AnswerRows] = {}


class ScriptedStore:
    """A worker's store on its node's disk; a test decides when writes complete."""

    def __init__(self, disk: Disk) -> None:
        self.files = disk.files
        self._coming: deque[tuple[int, str, Snapshot, Sequence[AnswerRows]]] = deque()

    def read(self, barrier: int, executor: str) -> Snapshot:
        """See `interfaces.Store.read`; the snapshot is encoded and decoded on the way."""
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
        """Complete one write; return whether there was one."""
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
