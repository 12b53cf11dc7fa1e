"""Reports from an agent to the controller, and from a worker to its agent."""

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from agents.protocol.pieces import (
    Count,
    CpuSetting,
    Fact,
    IdleBaseline,
    Message,
    Place,
    Port,
    SlotIndex,
    Whole,
    make_printable,
)

MOST_FACTS = 200
"""Most facts about a node; they are recorded with every run."""


class Hello(Message, frozen=True, tag="hello"):
    """First message of an agent."""

    version: Count
    pid: Count
    python: str
    facts: Annotated[Mapping[str, Fact], Meta(max_length=MOST_FACTS)]

    def __post_init__(self) -> None:
        make_printable(self, "python", "facts")


class Pulse(Message, frozen=True, tag="pulse"):
    """Answer to `Heartbeat`: its `sent_ns`, and the agent's monotonic clock at receipt and when answering."""

    sent_ns: Whole
    received_ns: Whole
    answered_ns: Whole


class Listening(Message, frozen=True, tag="listening"):
    """A worker has opened its operators and its data port."""

    epoch: Count
    slot: SlotIndex
    pid: Count
    port: Port


class Connected(Message, frozen=True, tag="connected"):
    """A worker has all its links."""

    epoch: Count
    slot: SlotIndex


class Ready(Message, frozen=True, tag="ready"):
    """A worker is ready for the prepared barrier.

    `tick` is the highest number of a next tick among its spouts (0 without any), which they hold back until `Cut` or
    `Abandon`. `refused` is the reason if the worker cannot take part.
    """

    epoch: Count
    slot: SlotIndex
    barrier: Count
    tick: Whole = 0
    refused: str = ""

    def __post_init__(self) -> None:
        make_printable(self, "refused")


class Stored(Message, frozen=True, tag="stored"):
    """An executor's state at a barrier is on this node's disk.

    Attributes:
        executor: its name.
        file: path relative to the node's folder.
        nbytes: size of the state.
        position: records emitted by a spout executor; None for bolts.
        answers: files of settled answer rows, relative to the node's folder, by table.
    """

    epoch: Count
    slot: SlotIndex
    barrier: Count
    executor: str
    file: str
    nbytes: Count
    position: Count | None = None
    answers: Mapping[str, tuple[str, ...]] = {}


class Passed(Message, frozen=True, tag="passed"):
    """All executors of a worker have passed the barrier, including those that moved here."""

    epoch: Count
    slot: SlotIndex
    barrier: Count


class Moved(Message, frozen=True, tag="moved"):
    """An executor works in its new place; sent by the new worker.

    Attributes:
        executor: its name.
        state_bytes: size of its state.
        buffered: rows that waited for it here when it started to work.
        cut_ns: end of its work in the old place, on that node's monotonic clock.
        live_ns: start of its work here, on this node's monotonic clock.
        cpu_ns: CPU time for snapshot, encoding, decoding and restoring, in both places.
    """

    epoch: Count
    slot: SlotIndex
    barrier: Count
    executor: str
    state_bytes: Count
    buffered: Count
    cut_ns: Whole
    live_ns: Whole
    cpu_ns: Count


class SlotDone(Message, frozen=True, tag="slot_done"):
    """A worker has sent the permitted rows of a time slot, and is idle until more rows arrive or the next slot starts.

    It is sent again whenever the worker is idle after receiving more rows.

    Attributes:
        number: of the time slot.
        sent: rows sent since this start of the topology, including those within this worker.
        received: rows received since then. They are processed, or wait for a later time slot: for a marker on other
            channels, or for room in an outbox.
        parts: number of the receiving executor -> parts sent to it in this time slot.
        waiting, largest: rows in all outboxes now, and in the fullest one.
        first_ns: time from the start of the slot, when the command arrived, until every executor here that processed
            rows had processed its first; None: none did.
        last_ns: time from the same start until the last executor was done.
    """

    epoch: Count
    slot: SlotIndex
    number: Count
    sent: Count
    received: Count
    parts: Mapping[Count, Count] = {}
    waiting: Count = 0
    largest: Count = 0
    first_ns: Count | None = None
    last_ns: Count | None = None


class Lost(Message, frozen=True, tag="lost"):
    """A worker has lost its link to the worker `peer`, and waits for the controller."""

    epoch: Count
    slot: SlotIndex
    peer: Place
    reason: str

    def __post_init__(self) -> None:
        make_printable(self, "reason")


