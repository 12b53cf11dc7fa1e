"""State machine of the revision loop, step by step."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace as replaced
from observed_rounds import SPREAD_PLACEMENT, chain, nodes, observed

from controller.coordinator.rescheduling import (
    Answered,
    AskForRevision,
    Broke,
    Carry,
    Changed,
    DecisionNote,
    Effect,
    Fail,
    Rescheduling,
    RevisionFinished,
    RevisionSettings,
    Sampled,
    Stopping,
    Wait,
)
from scheduler.online.observation import Expected, KeyFigures, Observation
from scheduler.online.revision import Revision, Rhythm
from scheduler.problem import Move, Problem, Slot
from workloads.topology import Executor

RHYTHM = Rhythm(10, 1, "mean", first_s=20, ask_s=10)
SWAP = Revision(
    "cut",
    "310 -> 90",
    [
        Move("t", Executor("b", 0), Slot("n1", 0), Slot("n2", 0)),
        Move("t", Executor("b", 1), Slot("n2", 0), Slot("n1", 0)),
    ],
    frequencies={"n3": None},
    expects=Expected(90.0),
)


class Loop:
    """State machine, and the topology that it observes."""

    def __init__(self, rhythm: Rhythm = RHYTHM, ends_s: float = 1000, **settings: Any) -> None:
        self.machine = Rescheduling(RevisionSettings(**settings), rhythm, ends_s, Problem(nodes(), (chain(),)))
        self.version = self.epoch = 0
        self.drained: set[str] = set()
        self.places = dict(SPREAD_PLACEMENT)

    def window(self, at_s: float, **changes: Any) -> Observation:
        found = observed(at_s, self.places)
        states = {n: replaced(node, available=n not in self.drained) for n, node in found.nodes.items()}
        return replaced(found, nodes=states, version=self.version, epoch=self.epoch, **changes)

    def sampled(self, at_s: float, **changes: Any) -> list[Effect]:
        return self.machine.step(Sampled(at_s, self.window(at_s, **changes)))

    def answered(self, at_s: float, number: int, revision: Revision | None = None, **rest: Any) -> list[Effect]:
        return self.machine.step(Answered(at_s, number, self.version, self.epoch, revision, **rest))

    def revise(self, at_s: float = 20, revision: Revision = SWAP) -> list[Effect]:
        """Let the machine ask, and answer with a revision a second later."""
        (ask, _) = self.sampled(at_s)
        assert isinstance(ask, AskForRevision)
        return self.answered(at_s + 1, ask.number, revision)


def outcome(effects: list[Effect]) -> tuple[str, str]:
    note = effects[0]
    assert isinstance(note, DecisionNote)
    return note.outcome, note.message


def test_questions_come_with_complete_windows_at_the_scheduler_s_rhythm() -> None:
    loop = Loop()
    assert loop.sampled(19.9) == [Wait(20)]
    assert loop.sampled(20, complete=False) == [Wait(21)]
    assert loop.sampled(20.5) == [Wait(21)]
    ask, wait = loop.sampled(21)
    assert (ask, wait) == (AskForRevision(1, loop.window(21)), Wait(inf))
    assert loop.machine.state == "asking"
    assert outcome(loop.answered(22, 1)) == ("no", "")
    assert loop.machine.state == "idle"
    assert loop.sampled(30.5) == [Wait(31)]  # ten seconds after the question that had to wait
    assert loop.sampled(31.2)[0] == AskForRevision(2, loop.window(31.2))
    loop.answered(31.3, 2)
    assert loop.sampled(40.9) == [Wait(41)]  # from the time when it was due


def test_a_revision_is_carried_out_and_recorded_with_all_figures() -> None:
    loop = Loop(wave=3, settle_s=2)
    ask, _ = loop.sampled(20)
    assert isinstance(ask, AskForRevision)
    effects = loop.answered(20.4, 1, SWAP, decided_s=0.4, cpu_s=0.3)
    assert effects == [Carry(1, SWAP, 3), Wait(inf)]
    assert loop.machine.state == "carrying"
    note, wait = loop.machine.step(RevisionFinished(23, "done"))
    assert note == DecisionNote(1, 23, ask.observation, SWAP, 0.4, 0.3, "done", begun_s=20.4)
    assert (wait, loop.machine.state) == (Wait(30), "settling")
    past = note.past
    assert past is not None
    assert (past.at_s, past.moves, past.outcome, past.expects.cut) == (23, 2, "done", 90)
    assert past.before == KeyFigures(310.0, 0.075)


def test_the_smaller_of_two_waves_counts() -> None:
    assert Loop(wave=0).revise()[0] == Carry(1, SWAP, 0)
    assert Loop(wave=1).revise(revision=replace(SWAP, wave=2))[0] == Carry(1, replace(SWAP, wave=2), 1)
    assert Loop(wave=0).revise(revision=replace(SWAP, wave=2))[0] == Carry(1, replace(SWAP, wave=2), 2)


@pytest.mark.parametrize(
    ("after_s", "version", "epoch", "message"),
    [
        (1, 1, 0, "the topology changed meanwhile"),
        (1, 0, 1, "the topology was restarted meanwhile"),
        (20.5, 0, 0, "the observation is 20.5 s old, at most 20 s are allowed"),
    ],
)
def test_answers_to_outdated_observations_are_stale(after_s: float, version: int, epoch: int, message: str) -> None:
    loop = Loop()
    loop.sampled(20)
    loop.version, loop.epoch = version, epoch
    assert outcome(loop.answered(20 + after_s, 1, SWAP)) == ("stale", message)
    assert loop.machine.state == "idle"


def test_revisions_with_too_many_moves_of_a_node_are_too_large() -> None:
    away = replace(SWAP, moves=[replace(move, source=Slot("n1", 0)) for move in SWAP.moves])
    assert outcome(Loop(most_moves_node=1).revise(revision=away)) == (
        "too_large",
        "2 moves of n1, at most 1 are allowed",
    )
    assert Loop(most_moves_node=2).revise(revision=away)[0] == Carry(1, away, 0)


def test_all_moves_of_a_run_count_but_those_of_abandoned_revisions() -> None:
    loop = Loop(most_moves_run=4)
    for number, (at_s, end) in enumerate(((20, "done"), (40, "abandoned"), (60, "partial")), 1):
        assert loop.revise(at_s)[0] == Carry(number, SWAP, 0)
        loop.machine.step(RevisionFinished(at_s + 2, end))  # type: ignore[arg-type]
    assert outcome(loop.revise(80)) == ("too_large", "2 moves after 4, at most 4 are allowed in a run")


def test_a_decision_to_change_nothing_has_a_reason_and_is_not_in_the_history() -> None:
    loop = Loop()
    loop.sampled(20)
    note = loop.answered(20.1, 1, Revision(text="no node is above 0.9", details={"load": 0.5}))[0]
    assert isinstance(note, DecisionNote)
    assert (note.outcome, note.message, note.past) == ("no", "no node is above 0.9", None)


def test_the_third_late_answer_fails_the_run() -> None:
    loop = Loop()
    for number, at_s in enumerate((20, 60, 100), 1):
        assert isinstance(loop.sampled(at_s)[0], AskForRevision)
        note, *failed, _ = loop.answered(at_s + 30, number, late="no answer in 30 s")
        assert outcome([note]) == ("late", "no answer in 30 s")
        assert failed == ([] if number < 3 else [Fail("the scheduler was late 3 times: no answer in 30 s")])


def test_a_change_that_got_no_answer_is_asked_about_again() -> None:
    loop = Loop(Rhythm(10, 1, "mean"))
    loop.machine.step(Changed(30, "node_up"))
    loop.sampled(30)
    assert loop.answered(60, 1, late="it died")[1] == Wait(60)
    assert isinstance(loop.sampled(60)[0], AskForRevision)
    assert outcome(loop.answered(81, 2, SWAP))[0] == "stale"
    assert isinstance(loop.sampled(81)[0], AskForRevision)
    assert loop.answered(82, 3)[1] == Wait(inf)


def test_a_wrong_answer_fails_the_run_at_once() -> None:
    loop = Loop()
    loop.sampled(20)
    assert loop.answered(21, 1, fault="unknown executor 'x[0]'")[0] == Fail("unknown executor 'x[0]'")


def test_a_failure_breaks_a_revision_and_nothing_begins_before_the_recovery() -> None:
    loop = Loop()
    loop.revise()
    note, wait = loop.machine.step(Broke(22, "n1/0 was killed"))
    assert (outcome([note]), wait) == (("broken", "n1/0 was killed"), Wait(inf))
    assert loop.sampled(60) == [Wait(inf)]
    assert loop.machine.step(Changed(70, "recovered")) == [Wait(72)]
    assert isinstance(loop.sampled(72, complete=False)[0], AskForRevision)  # asked at once, since something changed


def test_an_answer_from_before_a_recovery_is_stale() -> None:
    loop = Loop()
    loop.sampled(20)
    loop.machine.step(Broke(22, "n1/0 was killed"))
    assert outcome(loop.answered(23, 1, SWAP)) == ("stale", "the topology was restarted meanwhile")


def test_changes_are_answered_at_once_as_soon_as_there_is_a_sample() -> None:
    loop = Loop(Rhythm(30, 1, "mean"))
    assert loop.sampled(500) == [Wait(inf)]
    assert loop.machine.step(Changed(501, "node_up")) == [Wait(501)]
    assert loop.sampled(501, complete=False, samples=0) == [Wait(502)]
    assert isinstance(loop.sampled(502, complete=False, samples=1)[0], AskForRevision)
    loop.answered(503, 1)
    assert loop.machine.step(Changed(600, "revise")) == [Wait(600)]


def test_nothing_is_asked_while_the_topology_settles_and_cools_down() -> None:
    loop = Loop(settle_s=3, cooldown_s=40)
    loop.revise()
    assert loop.machine.step(RevisionFinished(25, "done"))[1] == Wait(65)
    assert loop.sampled(64) == [Wait(65)]
    assert loop.machine.step(Changed(64.5, "node_up")) == [Wait(64.5)]  # changes do not wait for it


def test_an_abandoned_revision_needs_no_cool_down() -> None:
    loop = Loop(settle_s=3, cooldown_s=40)
    loop.revise()
    note, wait = loop.machine.step(RevisionFinished(27, "abandoned", "the barrier was refused"))
    assert (outcome([note]), wait) == (("abandoned", "the barrier was refused"), Wait(30))


def test_nothing_begins_in_the_last_seconds() -> None:
    loop = Loop(ends_s=52, settle_s=2)
    assert isinstance(loop.sampled(49)[0], AskForRevision)
    assert outcome(loop.answered(50, 1, SWAP)) == ("abandoned", "the sources end")
    assert loop.sampled(51) == [Wait(inf)]
    other = Loop()
    other.sampled(20)
    assert other.machine.step(Stopping(25)) == [Wait(inf)]
    assert outcome(other.answered(26, 1, SWAP)) == ("abandoned", "the sources end")
    assert other.machine.step(Changed(27, "node_lost")) == [Wait(inf)]


def test_the_runtime_begins_nothing_in_the_last_seconds_either() -> None:
    loop = Loop(ends_s=52, settle_s=2)
    drain(loop, 48)
    assert isinstance(loop.sampled(49)[0], AskForRevision)
    no, *rest = loop.answered(50.5, 1)
    assert outcome([no]) == ("no", "")
    assert rest == [Wait(inf)]


def test_shadow_revisions_are_noted_and_never_carried_out() -> None:
    note, wait = Loop(how="shadow").revise()
    assert isinstance(note, DecisionNote)
    assert (note.outcome, note.revision, note.past, note.begun_s, wait) == ("shadow", SWAP, None, None, Wait(30))


def drain(loop: Loop, at_s: float = 12) -> None:
    loop.drained = {"n2"}
    loop.version += 1
    assert loop.machine.step(Changed(at_s, "node_down")) == [Wait(at_s)]


def test_the_runtime_empties_a_node_when_the_scheduler_says_no() -> None:
    loop = Loop()
    drain(loop)
    assert isinstance(loop.sampled(13)[0], AskForRevision)
    no, carry, wait = loop.answered(14, 1)
    assert outcome([no]) == ("no", "")
    assert isinstance(carry, Carry)
    assert {m.executor.name: m.target for m in carry.revision.moves} == dict.fromkeys(
        ("s[1]", "b[1]", "k[0]"), Slot("n1", 0)
    )
    assert (carry.number, carry.revision.reason, wait) == (2, "nodes", Wait(inf))


def test_the_runtime_empties_a_node_after_a_minute_of_silence_and_the_answer_is_stale() -> None:
    loop = Loop(deadline_s=300)
    drain(loop)
    assert loop.sampled(13)[1] == Wait(72)
    carry = loop.sampled(72)[0]
    assert isinstance(carry, Carry)
    assert outcome(loop.answered(73, 1, SWAP)) == ("stale", "the topology changed meanwhile")
    assert loop.machine.state == "carrying"


def test_an_answer_is_stale_while_the_topology_settles_after_the_runtime_failed_to_empty_a_node() -> None:
    loop = Loop(deadline_s=300)
    drain(loop)
    assert isinstance(loop.sampled(13)[0], AskForRevision)
    loop.answered(14, 1, late="it died")
    assert isinstance(loop.sampled(65)[0], AskForRevision)
    assert isinstance(loop.sampled(72)[0], Carry)
    loop.machine.step(RevisionFinished(72.5, "abandoned"))
    assert outcome(loop.answered(73, 2, SWAP)) == ("stale", "the topology changed meanwhile")
    assert loop.machine.state == "settling"


def test_a_scheduler_that_empties_the_node_itself_is_not_asked_again_for_it() -> None:
    loop = Loop()
    drain(loop)
    assert isinstance(loop.revise(13)[0], Carry)
    loop.places = dict.fromkeys(loop.places, "n1/0")
    assert loop.machine.step(RevisionFinished(15, "done"))[1] == Wait(17)
    assert loop.sampled(17) == [Wait(20)]


def test_a_node_that_is_still_not_empty_is_asked_about_again() -> None:
    loop = Loop()
    drain(loop)
    loop.revise(13)
    loop.machine.step(RevisionFinished(15, "partial", "the second wave was refused"))
    assert isinstance(loop.sampled(17)[0], AskForRevision)


def test_an_answer_without_a_question_is_an_error_and_a_late_end_is_ignored() -> None:
    loop = Loop()
    with pytest.raises(ValueError, match="not open"):
        loop.answered(5, 1)
    loop.revise()
    loop.machine.step(Broke(22, "n1/0 was killed"))
    assert loop.machine.step(RevisionFinished(22, "done")) == [Wait(inf)]
