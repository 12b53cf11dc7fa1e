"""The control channel: one JSON object per line, in both directions, on pipes or over SSH.

Two channels speak this protocol: controller <-> node agent, and node agent <-> each of its workers. Each
message is one frozen struct with its `type`; `VERSION` is in the first message of each side and a side
that meets another version stops with an error. Messages of a topology carry its `epoch`: what belongs to an
older start is ignored.

A channel that ends (end of file) means that the other side is gone: an agent stops its workers and exits,
a worker exits.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from inventory.errors import RunError

VERSION = 2

MAX_LINE = 16 * 1024 * 1024
"""Bytes of the longest line that is accepted."""

HEARTBEAT_S = 1.0
SILENCE_S = 15.0
"""An agent without a heartbeat for so long acts as on end of file."""


class Message(Struct, frozen=True, kw_only=True, tag_field="type", forbid_unknown_fields=True, omit_defaults=True):
    """One line."""


# --- what the pieces of a start are ----------------------------------------------------------------------


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """A worker process: the node's id and the slot's index on it."""

    node: str
    slot: int


class ExecutorSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """One executor and where it runs; its number is its position in the topology's executor list."""

    component: str
    index: int
    place: Place


class InputFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A prepared input: name for operators, file name in the node's input folder, checksum."""

    name: str
    file: str
    sha256: str


def workers_of(executors: Iterable[ExecutorSpec]) -> tuple[Place, ...]:
    """The workers that these executors need, in the order in which they are numbered at first."""
    return tuple(sorted({entry.place for entry in executors}, key=lambda place: (place.node, place.slot)))


class Move(Struct, frozen=True, forbid_unknown_fields=True):
    """One executor, by name, and where it goes."""

    executor: str
    to: Place


class RunSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that a worker must know to run its part of a topology.

    Attributes:
        run: id of the run, part of every trace row.
        epoch: number of this start of the topology, from 1.
        workload, params: what to make operators from.
        topology: the topology as a plain document.
        executors: every executor of the topology in its order, with its place.
        workers: every worker of the run; a worker's number is its position here, and later ones are added at the end.
            One without executors waits for a move.
        addresses: data address of every node in use.
        key: secret of the run for handshakes, hex.
        rate: the sources' rate as a plain document (`workloads.rates`).
        seed: seed of the run.
        inputs: prepared inputs, present in the node's input folder.
        shared_clock: whether all nodes read the same monotonic clock (one host).
        restore: number of the checkpoint to begin from, whose snapshots lie in the node's folder; 0: from nothing.
        until: positions at which spout executors end, because they had been stopped there before.
        seen: positions that spout executors are known to have reached before; what comes again is counted apart.
    """

    run: str
    epoch: int
    workload: str
    params: Mapping[str, Any]
    topology: Mapping[str, Any]
    executors: tuple[ExecutorSpec, ...]
    addresses: Mapping[str, str]
    key: str
    rate: Mapping[str, Any]
    seed: int
    workers: tuple[Place, ...]
    inputs: tuple[InputFile, ...] = ()
    shared_clock: bool = True
    restore: int = 0
    until: Mapping[str, int] = {}
    seen: Mapping[str, int] = {}


# --- controller -> agent, and what an agent passes on to its workers ------------------------------------


class Welcome(Message, frozen=True, tag="welcome"):
    """First message of the controller: who the agent is and where it may write.

    An agent passes it on to its workers with their `slot`. `folder` is the node's own: prepared inputs lie
    in `inputs/`, and a run writes below `<run>/`.
    """

    version: int
    node: str
    address: str
    folder: str
    campaign: str = ""
    slot: int = -1


class Heartbeat(Message, frozen=True, tag="heartbeat"):
    """Sent every second; answered by `Pulse`. `sent_ns` is the controller's monotonic clock."""

    sent_ns: int


class Start(Message, frozen=True, tag="start"):
    """Start the workers of one run: spawn, open operators, listen. Answered by `Listening` per worker.

    A `Start` of the same run with a higher epoch begins it again from `spec.restore`: workers that live are kept and
    start anew, missing ones are spawned, those that are not wanted any more are ended.
    """

    spec: RunSpec
    sensors: tuple[str, ...] = ()

    @property
    def epoch(self) -> int:
        """The epoch that begins."""
        return self.spec.epoch


class Connect(Message, frozen=True, tag="connect"):
    """Ports of all workers of the run, `node/slot` -> port; workers connect and answer `Connected`."""

    epoch: int
    ports: Mapping[str, int]


class Go(Message, frozen=True, tag="go"):
    """Sources start at `at_ns` of the node's monotonic clock."""

    epoch: int
    at_ns: int


