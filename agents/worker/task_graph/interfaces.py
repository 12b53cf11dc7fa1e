"""What a worker's share is handed of the world: links to other workers, a disk, and clocks."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from agents.protocol import Place
from agents.worker.channels.remote import Wire
from agents.worker.executors.snapshot import Snapshot
from workloads.operators import Row


class Network(Protocol):
    """Links to other workers, by number."""

    def wire(self, peer: int) -> Wire:
        """What leads to `peer`; bytes written before there is a connection wait for it."""
        ...

    def connect(self, peers: set[int], places: Sequence[Place], ports: Mapping[str, int]) -> None:
        """Want links to these; `places` are all workers by number, `ports` by `node/slot`."""
        ...

    @property
    def complete(self) -> bool:
        """Whether all wanted links are there."""
        ...


class Store(Protocol):
    """Where snapshots and answers go."""

    def read(self, barrier: int, executor: str) -> Snapshot:
        """The snapshot of an executor at a barrier.

        Raises:
            RunError: it is not there, or not whole.
        """
        ...

    def keep(self, barrier: int, executor: str, snapshot: Snapshot, settled: "Sequence[Settled]" = ()) -> None:
        """Store all of it, in the background; whoever drives the share tells it by `stored`."""
        ...

    def forget(self, before: int) -> None:
        """Snapshots at lower barriers are not wanted any more."""
        ...

    def write_answer(self, executor: str, answer: "Settled") -> Mapping[str, tuple[str, ...]]:
        """Write the last part of an answer now; return its files by table."""
        ...


class Settled:
    """Rows of a sink's answer, with where they belong."""

    def __init__(self, table: str, schema: Mapping[str, str], rows: Sequence[Row]) -> None:
        self.table, self.schema, self.rows = table, schema, rows


class Clocks(Protocol):
    """The two clocks that moves are reported by."""

    def now_ns(self) -> int:
        """This node's monotonic clock."""
        ...

    def cpu_ns(self) -> int:
        """CPU time of this thread."""
        ...
