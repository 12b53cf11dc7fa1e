"""Connections refused for some seconds delay a recovery by that time; the run does not fail."""

import asyncio
import socket
import time
from pathlib import Path

import pytest
from loopback_agents import TIMEOUT_S, LoopbackAgents, kill, loopback_agents

from agents.protocol import Connect, Message, Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from workloads.workload import load_workload

pytestmark = pytest.mark.loopback

CHECKPOINT_S = 0.3
RATE = {"kind": "constant", "tuples_per_s": 1000.0}
PLACES = {"spout[0]": "n1/0", "split[0]": "n2/0", "count[0]": "n1/0"}
CLOSED = Slot("n2", 0)
"""The worker whose port refuses connections."""


async def recovery_time(agents: LoopbackAgents, refused_s: float) -> float:
    """Run once with a killed worker whose successors refuse connections; return the duration of the recovery."""
    workload = load_workload("wordcount", {"ackers": 0, "parallelism": {"spout": 1, "split": 1, "count": 1}})
    until_s = 0.0
    with socket.socket() as taken:
        # A port without a listener.
        taken.bind((agents.members[CLOSED.node].address, 0))
        port = taken.getsockname()[1]

        def misdirect(direction: str, _node: str, message: Message) -> None:
            if direction == "sent" and isinstance(message, Connect) and time.monotonic() < until_s:
                message.ports[f"{CLOSED.node}/{CLOSED.index}"] = port  # type: ignore[index]  # it is a dict here

        async with agents.run(workload, PLACES, RATE, ControlSettings(checkpoint_s=CHECKPOINT_S), misdirect) as run:
            await run.coordinator.start()
            event_log = run.coordinator.event_log
            await run.until(lambda: event_log.checkpoints >= 2, "two checkpoints")
            until_s = time.monotonic() + refused_s
            kill(run.workers[CLOSED])
            await run.until(lambda: bool(event_log.recoveries), "the recovery")
            before = event_log.checkpoints
            await run.until(lambda: event_log.checkpoints > before, "a checkpoint after the recovery")
            verdict = await asyncio.wait_for(run.end(), TIMEOUT_S)
    assert verdict.passed, verdict.message
    (recovery,) = event_log.recoveries
    took_s: float = recovery.took_s
    return took_s


async def recovery_times(folder: Path, count: int, refused_s: float) -> list[float]:
    async with loopback_agents(folder) as agents:
        return [await recovery_time(agents, refused_s) for _ in range(count)]


def test_a_link_that_is_refused_for_four_seconds_is_connected_again(tmp_path: Path) -> None:
    (took_s,) = asyncio.run(recovery_times(tmp_path, 1, 4.0))
    assert took_s > 4.0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_link_that_is_refused_for_ten_seconds_is_connected_again_20_of_20_times(tmp_path: Path) -> None:
    took_s = asyncio.run(recovery_times(tmp_path, 20, 10.0))
    print("recoveries took", sorted(round(each, 1) for each in took_s), "s")
    assert min(took_s) > 10.0