class Grow(Message, frozen=True, tag="grow"):
    """Within an epoch: spawn the workers of `spec` that this node lacks. Answered by `Listening` per new worker.

    `at_ns` is when the sources started, as in `Go`.
    """

    spec: RunSpec
    at_ns: int

    @property
    def epoch(self) -> int:
        """The epoch that it belongs to."""
        return self.spec.epoch


class Prepare(Message, frozen=True, tag="prepare"):
    """Get ready for a barrier; every worker answers `Ready`, and its spouts neither end nor pass a tick meanwhile.

    Attributes:
        barrier: its number, higher than all before, of earlier epochs too.
        store: whether executors store their state when they pass it.
        moves: executors that change their place when they pass it.
        workers: all workers of the run by number, with those that were added since the start.
        ports: `node/slot` -> port of all workers.
        complete: the last complete checkpoint; older ones may be deleted.
    """

    epoch: int
    barrier: int
    store: bool = False
    moves: tuple[Move, ...] = ()
    workers: tuple[Place, ...] = ()
    ports: Mapping[str, int] = {}
    complete: int = 0


class Cut(Message, frozen=True, tag="cut"):
    """Spouts emit the prepared barrier now, or just before tick number `tick` if that has not been emitted yet."""

    epoch: int
    barrier: int
    tick: int


class Abandon(Message, frozen=True, tag="abandon"):
    """The prepared barrier does not come; what was made ready for it is dropped."""

    epoch: int
    barrier: int


class Mark(Message, frozen=True, tag="mark"):
    """Write an event with this `kind` into the traces, at the time of receipt."""

    epoch: int
    kind: str


class Sampling(Message, frozen=True, tag="sampling"):
    """Sample the stacks of all workers from now on, those that are spawned later included; or end it (`Profiled`)."""

    epoch: int
    on: bool


class Stop(Message, frozen=True, tag="stop"):
    """Sources end their input now (`Stopped`); the topology drains; every worker answers `Drained`."""

    epoch: int


class Finish(Message, frozen=True, tag="finish"):
    """Close operators and files; workers exit, the agent answers `Finished`. Also ends a run that failed."""

    epoch: int


class Bye(Message, frozen=True, tag="bye"):
    """The agent exits with status 0 after it has cleaned up."""


Command = (
    Welcome | Heartbeat | Start | Grow | Connect | Go | Prepare | Cut | Abandon | Mark | Sampling | Stop | Finish | Bye
)

# --- agent -> controller, and worker -> agent -----------------------------------------------------------


class Hello(Message, frozen=True, tag="hello"):
    """First message of an agent."""

    version: int
    pid: int
    python: str
    facts: Mapping[str, Any]


class Pulse(Message, frozen=True, tag="pulse"):
    """Answer to `Heartbeat`: its `sent_ns`, and the agent's monotonic clock at receipt and at answer."""

    sent_ns: int
    received_ns: int
    answered_ns: int


class Listening(Message, frozen=True, tag="listening"):
    """A worker's data port is open; its operators are open too."""

    epoch: int
    slot: int
    pid: int
    port: int


class Connected(Message, frozen=True, tag="connected"):
    """A worker has all its links."""

    epoch: int
    slot: int


class Ready(Message, frozen=True, tag="ready"):
    """A worker is ready for the prepared barrier.

    `tick` is the highest number of a next tick among its spouts (0 without any), which they hold back until `Cut` or
    `Abandon`. With `refused`, it cannot take part, and says why.
    """

    epoch: int
    slot: int
    barrier: int
    tick: int = 0
    refused: str = ""


class Stored(Message, frozen=True, tag="stored"):
    """An executor's state at a barrier is on this node's disk.

    Attributes:
        executor: its name.
        file: where, relative to the node's folder.
        nbytes: size of the state.
        position: records emitted, of a spout executor; None for bolts.
        answers: files of answer rows that were settled, relative to the node's folder, by table.
    """

    epoch: int
    slot: int
    barrier: int
    executor: str
    file: str
    nbytes: int
    position: int | None = None
    answers: Mapping[str, tuple[str, ...]] = {}


class Passed(Message, frozen=True, tag="passed"):
    """All executors of a worker have passed the barrier, those that came to it by a move included."""

    epoch: int
    slot: int
    barrier: int


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

    epoch: int
    slot: int
    barrier: int
    executor: str
    state_bytes: int
    buffered: int
    cut_ns: int
    live_ns: int
    cpu_ns: int


class Lost(Message, frozen=True, tag="lost"):
    """A worker has lost its link to the worker `peer`, and waits for what the controller decides."""

    epoch: int
    slot: int
    peer: Place
    reason: str


class Stopped(Message, frozen=True, tag="stopped"):
    """A worker's sources have ended: spout executor -> records emitted."""

    epoch: int
    slot: int
    positions: Mapping[str, int] = {}


