"""Agents that answer heartbeats but report nothing count as silent; in virtual time."""

import asyncio

import pytest
from simulated_runs import START_S, FakeNodes, run_coordinator

from agents.protocol import SILENCE_S, Start, Stored, Vitals
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.failures import RunFailedError
from inventory.errors import RunError

REASON = "node n2: its agent answers heartbeats, but has reported nothing of the run for 17 s"
CHECK_S = 1.0
SILENT_FROM_S = 4.5


async def go_silent(nodes: FakeNodes) -> None:
    await asyncio.sleep(SILENT_FROM_S)
    nodes.silent.add("n2")


async def report_other_epochs(nodes: FakeNodes) -> None:
    """Keep sending reports of epochs that are over or were never started."""
    await go_silent(nodes)
    while "n2" in nodes.silent:
        await asyncio.sleep(0.5)
        for epoch in (0, 2, 2**53):
            nodes.coordinator.handle_report("n2", Vitals(epoch=epoch))


@pytest.mark.parametrize("behaviour", [go_silent, report_other_epochs], ids=["nothing", "wrong epochs"])
def test_an_agent_that_only_answers_heartbeats_is_restarted_after_17_s(behaviour) -> None:
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 40, behaviour)
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.cause == REASON
    assert recovery.at_s == pytest.approx(SILENT_FROM_S + SILENCE_S + 2, abs=START_S + 2 * CHECK_S)
    assert recovery.took_s < START_S


@pytest.mark.parametrize("behaviour", [go_silent, report_other_epochs], ids=["nothing", "wrong epochs"])
def test_without_checkpoints_a_silent_agent_fails_the_run_after_17_s(behaviour) -> None:
    took_s = 0.0

    async def watch_behaviour(nodes: FakeNodes) -> None:
        nonlocal took_s
        task = asyncio.create_task(behaviour(nodes))
        while True:
            assert not (task.done() and task.exception())
            took_s = asyncio.get_running_loop().time()
            await asyncio.sleep(0.5)

    with pytest.raises(RunFailedError, match=REASON):
        run_coordinator(lambda: FakeNodes(ControlSettings()), 300, watch_behaviour)
    assert took_s == pytest.approx(SILENT_FROM_S + SILENCE_S + 2, abs=START_S + 2 * CHECK_S)


def test_an_agent_may_be_silent_for_120_s_while_workers_start() -> None:
    def silent_start() -> FakeNodes:
        nodes = FakeNodes(ControlSettings(checkpoint_s=2))
        nodes.unanswered |= {Start, Vitals}
        return nodes

    with pytest.raises(RunError, match="the workers did not all start within 120 s"):
        run_coordinator(silent_start, 10)


def test_workers_that_are_busy_for_minutes_are_not_given_up() -> None:
    # Workers report nothing here; only their agents do.
    nodes = run_coordinator(lambda: FakeNodes(ControlSettings()), 600)
    assert not nodes.coordinator.event_log.recoveries


@pytest.mark.parametrize(
    ("slot", "executor", "complaint"),
    [
        (0, "../../x[0]", r"node n2, slot 0: report of state for '../../x\[0\]', which does not run there"),
        (7, "sink[0]", "node n2, slot 7: report for slot 7, which has no worker in this run"),
    ],
)
def test_an_impossible_report_fails_the_run_at_once(slot: int, executor: str, complaint: str) -> None:
    async def claim(nodes: FakeNodes) -> None:
        await asyncio.sleep(3)
        number = nodes.coordinator._checkpoint_loop.barrier
        report = Stored(epoch=1, slot=slot, barrier=number, executor=executor, file="x", nbytes=1)
        nodes.coordinator.handle_report("n2", report)

    with pytest.raises(RunFailedError, match=complaint):
        run_coordinator(lambda: FakeNodes(ControlSettings(checkpoint_s=2)), 10, claim)
