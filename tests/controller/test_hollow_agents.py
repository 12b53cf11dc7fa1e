"""Agents that answer heartbeats but report nothing of the run are given up like silent ones; in virtual time."""

import asyncio

import pytest
from conducting import START_S, conduct
from obedient import Obedient

from agents.protocol import SILENCE_S, Start, Stored, Vitals
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.failures import RunFailedError
from inventory.errors import RunError

REASON = "node n2: its agent answers heartbeats, but has reported nothing of the run for 15 s"
LOOK_S = 1.0
HOLLOW_FROM_S = 4.5


async def hollow(nodes: Obedient) -> None:
    await asyncio.sleep(HOLLOW_FROM_S)
    nodes.hollow.add("n2")


async def lying(nodes: Obedient) -> None:
    """Keep sending reports of epochs that are over or never started."""
    await hollow(nodes)
    while "n2" in nodes.hollow:
        await asyncio.sleep(0.5)
        for epoch in (0, 2, 2**53):
            nodes.coordinator.handle_report("n2", Vitals(epoch=epoch))


@pytest.mark.parametrize("deed", [hollow, lying], ids=["nothing", "wrong epochs"])
def test_an_agent_that_only_answers_heartbeats_is_restarted_after_15_s(deed) -> None:
    nodes = conduct(lambda: Obedient(ControlSettings(checkpoint_s=2)), 40, deed)
    (recovery,) = nodes.coordinator.event_log.recoveries
    assert recovery.cause == REASON
    assert recovery.at_s == pytest.approx(HOLLOW_FROM_S + SILENCE_S, abs=START_S + 2 * LOOK_S)
    assert recovery.took_s < START_S


@pytest.mark.parametrize("deed", [hollow, lying], ids=["nothing", "wrong epochs"])
def test_without_checkpoints_such_an_agent_fails_the_run_after_15_s(deed) -> None:
    took_s = 0.0

    async def watched(nodes: Obedient) -> None:
        nonlocal took_s
        doing = asyncio.create_task(deed(nodes))
        while True:
            assert not (doing.done() and doing.exception())
            took_s = asyncio.get_running_loop().time()
            await asyncio.sleep(0.5)

    with pytest.raises(RunFailedError, match=REASON):
        conduct(lambda: Obedient(ControlSettings()), 300, watched)
    assert took_s == pytest.approx(HOLLOW_FROM_S + SILENCE_S, abs=START_S + 2 * LOOK_S)


def test_while_workers_start_an_agent_has_its_120_s() -> None:
    def mute() -> Obedient:
        nodes = Obedient(ControlSettings(checkpoint_s=2))
        nodes.mute |= {Start, Vitals}
        return nodes

    with pytest.raises(RunError, match="the workers did not all start within 120 s"):
        conduct(mute, 10)


def test_workers_that_are_busy_for_minutes_are_not_given_up() -> None:
    # They say nothing here, ever; only their agents do.
    nodes = conduct(lambda: Obedient(ControlSettings()), 600)
    assert not nodes.coordinator.event_log.recoveries


@pytest.mark.parametrize(
    ("slot", "executor", "complaint"),
    [
        (0, "../../x[0]", r"node n2, slot 0: report of state for '../../x\[0\]', which does not run there"),
        (7, "sink[0]", "node n2, slot 7: report for slot 7, which has no worker in this run"),
    ],
)
def test_an_impossible_report_fails_the_run_at_once(slot: int, executor: str, complaint: str) -> None:
    async def claim(nodes: Obedient) -> None:
        await asyncio.sleep(3)
        number = nodes.coordinator._checkpoint_loop.barrier
        said = Stored(epoch=1, slot=slot, barrier=number, executor=executor, file="x", nbytes=1)
        nodes.coordinator.handle_report("n2", said)

    with pytest.raises(RunFailedError, match=complaint):
        conduct(lambda: Obedient(ControlSettings(checkpoint_s=2)), 10, claim)
