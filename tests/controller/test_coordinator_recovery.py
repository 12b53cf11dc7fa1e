"""Coordinator of runs with failures, in virtual time: epochs, recoveries, lost nodes and moves."""

import asyncio

import pytest
from simulated_runs import (
    DRIFT_S,
    MID,
    PAUSE_NS,
    PLACES,
    SINK,
    START_S,
    FakeNodes,
    answer_files,
    run_coordinator,
    spec_of,
)

from agents.protocol import (
    Connect,
    Connected,
    Cut,
    Failed,
    Go,
    Grow,
    Lost,
    MoveToPlace,
    Prepare,
    Progress,
    Slot,
    Start,
    Stop,
    Work,
)
from analysis.records.file_types import ExecutorMove
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.failures import MOST_RECOVERIES, RunFailedError
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from inventory.errors import RunError
from inventory.times import NS


def test_a_killed_worker_starts_the_next_epoch_from_the_last_complete_checkpoint() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        executors = {"src[0]": Work(emitted=130, processed=None, queued=None, busy_ns=0, blocked_ns=0, position=130)}
        nodes.coordinator.handle_report(
            "n1", Progress(epoch=1, slot=0, at_ns=0, emitted=130, sunk=0, executors=executors)
        )
        nodes.kill_worker(MID)
        # Surviving workers run until the next epoch starts: their positions count as reached, their rows do not count.
        await asyncio.sleep(0.105)
        executors = {"src[0]": Work(emitted=135, processed=None, queued=None, busy_ns=0, blocked_ns=0, position=135)}
        nodes.coordinator.handle_report(
            "n1", Progress(epoch=1, slot=0, at_ns=0, emitted=135, sunk=0, executors=executors)
        )

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, kill)
    first, second = nodes.messages(Start, "n1")
    assert (first.epoch, second.epoch, second.spec.restore) == (1, 2, 1)
    assert [message.seen for message in nodes.messages(Go, "n1")] == [{}, {"src[0]": 130}]
    assert second.spec.until == {}
    assert second.spec.executors == first.spec.executors
    starts_ns = [message.at_ns for message in nodes.messages(Go, "n1")]
    assert max(starts_ns) - min(starts_ns) < DRIFT_S * NS
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.cause == "node n1, slot 1: was killed"
    assert (recovery.checkpoint, recovery.replayed_tuples) == (1, 35)
    # The source ends at its highest position, although it was restored at 100.
    assert nodes.messages(Stop, "n1")[-1].positions == {"src[0]": 135}
    assert nodes.coordinator.positions == {"src[0]": 135}
    # The recovery waits a tenth of a second for more failures; nodes reply at once.
    assert 0.1 < recovery.took_s < START_S
    assert answer_files(nodes)[-1] == "last of epoch 2"
    numbers = [message.barrier for message in nodes.messages(Prepare, "n1")]
    assert numbers == sorted(set(numbers))


def test_a_stop_names_the_highest_position_that_any_epoch_reached_wherever_it_was_reported() -> None:
    def report(epoch: int, position: int) -> Progress:
        # A move or a recovery resets the counters of an executor, but not its position.
        work = Work(emitted=5, processed=None, queued=None, busy_ns=0, blocked_ns=0, position=position)
        return Progress(epoch=epoch, slot=0, at_ns=0, emitted=5, sunk=0, executors={"src[0]": work})

    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.coordinator.handle_report("n1", report(1, 180))
        nodes.kill_worker(MID)
        await asyncio.sleep(1)
        nodes.coordinator.handle_report("n1", report(2, 120))
        # Reports of an older epoch may be late.
        nodes.coordinator.handle_report("n1", report(1, 200))
        nodes.coordinator.handle_report("n1", report(2, 130))
        nodes.kill_worker(MID)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=60)), 4.5, kill)
    assert nodes.epoch == 3
    assert nodes.messages(Stop, "n1")[-1].positions == {"src[0]": 200}
    assert nodes.coordinator.positions == {"src[0]": 200}