class Stopped(Message, frozen=True, tag="stopped"):
    """A worker's sources have ended: spout executor -> records emitted."""

    epoch: Count
    slot: SlotIndex
    positions: Mapping[str, Count] = {}


class Work(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Totals of an executor since this start of the topology, and `queued`, the rows in its input queue now.

    `busy_ns` is CPU time, `blocked_ns` time with work but without credit. For spouts, `processed` and `queued` are
    null, `late_ns` is the delay of the last record, if there is a schedule, and `position` is the number of records
    emitted, counted from the start of the input, unaffected by restores and moves. For bolts, `emitted` and `processed`
    count from the sources' start, according to their state.
    """

    emitted: Count
    processed: Count | None
    queued: Count | None
    busy_ns: Count
    blocked_ns: Count
    late_ns: Count | None = None
    position: Count | None = None


class Sent(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Totals that a worker has sent to one node over one kind of hop; `nbytes` is null within a worker."""

    hop: str
    node: str
    tuples: Count
    nbytes: Count | None


class Progress(Message, frozen=True, tag="progress"):
    """Totals of a worker since this start of the topology, for live display, and positions; once a second.

    `at_ns` is the node's monotonic clock; `executors` are by name; `latency_p50_ns` is over the last second, null
    without samples.
    """

    epoch: Count
    slot: SlotIndex
    at_ns: Whole
    emitted: Count
    sunk: Count
    latency_p50_ns: Whole | None = None
    executors: Mapping[str, Work] = {}
    sent: tuple[Sent, ...] = ()


class Vitals(Message, frozen=True, tag="vitals"):
    """Sign of life of an agent with a run, once a second, even if its workers are busy.

    For live display, CPU seconds per second of the node, as in the trace table `cpu`, and of its workers by slot; null
    without the sensor `cpu`, and before a rate is known.
    """

    epoch: Count
    cores: float | None = None
    workers: Mapping[SlotIndex, float] = {}


class Profile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The sampled stacks of one worker process.

    Attributes:
        slot: the worker's.
        file: of collapsed stacks, relative to the node's folder; empty if there is none.
        samples: stacks read while the worker was running or waiting for a CPU.
        reason: why there is no file.
    """

    slot: SlotIndex
    file: str = ""
    samples: Count = 0
    reason: str = ""

    def __post_init__(self) -> None:
        make_printable(self, "reason")


class Idled(Message, frozen=True, tag="idled"):
    """Answer to `MeterIdle`."""

    baseline: IdleBaseline


class CpusSet(Message, frozen=True, tag="cpus_set"):
    """Answer to `SetCpus` and `RestoreCpus`.

    Attributes:
        settings: the settings that took effect.
        refused: descriptions of impossible settings; if there are any, nothing was set.
    """

    settings: tuple[CpuSetting, ...] = ()
    refused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_printable(self, "refused")


class Profiled(Message, frozen=True, tag="profiled"):
    """Answer to `Sampling` with `on` false: one entry per worker process."""

    epoch: Count
    profiles: tuple[Profile, ...] = ()


class Exhausted(Message, frozen=True, tag="exhausted"):
    """All sources of a worker have reached the end of a finite input."""

    epoch: Count
    slot: SlotIndex


class Drained(Message, frozen=True, tag="drained"):
    """All executors of a worker have processed the end of all inputs; answers are written.

    `positions`: spout executor -> records emitted. `answers`: files of answer parts, relative to the node's folder,
    by table.
    """

    epoch: Count
    slot: SlotIndex
    positions: Mapping[str, Count] = {}
    answers: Mapping[str, tuple[str, ...]] = {}


class Finished(Message, frozen=True, tag="finished"):
    """All workers of the run are gone and the agent's trace files are closed."""

    epoch: Count


class Failed(Message, frozen=True, tag="failed"):
    """A failure of a worker or, with slot `AGENT`, of the agent. `log` is the path of the log on the node.

    `died`: a worker process has ended without reporting a reason, which a new epoch can repair. A failure that a worker
    reports itself would only be repeated.
    """

    epoch: Count
    slot: SlotIndex
    reason: str
    log: str = ""
    died: bool = False

    def __post_init__(self) -> None:
        make_printable(self, "reason", "log")


WorkerReport = (
    Listening
    | Connected
    | Ready
    | Stored
    | Passed
    | Moved
    | SlotDone
    | Lost
    | Stopped
    | Progress
    | Exhausted
    | Drained
    | Failed
)
Report = Hello | Pulse | Vitals | Idled | CpusSet | Profiled | Finished | WorkerReport
