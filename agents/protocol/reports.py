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
    Port,
    Slot,
    SlotIndex,
    Whole,
    make_printable,
)
from inventory.values import NonNegative

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
    `Abandon`. `records` is the number of records of the whole input up to the last one that they have emitted; null if
    the input of one has ended. `refused` is the reason if the worker cannot take part.
    """

    epoch: Count
    slot: SlotIndex
    barrier: Count
    tick: Whole = 0
    records: Whole | None = 0
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


class Precopied(Message, frozen=True, tag="precopied"):
    """An executor's state is copied ahead, or can only move as a whole; `predicted_ns` is the time of what is left."""

    epoch: Count
    slot: SlotIndex
    barrier: Count
    executor: str
    predicted_ns: Count | None = None


class Moved(Message, frozen=True, tag="moved"):
    """An executor works in its new place, or has taken over from others; sent by the new worker.

    Attributes:
        executor: its name.
        state_bytes: size of its state; of all parts that were sent if it was copied before.
        buffered: rows that waited for it here when it started to work.
        source: executor that it continues, of those that it has taken over from; empty: itself, as it has moved.
        cut_ns: end of the work of that one in the old place, on that node's monotonic clock.
        live_ns: start of its work here, on this node's monotonic clock.
        cpu_ns: CPU time for snapshot, encoding, decoding and restoring, in both places; copies included.
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
    source: str = ""


class SlotDone(Message, frozen=True, tag="slot_done"):
    """A worker has sent the permitted rows of a time slot, and is idle until more rows arrive or the next slot starts.

    It is sent again whenever the worker is idle after receiving more rows. If transfers overlap with processing, it is
    sent at once, and again whenever rows have arrived and when the worker is idle.

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
        arrived_ns: time from the same start until the last row arrived here; None: none did since then.
        packed_ns: time from the same start until all results were in the outboxes; None: there was nothing to process.
        queued_rows, queued_bytes: rows in all outboxes and inputs now, and their size, estimated from a few rows.
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
    arrived_ns: Count | None = None
    packed_ns: Count | None = None
    queued_rows: Count = 0
    queued_bytes: Count = 0


class Lost(Message, frozen=True, tag="lost"):
    """A worker has lost its link to the worker `peer`, and waits for the controller."""

    epoch: Count
    slot: SlotIndex
    peer: Slot
    reason: str

    def __post_init__(self) -> None:
        make_printable(self, "reason")


class Stopped(Message, frozen=True, tag="stopped"):
    """A worker's sources have ended: spout executor -> records emitted."""

    epoch: Count
    slot: SlotIndex
    positions: Mapping[str, Count] = {}


