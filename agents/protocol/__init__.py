"""The control protocol: one JSON object per line, in both directions, on pipes or over SSH.

It is used between controller and node agent, and between a node agent and each of its workers. Each message is one
frozen struct with its `type`. The first message of each side contains `VERSION`; a side that receives another version
stops with an error. Messages about a topology contain its `epoch`; messages of older epochs are ignored.

The end of a channel (end of file) means that the other side is gone: an agent then stops its workers and exits, and a
worker exits.
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
    Equip,
    Finish,
    Go,
    Grow,
    Heartbeat,
    Kill,
    Launch,
    Mark,
    MeterIdle,
    Precopy,
    Prepare,
    RestoreCpus,
    Reuse,
    Sampling,
    Schedule,
    SetCpus,
    Start,
    Stop,
    TimeSlot,
    Welcome,
    Write,
)
from agents.protocol.pieces import (
    AGENT,
    HEARTBEAT_S,
    MAX_LINE,
    REPORT_FILE,
    SILENCE_S,
    VERSION,
    Count,
    CpuSetting,
    Division,
    ExecutorSpec,
    Gates,
    IdleBaseline,
    InputFile,
    Message,
    MoveToPlace,
    Program,
    RunSpec,
    Slot,
    Worked,
    sample_s,
    snapshot_sources,
    workers_of,
)
from agents.protocol.reports import (
    Connected,
    CpusSet,
    Drained,
    Equipped,
    Exhausted,
    Failed,
    Finished,
    Hello,
    Idled,
    Launched,
    Lines,
    Listening,
    Lost,
    Moved,
    PairSent,
    Passed,
    Precopied,
    Profile,
    Profiled,
    Progress,
    Pulse,
    Ready,
    Report,
    Reused,
    Sent,
    SlotDone,
    Stopped,
    Stored,
    Vitals,
    Work,
    WorkerReport,
    Written,
)
from inventory.errors import RunError
from inventory.foreign import printable

__all__ = [
    "AGENT",
    "HEARTBEAT_S",
    "MAX_LINE",
    "NONSENSE",
    "REPORT_FILE",
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
    "Division",
    "Drained",
    "Equip",
    "Equipped",
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
    "Kill",
    "Launch",
    "Launched",
    "Lines",
    "Listening",
    "Lost",
    "Mark",
    "Message",
    "MeterIdle",
    "MoveToPlace",
    "Moved",
    "PairSent",
    "Passed",
    "Precopied",
    "Precopy",
    "Prepare",
    "Profile",
    "Profiled",
    "Program",
    "Progress",
    "Pulse",
    "Ready",
    "Report",
    "RestoreCpus",
    "Reuse",
    "Reused",
    "RunSpec",
    "Sampling",
    "Schedule",
    "Sent",
    "SetCpus",
    "Slot",
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
    "Write",
    "Written",
    "decode_command",
    "decode_report",
    "encode",
    "other_version",
    "sample_s",
    "snapshot_sources",
    "workers_of",
]

_encoder = msgspec.json.Encoder()
_commands: msgspec.json.Decoder[Command] = msgspec.json.Decoder(Command)
_reports: msgspec.json.Decoder[Report] = msgspec.json.Decoder(Report)


def encode(message: Message) -> bytes:
    """Encode a message as a line, including the newline."""
    return _encoder.encode(message) + b"\n"


NONSENSE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding; for invalid UTF-8 and too deep nesting msgspec raises Python's own."""


class _AnyVersion(Struct):
    """The part of the first message that is the same in every version of the protocol."""

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
    """Return the error for another version of the protocol at the other side."""
    return RunError(f"the other side uses control protocol {theirs}, this one uses {VERSION}")


def decode_command(line: bytes) -> Command:
    """Decode a line from a controller (or, in a worker, from its agent).

    Raises:
        RunError: it is not a command of this protocol.
    """
    try:
        return _commands.decode(line)
    except NONSENSE as fault:
        raise _explain("command", line, fault) from None


def decode_report(line: bytes) -> Report:
    """Decode a line from an agent (or, in an agent, from a worker).

    Raises:
        RunError: it is not a report of this protocol.
    """
    try:
        return _reports.decode(line)
    except NONSENSE as fault:
        raise _explain("report", line, fault) from None
