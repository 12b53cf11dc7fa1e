"""Agent -> controller, and worker -> agent."""

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
"""So many facts a node may give of itself; they are written down for every run."""


class Hello(Message, frozen=True, tag="hello"):
    """First message of an agent."""

    version: Count
    pid: Count
    python: str
    facts: Annotated[Mapping[str, Fact], Meta(max_length=MOST_FACTS)]

    def __post_init__(self) -> None:
        make_printable(self, "python", "facts")


class Pulse(Message, frozen=True, tag="pulse"):
    """Answer to `Heartbeat`: its `sent_ns`, and the agent's monotonic clock at receipt and at answer."""

    sent_ns: Whole
    received_ns: Whole
    answered_ns: Whole


class Listening(Message, frozen=True, tag="listening"):
    """A worker's data port is open; its operators are open too."""

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
    `Abandon`. With `refused`, it cannot take part, and says why.
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
        file: where, relative to the node's folder.
        nbytes: size of the state.
        position: records emitted, of a spout executor; None for bolts.
        answers: files of answer rows that were settled, relative to the node's folder, by table.
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
    """All executors of a worker have passed the barrier, those that came to it by a move included."""

    epoch: Count
    slot: SlotIndex
    barrier: Count


class Moved(Message, frozen=True, tag="moved"):
    """An executor works in its new place; sent by the new worker.

    Attributes:
        executor: its name.
        state_bytes: size of its state.
        buffered: rows that waited for it here when it went to work.
        cut_ns: when its last work in the old place ended, on that node's monotonic clock.
        live_ns: when it went to work, on this node's monotonic clock.
        cpu_ns: CPU time for taking, packing, unpacking and restoring the state, in both places.
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
    """A worker has let go what may leave in a time slot, and has nothing to do until more arrives or the next begins.

    It comes again whenever that is so with more rows received.

    Attributes:
        number: of the time slot.
        sent: rows that have left here since this start of the topology, within this worker too.
        received: rows that have arrived here since then. They are processed, or wait for what no time slot brings by
            itself: a mark on other channels, or room in an outbox.
        parts: number of the receiving executor -> parts that have left here for it in this time slot.
        waiting, largest: rows in all outboxes here now, and in the fullest one.
        first_ns: from the beginning of the time slot, as heard here, until every executor here that processed
            anything had done so once; None: none did.
        last_ns: likewise, until the last was done.
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
    """A worker has lost its link to the worker `peer`, and waits for what the controller decides."""

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
    """What an executor has done since this start of the topology, and `queued`, the rows that wait for it now.

    `busy_ns` is CPU time, `blocked_ns` time with work but without credit. Of spouts, `processed` and `queued` are null,
    `late_ns` is how late the last record left, if there is a schedule, and `position` is the number of records up to
    the last one emitted, counted from the beginning of the input whatever was restored or moved.
    Of bolts, `emitted` and `processed` count from the sources' start, by the state that they have.
    """

    emitted: Count
    processed: Count | None
    queued: Count | None
    busy_ns: Count
    blocked_ns: Count
    late_ns: Count | None = None
    position: Count | None = None


class Sent(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a worker has sent to one node over one kind of hop; `nbytes` is null within a worker: nothing is encoded."""

    hop: str
    node: str
    tuples: Count
    nbytes: Count | None


class Progress(Message, frozen=True, tag="progress"):
    """Once a second from every worker: totals since this start of the topology, for live display, and positions.

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
    """Once a second from every agent that has a run: it is in this epoch, however busy its workers are.

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
        file: of collapsed stacks, relative to the node's folder; empty where there is none.
        samples: stacks that were read while the worker was at work or waited for a processor.
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
        settings: what took effect.
        refused: what is impossible here, in words; when there is any, nothing was set.
    """

    settings: tuple[CpuSetting, ...] = ()
    refused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_printable(self, "refused")


class Profiled(Message, frozen=True, tag="profiled"):
    """Answer to the end of `Sampling`: one entry per worker process."""

    epoch: Count
    profiles: tuple[Profile, ...] = ()


class Exhausted(Message, frozen=True, tag="exhausted"):
    """All sources of a worker have reached the end of a finite input."""

    epoch: Count
    slot: SlotIndex


class Drained(Message, frozen=True, tag="drained"):
    """All executors of a worker have seen the end of all inputs; answers are written.

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
    """Something went wrong; `slot` may be `AGENT`. `log` is the path of the log on the node.

    `died` tells of a worker process that ended without a word, which a new start of the topology can mend; what a
    worker says itself would only happen again.
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
