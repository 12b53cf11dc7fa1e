"""Events of the controller in a finished run until a time: its changes, and what only the controller knew."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from agents.trace import CONTROLLER
from analysis.measure.covered import read_table
from analysis.measure.finished_run import FinishedRun
from analysis.measure.observations import CLOCK, HEARTBEATS, SCHEDULE, STATE
from scheduler.online.observation import Happening
from scheduler.problem import CommunicationSchedule

JUST_AFTER_S = 1e-6
"""Resolution of times in events."""

HAPPENINGS: Mapping[str, Happening] = {
    "recovery": "recovered",
    "node_lost": "node_lost",
    "node_returned": "node_returned",
    "clock": "clock",
    "timeline_set_cpu": "clock",
    "scaled": "scale",
}
"""Kind of an event of the controller -> what an observation calls it."""

CUTS = (*HAPPENINGS, "move", "revision")
"""Kinds of events which windows do not reach across."""

LASTING = ("recovery", "move", "scaled")
"""Kinds of events that are noted at their end, with their duration in seconds."""


class WindowCut(NamedTuple):
    """An event that cuts windows: its begin and end in seconds since the sources started."""

    since_s: float
    at_s: float
    kind: str
    subject: str


Told = Mapping[str, Mapping[str, float]]
"""Kind of event -> node or executor -> a value."""


def cuts_until(run: FinishedRun, at_s: float) -> list[WindowCut]:
    """Return what has begun to change before a time, in order of time; moves and recoveries have a duration."""
    events = read_table(run.traces, "event", "kind", "subject", "value")
    mine = pc.and_(pc.equal(events["node"], CONTROLLER), pc.is_in(events["kind"], pa.array(CUTS)))
    changes = []
    for row in events.filter(mine).sort_by("t_ns").to_pylist():
        end_s = run.seconds(row["t_ns"])
        lasted_s = row["value"] or 0.0 if row["kind"] in LASTING else 0.0
        changes.append(WindowCut(end_s - lasted_s, end_s, row["kind"], row["subject"]))
    return [cut for cut in changes if cut.since_s < at_s]


def lost_nodes(cuts: Iterable[WindowCut]) -> set[str]:
    """Return the nodes that were lost and have not returned."""
    lost: set[str] = set()
    for cut in cuts:
        if cut.kind == "node_lost":
            lost.add(cut.subject)
        elif cut.kind == "node_returned":
            lost.discard(cut.subject)
    return lost


def told_until(run: FinishedRun, at_s: float) -> Told:
    """Return kind of event -> subject -> the last value that the online scheduler was given until a time.

    Only the controller knows these values, and only of runs that are observed: those with an online scheduler.
    """
    events = read_table(run.traces, "event", "kind", "subject", "detail", "value")
    values: dict[str, dict[str, float]] = {}
    for row in (
        events.filter(pc.is_in(events["kind"], pa.array([STATE, HEARTBEATS, CLOCK]))).sort_by("t_ns").to_pylist()
    ):
        if float(row["detail"]) <= at_s + JUST_AFTER_S:
            values.setdefault(row["kind"], {})[row["subject"]] = row["value"]
    return values


def schedule_at(run: FinishedRun, at_s: float, cuts: Iterable[WindowCut]) -> CommunicationSchedule | None:
    """Return the communication schedule at a time; None without one, and where a recovery may have changed it."""
    events = read_table(run.traces, "event", "kind", "subject", "detail")
    gates = run.run.file.gates if run.run.file else None
    if gates is not None and any(cut.kind == "recovery" for cut in cuts):
        gates = None
    for row in events.filter(pc.equal(events["kind"], SCHEDULE)).sort_by("t_ns").to_pylist():
        if float(row["subject"]) <= at_s + JUST_AFTER_S:
            gates = msgspec.json.decode(row["detail"])
    if gates is None:
        return None
    return msgspec.convert({key: gates[key] for key in ("nodes", "steps", "stages")}, CommunicationSchedule)
