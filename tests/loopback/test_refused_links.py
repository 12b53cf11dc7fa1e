"""A link that is refused for some seconds delays the run by that time, and does not fail it."""

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


async def outlive(agents: LoopbackAgents, refused_s: float) -> float:
    """Start a run in which a worker dies and its successors refuse connections; return how long its recovery took."""
    workload = load_workload("wordcount", {"ackers": 0, "parallelism": {"spout": 1, "split": 1, "count": 1}})
    until_s = 0.0
    with socket.socket() as taken:
        # A port without a listener.
        taken.bind((agents.members[CLOSED.node].address, 0))
        port = taken.getsockname()[1]

        def mislead(direction: str, _node: str, message: Message) -> None:
            if direction == "sent" and isinstance(message, Connect) and time.monotonic() < until_s:
                message.ports[f"{CLOSED.node}/{CLOSED.index}"] = port  # type: ignore[index]  # it is a dict here

        async with agents.run(workload, PLACES, RATE, ControlSettings(checkpoint_s=CHECKPOINT_S), mislead) as run:
            await run.coordinator.start()
            journal = run.coordinator.event_log
            await run.until(lambda: journal.checkpoints >= 2, "two checkpoints")
            until_s = time.monotonic() + refused_s
            kill(run.workers[CLOSED])
            await run.until(lambda: bool(journal.recoveries), "the recovery")
            made = journal.checkpoints
            await run.until(lambda: journal.checkpoints > made, "a checkpoint behind the recovery")
            verdict = await asyncio.wait_for(run.end(), TIMEOUT_S)
    assert verdict.passed, verdict.message
    (recovery,) = journal.recoveries
    took_s: float = recovery.took_s
    return took_s


async def outlive_all(folder: Path, count: int, refused_s: float) -> list[float]:
    async with loopback_agents(folder) as agents:
        return [await outlive(agents, refused_s) for _ in range(count)]


def test_a_link_that_is_refused_for_four_seconds_is_linked_again(tmp_path: Path) -> None:
    (took_s,) = asyncio.run(outlive_all(tmp_path, 1, 4.0))
    assert took_s > 4.0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_link_that_is_refused_for_ten_seconds_is_linked_again_20_of_20_times(tmp_path: Path) -> None:
    took_s = asyncio.run(outlive_all(tmp_path, 20, 10.0))
    print("recoveries took", sorted(round(each, 1) for each in took_s), "s")
    assert min(took_s) > 10.0
