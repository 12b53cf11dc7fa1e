"""Lines between the controller and the program on a node (`engines.node`), and the names of files that both use."""

import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from agents.protocol.pieces import Count, Fact, Port, Whole, make_printable
from agents.protocol.reports import MOST_FACTS
from engines.child_processes import EngineProcess

JARS = "jars"
"""Folder of the job on a node into which the engine's jars are copied."""

KEPT_LOGS = "kept-logs"
"""Folder of the job on a node with the ends of all logs."""

REPORT = re.compile(r"(?P<node>.+)-(?P<slot>\d{1,9})-(?P<pid>\d{1,9})\.tsv")
"""Names of reports."""


class Line(Struct, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """A line in either direction."""


class Prepare(Line, frozen=True, tag="prepare"):
    """First command: the node's id, how many ports it needs, and the engine's folder; answered by `Ready`."""

    node: str
    ports: int
    engine: str


class Keep(Line, frozen=True, tag="keep"):
    """The jars have been copied; answered by `Kept`."""


class Start(Line, frozen=True, tag="start"):
    """Start processes and sensors; answered by `Started`. `daemon` is the process that sensors take for the agent."""

    run: str
    address: str
    processes: list[EngineProcess]
    sensors: list[str]
    daemon: str


class Ask(Line, frozen=True, tag="ask"):
    """Answered by `Clock`; `sent_ns` is the controller's monotonic clock."""

    sent_ns: int


class Go(Line, frozen=True, tag="go"):
    """Times of the run on the node's clock, as in `write_go`; answered by `Going`. It is sent again as clocks drift."""

    times: list[int]


class Finish(Line, frozen=True, tag="finish"):
    """Have executors write their answers."""


class Stop(Line, frozen=True, tag="stop"):
    """End all processes and keep their logs; answered by `Stopped`."""


class Ready(Line, frozen=True, tag="ready"):
    """Answer to `Prepare`: facts about the node, the first of its free ports, and whether it has the engine's jars."""

    facts: Annotated[Mapping[str, Fact], Meta(max_length=MOST_FACTS)]
    first_port: Port
    has_engine: bool

    def __post_init__(self) -> None:
        make_printable(self, "facts")


class Kept(Line, frozen=True, tag="kept"):
    """Answer to `Keep`."""


class Started(Line, frozen=True, tag="started"):
    """Answer to `Start`."""


class Clock(Line, frozen=True, tag="clock"):
    """Answer to `Ask`: its `sent_ns`, and the node's monotonic clock at receipt and when answering."""

    sent_ns: Whole
    received_ns: Whole
    answered_ns: Whole


class Going(Line, frozen=True, tag="going"):
    """Answer to `Go`."""


class Report(Line, frozen=True, tag="report"):
    """What has been added to a file of reports: whole lines."""

    file: str
    text: str


class Ended(Line, frozen=True, tag="ended"):
    """A process has ended: its name, exit status, and the end of its log."""

    name: str
    status: int
    tail: str


class Gone(Line, frozen=True, tag="gone"):
    """A process of executors has ended."""

    pid: Count


class Stopped(Line, frozen=True, tag="stopped"):
    """Answer to `Stop`."""


class Failed(Line, frozen=True, tag="failed"):
    """A command cannot be carried out, or sensors have failed."""

    reason: str


Command = Prepare | Keep | Start | Ask | Go | Finish | Stop
Answer = Ready | Kept | Started | Clock | Going | Report | Ended | Gone | Stopped | Failed
