"""State machine of the loop of an online scheduler: when it is asked, and what becomes of its answers.

Pure: events go in, effects come out, and times are handed in as seconds since the sources started. At most one question
and one revision are open. The last effect of every step is a `Wait`; it replaces earlier ones.
"""

from collections import Counter
from dataclasses import dataclass, replace
from math import inf
from typing import Literal, NamedTuple

from scheduler.online.observation import Happening, Observation, Outcome, PastRevision, problem_at
from scheduler.online.replanner import drain, stranded
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Problem

DRAINED_S = 60.0
"""Time after which the runtime empties a node itself, if the scheduler has not."""

MOST_LATE = 3
"""Late answers that make a run fail."""

Mode = Literal["live", "restart", "shadow"]
"""Method of a revision: while the topology runs, by restarting it, or not at all."""

State = Literal["idle", "asking", "carrying", "settling"]


@dataclass(frozen=True)
class RevisionSettings:
    """Rules for the revisions of a run.

    Attributes:
        how: how revisions are carried out.
        settle_s: time after a revision until the next window begins; nothing begins in the last `settle_s` of a run.
        deadline_s: time for an answer.
        stale_windows: age of an observation, in windows, up to which its answer is carried out.
        most_moves_run: most moves of a run; 0 = any number.
        most_moves_node: most moves of a revision that leave or join one node; 0 = any number.
        wave: most executors that move at one barrier; 0 = all.
        cooldown_s: time after a revision until the scheduler is asked again, other than at changes.
    """

    how: Mode = "live"
    settle_s: float = 2.0
    deadline_s: float = 30.0
    stale_windows: float = 2.0
    most_moves_run: int = 0
    most_moves_node: int = 0
    wave: int = 0
    cooldown_s: float = 0.0


class Sampled(NamedTuple):
    """The last window, as the last `Wait` asks for it at `until_s`."""

    at_s: float
    observation: Observation


class Answered(NamedTuple):
    """The end of a question.

    Attributes:
        number: number of the question.
        version, epoch: those of the topology now.
        revision: the checked answer.
        decided_s: seconds from the end of the window to the checked answer.
        cpu_s: CPU seconds of the scheduler.
        late: why there is no answer, if there is none; the scheduler has lost its memory.
        fault: description of a wrong answer.
    """

    at_s: float
    number: int
    version: int
    epoch: int
    revision: Revision | None = None
    decided_s: float = 0.0
    cpu_s: float | None = None
    late: str = ""
    fault: str = ""


class RevisionFinished(NamedTuple):
    """A revision has been carried out, as far as the outcome says."""

    at_s: float
    outcome: Literal["done", "partial", "abandoned", "unset"]
    message: str = ""


class Changed(NamedTuple):
    """The cluster or the topology has changed, or a question is demanded (`revise`)."""

    at_s: float
    what: Happening | Literal["revise"]


class Broke(NamedTuple):
    """The topology stands still until `Changed("recovered")`."""

    at_s: float
    why: str


class Stopping(NamedTuple):
    """The sources end."""

    at_s: float


Event = Sampled | Answered | RevisionFinished | Changed | Broke | Stopping


class AskForRevision(NamedTuple):
    """Ask the scheduler."""

    number: int
    observation: Observation


class Carry(NamedTuple):
    """Carry out a revision; `wave` is the most executors that move at one barrier, 0 = all."""

    number: int
    revision: Revision
    wave: int


@dataclass(frozen=True)
class DecisionNote:
    """A decision and what became of it.

    Attributes:
        number: number of the question; the runtime's own decisions have numbers, too.
        at_s: end of the window that was decided about.
        noted_s: when its outcome was known.
        observation: that window.
        revision: the answer, if there is one.
        decided_s, cpu_s: as in `Answered`; 0 for the runtime's own decisions.
        outcome: `shadow` for a revision that only the mode prevents.
        message: why, for outcomes other than `done`.
        begun_s: when it began to be carried out, if it did.
    """

    number: int
    noted_s: float
    observation: Observation
    revision: Revision | None
    decided_s: float
    cpu_s: float | None
    outcome: Outcome | Literal["shadow"]
    message: str = ""
    begun_s: float | None = None

    @property
    def at_s(self) -> float:
        return self.observation.at_s

    @property
    def past(self) -> PastRevision | None:
        """The entry of the history that schedulers get.

        None for answers without a change, which would displace those that count, and for `shadow`.
        """
        if self.outcome == "no" or self.outcome == "shadow":
            return None
        revision = self.revision or Revision()
        return PastRevision(
            number=self.number,
            at_s=self.noted_s,
            reason=revision.reason,
            outcome=self.outcome,
            message=self.message,
            moves=len(revision.moves),
            expects=revision.expects.figures,
            before=self.observation.measured,
        )


