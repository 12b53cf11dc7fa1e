"""Event log of a run's control, for its traces (`event` rows of node "") and for `run.json`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agents.protocol import Gates, MoveToPlace, Slot
from agents.sensors.interference import Event
from analysis.measure.observations import CLOCK, HEARTBEATS, SCHEDULE, STATE
from analysis.records.accounts import ComponentScaling
from analysis.records.file_types import ExecutorMove, Measured, Recovery, RevisionRecord, TimelineRecord
from controller.coordinator.epoch_workers import CheckpointSnapshots, worker_name
from controller.coordinator.interfaces import NoteEvent, Scaling
from controller.coordinator.rescheduling import DecisionNote, Mode
from inventory.foreign import printable
from inventory.times import NS
from scheduler.online.observation import KeyFigures, Observation
from scheduler.online.revision import Revision
from scheduler.problem import CommunicationSchedule
from workloads.scaling import sizes_of
from workloads.topology import Executor

LIVE_DECISIONS = 20
"""Number of the last decisions that are shown while a run is under way."""

ENDED = "the sources had ended"
"""Reason why a change that was requested was not begun."""

NOT_ASKED = "the scheduler was not asked"


class LiveDecision(Struct, frozen=True, kw_only=True):
    """A decision of an online scheduler while the run is under way.

    Attributes:
        number, at_s, decided_s, reason, message, moves: as in `RevisionRecord`.
        outcome: the same; None until it is known.
        took_s: seconds from the first to the last effect; None if there is none yet.
    """

    number: int
    at_s: float
    decided_s: float
    reason: str = ""
    outcome: str | None = None
    message: str = ""
    moves: int = 0
    took_s: float | None = None

    @staticmethod
    def of(record: RevisionRecord) -> "LiveDecision":
        """Return a decision with its outcome."""
        begun_s, ended_s = record.begun_s, record.ended_s
        return LiveDecision(
            number=record.number,
            at_s=record.at_s,
            decided_s=record.decided_s,
            reason=record.reason,
            outcome=record.outcome,
            message=printable(record.message),
            moves=record.moves,
            took_s=None if begun_s is None or ended_s is None else round(ended_s - begun_s, 6),
        )


class TimelineEntry:
    """An event of the timeline, and what has become of it so far; it has failed until it is done.

    Times are in seconds since the sources started.
    """

    def __init__(self, do: str, subject: str, asked_s: float) -> None:
        """Expect the event."""
        self.do, self.subject, self.asked_s = do, subject, asked_s
        self.began_s: float | None = None
        self._ended_s: float | None = None
        self._reason = ""

    def begin(self, at_s: float) -> None:
        """Record when it began."""
        self.began_s = at_s

    def done(self, at_s: float) -> None:
        """Record when it was done."""
        self._ended_s = at_s

    def failed(self, why: str) -> bool:
        """Record why it has not happened so far, as it may be tried again; return whether that is news."""
        before, self._reason = self._reason, why
        return why != before

    @property
    def record(self) -> TimelineRecord:
        """The record for `run.json`."""
        return TimelineRecord(
            do=self.do,
            subject=self.subject,
            asked_s=self.asked_s,
            began_s=None if self.began_s is None else round(self.began_s, 6),
            ended_s=None if self._ended_s is None else round(self._ended_s, 6),
            outcome="failed" if self._ended_s is None else "done",
            reason=(self._reason or ENDED) if self._ended_s is None else "",
        )


class EventLog:
    """Checkpoints, recoveries, moves, revisions and scripted events of one run.

    Attributes:
        checkpoints: number of completed checkpoints.
        recoveries, moves, scalings, revisions: entries of `run.json`; times are in seconds since the sources started.
        questions: times at which the online scheduler was asked.
    """

    def __init__(self, note: NoteEvent) -> None:
        """Start empty; `note` writes an event to the traces."""
        self._note = note
        self.checkpoints = 0
        self.recoveries: list[Recovery] = []
        self.moves: list[ExecutorMove] = []
        self.scalings: list[ComponentScaling] = []
        self.revisions: list[RevisionRecord] = []
        self.questions: list[float] = []
        self._script: list[TimelineEntry] = []
        self._demanded: list[TimelineEntry] = []
        self._decided: LiveDecision | None = None  # without an outcome so far
        self._observed: dict[tuple[str, str], float] = {}
        self._schedule: CommunicationSchedule | None = None

    def added_to(self, measured: Measured) -> Measured:
        """Return the metrics of the run with what was recorded here."""
        return replace(
            measured,
            checkpoints=self.checkpoints,
            recoveries=self.recoveries,
            moves=self.moves,
            scalings=self.scalings,
            revisions=self.revisions,
        )

    @property
    def decisions(self) -> tuple[LiveDecision, ...]:
        """The last decisions, the newest first."""
        newest = () if self._decided is None else (self._decided,)
        ended = map(LiveDecision.of, reversed(self.revisions[-LIVE_DECISIONS:]))
        return (*newest, *ended)[:LIVE_DECISIONS]

    def host_event(self, event: Event) -> None:
        """Record an event that makes measurements of this host doubtful."""
        self._note(*event)

    def mark(self, kind: str) -> None:
        """Record the start or the end of the measured interval."""
        self._note(kind, "", "", None)

    def checkpoint(self, barrier: int, took_s: float, nbytes: int) -> None:
        """Record a complete checkpoint."""
        self.checkpoints += 1
        self._note("checkpoint", str(barrier), f"bytes={nbytes}", took_s)

    def abandoned(self, barrier: int, why: str) -> None:
        """Record an abandoned barrier, or one whose checkpoint could not be stored."""
        self._note("barrier_abandoned", str(barrier), why, None)

    def node_lost(self, node: str, why: str) -> None:
        """Record that the agent of a node cannot be restarted."""
        self._note("node_lost", node, why, None)

    def node_returned(self, node: str) -> None:
        """Record that the agent of a lost node has been restarted."""
        self._note("node_returned", node, "", None)

    def expect(self, do: str, subject: str, asked_s: float) -> TimelineEntry:
        """Expect an event of the agenda's timeline, which is recorded also if it is never reached."""
        self._script.append(TimelineEntry(do, subject, asked_s))
        return self._script[-1]

    @property
    def timeline(self) -> Sequence[TimelineRecord]:
        """Outcomes of the events of the timeline so far, in order of time."""
        return [entry.record for entry in sorted(self._script, key=lambda entry: entry.asked_s)]

    def demanded(self, entry: TimelineEntry) -> None:
        """Record that an event demands a question to the online scheduler; it is done when that is asked."""
        entry.failed(NOT_ASKED)
        self._demanded.append(entry)

    def asked(self, at_s: float) -> None:
        """Record that the online scheduler is asked."""
        self.questions.append(at_s)
        while self._demanded:
            self._demanded.pop().done(at_s)

    def scripted(self, what: str, subject: str = "", detail: str = "") -> None:
        """Write an event of the agenda's timeline to the traces."""
        self._note(f"timeline_{what}", subject, detail, None)

    def recovery(self, at_s: float, took_s: float, cause: str, checkpoint: int, replayed: int) -> None:
        """Record a recovery: the topology runs again.

        Args:
            at_s: when the failure was reported, in seconds since the start of the sources.
            took_s: seconds from then until the sources were started again.
            cause: the failure.
            checkpoint: the checkpoint from which the topology was restarted; 0: from the beginning.
            replayed: tuples known to have been emitted before that the sources emit again.
        """
        self.recoveries.append(
            Recovery(
                at_s=round(at_s, 6),
                took_s=round(took_s, 6),
                cause=cause,
                checkpoint=checkpoint,
                replayed_tuples=replayed,
            )
        )
        self._note("recovery", "", f"checkpoint={checkpoint} replayed={replayed} cause={cause}", took_s)

    def moved(
        self,
        executor: str,
        source: str,
        target: str,
        at_s: float,
        pause_s: float,
        state_bytes: int,
        buffered: int,
        cpu_ns: int,
        revision: int | None = None,
        predicted_ns: int | None = None,
    ) -> None:
        """Record that an executor runs in its new slot; units as in `agents.protocol.Moved` and `Precopied`."""
        cpu_ms = round(cpu_ns / NS * 1e3, 6)
        predicted_s = None if predicted_ns is None else round(predicted_ns / NS, 6)
        self.moves.append(
            ExecutorMove(
                executor=executor,
                source=source,
                target=target,
                at_s=round(at_s, 6),
                pause_s=round(pause_s, 6),
                state_bytes=state_bytes,
                buffered_rows=buffered,
                cpu_ms=cpu_ms,
                predicted_s=predicted_s,
                revision=revision,
            )
        )
        detail = f"from={source} to={target} state_bytes={state_bytes} buffered_rows={buffered} cpu_ms={cpu_ms}"
        self._note("move", executor, detail, pause_s)

    def restarted(
        self,
        moves: Iterable[MoveToPlace],
        snapshots: CheckpointSnapshots,
        at_s: float,
        pause_s: float,
        revision: int | None,
    ) -> None:
        """Record executors that changed their slots by a restart, which took `pause_s` from the halt of the sources."""
        for move in moves:
            source = snapshots.places[move.executor]
            _, report = snapshots.stored[move.executor]
            self.moves.append(
                ExecutorMove(
                    executor=move.executor,
                    source=worker_name(source),
                    target=worker_name(move.to),
                    at_s=round(at_s, 6),
                    pause_s=round(pause_s, 6),
                    state_bytes=report.nbytes,
                    revision=revision,
                )
            )
            self._note("move", move.executor, f"from={worker_name(source)} to={worker_name(move.to)} restart", pause_s)

    def scaled(
        self,
        scaling: Scaling,
        places: Mapping[str, Slot],
        how: Literal["live", "restart"],
        pauses: Mapping[str, tuple[float, float]],
        revision: int | None,
    ) -> None:
        """Record other numbers of executors; `places` are the slots before, `pauses` per component as in the record."""
        before = sizes_of(places)
        for component, after in scaling.parallelism.items():
            at_s, pause_s = pauses[component]
            added = {
                name: worker_name(place)
                for name, place in scaling.added.items()
                if Executor.named(name).component == component
            }
            self.scalings.append(
                ComponentScaling(
                    component=component,
                    how=how,
                    before=before[component],
                    after=after,
                    added=added,
                    at_s=round(at_s, 6),
                    pause_s=round(pause_s, 6),
                    revision=revision,
                )
            )
            listed = "".join(f" {name}={worker}" for name, worker in added.items())
            self._note("scaled", component, f"from={before[component]} to={after}{listed}", pause_s)

    def scheduled(self, first: int, gates: Gates, took_s: float) -> None:
        """Record that all nodes follow another communication schedule from time slot `first` on.

        `took_s` is the time from the request to that slot.
        """
        detail = f"nodes={','.join(gates.nodes)} steps={len(gates.steps)} stages={gates.stages}"
        self._note("schedule", str(first), detail, took_s)

    def not_moved(self, executor: str, target: str, at_s: float, why: str) -> None:
        """Record that a move of the timeline, due at `at_s`, was not made."""
        self.moves.append(ExecutorMove(executor=executor, target=target, at_s=round(at_s, 6), abandoned=why))

    def observed(self, observation: Observation) -> None:
        """Record what only the controller knows of a window, where it has changed, so that it is known afterwards."""
        at_s = f"{observation.at_s:.6f}"
        executors, nodes = observation.executors.items(), observation.nodes.items()
        states = {
            **{(STATE, name): each.state_bytes for name, each in executors},
            **{(HEARTBEATS, name): each.heartbeats for name, each in nodes},
            **{(CLOCK, name): each.hz for name, each in nodes},
        }
        for (kind, subject), value in states.items():
            if value is not None and self._observed.get((kind, subject)) != value:
                self._observed[kind, subject] = value
                self._note(kind, subject, at_s, value)
        if observation.schedule is not None and observation.schedule != self._schedule:
            self._schedule = observation.schedule
            self._note(SCHEDULE, at_s, msgspec.json.encode(observation.schedule).decode(), None)

    def decided(self, number: int, revision: Revision | None, at_s: float, took_s: float) -> None:
        """Record an answer of an online scheduler; `at_s` is the end of the window, `took_s` counts from there."""
        decided = revision if revision is not None and revision.changes else Revision()
        self._note("decision", str(number), decided.reason or "no", took_s)
        self._decided = LiveDecision(
            number=number,
            at_s=round(at_s, 6),
            decided_s=round(took_s, 6),
            reason=decided.reason,
            moves=len(decided.moves),
        )

    def revision_begun(self, number: int) -> None:
        """Record that a revision begins to be carried out."""
        self._note("revision", str(number), "begin", None)

    def revision(self, note: DecisionNote, how: Mode = "live") -> None:
        """Record what became of a decision; `how` is how revisions of the run are carried out."""
        revision = note.revision or Revision()
        record = RevisionRecord(
            number=note.number,
            at_s=round(note.at_s, 6),
            decided_s=round(note.decided_s, 6),
            cpu_s=note.cpu_s,
            reason=revision.reason,
            text=revision.text,
            outcome=note.outcome,
            message=note.message,
            begun_s=None if note.begun_s is None else round(note.begun_s, 6),
            ended_s=None if note.begun_s is None else round(note.noted_s, 6),
            moves=len(revision.moves),
            clocks=dict(revision.frequencies),
            expects=revision.expects.figures,
            before=note.observation.measured,
            how=how,
        )
        self.revisions.append(record)
        if self._decided is not None and self._decided.number == note.number:
            self._decided = None
        if note.begun_s is not None:
            self._note("revision", str(note.number), f"end {note.outcome}", None)

    def measured_after(self, number: int, after: KeyFigures) -> None:
        """Add to revision `number` what was measured in the first complete window after it."""
        self.revisions = [replace(each, after=after) if each.number == number else each for each in self.revisions]

    def clock(self, node: str, asked_hz: int | None, got_hz: int | None) -> None:
        """Record that a revision has set the clock of a node; `asked_hz` is None for the agenda's."""
        self._note("clock", node, f"asked={'agenda' if asked_hz is None else asked_hz}", got_hz)