class Work(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Totals of an executor since this start of the topology, and `queued`, the rows in its input queue now.

    `busy_ns` is CPU time, `blocked_ns` time with work but without credit. For spouts, `processed` and `queued` are
    null, `late_ns` is the delay of the last record, if there is a schedule, and `position` is the number of records
    emitted, counted from the start of the input, unaffected by restores and moves; null once others have taken over.
    For bolts, `emitted` and `processed` count from the sources' start, according to their state. In observed runs,
    `due` is the number of records that a spout's schedule requires so far, counted like `position`; null without a
    schedule. `behind` is the number of those that it has not emitted; null without a schedule, too.
    """

    emitted: Count
    processed: Count | None
    queued: Count | None
    busy_ns: Count
    blocked_ns: Count
    late_ns: Count | None = None
    position: Count | None = None
    due: Count | None = None
    behind: Count | None = None


class Sent(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Totals that a worker has sent to one node over one kind of hop; `nbytes` is null within a worker."""

    hop: str
    node: str
    tuples: Count
    nbytes: Count | None


class PairSent(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """Totals that a worker has sent from one executor to another, both by number, on all streams; with replays.

    `nbytes` is null if nothing has left the worker.
    """

    sender: Count
    receiver: Count
    tuples: Count
    nbytes: Count | None


class Progress(Message, frozen=True, tag="progress", gc=False):
    """Totals of a worker since this start of the topology, and positions of its sources; once a second.

    Attributes:
        epoch, slot: of the worker.
        at_ns: the node's monotonic clock.
        emitted, sunk: tuples of spouts and of sinks.
        latency_p50_ns: over the time since the last report; null without samples.
        latency_p99_ns: the same, in observed runs.
        executors: by name.
        sent: by kind of hop and node.
        pairs: in observed runs, pairs that have communicated; null in reports that are closer together than samples.
        sources_from: lowest number of a source here; those that take over from others in a scaling have higher ones.
    """

    epoch: Count
    slot: SlotIndex
    at_ns: Whole
    emitted: Count
    sunk: Count
    latency_p50_ns: Count | None = None
    latency_p99_ns: Count | None = None
    executors: Mapping[str, Work] = {}
    sent: tuple[Sent, ...] = ()
    pairs: tuple[PairSent, ...] | None = None
    sources_from: Count = 0


class Vitals(Message, frozen=True, tag="vitals", gc=False):
    """Sign of life of an agent with a run, once a second, even if its workers are busy.

    Attributes:
        epoch: of the run.
        cores: CPU seconds per second of the node, as in the trace table `cpu`; null without the sensor `cpu`, and
            before a rate is known.
        workers: the same of its workers, by slot.
        at_ns: in observed runs, time of these rates on the node's monotonic clock; the following too.
        joules: energy of the node since the run's start, without steps that were missed; null without a meter, while
            it is silent, and for a node that shares its machine.
        joules_ns: time of `joules`.
        source: reader of `joules`.
        modelled: whether a part of `joules` is computed by a model instead of measured.
        hz: mean current clock of its CPUs; null without cpufreq.
    """

    epoch: Count
    cores: NonNegative | None = None
    workers: Mapping[SlotIndex, NonNegative] = {}
    at_ns: Whole | None = None
    joules: NonNegative | None = None
    joules_ns: Whole | None = None
    source: str | None = None
    modelled: bool = False
    hz: NonNegative | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            make_printable(self, "source")


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


class Equipped(Message, frozen=True, tag="equipped"):
    """Answer to `Equip`: the first of the free ports, 0 if none were asked for; whether the libraries are there."""

    epoch: Count
    first_port: Port = 0
    has_libraries: bool = False


class Launched(Message, frozen=True, tag="launched"):
    """Answer to `Launch`: name of every program -> process id."""

    epoch: Count
    pids: Mapping[str, Count]


class Written(Message, frozen=True, tag="written"):
    """Answer to `Write`."""

    epoch: Count


class Lines(Message, frozen=True, tag="lines"):
    """Whole lines that have been added to a file of reports (`REPORT_FILE`)."""

    epoch: Count
    file: str
    text: str


class Finished(Message, frozen=True, tag="finished"):
    """All workers or programs of the run are gone and the agent's trace files are closed."""

    epoch: Count


class Reused(Message, frozen=True, tag="reused"):
    """Answer to `Reuse`.

    Attributes:
        facts: as in `Hello`, gathered again.
        leftovers: descriptions of what remains of the last run; an agent with any is not to be used again.
    """

    facts: Annotated[Mapping[str, Fact], Meta(max_length=MOST_FACTS)]
    leftovers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        make_printable(self, "facts", "leftovers")


class Failed(Message, frozen=True, tag="failed"):
    """A failure of a worker or, with slot `AGENT`, of the agent or a program. `log` is the path of the log on the node.

    `died`: a process has ended without reporting a reason, which, for a worker, a new epoch can repair. A failure that
    a worker reports itself would only be repeated.
    """

    epoch: Count
    slot: SlotIndex
    reason: str
    log: str = ""
    died: bool = False

    def __post_init__(self) -> None:
        make_printable(self, "reason", "log")


_BarrierReport = Ready | Stored | Passed | Precopied | Moved
WorkerReport = (
    Listening | Connected | _BarrierReport | SlotDone | Lost | Stopped | Progress | Exhausted | Drained | Failed
)
_ProgramReport = Equipped | Launched | Written | Lines
Report = Hello | Pulse | Vitals | Idled | CpusSet | Profiled | Finished | Reused | _ProgramReport | WorkerReport
