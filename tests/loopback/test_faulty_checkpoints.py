"""Third-party operators that fail at a checkpoint: the run fails within a second, with the cause."""

import asyncio
import json
import os
import re
import time
from pathlib import Path

import faulty_workload
import pytest
from faulty_workload import Faulty, FaultyParams
from loopback_agents import kill, loopback_agents, slot_of

from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.failures import RunFailedError

pytestmark = pytest.mark.loopback

HERE = re.escape(faulty_workload.__file__)
LINE_OF_OPERATOR = rf"\({HERE}:\d+\)"
PLACES = {"source[0]": "n1/0", "source[1]": "n2/0", "sink[0]": "n1/1"}
RATE = {"kind": "constant", "tuples_per_s": 200.0}
WITHIN_S = 1.0

REASONS = {
    "sink none": rf"n1, slot 1: sink\[0\]: snapshot\(\) of Sink returned NoneType, expected bytes {LINE_OF_OPERATOR}",
    "source none": rf"source\[\d\]: snapshot\(\) of Counting returned NoneType, expected bytes {LINE_OF_OPERATOR}",
    "sink raise": rf"sink\[0\] failed: ValueError: no state today {LINE_OF_OPERATOR}",
    "sink exit": rf"sink\[0\] failed: SystemExit: 3 {LINE_OF_OPERATOR}",
    "source odd": rf"source\[\d\] failed: UnexpectedError: nothing that anybody expects {LINE_OF_OPERATOR}",
    "sink settle exit": rf"sink\[0\] failed: SystemExit: 3 {LINE_OF_OPERATOR}",
    "sink settle odd": r"cannot be stored: sink\[0\]: the answer does not follow {'sum': 'int'}: Unexpected\w+: no row",
    "sink restore": rf"sink\[0\] failed: KeyError: 'state' {LINE_OF_OPERATOR}",
}
"""Action of a component -> failure reason of the run."""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty_workload.install(tmp_path / "site")
    path = [str(tmp_path / "site"), str(Path(faulty_workload.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))


async def run_all(folder: Path) -> dict[str, tuple[str, float]]:
    """Return action -> (failure reason of the run, seconds from the action until the failure)."""
    found: dict[str, tuple[str, float]] = {}
    async with loopback_agents(folder) as agents:
        for action in REASONS:
            clock = folder / "clock"
            clock.unlink(missing_ok=True)
            workload = Faulty(FaultyParams(action, str(clock)))
            async with agents.run(workload, PLACES, RATE, ControlSettings(checkpoint_s=0.2)) as run:
                await run.coordinator.start()
                if action.endswith("restore"):
                    await run.until(lambda run=run: run.coordinator.event_log.checkpoints > 0, "a checkpoint")
                    kill(run.workers[slot_of("n2/0")])
                with pytest.raises(RunFailedError) as failed:
                    await asyncio.wait_for(run.coordinator.wait_until(time.monotonic_ns() + 60 * 10**9), 60)
                done_s = json.loads(clock.read_text().splitlines()[0])
                found[action] = str(failed.value), time.monotonic() - done_s
                run.event_writer.close()
    return found


@pytest.mark.usefixtures("installed")
def test_an_operator_that_fails_at_a_checkpoint_fails_the_run_within_a_second_and_is_named(tmp_path: Path) -> None:
    found = asyncio.run(run_all(tmp_path))
    for action, expected in REASONS.items():
        reason, took_s = found[action]
        assert re.search(expected, reason), (action, reason)
        assert took_s < WITHIN_S, (action, took_s)
