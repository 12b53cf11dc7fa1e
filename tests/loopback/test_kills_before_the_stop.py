"""Workers and agents are killed shortly before the sources stop: no emitted record is missing in the answer."""

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow.compute as pc
import pytest
from ground import LONG_S, Ground, Play, ground, kill

from agents.protocol import Message, Progress
from controller.coordinator.checkpoint_loop import ControlSettings
from inventory.times import NS
from workloads.workload import Workload, load_workload

pytestmark = pytest.mark.loopback

SEED = 20_240_823
KILLS = 200
LAST_S = 3.0
"""A kill comes at most so long before the end of the measured interval."""

DEAF_S = 1.3

WARMUP_S, MEASURED_S = 1.0, 3.5
RATE = {"kind": "constant", "tuples_per_s": 2000.0}
PLACES = {
    "spout[0]": "n1/0",
    "split[0]": "n1/0",
    "count[0]": "n2/1",
    "spout[1]": "n2/0",
    "split[1]": "n1/1",
    "count[1]": "n2/0",
}


class Blow(NamedTuple):
    """What is killed, how long before the end of the measured interval, and how often checkpoints are made."""

    victim: str
    before_s: float
    checkpoint_s: float


class Outcome(NamedTuple):
    """Records, by those who know of them: the answer, the sources in the end, the traces; and recoveries."""

    answered: int
    positions: int
    traced: int
    recoveries: int


class Witness:
    """Hears how far sources say that they have come."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()

    def watch(self, way: str, _node: str, message: Message) -> None:
        if way == "heard" and isinstance(message, Progress):
            positions = {name: work.position for name, work in message.executors.items() if work.position is not None}
            self.reached |= Counter(positions)


async def strike(agents: Ground, play: Play, blow: Blow, end_ns: int, random: Random) -> None:
    """Kill one worker or one agent, when it is time."""
    await asyncio.sleep(max(0.0, (end_ns - time.monotonic_ns()) / NS - blow.before_s))
    if blow.victim == "deaf agent":
        # Reports of its workers do not get further, but their rows are written.
        node = random.choice(sorted(agents.agent_processes))
        os.kill(agents.agent_processes[node].pid, signal.SIGSTOP)
        await asyncio.sleep(DEAF_S)
        agents.kill_agent(node)
    elif blow.victim == "agent":
        agents.kill_agent(random.choice(sorted(agents.agent_processes)))
    else:
        kill(random.choice([process for process in play.workers.values() if process is not None]))


async def act(agents: Ground, workload: Workload, blow: Blow, random: Random) -> Outcome:
    """One run, as a campaign does it; its verdict must be right."""
    witness = Witness()
    async with agents.run(
        workload, PLACES, RATE, ControlSettings(checkpoint_s=blow.checkpoint_s), witness.watch
    ) as play:
        coordinator = play.coordinator
        started = await coordinator.start()
        witness.reached.clear()
        await coordinator.wait_until(started + round(WARMUP_S * NS))
        begun = await coordinator.mark("measure_start")
        end_ns = begun + round(MEASURED_S * NS)
        striking = asyncio.create_task(strike(agents, play, blow, end_ns, random))
        await coordinator.wait_until(end_ns)
        await coordinator.mark("measure_end")
        verdict = await asyncio.wait_for(play.end(), LONG_S)
        await striking
        assert verdict.passed, (blow, verdict.message)
        positions = coordinator.positions
        assert all(positions[name] >= at for name, at in witness.reached.items()), (blow, positions)
        throughput = play.traces()["throughput"]
        traced = pc.sum(throughput.filter(pc.equal(throughput["role"], "spout"))["emitted"]).as_py()
        answered = sum(count for _, count in play.answer["counts"])
        return Outcome(answered, sum(positions.values()), traced, len(coordinator.event_log.recoveries))


async def act_all(folder: Path, blows: Iterable[Blow]) -> list[tuple[Blow, Outcome]]:
    # One word per line, so that every record is counted once.
    (folder / "text.txt").write_text("\n".join(f"word{at % 37}" for at in range(500)) + "\n")
    params = {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    workload = load_workload("wordcount", params)
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    async with ground(folder) as agents:
        return [(blow, await act(agents, workload, blow, random)) for blow in blows]


def check(found: Any) -> None:
    for blow, outcome in found:
        print(blow, outcome)
    assert all(outcome.recoveries for _, outcome in found)
    assert [(blow, outcome) for blow, outcome in found if len(set(outcome[:3])) > 1] == []


@pytest.mark.long
def test_what_was_emitted_is_in_the_answer_although_the_stop_meets_a_recovery(tmp_path: Path) -> None:
    blows = [Blow("worker", 0.15, 5.0), Blow("agent", 0.3, 5.0), Blow("worker", 1.5, 1.0), Blow("deaf agent", 2.0, 5.0)]
    check(asyncio.run(act_all(tmp_path, blows)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_whoever_is_killed_whenever_before_the_stop_no_record_is_missing(tmp_path: Path) -> None:
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    blows = [
        Blow(random.choice(["worker", "agent"]), random.uniform(0.0, LAST_S), random.choice([1.0, 4.0, 6.0]))
        for _ in range(KILLS)
    ]
    check(asyncio.run(act_all(tmp_path, blows)))