class Wait(NamedTuple):
    """Nothing is due before `until_s`; then the machine needs `Sampled`."""

    until_s: float


class Fail(NamedTuple):
    """The run fails."""

    reason: str


Effect = AskForRevision | Carry | DecisionNote | Wait | Fail


class Rescheduling:
    """The machine.

    Attributes:
        late: number of late answers so far.
    """

    def __init__(self, settings: RevisionSettings, rhythm: Rhythm, ends_s: float, problem: Problem) -> None:
        """Start with the sources.

        Args:
            settings: rules for revisions.
            rhythm: when the scheduler is asked.
            ends_s: planned end of the sources; infinite if unknown.
            problem: the topology, the cluster, and the workers of other topologies.
        """
        self._settings, self._rhythm, self._problem = settings, rhythm, problem
        self._last_begin_s = ends_s - settings.settle_s
        self._next_s = inf if rhythm.first_s is None else rhythm.first_s
        self._number = self._moved = 0
        self._question: AskForRevision | None = None
        self._carried: DecisionNote | None = None
        self._urgent = self._asked_urgently = False  # because of a change
        self._drain_s = inf  # when the runtime itself empties nodes; infinite if none has to be emptied
        self._settled_s = self._sample_s = self._cool_s = -inf
        self._broken = False
        self._now_s = -inf
        self.late = 0

    @property
    def state(self) -> State:
        """Present activity; of several, the one that ends last."""
        if self._carried is not None:
            return "carrying"
        if self._question is not None:
            return "asking"
        return "settling" if self._broken or self._now_s < self._settled_s else "idle"

    def step(self, event: Event) -> list[Effect]:
        """Return the effects of an event.

        Raises:
            ValueError: an answer to a question that is not open.
        """
        self._now_s = event.at_s
        match event:
            case Sampled():
                effects = self._sampled(event.observation)
            case Answered():
                effects = self._answered(event)
            case RevisionFinished() if self._carried is None:
                effects = []  # it broke meanwhile
            case RevisionFinished():
                effects = self._end(event.outcome, event.message)
                self._settled_s = event.at_s + self._settings.settle_s
                if event.outcome != "abandoned":
                    self._cool_s = event.at_s + self._settings.cooldown_s
            case Changed():
                effects = []
                self._change(event.what)
            case Broke():
                effects = self._end("broken", event.why)
                self._broken = True
            case Stopping():
                effects = []
                self._last_begin_s = -inf
        return [*effects, Wait(max(self._wanted_s, self._now_s))]

    @property
    def _stops(self) -> bool:
        return self._now_s >= self._last_begin_s

    @property
    def _wanted_s(self) -> float:
        """Return when the next sample is needed."""
        if self._broken or self._stops or self._carried is not None:
            return inf
        if self._question is not None:
            wanted = self._drain_s
        elif self._urgent or self._drain_s < inf:
            wanted = self._now_s
        else:
            wanted = max(self._next_s, self._cool_s)
        return max(wanted, self._settled_s, self._sample_s)

    def _sampled(self, observation: Observation) -> list[Effect]:
        if self._wanted_s > self._now_s:
            return []
        self._sample_s = self._now_s + observation.sample_s
        if self._drain_s < inf and not stranded(problem_at(self._problem, observation), observation):
            self._drain_s = inf
        if self._drain_s <= self._now_s:
            return self._drain(observation)
        if self._question is not None:
            return []
        due = self._now_s >= max(self._next_s, self._cool_s) and observation.complete
        pressing = (self._urgent or self._drain_s < inf) and observation.samples > 0
        return self._ask(observation) if due or pressing else []

    def _ask(self, observation: Observation) -> list[Effect]:
        if self._now_s >= self._next_s:
            # From the time when it was due, so that the delays of single questions do not add up.
            punctual = self._now_s - self._next_s < observation.sample_s
            every_s = inf if self._rhythm.ask_s is None else self._rhythm.ask_s
            self._next_s = (self._next_s if punctual else self._now_s) + every_s
        self._asked_urgently, self._urgent = self._urgent, False
        self._question = AskForRevision(self._new_number(), observation)
        return [self._question]

    def _answered(self, answer: Answered) -> list[Effect]:
        question = self._question
        if question is None or question.number != answer.number:
            raise ValueError(f"an answer to question {answer.number}, which is not open")
        self._question = None
        if answer.fault:
            return [Fail(answer.fault)]
        observation, revision = question.observation, answer.revision
        note = DecisionNote(
            question.number, self._now_s, observation, revision, answer.decided_s, answer.cpu_s, "late", answer.late
        )
        if answer.late:
            self.late += 1
            self._urgent |= self._asked_urgently
            failed: list[Effect] = [Fail(f"the scheduler was late {MOST_LATE} times: {answer.late}")]
            return [note, *(failed if self.late >= MOST_LATE else [])]
        stale = self._stale(answer, observation)
        if revision is None or not revision.changes:
            noted = replace(note, outcome="no", message="" if revision is None else revision.text)
            drains = self._drain_s < inf and not stale and not self._stops
            return [noted, *(self._drain(observation) if drains else [])]
        if stale:
            self._urgent |= self._asked_urgently
            return [replace(note, outcome="stale", message=stale)]
        if self._stops:
            return [replace(note, outcome="abandoned", message="the sources end")]
        if large := self._too_large(revision):
            return [replace(note, outcome="too_large", message=large)]
        if self._settings.how == "shadow":
            return [replace(note, outcome="shadow")]
        return self._carry(note, revision)

    def _stale(self, answer: Answered, observation: Observation) -> str:
        """Return why an answer is out of date, or an empty text."""
        if self._broken or answer.epoch != observation.epoch:
            return "the topology was restarted meanwhile"
        # The runtime itself may have begun a revision since the question; abandoned ones leave the version.
        unsettled = self._carried is not None or self._now_s < self._settled_s
        if unsettled or answer.version != observation.version:
            return "the topology changed meanwhile"
        age_s, most_s = self._now_s - observation.at_s, self._settings.stale_windows * self._rhythm.window_s
        return f"the observation is {age_s:.3g} s old, at most {most_s:g} s are allowed" if age_s > most_s else ""

    def _too_large(self, revision: Revision) -> str:
        """Return which limit of moves is exceeded, or an empty text."""
        moves, most, most_of_node = len(revision.moves), self._settings.most_moves_run, self._settings.most_moves_node
        if most and self._moved + moves > most:
            return f"{moves} moves after {self._moved}, at most {most} are allowed in a run"
        of_node = Counter(node for move in revision.moves for node in {move.source.node, move.target.node})
        node, count = max(of_node.items(), key=lambda item: item[1], default=("", 0))
        if most_of_node and count > most_of_node:
            return f"{count} moves of {node}, at most {most_of_node} are allowed"
        return ""

    def _carry(self, note: DecisionNote, revision: Revision) -> list[Effect]:
        limits = [limit for limit in (revision.wave, self._settings.wave) if limit]
        self._carried = replace(note, begun_s=self._now_s)
        return [Carry(note.number, revision, min(limits, default=0))]

    def _end(self, outcome: Outcome, message: str) -> list[Effect]:
        carried, self._carried = self._carried, None
        if carried and carried.revision and outcome != "abandoned":
            self._moved += len(carried.revision.moves)
        return [replace(carried, noted_s=self._now_s, outcome=outcome, message=message)] if carried else []

    def _change(self, what: Happening | Literal["revise"]) -> None:
        self._urgent = True
        if what == "recovered":
            self._broken = False
            self._settled_s = self._now_s + self._settings.settle_s
        elif what == "node_down" and self._settings.how != "shadow":
            self._drain_s = min(self._drain_s, self._now_s + DRAINED_S)

    def _drain(self, observation: Observation) -> list[Effect]:
        """Empty nodes without the scheduler; a question that is open becomes stale."""
        revision = drain(self._problem, observation)
        if revision is None:
            self._drain_s = self._now_s + DRAINED_S
            return []
        return self._carry(
            DecisionNote(self._new_number(), self._now_s, observation, revision, 0.0, None, "done"), revision
        )

    def _new_number(self) -> int:
        self._number += 1
        return self._number