class Work(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an executor has done since this start of the topology, and `queued`, the rows that wait for it now.

    `busy_ns` is CPU time, `blocked_ns` time with work but without credit. Of spouts, `processed` and `queued` are null,
    and `late_ns` is how late the last record left, if there is a schedule.
    """

    emitted: int
    processed: int | None
    queued: int | None
    busy_ns: int
    blocked_ns: int
    late_ns: int | None = None


class Sent(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a worker has sent to one node over one kind of hop; `nbytes` is null within a worker: nothing is encoded."""

    hop: str
    node: str
    tuples: int
    nbytes: int | None


class Progress(Message, frozen=True, tag="progress"):
    """Once a second from every worker: totals since this start of the topology, for live display only.

    `at_ns` is the node's monotonic clock; `executors` are by name; `latency_p50_ns` is over the last second, null
    without samples.
    """

    epoch: int
    slot: int
    at_ns: int
    emitted: int
    sunk: int
    latency_p50_ns: int | None = None
    executors: Mapping[str, Work] = {}
    sent: tuple[Sent, ...] = ()


class Vitals(Message, frozen=True, tag="vitals"):
    """Once a second from every agent whose run has the sensor `cpu`, for live display only.

    CPU seconds per second of the node, as in the trace table `cpu`, and of its workers by slot; null before a rate is
    known.
    """

    epoch: int
    cores: float | None = None
    workers: Mapping[int, float] = {}


class Profile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The sampled stacks of one worker process.

    Attributes:
        slot: the worker's.
        file: of collapsed stacks, relative to the node's folder; empty where there is none.
        samples: stacks that were read while the worker was at work or waited for a processor.
        reason: why there is no file.
    """

    slot: int
    file: str = ""
    samples: int = 0
    reason: str = ""


class Profiled(Message, frozen=True, tag="profiled"):
    """Answer to the end of `Sampling`: one entry per worker process."""

    epoch: int
    profiles: tuple[Profile, ...] = ()


class Exhausted(Message, frozen=True, tag="exhausted"):
    """All sources of a worker have reached the end of a finite input."""

    epoch: int
    slot: int


class Drained(Message, frozen=True, tag="drained"):
    """All executors of a worker have seen the end of all inputs; answers are written.

    `positions`: spout executor -> records emitted. `answers`: files of answer parts, relative to the node's folder,
    by table.
    """

    epoch: int
    slot: int
    positions: Mapping[str, int] = {}
    answers: Mapping[str, tuple[str, ...]] = {}


class Finished(Message, frozen=True, tag="finished"):
    """All workers of the run are gone and the agent's trace files are closed."""

    epoch: int


class Failed(Message, frozen=True, tag="failed"):
    """Something went wrong; `slot` -1 is the agent itself. `log` is the path of the log on the node.

    `died` tells of a worker process that ended without a word, which a new start of the topology can mend; what a
    worker says itself would only happen again.
    """

    epoch: int
    slot: int
    reason: str
    log: str = ""
    died: bool = False


WorkerReport = (
    Listening | Connected | Ready | Stored | Passed | Moved | Lost | Stopped | Progress | Exhausted | Drained | Failed
)
Report = Hello | Pulse | Vitals | Profiled | Finished | WorkerReport

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_reports: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def encode(message: Message) -> bytes:
    """One message as a line, newline included."""
    return _encoder.encode(message) + b"\n"


class _AnyVersion(Struct):
    """What the first message of either side has in every version of the protocol."""

    version: int


def _explain(what: str, line: bytes, fault: msgspec.DecodeError) -> RunError:
    try:
        theirs = msgspec.json.decode(line, type=_AnyVersion).version
    except msgspec.DecodeError:
        theirs = VERSION
    if theirs != VERSION:
        return other_version(theirs)
    return RunError(f"not a {what} of control protocol {VERSION}: {fault}: {line[:120]!r}")


def other_version(theirs: int) -> RunError:
    """The error of meeting a side with another version."""
    return RunError(f"the other side speaks control protocol {theirs}, this one speaks {VERSION}")


def decode_command(line: bytes) -> Command:
    """Read a line that a controller (or an agent, for its worker) sent.

    Raises:
        RunError: it is not a message of this protocol.
    """
    try:
        return _commands.decode(line)
    except msgspec.DecodeError as fault:
        raise _explain("command", line, fault) from None


def decode_report(line: bytes) -> Report:
    """Read a line that an agent (or a worker, for its agent) sent.

    Raises:
        RunError: it is not a message of this protocol.
    """
    try:
        return _reports.decode(line)
    except msgspec.DecodeError as fault:
        raise _explain("report", line, fault) from None
