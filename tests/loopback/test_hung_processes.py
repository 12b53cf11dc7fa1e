"""A hung process counts as lost: the run recovers exactly."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loopback_agents import ControlledRun, loopback_agents

from controller.coordinator.checkpoint_loop import ControlSettings
from controller.host.process_identity import ProcessIdentity
from workloads.workload import load_workload

pytestmark = [pytest.mark.loopback, pytest.mark.long]

CHECKPOINT_S = 0.5
RATE = {"kind": "constant", "tuples_per_s": 2000.0}
PLACES = {
    "spout[0]": "n1/0",
    "split[0]": "n1/0",
    "count[0]": "n1/1",
    "spout[1]": "n2/0",
    "split[1]": "n2/0",
    "count[1]": "n2/0",
}


async def stop_and_recover(run: ControlledRun, process: ProcessIdentity | None) -> dict[str, Any]:
    """Stop a process for good after a checkpoint; return the record of the recovery."""
    event_log = run.coordinator.event_log
    checkpoints, recoveries = event_log.checkpoints, len(event_log.recoveries)
    await run.until(lambda: event_log.checkpoints > checkpoints, "a checkpoint")
    assert process is not None
    assert process.is_alive()
    os.kill(process.pid, signal.SIGSTOP)
    try:
        await run.until(lambda: len(event_log.recoveries) > recoveries, "the recovery")
        assert not process.is_alive()
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
    return event_log.recoveries[-1]


async def run_it(folder: Path) -> None:
    (folder / "text.txt").write_text("to be or not to be\nthat is the question\n\nto die to sleep\n" * 20)
    params = {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}}
    workload = load_workload("wordcount", params)
    async with (
        loopback_agents(folder) as agents,
        agents.run(workload, PLACES, RATE, ControlSettings(checkpoint_s=CHECKPOINT_S)) as run,
    ):
        await run.coordinator.start()
        place, worker = next((place, process) for place, process in run.workers.items() if place.index == 1)
        recovery = await stop_and_recover(run, worker)
        assert f"node {place.node}, slot 1: worker 1 (process {worker.pid if worker else 0}) hangs" in recovery.cause
        recovery = await stop_and_recover(run, agents.agent_processes["n2"])
        assert "the agent of n2 has been silent for" in recovery.cause
        verdict = await run.end()
        assert verdict.passed, verdict.message
        assert verdict.checked > 0
        events = run.traces()["event"].to_pylist()
    assert [row["subject"] for row in events if row["kind"] == "worker_failed" and "hangs" in row["detail"]] == [
        "worker 1"
    ]
    assert sum(row["kind"] == "recovery" for row in events) == 2


def test_runs_recover_from_a_stopped_worker_and_a_stopped_agent_with_an_exact_answer(tmp_path: Path) -> None:
    asyncio.run(run_it(tmp_path))
