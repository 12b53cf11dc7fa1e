"""Interfaces between the coordinator of a run and the nodes and disks that it controls."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from agents.protocol import Gates, Message, MoveToPlace, Report, RunSpec, Slot
from scheduler.online.observation import Happening
from scheduler.problem import CommunicationSchedule
from workloads.traffic import Traffic


class Offset(NamedTuple):
    """Lead of a node's monotonic clock over the controller's, and its error bound, in nanoseconds."""

    offset_ns: int
    bound_ns: int


class Assignment(NamedTuple):
    """Slot of each executor, by name, and the communication schedule of this placement, if there is one."""

    places: Mapping[str, Slot]
    gates: Gates | None = None


PlaceExecutors = Callable[[Set[str], Mapping[str, Slot], Traffic | None], Awaitable[Assignment]]
"""Places executors again, on nodes other than the given ones, after they ran in the given slots with the given traffic.

Raises:
    MillraceError: no such placement exists.
"""

Enlarge = Callable[[Mapping[str, Slot], Set[str], Mapping[str, int]], Mapping[str, Slot]]
"""Returns slots of added executors; see `Environment`."""

NoteEvent = Callable[[str, str, str, float | None], None]
"""Writes an event to the traces: kind, subject, detail, value."""


class Carried(NamedTuple):
    """Result of moves in waves: all, some or none were made, or the epoch broke meanwhile; with the reason."""

    outcome: Literal["done", "partial", "abandoned", "broken"]
    why: str = ""


class RestartRules(NamedTuple):
    """Rules for the restart of a topology in other slots.

    Attributes:
        wait_s: time from the halt of the sources to the checkpoint from which it starts again.
        fresh: whether all its workers are new processes.
    """

    wait_s: float = 0.0
    fresh: bool = False


Waves = Sequence[tuple[MoveToPlace, ...]]
"""Moves of executors, with a barrier for each wave."""


class Scaling(NamedTuple):
    """New numbers of executors by component, and the slots of the executors that are added, by name."""

    parallelism: Mapping[str, int] = {}
    added: Mapping[str, Slot] = {}


UNSCALED = Scaling()
"""All numbers of executors stay."""


class CarryWaves(Protocol):
    """Carries out changes of a running topology."""

    def __call__(
        self,
        revision: int | None,
        waves: Waves,
        schedule: CommunicationSchedule | None = None,
        scaling: Scaling = UNSCALED,
    ) -> Awaitable[Carried]:
        """Move executors, change the communication schedule, and change numbers of executors, for this revision."""
        ...


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
    arrived_ns: int | None
    processed_ns: int | None
    packed_ns: int | None
    queued_rows: int
    queued_bytes: int
    node_parts: str


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
        set_clocks: sets clocks of nodes in Hz, None = the agenda's, and returns node -> description for those that came
            out otherwise.
        set_cpus: changes the CPU settings of a node; raises RunError when that fails.
        drain: returns moves of executors, by name, with these slots off these nodes.
        enlarge: returns the slots of the executors that are missing for these numbers of executors besides those that
            run in these slots, and not on these nodes; raises RunError when there is no slot.
        schedule: returns the communication schedule of the scheduler's placement without these nodes; None if that
            would not leave all executors in these slots. Raises RunError when there is no such placement.
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
    set_clocks: Callable[[Mapping[str, int | None]], Awaitable[Mapping[str, str]]]
    set_cpus: Callable[[str, Mapping[str, Any]], Awaitable[None]]
    drain: Callable[[Mapping[str, Slot], Set[str]], Sequence[MoveToPlace]]
    enlarge: Enlarge
    schedule: Callable[[Mapping[str, Slot], Set[str]], Awaitable[CommunicationSchedule | None]]
    note_slot: Callable[[SlotRecord], None]
    tables: Collection[str]


class RunListener:
    """Listener to what happens to a topology, in the event loop; this one ignores everything."""

    def epoch_started(self, spec: RunSpec, start_ns: int) -> None:
        """Handle the start of an epoch; sources started at `start_ns` on the controller's monotonic clock."""

    def reported(self, node: str, report: Report) -> None:
        """Handle a report of the current epoch, or the answer to a heartbeat."""

    def moved(self, places: Mapping[str, Slot]) -> None:
        """Handle moves of executors; `places` are the slots of all executors now."""

    def scaled(self, spec: RunSpec) -> None:
        """Handle other numbers of executors in the same epoch; `spec` is its specification now."""

    def scheduled(self, gates: Gates) -> None:
        """Handle a change of the communication schedule."""

    def stored(self, nbytes: Mapping[str, int]) -> None:
        """Handle a complete checkpoint: executor -> bytes of state."""

    def changed(self, what: Happening, subject: str) -> None:
        """Handle a change of the cluster: of the node `subject`."""

    def broke(self, why: str) -> None:
        """Handle the end of an epoch by a failure."""

    def revise(self) -> None:
        """Ask the scheduler at once."""

    async def stopping(self) -> None:
        """Handle the request to stop the sources."""

    async def traffic(self) -> Traffic | None:
        """Return the last observed traffic, if there is any."""
        return None

    async def run(self) -> NoReturn:
        """Run until cancelled."""
        await asyncio.Event().wait()
        raise asyncio.CancelledError
