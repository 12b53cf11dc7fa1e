"""What became of every event of a timeline, as `run.json` has it, in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from simulated_runs import MID, FakeNodes, run_coordinator

from agents.protocol import Cut, Prepare, Slot, Start
from analysis.records.file_types import TimelineRecord
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.event_log import EventLog
from controller.coordinator.interfaces import RestartRules
from controller.coordinator.scripted_events import (
    AskScheduler,
    KillAgent,
    KillWorker,
    MoveExecutors,
    MoveRequest,
    NodeDown,
    NodeUp,
    ScaleComponents,
    ScriptedEvent,
    SetCpu,
)

AT_S, ENDS_S = 3.0, 10.0
GROWTH = ScaleComponents(AT_S, ("mid",), 2)


def outcomes(
    *events: ScriptedEvent,
    during: Callable[[FakeNodes], Coroutine[Any, Any, None]] | None = None,
    seconds: float = ENDS_S,
    **settings: Any,
) -> Sequence[TimelineRecord]:
    """Run these events; return what became of each."""
    course = ControlSettings(checkpoint_s=2, events=events, **settings)
    return run_coordinator(lambda: FakeNodes(course), seconds, during).coordinator.event_log.timeline


def times(record: TimelineRecord) -> tuple[float, float]:
    """Return begin and end of a change that is done."""
    assert record.began_s is not None
    assert record.ended_s is not None
    return record.began_s, record.ended_s


def move(executor: str = "mid[0]", to: str = "n3", at_s: float = AT_S) -> MoveExecutors:
    return MoveExecutors(at_s, (MoveRequest(executor, to, 1),))


async def refuse(nodes: FakeNodes) -> None:
    """Let all workers refuse barriers to the end."""
    nodes.refusal = "not now"


def test_a_growth_that_is_done_has_the_times_of_its_executors() -> None:
    (growth,) = outcomes(GROWTH)
    assert (growth.do, growth.subject, growth.asked_s, growth.outcome, growth.reason) == ("scale", "mid", 3, "done", "")
    assert AT_S <= times(growth)[0] < times(growth)[1] < AT_S + 1


def test_a_growth_that_is_refused_to_the_end_has_failed_with_the_last_reason() -> None:
    (growth,) = outcomes(GROWTH, during=refuse)
    assert (growth.outcome, growth.ended_s) == ("failed", None)
    assert "not now" in growth.reason


def test_a_growth_behind_a_barrier_that_ends_with_the_sources_has_failed() -> None:
    """As in a run whose queues hold up the first checkpoint."""

    async def hold(nodes: FakeNodes) -> None:
        nodes.unanswered.add(Cut)
        await asyncio.sleep(ENDS_S + 5)
        nodes.unanswered.clear()
        for node, cut in [(node, message) for node, message in nodes.sent if isinstance(message, Cut)]:
            nodes.handle(node, cut)

    (growth,) = outcomes(GROWTH, during=hold)
    assert (growth.outcome, growth.began_s, growth.ended_s) == ("failed", None, None)
    assert growth.reason == "the sources had ended"


def test_events_after_the_end_of_the_sources_were_not_reached() -> None:
    late = KillWorker(ENDS_S - 1, MID)
    (moved, kill) = outcomes(late, move(at_s=ENDS_S - 1), seconds=5)
    assert [each.outcome for each in (kill, moved)] == ["failed", "failed"]
    assert kill.reason == moved.reason == "the sources had ended"


def test_a_kill_of_a_worker_that_is_not_there_has_failed() -> None:
    killed, missed = outcomes(KillWorker(AT_S, MID), KillWorker(AT_S + 3, Slot("n3", 1)))
    assert (killed.do, killed.subject, killed.outcome) == ("kill", "n1/1", "done")
    assert (missed.outcome, missed.reason) == ("failed", "no worker runs in n3/1")


def test_a_kill_of_an_agent_that_is_gone_has_failed() -> None:
    async def lose(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S - 1)
        nodes.lose_node("n3")

    (missed,) = outcomes(KillAgent(AT_S, "n3", 0.0), during=lose)
    assert (missed.outcome, missed.reason) == ("failed", "the agent of n3 is gone")


def test_settings_that_cannot_be_set_have_failed() -> None:
    (settings,) = outcomes(SetCpu(AT_S, "n1", {"max_ghz": 1.0}))
    assert (settings.do, settings.subject, settings.outcome) == ("set_cpu", "n1", "failed")
    assert "n1" in settings.reason


def test_a_drain_is_done_when_the_node_is_empty_and_a_node_that_comes_is_up_at_once() -> None:
    down, up = outcomes(NodeDown(AT_S, "n2"), NodeUp(AT_S + 3, "n2"))
    assert (down.do, down.subject, down.outcome) == ("node_down", "n2", "done")
    assert pytest.approx(times(down)[0], abs=0.01) == AT_S
    assert times(down)[1] > AT_S + 0.01
    assert (up.outcome, up.ended_s) == ("done", up.began_s)


def test_a_drain_that_is_refused_to_the_end_has_failed() -> None:
    (down,) = outcomes(NodeDown(AT_S, "n2"), during=refuse)
    assert down.outcome == "failed"
    assert "not now" in down.reason


def test_a_node_that_is_lost_does_not_come_up() -> None:
    async def lose(nodes: FakeNodes) -> None:
        await asyncio.sleep(1)
        nodes.lose_node("n3")

    (up,) = outcomes(NodeUp(AT_S, "n3"), during=lose, withheld=frozenset({"n3"}))
    assert (up.outcome, up.reason) == ("failed", "node n3 is lost")


def test_moves_are_done_abandoned_or_without_effect() -> None:
    done, there, nobody = outcomes(move(), move(at_s=AT_S + 2), move("other[0]", at_s=AT_S + 3))
    assert (done.do, done.subject, done.outcome) == ("move", "mid[0]", "done")
    assert AT_S <= times(done)[0] < times(done)[1]
    assert (there.outcome, there.began_s) == ("done", there.ended_s)
    assert (nobody.outcome, nobody.reason) == ("failed", "there is no executor other[0] now")


def test_a_move_that_a_failure_prevents_has_failed() -> None:
    async def kill(nodes: FakeNodes) -> None:
        while not any(prepare.moves for prepare in nodes.messages(Prepare)):
            await asyncio.sleep(0.001)
        nodes.unanswered.add(Cut)
        nodes.kill_worker(MID)
        await asyncio.sleep(0.5)
        nodes.unanswered.clear()

    (moved,) = outcomes(move(), during=kill)
    assert moved.outcome == "failed"
    assert moved.reason.startswith("the run broke")


def test_a_move_that_is_due_during_a_scaling_is_made_behind_it() -> None:
    growth, moved = outcomes(GROWTH, move(at_s=AT_S + 0.1), restart=RestartRules(wait_s=1.0))
    assert (growth.outcome, moved.outcome, moved.reason) == ("done", "done", "")
    assert times(moved)[0] > times(growth)[1]


def test_a_move_that_is_due_during_a_scaling_is_made_when_a_failure_ended_that() -> None:
    async def kill(nodes: FakeNodes) -> None:
        nodes.unanswered.add(Cut)
        await asyncio.sleep(AT_S + 0.5)
        nodes.kill_worker(MID)
        nodes.unanswered.clear()

    growth, moved = outcomes(GROWTH, move(at_s=AT_S + 0.1), during=kill, seconds=2 * ENDS_S)
    assert (growth.outcome, moved.outcome) == ("done", "done")


def test_a_move_that_is_due_in_a_recovery_that_fails_is_made_behind_the_next_one() -> None:
    async def fail(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S - 1)
        nodes.unanswered.add(Start)
        nodes.kill_worker(MID)
        await asyncio.sleep(2)
        nodes.unanswered.clear()
        nodes.kill_agent("n2")

    (moved,) = outcomes(move(), during=fail, seconds=2 * ENDS_S)
    assert (moved.outcome, moved.reason) == ("done", "")


def test_a_kill_does_not_wait_for_a_move() -> None:
    async def hold(nodes: FakeNodes) -> None:
        await asyncio.sleep(AT_S - 0.5)
        nodes.unanswered.add(Cut)
        await asyncio.sleep(2)
        nodes.unanswered.clear()
        for node, cut in [(node, cut) for node, cut in nodes.sent if isinstance(cut, Cut) and cut.barrier == 2]:
            nodes.handle(node, cut)

    moved, killed = outcomes(move(), KillWorker(AT_S + 1, MID), during=hold)
    assert (killed.outcome, round(times(killed)[0], 1)) == ("done", AT_S + 1)
    assert times(moved)[1] > times(killed)[1]


def test_the_records_are_in_order_of_time_moves_included() -> None:
    found = outcomes(move(at_s=AT_S - 1), GROWTH, KillWorker(AT_S + 1, MID))
    assert [each.do for each in found] == ["move", "scale", "kill"]


@pytest.mark.parametrize("at_s", [None, 4.5])
def test_a_demanded_question_is_done_when_the_scheduler_is_asked(at_s: float | None) -> None:
    log = EventLog(lambda *_: None)
    log.asked(1.0)
    demanded = log.expect("revise", "", AT_S)
    log.demanded(demanded)
    if at_s is not None:
        log.asked(at_s)
    (record,) = log.timeline
    assert (record.outcome, record.ended_s) == (("failed", None) if at_s is None else ("done", at_s))
    assert record.reason == ("the scheduler was not asked" if at_s is None else "")


def test_static_runs_have_no_scheduler_to_ask() -> None:
    assert outcomes(AskScheduler(AT_S)) == []
