"""Runs with a stuck sink: memory is bounded, waiting is visible, and the answer is exact in the end."""

import asyncio
from pathlib import Path

import psutil
import pytest
from known_delay_workload import KnownDelays, Params, install_workload
from loopback_agents import ControlledRun, loopback_agents

from agents.worker.channels.channel import QUEUE_BYTES
from controller.coordinator.checkpoint_loop import ControlSettings
from inventory.times import NS

pytestmark = pytest.mark.loopback

PAYLOAD = 2_000
PLACES = {"source[0]": "n1/0", "source[1]": "n2/0", "relay[0]": "n2/0", "sink[0]": "n2/1"}
MOST_BYTES = 2 * QUEUE_BYTES + 32 * 1024 * 1024
"""Two queues (of bolts, and of what a worker sends), and overhead of a Python process: batches in progress, sockets,
object headers, and slack of the allocator.
"""


def rss(run: ControlledRun) -> dict[str, int]:
    """Return resident bytes of each worker, by slot."""
    found = {}
    for place, process in run.workers.items():
        assert process is not None
        found[f"{place.node}/{place.index}"] = psutil.Process(process.pid).memory_info().rss
    return found


async def stuck_for(folder: Path, seconds: float) -> None:
    """Run at full rate with a stuck sink; check memory meanwhile, and everything else afterwards."""
    gate = folder / "stuck"
    gate.touch()
    workload = KnownDelays(Params(payload=PAYLOAD, sources=2, gate=str(gate)))
    async with (
        loopback_agents(folder) as agents,
        agents.run(workload, PLACES, {"kind": "max"}, ControlSettings()) as run,
    ):
        start_ns = await run.coordinator.start()
        before = most = rss(run)
        for second in range(1, 2 * round(seconds) + 1):
            await run.coordinator.wait_until(start_ns + second * NS // 2)
            most = {at: max(size, most[at]) for at, size in rss(run).items()}
        gate.unlink()
        verdict = await run.end()
        assert verdict.passed, verdict.message
        emitted = sum(run.coordinator.positions.values())
        traces = run.traces()
    growth = {at: size - before[at] for at, size in most.items()}
    assert max(growth.values()) < MOST_BYTES, growth
    # Without bounds, memory would grow by the emitted rows of every second.
    assert emitted * PAYLOAD > QUEUE_BYTES
    rows = traces["executor"].to_pylist()
    blocked = {row["executor"]: 0 for row in rows}
    queued = dict(blocked)
    for row in rows:
        blocked[row["executor"]] += row["blocked_ns"]
        queued[row["executor"]] = max(queued[row["executor"]], row["queued"])
    # The sources and the relay were blocked most of the time, and the traces show where rows wait. The kernel decides
    # which share of them the sink's worker has read.
    assert all(blocked[name] > 0.5 * seconds * NS for name in ("source[0]", "source[1]", "relay[0]")), blocked
    assert blocked["sink[0]"] == 0
    assert queued["relay[0]"] * PAYLOAD > QUEUE_BYTES / 4, queued


@pytest.mark.slow
def test_a_stuck_sink_stops_the_sources_and_not_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_workload(tmp_path / "site")))
    asyncio.run(stuck_for(tmp_path, 6))


def test_smaller_buffers_stop_the_sources_earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that each of the relay's two channels has a window of 100 kB, exceeded by at most a batch."""
    monkeypatch.setenv("PYTHONPATH", str(install_workload(tmp_path / "site")))
    (tmp_path / "stuck").touch()
    workload = KnownDelays(Params(payload=PAYLOAD, sources=2, gate=str(tmp_path / "stuck")))

    async def queued_while_stuck() -> int:
        settings, rate = ControlSettings(), {"kind": "max"}
        async with (
            loopback_agents(tmp_path) as agents,
            agents.run(workload, PLACES, rate, settings, buffer_bytes=200_000) as run,
        ):
            start_ns = await run.coordinator.start()
            await run.coordinator.wait_until(start_ns + 3 * NS)
            (tmp_path / "stuck").unlink()
            verdict = await run.end()
            assert verdict.passed, verdict.message
            rows = run.traces()["executor"].to_pylist()
            return max(row["queued"] for row in rows if row["executor"] == "relay[0]")

    queued = asyncio.run(queued_while_stuck())
    assert 0 < queued * PAYLOAD < 2 * (100_000 + 2**18), queued


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_memory_is_bounded_for_a_minute_with_a_stuck_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_workload(tmp_path / "site")))
    asyncio.run(stuck_for(tmp_path, 60))
