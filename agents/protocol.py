"""The control channel: one JSON object per line, in both directions, on pipes or over SSH.

Two channels speak this protocol: controller <-> node agent, and node agent <-> each of its workers. Each
message is one frozen struct with its `type`; `VERSION` is in the first message of each side and a side
that meets another version stops with an error. Messages of a topology carry its `epoch`: what belongs to an
older start is ignored.

A channel that ends (end of file) means that the other side is gone: an agent stops its workers and exits,
a worker exits.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from inventory.errors import RunError

VERSION = 1

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


class RunSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """All that a worker must know to run its part of a topology.

    Attributes:
        run: id of the run, part of every trace row.
        epoch: number of this start of the topology, from 1.
        workload, params: what to make operators from.
        topology: the topology as a plain document.
        executors: every executor of the topology in its order, with its place.
        addresses: data address of every node in use.
        key: secret of the run for handshakes, hex.
        rate: the sources' rate as a plain document (`workloads.rates`).
        seed: seed of the run.
        inputs: prepared inputs, present in the node's input folder.
        shared_clock: whether all nodes read the same monotonic clock (one host).
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
    inputs: tuple[InputFile, ...] = ()
    shared_clock: bool = True


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
    """Start the workers of one run: spawn, open operators, listen. Answered by `Listening` per worker."""

    spec: RunSpec
    sensors: tuple[str, ...] = ()


class Connect(Message, frozen=True, tag="connect"):
    """Ports of all workers of the run, `node/slot` -> port; workers connect and answer `Connected`."""

    epoch: int
    ports: Mapping[str, int]


class Go(Message, frozen=True, tag="go"):
    """Sources start at `at_ns` of the node's monotonic clock."""

    epoch: int
    at_ns: int


class Mark(Message, frozen=True, tag="mark"):
    """Write an event with this `kind` into the traces, at the time of receipt."""

    epoch: int
    kind: str


class Stop(Message, frozen=True, tag="stop"):
    """Sources end their input now; the topology drains; every worker answers `Drained`."""

    epoch: int


class Finish(Message, frozen=True, tag="finish"):
    """Close operators and files; workers exit, the agent answers `Finished`. Also ends a run that failed."""

    epoch: int


class Bye(Message, frozen=True, tag="bye"):
    """The agent exits with status 0 after it has cleaned up."""


Command = Welcome | Heartbeat | Start | Connect | Go | Mark | Stop | Finish | Bye

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


class Progress(Message, frozen=True, tag="progress"):
    """Once a second from every worker: counts since source start, for live display only.

    `executors`: name -> [emitted, processed, queued]; `latency_p50_ns` is over the last second, null without samples.
    """

    epoch: int
    slot: int
    emitted: int
    sunk: int
    latency_p50_ns: int | None = None
    executors: Mapping[str, tuple[int, int, int]] = {}


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
    """Something went wrong; `slot` -1 is the agent itself. `log` is the path of the log on the node."""

    epoch: int
    slot: int
    reason: str
    log: str = ""


Report = Hello | Pulse | Listening | Connected | Progress | Exhausted | Drained | Finished | Failed

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
