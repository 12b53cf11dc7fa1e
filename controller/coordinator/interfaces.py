"""Interfaces between the coordinator of a run and the nodes and disks that it controls."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agents.protocol import Gates, Message, Place
from controller.coordinator.clock_offset import Offset


class Assignment(NamedTuple):
    """Slot of each executor, by name, and the communication schedule of this placement, if there is one."""

    places: Mapping[str, Place]
    gates: Gates | None = None


PlaceExecutors = Callable[[Set[str]], Awaitable[Assignment]]
"""Places all executors again, on nodes other than the given ones.

Raises:
    MillraceError: no such placement exists.
"""

NoteEvent = Callable[[str, str, str, float | None], None]
"""Writes an event to the traces: kind, subject, detail, value."""


class SlotRecord(NamedTuple):
    """A completed time slot; the columns of the trace table `slot` (docs/reference/traces.md)."""

    epoch: int
    number: int
    steps: str
    lasted_ns: int
    parts: int
    tuples: int
    largest_parts: int
    h_ns: int | None
    stall_predicted_ns: int | None
    stall_ns: int | None
    waiting: int
    largest_outbox: int


class ReplicaStore(Protocol):
    """Replicas of nodes' files that outlive the nodes; replica names contain `/`."""

    async def replicate(self, node: str, file: str, name: str) -> None:
        """Make a synced replica `name` of the node's `file` (relative to the node's folder).

        Raises:
            RunError: the node cannot be reached or has no such file.
            OSError: the copy cannot be written.
        """
        ...

    async def restore(self, name: str, node: str, file: str) -> None:
        """Copy the replica `name` to the node as `file`.

        Raises:
            RunError: the node cannot be reached.
        """
        ...

    async def drop(self, folder: str) -> None:
        """Delete all replicas whose names start with `folder` and a `/`."""
        ...


@dataclass(frozen=True)
class Environment:
    """Everything through which a coordinator acts on nodes and disks.

    Attributes:
        nodes: ids of all nodes; initially the agent of each is up.
        send: sends a message to a node's agent; raises RunError when the agent is gone.
        restart: ends what is left of a node's agent and starts a new one; raises MillraceError when that fails.
        supply: copies the prepared inputs to a node; raises RunError when it cannot be reached.
        place: places executors again.
        offset: returns the offset of a node's monotonic clock from the controller's.
        replicas: replicas of nodes' files.
        note: writes an event to the traces.
        note_slot: writes a time slot to the traces, in runs with a communication schedule.
        tables: tables of the topology's answer; answers for other tables are refused.
    """

    nodes: Collection[str]
    send: Callable[[str, Message], Awaitable[None]]
    restart: Callable[[str], Awaitable[None]]
    supply: Callable[[str], Awaitable[None]]
    place: PlaceExecutors
    offset: Callable[[str], Offset]
    replicas: ReplicaStore
    note: NoteEvent
    note_slot: Callable[[SlotRecord], None] = lambda _: None
    tables: Collection[str] = ()
