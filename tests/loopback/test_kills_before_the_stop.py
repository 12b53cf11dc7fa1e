"""Kills of workers and agents shortly before the sources stop: no record that was due is missing in the answer."""

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
from loopback_agents import TIMEOUT_S, ControlledRun, LoopbackAgents, kill, loopback_agents

from agents.protocol import Message, Progress, Stop
from controller.coordinator.checkpoint_loop import ControlSettings
from inventory.times import NS
from workloads.rates import rate_of
from workloads.workload import Workload, load_workload

pytestmark = pytest.mark.loopback

SEED = 20_240_823
KILLS = 200
LAST_S = 3.0
"""Kills are at most this long before the end of the measured interval."""

DEAF_S = 1.3
"""Time in which a deaf agent is stopped before it is killed."""

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


class Fault(NamedTuple):
    """What is killed, how long before the end of the measured interval, and the interval of checkpoints."""

    victim: str
    before_s: float
    checkpoint_s: float


class Outcome(NamedTuple):
    """Numbers of records in the answer, at the sources' final positions and in the traces; due records; recoveries."""

    answered: int
    positions: int
    traced: int
    due: int
    recoveries: int


class PositionRecorder:
    """Records the positions that sources report, and the time up to which they are to emit what is due."""

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self.due_ns = 0

    def on_message(self, direction: str, _node: str, message: Message) -> None:
        if isinstance(message, Stop):
            self.due_ns = message.due_ns or 0
        if direction == "received" and isinstance(message, Progress):
            positions = {name: work.position for name, work in message.executors.items() if work.position is not None}
            self.reached |= Counter(positions)


async def inject(agents: LoopbackAgents, run: ControlledRun, fault: Fault, end_ns: int, random: Random) -> None:
    """Kill one worker or one agent at the fault's time."""
    await asyncio.sleep(max(0.0, (end_ns - time.monotonic_ns()) / NS - fault.before_s))
    if fault.victim == "deaf agent":
        # Its workers' reports are not forwarded, but their rows are written.
        node = random.choice(sorted(agents.agent_processes))
        os.kill(agents.agent_processes[node].pid, signal.SIGSTOP)
        await asyncio.sleep(DEAF_S)
        agents.kill_agent(node)
    elif fault.victim == "agent":
        agents.kill_agent(random.choice(sorted(agents.agent_processes)))
    else:
        kill(random.choice([process for process in run.workers.values() if process is not None]))


async def run_with_fault(agents: LoopbackAgents, workload: Workload, fault: Fault, random: Random) -> Outcome:
    """Run once, as a campaign does; the verdict must be positive."""
    recorder = PositionRecorder()
    async with agents.run(
        workload, PLACES, RATE, ControlSettings(checkpoint_s=fault.checkpoint_s), recorder.on_message
    ) as run:
        coordinator = run.coordinator
        started = await coordinator.start()
        recorder.reached.clear()
        await coordinator.wait_until(started + round(WARMUP_S * NS))
        measured_from = await coordinator.mark("measure_start")
        end_ns = measured_from + round(MEASURED_S * NS)
        injecting = asyncio.create_task(inject(agents, run, fault, end_ns, random))
        await coordinator.wait_until(end_ns)
        await coordinator.mark("measure_end")
        verdict = await asyncio.wait_for(run.end(), TIMEOUT_S)
        await injecting
        assert verdict.passed, (fault, verdict.message)
        positions = coordinator.positions
        assert all(positions[name] >= at for name, at in recorder.reached.items()), (fault, positions)
        throughput = run.traces()["throughput"]
        traced = pc.sum(throughput.filter(pc.equal(throughput["role"], "spout"))["emitted"]).as_py()
        answered = sum(count for _, count in run.answer["counts"])
        due = rate_of(RATE).schedule(0).due_count(recorder.due_ns)  # type: ignore[union-attr]  # it has a schedule
        return Outcome(answered, sum(positions.values()), traced, due, len(coordinator.event_log.recoveries))


async def run_all(folder: Path, faults: Iterable[Fault]) -> list[tuple[Fault, Outcome]]:
    # One word per line, so that every record is counted once.
    (folder / "text.txt").write_text("\n".join(f"word{at % 37}" for at in range(500)) + "\n")
    params = {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    workload = load_workload("wordcount", params)
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    async with loopback_agents(folder) as agents:
        return [(fault, await run_with_fault(agents, workload, fault, random)) for fault in faults]


def check(found: Any) -> None:
    for fault, outcome in found:
        print(fault, outcome)
    assert all(outcome.recoveries for _, outcome in found)
    assert [(fault, outcome) for fault, outcome in found if len(set(outcome[:3])) > 1] == []
    assert [(fault, outcome) for fault, outcome in found if outcome.answered < outcome.due] == []


@pytest.mark.long
def test_all_emitted_records_are_in_the_answer_when_the_stop_meets_a_recovery(tmp_path: Path) -> None:
    faults = [
        Fault("worker", 0.15, 5.0),
        Fault("agent", 0.3, 5.0),
        Fault("worker", 1.5, 1.0),
        Fault("deaf agent", 2.0, 5.0),
    ]
    check(asyncio.run(run_all(tmp_path, faults)))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_no_record_is_missing_after_any_kill_before_the_stop(tmp_path: Path) -> None:
    random = Random(SEED)  # noqa: S311 - it must be repeatable
    faults = [
        Fault(random.choice(["worker", "agent"]), random.uniform(0.0, LAST_S), random.choice([1.0, 4.0, 6.0]))
        for _ in range(KILLS)
    ]
    check(asyncio.run(run_all(tmp_path, faults)))