def test_the_position_of_a_source_that_ends_early_is_the_highest_that_it_reached() -> None:
    async def kill(nodes: FakeNodes) -> None:
        work = Work(emitted=500, processed=None, queued=None, busy_ns=0, blocked_ns=0, position=500)
        nodes.coordinator.handle_report(
            "n1", Progress(epoch=1, slot=0, at_ns=0, emitted=5, sunk=0, executors={"src[0]": work})
        )
        nodes.ignores_positions = True

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 5, kill)
    assert nodes.coordinator.positions == {"src[0]": 500}


def test_an_error_reported_by_a_worker_fails_the_run_even_if_its_consequences_arrive_first() -> None:
    async def fail(nodes: FakeNodes) -> None:
        nodes.coordinator.handle_report("n2", Lost(epoch=1, slot=0, peer=MID, reason="reset"))
        await asyncio.sleep(0.5)
        nodes.coordinator.handle_report("n1", Failed(epoch=1, slot=1, reason="ValueError: no", log="/worker-1.log"))

    with pytest.raises(RunFailedError, match=r"^node n1, slot 1: ValueError: no \(and 1 more\)$") as caught:
        run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, fail)
    assert caught.value.failure.log == "/worker-1.log"


def test_the_run_recovers_from_a_link_that_breaks_for_no_known_reason() -> None:
    async def cut(nodes: FakeNodes) -> None:
        nodes.coordinator.handle_report("n2", Lost(epoch=1, slot=0, peer=MID, reason="reset"))

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, cut)
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.cause == "node n2, slot 0: the link to slot 1 of n1 broke: reset"


def test_late_reports_of_an_earlier_epoch_are_ignored() -> None:
    async def kill(nodes: FakeNodes) -> None:
        nodes.kill_worker(MID)
        await asyncio.sleep(3)
        nodes.kill_worker(SINK, epoch=1)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, kill)
    assert nodes.epoch == 2


def test_a_failure_during_recovery_starts_the_next_epoch() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.unanswered.add(Start)
        nodes.kill_worker(MID)
        await asyncio.sleep(5)
        nodes.unanswered.clear()
        nodes.kill_worker(SINK, epoch=2)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 12, kill)
    assert nodes.epoch == 3
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.cause == "node n1, slot 1: was killed"
    assert recovery.took_s > 5


def test_a_run_fails_when_recoveries_do_not_lead_to_a_checkpoint() -> None:
    async def kill(nodes: FakeNodes) -> None:
        while True:
            nodes.kill_worker(MID)
            await asyncio.sleep(1)

    with pytest.raises(RunFailedError, match=r"was killed; given up after 5 recoveries without a new checkpoint$"):
        run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 60, kill)


def test_a_run_survives_a_link_that_is_refused_for_ten_seconds() -> None:
    async def refuse(nodes: FakeNodes) -> None:
        await asyncio.sleep(5)
        nodes.links_refused = True
        nodes.kill_worker(MID)
        await asyncio.sleep(10)
        nodes.links_refused = False

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 40, refuse)
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.took_s > 10
    assert nodes.epoch <= 1 + MOST_RECOVERIES


def test_a_recovery_that_comes_long_after_the_last_one_is_not_delayed() -> None:
    async def kill(nodes: FakeNodes) -> None:
        for _ in range(MOST_RECOVERIES):
            await asyncio.sleep(20)
            nodes.kill_worker(MID)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=1000)), 110, kill)
    assert len(nodes.coordinator.event_log.recoveries) == MOST_RECOVERIES
    assert all(recovery.took_s < START_S for recovery in nodes.coordinator.event_log.recoveries)


def test_one_recovery_covers_failures_in_the_pause_before_it() -> None:
    async def kill(nodes: FakeNodes) -> None:
        nodes.kill_worker(MID)
        await asyncio.sleep(0.3)
        nodes.kill_worker(MID)
        await asyncio.sleep(0.3)
        nodes.kill_agent("n2")
        nodes.kill_worker(PLACES["src[0]"])

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=1000)), 10, kill)
    assert len(nodes.coordinator.event_log.recoveries) == 2
    assert nodes.epoch == 3


