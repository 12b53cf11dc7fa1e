"""What the control of a run is handed: all that it can do to nodes and disks."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agents.protocol import Gates, Message, Place
from controller.coordinator.clock_offset import Offset


class Seats(NamedTuple):
    """Where executors (by name) run, and the communication schedule that goes with that, if they follow one."""

    places: Mapping[str, Place]
    gates: Gates | None = None


Placing = Callable[[Set[str]], Awaitable[Seats]]
"""Places all executors (by name) again, on nodes other than those given.

Raises:
    MillraceError: there is no such placement.
"""

Note = Callable[[str, str, str, float | None], None]
"""Takes an event for the traces: kind, subject, detail, value."""


class SlotRecord(NamedTuple):
    """A time slot that is over; the columns of the trace table `slot` (docs/reference/traces.md)."""

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


class Copies(Protocol):
    """Second copies of nodes' files, by names with `/`; they outlive the nodes."""

    async def keep(self, node: str, file: str, name: str) -> None:
        """Have a synced copy of the node's `file` (relative to its folder) called `name`.

        Raises:
            RunError: the node cannot be reached, or has no such file.
            OSError: the copy cannot be written.
        """
        ...

    async def put(self, name: str, node: str, file: str) -> None:
        """Give the node the copy called `name` as its `file`.

        Raises:
            RunError: the node cannot be reached.
        """
        ...

    async def drop(self, folder: str) -> None:
        """Forget all copies whose names begin with `folder` and a `/`."""
        ...


@dataclass(frozen=True)
class Environment:
    """The world around a run.

    Attributes:
        nodes: ids of all nodes; the agent of each is up at first.
        tell: sends a message to a node's agent; RunError when the agent is gone.
        restart: starts the agent of a node anew, whatever is left of the old one ends; MillraceError when it cannot be.
        supply: has the prepared inputs on a node; RunError when it cannot be reached.
        place: places executors again.
        offset: a node's monotonic clock against ours.
        copies: second copies of files.
        note: takes events.
        note_slot: takes time slots, of runs with gates.
        tables: those of the topology's answer; nodes can have answers for no others.
    """

    nodes: Collection[str]
    tell: Callable[[str, Message], Awaitable[None]]
    restart: Callable[[str], Awaitable[None]]
    supply: Callable[[str], Awaitable[None]]
    place: Placing
    offset: Callable[[str], Offset]
    copies: Copies
    note: Note
    note_slot: Callable[[SlotRecord], None] = lambda _: None
    tables: Collection[str] = ()
