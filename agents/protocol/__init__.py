"""The control channel: one JSON object per line, in both directions, on pipes or over SSH.

Two channels speak this protocol: controller <-> node agent, and node agent <-> each of its workers. Each
message is one frozen struct with its `type`; `VERSION` is in the first message of each side and a side
that meets another version stops with an error. Messages of a topology carry its `epoch`: what belongs to an
older start is ignored.

A channel that ends (end of file) means that the other side is gone: an agent stops its workers and exits,
a worker exits.
"""

import msgspec
from msgspec import Struct

from agents.protocol.commands import (
    Abandon,
    Bye,
    Clock,
    Command,
    Connect,
    Cut,
    Finish,
    Go,
    Grow,
    Heartbeat,
    Mark,
    MeterIdle,
    Prepare,
    RestoreCpus,
    Sampling,
    SetCpus,
    Start,
    Stop,
    TimeSlot,
    Welcome,
)
from agents.protocol.pieces import (
    AGENT,
    HEARTBEAT_S,
    MAX_LINE,
    SILENCE_S,
    VERSION,
    Count,
    CpuSetting,
    ExecutorSpec,
    Gates,
    IdleBaseline,
    InputFile,
    Message,
    Move,
    Place,
    RunSpec,
    Worked,
    workers_of,
)
from agents.protocol.reports import (
    Connected,
    CpusSet,
    Drained,
    Exhausted,
    Failed,
    Finished,
    Hello,
    Idled,
    Listening,
    Lost,
    Moved,
    Passed,
    Profile,
    Profiled,
    Progress,
    Pulse,
    Ready,
    Report,
    Sent,
    SlotDone,
    Stopped,
    Stored,
    Vitals,
    Work,
    WorkerReport,
)
from inventory.errors import RunError
from inventory.foreign import printable

__all__ = [
    "AGENT",
    "HEARTBEAT_S",
    "MAX_LINE",
    "NONSENSE",
    "SILENCE_S",
    "VERSION",
    "Abandon",
    "Bye",
    "Clock",
    "Command",
    "Connect",
    "Connected",
    "Count",
    "CpuSetting",
    "CpusSet",
    "Cut",
    "Drained",
    "ExecutorSpec",
    "Exhausted",
    "Failed",
    "Finish",
    "Finished",
    "Gates",
    "Go",
    "Grow",
    "Heartbeat",
    "Hello",
    "IdleBaseline",
    "Idled",
    "InputFile",
    "Listening",
    "Lost",
    "Mark",
    "Message",
    "MeterIdle",
    "Move",
    "Moved",
    "Passed",
    "Place",
    "Prepare",
    "Profile",
    "Profiled",
    "Progress",
    "Pulse",
    "Ready",
    "Report",
    "RestoreCpus",
    "RunSpec",
    "Sampling",
    "Sent",
    "SetCpus",
    "SlotDone",
    "Start",
    "Stop",
    "Stopped",
    "Stored",
    "TimeSlot",
    "Vitals",
    "Welcome",
    "Work",
    "Worked",
    "WorkerReport",
    "decode_command",
    "decode_report",
    "encode",
    "other_version",
    "workers_of",
]

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_reports: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def encode(message: Message) -> bytes:
    """One message as a line, newline included."""
    return _encoder.encode(message) + b"\n"


NONSENSE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises; msgspec leaves to Python's own errors what is no UTF-8, or is nested too deep."""


class _AnyVersion(Struct):
    """What the first message of either side has in every version of the protocol."""

    version: Count


def _explain(what: str, line: bytes, fault: Exception) -> RunError:
    try:
        theirs = msgspec.json.decode(line, type=_AnyVersion).version
    except NONSENSE:
        theirs = VERSION
    if theirs != VERSION:
        return other_version(theirs)
    return RunError(printable(f"not a {what} of control protocol {VERSION}: {fault}: {line[:120]!r}"))


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
    except NONSENSE as fault:
        raise _explain("command", line, fault) from None


def decode_report(line: bytes) -> Report:
    """Read a line that an agent (or a worker, for its agent) sent.

    Raises:
        RunError: it is not a message of this protocol.
    """
    try:
        return _reports.decode(line)
    except NONSENSE as fault:
        raise _explain("report", line, fault) from None
