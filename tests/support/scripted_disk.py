"""A node's disk in memory: snapshots and parts of answers, there when the test says so."""

from collections import deque
from collections.abc import Mapping, Sequence

from agents.worker.share import Share
from agents.worker.snapshot import Snapshot
from agents.worker.surroundings import Settled

LAST = "999999999"
"""Where parts of answers lie that no checkpoint settled: behind all barriers."""


class Disk:
    """The files of a node, in memory, by name: snapshots and parts of answers."""

    def __init__(self) -> None:
        self.files: dict[str, Snapshot | Settled] = {}


class Shelf:
    """A worker's way to its disk; what it stores is there when the test says so."""

    def __init__(self, disk: Disk) -> None:
        self.files = disk.files
        self._coming: deque[tuple[int, str, Snapshot, Sequence[Settled]]] = deque()

    def read(self, barrier: int, executor: str) -> Snapshot:
        """See `surroundings.Store.read`; what is read has been bytes in between."""
        kept = self.files[f"{barrier}/{executor}"]
        assert isinstance(kept, Snapshot)
        return Snapshot.read(b"".join(kept.pieces()))

    def keep(self, barrier: int, executor: str, snapshot: Snapshot, settled: Sequence[Settled] = ()) -> None:
        """See `surroundings.Store.keep`."""
        self._coming.append((barrier, executor, snapshot, settled))

    def forget(self, before: int) -> None:
        """See `surroundings.Store.forget`."""
        for name in [name for name in self.files if int(name.partition("/")[0]) < before]:
            del self.files[name]

    def write_answer(self, executor: str, answer: Settled) -> Mapping[str, tuple[str, ...]]:
        """See `surroundings.Store.write_answer`."""
        name = f"{LAST}/{executor}@{answer.table}"
        self.files[name] = answer
        return {answer.table: (name,)}

    def work(self, share: Share) -> bool:
        """Let the disk do one thing; return whether there was one."""
        if not self._coming:
            return False
        barrier, executor, snapshot, settled = self._coming.popleft()
        name = f"{barrier}/{executor}"
        self.files[name] = snapshot
        answers: dict[str, tuple[str, ...]] = {}
        for part in settled:
            answers[part.table] = (f"{name}@{part.table}",)
            self.files[f"{name}@{part.table}"] = part
        nbytes = sum(map(len, snapshot.pieces()))
        share.stored(barrier, executor, name, nbytes, snapshot.position, answers)
        return True