def test_an_error_reported_in_the_pause_before_a_recovery_fails_the_run() -> None:
    async def fail(nodes: FakeNodes) -> None:
        nodes.kill_worker(MID)
        await asyncio.sleep(0.3)
        nodes.kill_worker(MID)
        await asyncio.sleep(0.3)
        nodes.coordinator.handle_report("n1", Failed(epoch=2, slot=0, reason="ValueError: no"))

    with pytest.raises(RunFailedError, match=r"^node n1, slot 0: ValueError: no$"):
        run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=1000)), 10, fail)


def test_a_run_survives_any_number_of_failures_with_checkpoints_in_between() -> None:
    async def kill(nodes: FakeNodes) -> None:
        for _ in range(2 * MOST_RECOVERIES):
            nodes.kill_worker(MID)
            await asyncio.sleep(4)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 45, kill)
    assert len(nodes.coordinator.event_log.recoveries) == 2 * MOST_RECOVERIES


def test_a_killed_agent_is_restarted_and_gets_its_snapshots_again() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.nodes["n2"].files.clear()
        nodes.kill_agent("n2")
        await nodes.coordinator.mark("measure_start")

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, kill)
    assert nodes.messages(Start, "n2")[-1].spec.restore == 1
    assert nodes.coordinator.event_log.recoveries[0].cause == "node n2: the agent of n2 was killed"
    assert not nodes.events_of("node_lost")


def test_an_agent_killed_when_all_workers_have_just_connected_is_restarted() -> None:
    async def kill(nodes: FakeNodes) -> None:
        nodes.unanswered.add(Connect)
        nodes.kill_worker(MID)
        while nodes.messages(Connect)[-1].epoch < 2:
            await asyncio.sleep(0.001)
        for place in PLACES.values():
            nodes.coordinator.handle_report(place.node, Connected(epoch=2, slot=place.index))
        nodes.kill_agent("n2")
        nodes.unanswered.clear()

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, kill)
    assert nodes.epoch == 3
    # Rows that its worker may have written after the start of the sources do not count.
    assert [rows[:2] for rows in nodes.coordinator.unreported].count(("n2", 0)) == 2


def test_executors_of_a_lost_node_are_placed_again_and_the_node_may_return() -> None:
    back = MoveExecutors(20, (MoveRequest("mid[0]", "n2"),))

    async def lose(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        nodes.lose_node("n2")
        await asyncio.sleep(10)
        assert nodes.coordinator.lost_nodes == {"n2"}
        nodes.return_node("n2")

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=(back,))), 25, lose)
    started = nodes.messages(Start, "n1")[-1].spec
    assert {executor.place.node for executor in started.executors} == {"n1", "n3"}
    assert nodes.nodes["n3"].files["r/checkpoints/1/mid[0]"] == "1"
    assert [subject for subject, _, _ in nodes.events_of("node_lost")] == ["n2"]
    assert [subject for subject, _, _ in nodes.events_of("node_returned")] == ["n2"]
    assert nodes.coordinator.lost_nodes == set()
    # The node joins the current epoch, so that executors can move to it.
    assert nodes.epoch == 2
    assert [message.spec.workers[-1] for message in nodes.messages(Grow, "n2")] == [Slot("n2", 0)]
    assert nodes.coordinator.event_log.moves[0].target == "n2/0"


def test_a_run_fails_when_there_is_no_placement_without_the_lost_nodes() -> None:
    async def lose(nodes: FakeNodes) -> None:
        nodes.lose_node("n2")
        nodes.lose_node("n3")

    with pytest.raises(RunError, match=r"^without n2, n3: two nodes are needed$"):
        run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9, lose)


