"""State machine of the revision loop under random samples, answers, changes, kills and ends, in any order."""

from math import inf

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis_examples import times
from msgspec.structs import replace as replaced
from observed_rounds import SPREAD_PLACEMENT, chain, nodes, observed

from controller.coordinator.rescheduling import (
    DRAINED_S,
    Answered,
    AskForRevision,
    Broke,
    Carry,
    Changed,
    DecisionNote,
    Event,
    Fail,
    Mode,
    Rescheduling,
    RevisionFinished,
    RevisionSettings,
    Sampled,
    Stopping,
    Wait,
)
from scheduler.online.observation import Observation
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Move, Problem, Slot
from workloads.topology import Executor

TOPOLOGY = chain()


class Loops(RuleBasedStateMachine):
    """State machine, and a model of the topology that it observes."""

    @initialize(
        how=st.sampled_from(["live", "live", "restart", "shadow"]),
        first_s=st.sampled_from([5.0, 20.0, None]),
        ask_s=st.sampled_from([3.0, 10.0, None]),
        cooldown_s=st.sampled_from([0.0, 15.0]),
        most=st.sampled_from([0, 1]),
        ends_s=st.sampled_from([inf, 100.0, 400.0]),
    )
    def begin(
        self, how: Mode, first_s: float | None, ask_s: float | None, cooldown_s: float, most: int, ends_s: float
    ) -> None:
        self.settings = RevisionSettings(how, cooldown_s=cooldown_s, most_moves_run=most)
        self.rhythm = Rhythm(10, 1, first_s=first_s, ask_s=ask_s)
        self.machine = Rescheduling(self.settings, self.rhythm, ends_s, Problem(nodes(), (TOPOLOGY,)))
        self.ends_s, self.now_s, self.wait_s = ends_s, 0.0, 0.0
        self.version = self.epoch = 0
        self.places = dict(SPREAD_PLACEMENT)
        self.draining: dict[str, float] = {}
        self.question: AskForRevision | None = None
        self.carried: Carry | None = None
        self.settled_s = -inf
        self.broken = self.stopped = self.failed = False
        self.noted: list[int] = []
        self.late = 0

    def window(self, complete: bool = True, samples: int = 10) -> Observation:
        found = observed(self.now_s, self.places)
        states = {n: replaced(node, available=n not in self.draining) for n, node in found.nodes.items()}
        return replaced(found, nodes=states, version=self.version, epoch=self.epoch, complete=complete, samples=samples)

    def step(self, event: Event, answered: AskForRevision | None = None) -> None:
        *effects, wait = self.machine.step(event)
        assert isinstance(wait, Wait)
        assert wait.until_s >= self.now_s
        self.wait_s = wait.until_s
        for effect in effects:
            match effect:
                case AskForRevision():
                    assert self.question is None
                    assert self.carried is None
                    self.check_begins()
                    assert effect.observation.samples
                    self.question = effect
                case Carry():
                    assert self.carried is None
                    self.check_begins()
                    assert self.settings.how != "shadow"
                    self.check_fresh(effect, answered)
                    self.carried = effect
                case DecisionNote():
                    assert effect.number not in self.noted
                    self.noted.append(effect.number)
                case Fail():
                    assert self.late == 3
                    self.failed = True

    def check_begins(self) -> None:
        assert not self.broken
        assert not self.stopped
        assert self.settled_s <= self.now_s < self.ends_s - self.settings.settle_s

    def check_fresh(self, carry: Carry, answered: AskForRevision | None) -> None:
        ran = {move.executor.name: f"{move.source.node}/{move.source.index}" for move in carry.revision.moves}
        assert ran.items() <= self.places.items()
        if answered is not None and carry.number == answered.number:
            observation = answered.observation
            assert (observation.version, observation.epoch) == (self.version, self.epoch)
            assert self.now_s - observation.at_s <= 2 * self.rhythm.window_s

    @rule(seconds=st.floats(0, 15), complete=st.booleans(), samples=st.sampled_from([0, 1, 10]))
    def sample(self, seconds: float, complete: bool, samples: int) -> None:
        self.now_s += seconds
        self.step(Sampled(self.now_s, self.window(complete and samples > 0, samples)))

    @precondition(lambda self: self.wait_s < inf)
    @rule()
    def sample_when_due(self) -> None:
        self.now_s = max(self.now_s, self.wait_s)
        before = self.question, self.carried, self.stranded
        self.step(Sampled(self.now_s, self.window()))
        # A complete window that was due has an effect, unless drained nodes have become empty by themselves.
        assert before[2] or (self.question, self.carried) != before[:2] or self.wait_s > self.now_s

    @precondition(lambda self: self.question is not None)
    @rule(kind=st.sampled_from(["move", "moves", "move", "no", "none", "late"]), seconds=st.sampled_from([0.1, 3, 25]))
    def answer(self, kind: str, seconds: float) -> None:
        self.now_s += seconds
        question, self.question = self.question, None
        assert question is not None
        late = "it died" if kind == "late" and not self.failed else ""
        self.late += bool(late)
        revision = {"none": None, "no": Revision(text="no"), "late": None}.get(kind, self.revision(question, kind))
        self.step(
            Answered(self.now_s, question.number, self.version, self.epoch, revision, late=late), answered=question
        )
        is_carried = self.carried is not None and self.carried.number == question.number
        assert (question.number in self.noted) is not is_carried

    @staticmethod
    def revision(question: AskForRevision, kind: str) -> Revision:
        places = question.observation.places
        names = ["b[0]"] if kind == "move" else ["b[0]", "k[1]"]
        return Revision(
            "cut", moves=[Move("t", Executor.named(n), places[n], Slot("n3", 1 - places[n].index)) for n in names]
        )

    @precondition(lambda self: self.carried is not None)
    @rule(outcome=st.sampled_from(["done", "partial", "abandoned", "unset"]), seconds=st.floats(0, 20))
    def finish(self, outcome: str, seconds: float) -> None:
        assert self.carried is not None
        self.now_s += seconds
        moves = {"done": None, "unset": None, "partial": 1, "abandoned": 0}[outcome]
        self.move(self.carried, moves)
        self.settled_s = self.now_s + self.settings.settle_s
        self.carried = None
        self.step(RevisionFinished(self.now_s, outcome))  # type: ignore[arg-type]

    def move(self, carry: Carry, most: int | None) -> None:
        applied = list(carry.revision.moves)[:most]
        self.places |= {move.executor.name: f"{move.target.node}/{move.target.index}" for move in applied}
        self.version += bool(applied)

    @precondition(lambda self: not self.broken and self.is_busy)
    @rule(moved=st.booleans(), seconds=st.floats(0, 5))
    def kill(self, moved: bool, seconds: float) -> None:
        self.now_s += seconds
        if self.carried is not None and moved:
            self.move(self.carried, 1)
        self.broken, self.carried = True, None
        self.step(Broke(self.now_s, "a worker was killed"))

    @precondition(lambda self: self.broken)
    @rule(seconds=st.floats(0, 30))
    def recover(self, seconds: float) -> None:
        self.now_s += seconds
        self.broken = False
        self.epoch += 1
        self.version += 1
        self.settled_s = self.now_s + self.settings.settle_s
        self.step(Changed(self.now_s, "recovered"))

    @precondition(lambda self: not self.draining and self.is_busy)
    @rule()
    def drain(self) -> None:
        self.draining["n2"] = self.now_s
        self.version += 1
        self.step(Changed(self.now_s, "node_down"))

    @precondition(lambda self: self.is_busy or self.wait_s == inf)
    @rule(what=st.sampled_from(["node_up", "node_returned", "clock", "revise"]))
    def change(self, what: str) -> None:
        self.version += what != "revise"
        self.step(Changed(self.now_s, what))  # type: ignore[arg-type]

    @rule(seconds=st.floats(0, 5))
    @precondition(lambda self: self.now_s > 300)
    def stop(self, seconds: float) -> None:
        self.now_s += seconds
        self.stopped = True
        self.step(Stopping(self.now_s))

    @property
    def is_busy(self) -> bool:
        """Whether a question or a revision is open; faults at other times are less dangerous."""
        return self.question is not None or self.carried is not None

    @property
    def stranded(self) -> bool:
        return any(place.startswith(tuple(self.draining) or ("-",)) for place in self.places.values())

    @property
    def may_begin(self) -> bool:
        over = self.now_s >= self.ends_s - self.settings.settle_s
        return not (self.broken or self.stopped or self.carried or over)

    @invariant()
    def the_state_follows_open_questions_and_revisions(self) -> None:
        if self.carried is not None:
            assert self.machine.state == "carrying"
        elif self.question is not None:
            assert self.machine.state == "asking"
        else:
            assert self.machine.state in ("idle", "settling")

    @invariant()
    def a_node_to_be_emptied_is_never_forgotten(self) -> None:
        if self.stranded and self.may_begin and self.settings.how != "shadow":
            asked_s = self.wait_s
            if self.question is None:
                assert asked_s <= max(self.now_s + 1, self.settled_s) or asked_s == inf
            assert asked_s <= max(self.now_s + DRAINED_S, self.settled_s) or self.near_end

    @property
    def near_end(self) -> bool:
        return self.now_s + DRAINED_S >= self.ends_s - self.settings.settle_s


Loops.TestCase.settings = settings(max_examples=times(2), stateful_step_count=40)
TestLoops = Loops.TestCase
