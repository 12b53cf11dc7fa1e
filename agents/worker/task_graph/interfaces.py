"""The interfaces between a worker's tasks and their environment: links to other workers, a disk, and clocks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agents.protocol import Slot
from agents.worker.channels.ends import Wire
from agents.worker.executors.bolt import BoltExecutor
from agents.worker.executors.executor import Snapshot
from workloads.columns import Columns, joined_rows
from workloads.operators import Row


class WorkerNetwork(Protocol):
    """Links to other workers, by number."""

    def wire(self, peer: int) -> Wire:
        """Return the link to `peer`; bytes written before it is connected are buffered."""
        ...

    def connect(self, peers: set[int], places: Sequence[Slot], ports: Mapping[str, int]) -> None:
        """Request links to `peers`; `places` are all workers by number, `ports` by `node/slot`."""
        ...

    @property
    def complete(self) -> bool:
        """True if all requested links are connected."""
        ...


class Store(Protocol):
    """Storage for snapshots and answers."""

    def read(self, barrier: int, executor: str) -> Snapshot:
        """Return the snapshot of an executor at a barrier.

        Raises:
            RunError: it is missing or incomplete.
        """
        ...

    def save(self, barrier: int, executor: str, snapshot: Snapshot, settled: "Sequence[AnswerRows]" = ()) -> None:
        """Store a snapshot and settled answer rows in the background; `EpochTasks.stored` is called when done."""
        ...

    def delete_before(self, before: int) -> None:
        """Delete snapshots at lower barriers than `before`."""
        ...

    def write_answer(self, executor: str, answer: "AnswerRows") -> Mapping[str, tuple[str, ...]]:
        """Write the last part of an answer now; return its files by table."""
        ...


class AnswerRows:
    """Rows of a sink's answer, which may be `Columns`, with their table and schema (field -> type)."""

    def __init__(self, table: str, schema: Mapping[str, str], rows: Sequence[Row]) -> None:
        self.table, self.schema, self.rows = table, schema, rows

    @classmethod
    def of(cls, bolt: BoltExecutor, last: bool) -> "list[AnswerRows]":
        """Return the settled rows of a sink's answer, by table; with `last` also all others, of every table."""
        answers: list[AnswerRows] = []
        with bolt.guarded():
            for table in bolt.bolt.tables():
                rows = joined_rows(_rows(table.settled()), _rows(table.answer() if last else ()))
                if rows or last:
                    answers.append(cls(table.answer_table, table.answer_schema, rows))
        return answers


def _rows(rows: Iterable[Row]) -> Sequence[Row]:
    return rows if isinstance(rows, Columns) else list(rows)


class MoveClocks(Protocol):
    """The two clocks in reports about moves."""

    def now_ns(self) -> int:
        """Return this node's monotonic clock."""
        ...

    def cpu_ns(self) -> int:
        """Return the CPU time of this thread."""
        ...
