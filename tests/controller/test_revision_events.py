"""Decisions and revisions in traces and in `run.json`."""

from msgspec.structs import replace
from observed_rounds import chain, nodes, observed

from analysis.records.file_types import Measured, RevisionRecord
from controller.coordinator.event_log import LIVE_DECISIONS, EventLog, LiveDecision
from controller.coordinator.rescheduling import DecisionNote
from inventory.documents import to_plain
from scheduler.online.observation import Expected, KeyFigures
from scheduler.online.revision import Revision
from scheduler.problem import Move, Slot
from workloads.topology import Executor

MOVE = Move(chain().id, Executor("b", 0), Slot("n1", 0), Slot("n2", 0))
REVISION = Revision("cut", "310 -> 90", [MOVE], frequencies={"n3": None, "n2": 1_200_000_000}, expects=Expected(90.0))


def test_a_revision_is_two_events_and_a_decision_one_before_them() -> None:
    events: list[tuple[str, str, str, float | None]] = []
    log = EventLog(lambda *event: events.append(event))
    log.decided(7, REVISION, 60, 0.25)
    log.revision_begun(7)
    log.clock("n2", 1_200_000_000, 1_300_000_000)
    log.clock("n3", None, None)
    observation = observed(60, cluster=nodes())
    log.revision(DecisionNote(7, 63.25, observation, REVISION, 0.25, 0.2, "unset", "n2: 1.3 GHz", begun_s=60.5))
    log.decided(8, Revision(text="no node is above 0.9"), 70, 0.1)
    log.revision(DecisionNote(8, 70.1, observation, Revision(text="no node is above 0.9"), 0.1, 0.1, "no"))
    log.decided(9, None, 80, 0.1)
    assert events == [
        ("decision", "7", "cut", 0.25),
        ("revision", "7", "begin", None),
        ("clock", "n2", "asked=1200000000", 1_300_000_000),
        ("clock", "n3", "asked=agenda", None),
        ("revision", "7", "end unset", None),
        ("decision", "8", "no", 0.1),
        ("decision", "9", "no", 0.1),
    ]
    log.measured_after(7, KeyFigures(95.0, 0.4))
    first, second = log.revisions
    assert first == RevisionRecord(
        number=7,
        at_s=60,
        decided_s=0.25,
        cpu_s=0.2,
        reason="cut",
        text="310 -> 90",
        outcome="unset",
        message="n2: 1.3 GHz",
        begun_s=60.5,
        ended_s=63.25,
        moves=1,
        clocks={"n3": None, "n2": 1_200_000_000},
        expects=KeyFigures(90.0),
        before=KeyFigures(310.0, 0.075),
        after=KeyFigures(95.0, 0.4),
        how="live",
    )
    assert (second.outcome, second.begun_s, second.after) == ("no", None, None)
    assert to_plain(Measured(revisions=log.revisions))["revisions"][0]["clocks"] == {"n3": None, "n2": 1_200_000_000}


def test_what_was_not_measured_is_null_and_never_0() -> None:
    observation = observed(60)
    assert observation.measured.watts is None
    watts = {name: replace(node, watts=20.5) for name, node in observation.nodes.items()}
    assert replace(observation, nodes=watts).measured.watts == 61.5
    some = watts | {"n1": replace(watts["n1"], watts=None, load=None)}
    assert replace(observation, nodes=some).measured == KeyFigures(310.0, 0.075, None)
    nothing = {name: replace(node, load=None) for name, node in watts.items()}
    assert replace(observation, nodes=nothing, samples=0).measured == KeyFigures(None, None, 61.5)


def test_a_decision_is_shown_before_its_outcome_is_known_and_the_newest_first() -> None:
    log, observation = EventLog(lambda *event: None), observed(60, cluster=nodes())
    assert log.decisions == ()
    log.decided(1, None, 60, 0.1)
    assert log.decisions == (LiveDecision(number=1, at_s=60, decided_s=0.1),)
    log.revision(DecisionNote(1, 60.1, observation, None, 0.1, 0.1, "no"))
    log.decided(2, REVISION, 60, 0.25)
    open_one, first = log.decisions
    assert (open_one.number, open_one.reason, open_one.moves, open_one.outcome) == (2, "cut", 1, None)
    assert (first.number, first.reason, first.outcome, first.took_s) == (1, "", "no", None)
    # A revision of the runtime leaves the open decision open.
    log.revision(DecisionNote(3, 60.5, observation, REVISION, 0.0, None, "abandoned", "\x1b[2J"))
    assert [(found.number, found.outcome) for found in log.decisions] == [(2, None), (3, "abandoned"), (1, "no")]
    assert log.decisions[1].message == r"\x1b[2J"
    log.revision(DecisionNote(2, 61.25, observation, REVISION, 0.25, 0.2, "done", begun_s=60.5))
    assert [(found.number, found.outcome) for found in log.decisions] == [(2, "done"), (3, "abandoned"), (1, "no")]
    assert log.decisions[0].took_s == 0.75


def test_only_the_last_decisions_are_shown() -> None:
    log, observation = EventLog(lambda *event: None), observed(60, cluster=nodes())
    for number in range(1, 2 * LIVE_DECISIONS):
        log.decided(number, None, 60, 0.1)
        assert len(log.decisions) == min(number, LIVE_DECISIONS)
        log.revision(DecisionNote(number, 60.1, observation, None, 0.1, 0.1, "no"))
    assert [found.number for found in log.decisions] == list(range(2 * LIVE_DECISIONS - 1, LIVE_DECISIONS - 1, -1))
    assert len(log.revisions) == 2 * LIVE_DECISIONS - 1