def test_all_moves_of_a_plan_happen_at_one_barrier_after_new_workers_are_ready() -> None:
    plan = MoveExecutors(3, (MoveRequest("mid[0]", "n3", 1), MoveRequest("sink[0]", "n1")))
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(events=(plan,))), 5)
    (grow,) = nodes.messages(Grow)
    (prepare,) = nodes.messages(Prepare, "n2")
    at = [type(message) for node, message in nodes.sent if node == "n3"]
    assert at.index(Grow) < at.index(Prepare)
    assert grow.spec.workers == prepare.workers == (*spec_of(PLACES).workers, Slot("n3", 1))
    assert abs(grow.at_ns - nodes.messages(Go, "n3")[0].at_ns) < DRIFT_S * NS
    assert prepare.moves == (MoveToPlace("mid[0]", Slot("n3", 1)), MoveToPlace("sink[0]", Slot("n1", 0)))
    assert prepare.ports.keys() == {"n1/0", "n1/1", "n2/0", "n3/1"}
    first, second = nodes.coordinator.event_log.moves
    assert (first.executor, first.source, first.target) == ("mid[0]", "n1/1", "n3/1")
    assert (second.executor, second.source, second.target) == ("sink[0]", "n2/0", "n1/0")
    # The pause is 7 ms, although the clocks of nodes differ by days.
    assert [move.pause_s for move in (first, second)] == pytest.approx([PAUSE_NS / NS] * 2, abs=DRIFT_S)
    assert {move.predicted_s for move in (first, second)} == {0.005}
    assert 3 < first.at_s < 3 + START_S
    assert (first.state_bytes, first.buffered_rows, first.cpu_ms) == (10, 3, 1.0)
    moved = {name: value for name, _, value in nodes.events_of("move")}
    assert moved == pytest.approx({"mid[0]": first.pause_s, "sink[0]": second.pause_s}, abs=DRIFT_S)


def test_moved_executors_stay_in_their_new_slots_after_a_recovery() -> None:
    plan = MoveExecutors(3, (MoveRequest("mid[0]", "n3"),))

    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(6)
        nodes.kill_worker(SINK)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=(plan,))), 9, kill)
    spec = nodes.messages(Start, "n1")[-1].spec
    assert [executor.place for executor in spec.executors] == [Slot("n1", 0), Slot("n3", 0), Slot("n2", 0)]
    assert spec.workers == (Slot("n1", 0), Slot("n2", 0), Slot("n3", 0))


@pytest.mark.parametrize("moment", ["growing", "preparing", "passing"])
def test_moves_interrupted_by_a_failure_are_abandoned_together(moment: str) -> None:
    plan = MoveExecutors(3, (MoveRequest("mid[0]", "n3"), MoveRequest("sink[0]", "n1")))
    ignored = {"growing": Grow, "preparing": Prepare, "passing": Cut}[moment]

    async def kill(nodes: FakeNodes) -> None:
        nodes.unanswered.add(ignored)
        await asyncio.sleep(3.5)
        nodes.kill_worker(SINK)
        nodes.unanswered.clear()

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=60, events=(plan,))), 9, kill)
    assert nodes.messages(Start, "n1")[-1].spec.executors == spec_of(PLACES).executors
    assert [move.abandoned for move in nodes.coordinator.event_log.moves] == [
        "the run broke: node n2, slot 0: was killed"
    ] * 2


def test_a_move_to_a_lost_node_is_abandoned() -> None:
    plan = MoveExecutors(10, (MoveRequest("mid[0]", "n2"),))

    async def lose(nodes: FakeNodes) -> None:
        nodes.lose_node("n2")

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2, events=(plan,))), 15, lose)
    assert nodes.coordinator.event_log.moves == [
        ExecutorMove(executor="mid[0]", target="n2", at_s=10, abandoned="node n2 is lost")
    ]


def test_moves_due_after_the_end_of_the_input_are_reported() -> None:
    plan = MoveExecutors(10, (MoveRequest("mid[0]", "n3/1"),))
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(events=(plan,))), 5)
    assert nodes.coordinator.event_log.moves[0].abandoned == "the sources had ended"
