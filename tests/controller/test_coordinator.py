"""Coordinator in virtual time: barriers, checkpoints and ends of runs, with scripted nodes."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulated_runs import MID, PLACES, SINK, FakeNodes, answer_files, run_coordinator

from agents.protocol import (
    Abandon,
    Cut,
    Drained,
    Finish,
    Go,
    Lost,
    Prepare,
    Slot,
    Start,
    Stop,
)
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.coordinator import LEAD_NS
from controller.coordinator.failures import MOST_RECOVERIES, RunFailedError
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from controller.simulation.virtual_loop import run_in_virtual_time
from inventory.errors import RunError


def test_an_undisturbed_run_takes_its_checkpoints_and_ends() -> None:
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 9)
    assert [message.barrier for message in nodes.messages(Prepare, "n3")] == [1, 2, 3, 4]
    assert [message.complete for message in nodes.messages(Prepare, "n3")] == [0, 1, 2, 3]
    assert [subject for subject, _, _ in nodes.events_of("checkpoint")] == ["1", "2", "3", "4"]
    assert {detail for _, detail, _ in nodes.events_of("checkpoint")} == {"bytes=30"}
    assert nodes.coordinator.event_log.checkpoints == 4
    kept = sorted(name for name in nodes.replicas.files if name.startswith("checkpoints"))
    assert kept == ["checkpoints/4/mid[0]", "checkpoints/4/sink[0]", "checkpoints/4/src[0]"]
    assert answer_files(nodes) == ["settled at 1", "settled at 2", "settled at 3", "settled at 4", "last of epoch 1"]
    assert nodes.coordinator.positions == {"src[0]": 100}
    assert len(nodes.messages(Start)) == len(nodes.messages(Stop)) == len(nodes.messages(Finish)) == 3


def test_sources_start_at_the_same_time_on_all_clocks() -> None:
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings()), 1)
    at = {node: message.at_ns for node, message in nodes.sent if isinstance(message, Go)}
    starts_ns = [at[name] - node.clock.lead(LEAD_NS) for name, node in nodes.nodes.items()]
    assert max(starts_ns) - min(starts_ns) < 100_000  # what drifting clocks allow
    assert min(starts_ns) > LEAD_NS


def test_without_checkpoints_there_are_no_barriers_and_a_death_fails_the_run() -> None:
    assert not run_coordinator(lambda: FakeNodes(ControlSettings()), 20).messages(Prepare)

    async def kill(nodes: FakeNodes) -> None:
        nodes.kill_worker(MID)

    with pytest.raises(RunFailedError, match=r"^node n1, slot 1: was killed \(and 2 more\)$"):
        run_coordinator(lambda: FakeNodes(ControlSettings()), 20, kill)


def test_a_barrier_refused_by_a_worker_is_abandoned_and_the_run_continues() -> None:
    async def refuse(nodes: FakeNodes) -> None:
        nodes.refusal = "not now"
        await asyncio.sleep(3)
        nodes.refusal = ""

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 5, refuse)
    assert [message.barrier for message in nodes.messages(Abandon, "n1")] == [1]
    assert [message.barrier for message in nodes.messages(Cut, "n1")] == [2]
    ((barrier, why, _),) = nodes.events_of("barrier_abandoned")
    assert barrier == "1"
    assert "n1/0: not now" in why


def test_a_barrier_is_abandoned_when_a_worker_is_not_ready_in_time() -> None:
    async def ignore(nodes: FakeNodes) -> None:
        nodes.unanswered.add(Prepare)
        await asyncio.sleep(10)
        nodes.unanswered.clear()

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 35, ignore)
    assert nodes.events_of("barrier_abandoned")[0][:2] == ("1", "not ready within 30 s: n1/0, n1/1, n2/0")
    assert nodes.events_of("checkpoint")


def test_a_checkpoint_without_replicas_is_incomplete_and_the_run_restarts_from_the_previous_one() -> None:
    async def fail_replica(nodes: FakeNodes) -> None:
        replicate = nodes.replicas.replicate

        async def failing(node: str, file: str, name: str) -> None:
            if name == "checkpoints/2/sink[0]":
                raise RunError("no")
            await replicate(node, file, name)

        nodes.replicas.replicate = failing  # type: ignore[method-assign]

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 8, fail_replica)
    assert [message.complete for message in nodes.messages(Prepare, "n3")] == [0, 1, 1]
    assert ("2", "no second copy of checkpoint 2: no", None) in nodes.events_of("barrier_abandoned")
    assert not any(name.startswith(("checkpoints/2", "answers/2")) for name in nodes.replicas.files)
    assert answer_files(nodes) == ["settled at 1", "settled at 3", "last of epoch 2"]
    assert nodes.coordinator.event_log.recoveries[0].cause == "no second copy of checkpoint 2: no"


def test_a_stopped_run_ends_at_its_stop_positions_despite_failures() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(4.5)
        nodes.unanswered.add(Drained)
        await asyncio.sleep(1.5)
        nodes.model.position = 777
        nodes.unanswered.clear()
        nodes.kill_worker(MID)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 5, kill)
    assert nodes.messages(Start, "n1")[-1].spec.until == {"src[0]": 100}
    # Both ask for what was due at the first one.
    first, second = nodes.messages(Stop, "n1")
    assert (first.due_ns, first.positions) == (second.due_ns, second.positions)
    assert nodes.coordinator.positions == {"src[0]": 100}
    assert answer_files(nodes)[-1] == "last of epoch 2"


def test_a_run_can_be_stopped_during_a_recovery() -> None:
    async def kill(nodes: FakeNodes) -> None:
        await asyncio.sleep(4.5)
        nodes.unanswered.add(Start)
        nodes.kill_worker(MID)
        await asyncio.sleep(2)
        nodes.unanswered.clear()
        nodes.kill_worker(MID, epoch=2)

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 5, kill)
    assert (nodes.epoch, nodes.coordinator.positions) == (3, {"src[0]": 100})


def test_failures_after_the_complete_answer_change_nothing() -> None:
    async def run() -> FakeNodes:
        nodes = FakeNodes(ControlSettings(checkpoint_s=2))
        async with nodes.coordinator as coordinator:
            await coordinator.start()
            await coordinator.stop()
            nodes.kill_worker(MID)
            nodes.lose_node("n2")
            await coordinator.finish()
        return nodes

    nodes = run_in_virtual_time(run())
    assert nodes.epoch == 1
    assert answer_files(nodes) == ["last of epoch 1"]


def test_timeouts_name_the_missing_workers() -> None:
    async def run() -> None:
        nodes = FakeNodes(ControlSettings(checkpoint_s=2))
        nodes.unanswered.add(Start)
        async with nodes.coordinator as coordinator:
            await coordinator.start()

    with pytest.raises(RunError, match="the workers did not all start within 120 s; missing: n1/0, n1/1, n2/0"):
        run_in_virtual_time(run())


def test_a_coordinator_that_is_left_early_leaves_no_tasks_running() -> None:
    async def run() -> set[asyncio.Task[Any]]:
        nodes = FakeNodes(ControlSettings(checkpoint_s=0.05))
        async with nodes.coordinator as coordinator:
            await coordinator.start()
            await asyncio.sleep(1.03)
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert not run_in_virtual_time(run())


EVENTS = st.lists(
    st.tuples(
        st.floats(0, 12),
        st.sampled_from(["kill worker", "kill agent", "lose", "break link", "refuse"]),
        st.sampled_from(sorted(set(PLACES.values()), key=str)),
    ),
    max_size=MOST_RECOVERIES,
)
PLANS = st.lists(
    st.builds(
        MoveExecutors,
        st.floats(0, 12),
        st.lists(
            st.builds(
                MoveRequest,
                st.sampled_from(sorted(PLACES)),
                st.sampled_from(["n1", "n2", "n3"]),
                st.sampled_from([None, 0]),
            ),
            min_size=1,
            max_size=3,
            unique_by=lambda request: request.executor,
        ).map(tuple),
    ),
    max_size=3,
).map(lambda plans: tuple(sorted(plans, key=lambda plan: plan.at_s)))


@given(events=EVENTS, plans=PLANS, checkpoint_s=st.sampled_from([0.3, 2.0, 60.0]))
def test_random_failures_never_break_the_protocol_and_the_run_ends(
    events: list[tuple[float, str, Slot]], plans: tuple[MoveExecutors, ...], checkpoint_s: float
) -> None:
    async def disturb(nodes: FakeNodes) -> None:
        begin_s = asyncio.get_running_loop().time()
        for at_s, what, place in sorted(events, key=lambda event: event[0]):
            await asyncio.sleep(max(0.0, begin_s + at_s - asyncio.get_running_loop().time()))
            if what == "kill worker":
                nodes.kill_worker(place)
            elif what == "kill agent" and nodes.nodes[place.node].reachable:
                nodes.kill_agent(place.node)
            elif what == "lose" and all(node.reachable for node in nodes.nodes.values()):
                nodes.lose_node(place.node)
            elif what == "break link":
                nodes.coordinator.handle_report(
                    place.node, Lost(epoch=nodes.epoch, slot=place.index, peer=SINK, reason="reset")
                )
            else:
                nodes.refusal = "not now"
                await asyncio.sleep(0.2)
                nodes.refusal = ""

    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=checkpoint_s, events=plans)), 12, disturb)
    complete = [int(subject) for subject, _, _ in nodes.events_of("checkpoint")]
    assert answer_files(nodes) == [*(f"settled at {number}" for number in complete), f"last of epoch {nodes.epoch}"]
    requested = [request.executor for plan in plans for request in plan.requests]
    reported = [move.executor for move in nodes.coordinator.event_log.moves]
    assert all(reported.count(executor) <= requested.count(executor) for executor in PLACES)
