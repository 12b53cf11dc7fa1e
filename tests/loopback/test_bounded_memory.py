"""What a stuck sink holds up stays within bounds, is visible, and comes out exactly when the sink goes on."""

import asyncio
from pathlib import Path

import psutil
import pytest
from ground import Play, ground
from known import Known, Params, installed

from agents.worker.channels.channel import QUEUE_BYTES
from controller.coordinator.checkpoint_loop import ControlSettings
from inventory.times import NS

pytestmark = pytest.mark.loopback

PAYLOAD = 2_000
PLACES = {"source[0]": "n1/0", "source[1]": "n2/0", "relay[0]": "n2/0", "sink[0]": "n2/1"}
MOST_BYTES = 2 * QUEUE_BYTES + 32 * 1024 * 1024
"""Two queues (the bolts' own, and what a worker sends on), and what a Python process takes besides: batches under way,
sockets, objects around the payload, the allocator's slack."""


def rss(play: Play) -> dict[str, int]:
    """Resident bytes of each worker, by place."""
    found = {}
    for place, process in play.workers.items():
        assert process is not None
        found[f"{place.node}/{place.index}"] = psutil.Process(process.pid).memory_info().rss
    return found


async def stuck_for(folder: Path, seconds: float) -> None:
    """Run at full rate, the sink stuck for so long; check memory meanwhile, and all else afterwards."""
    gate = folder / "stuck"
    gate.touch()
    workload = Known(Params(payload=PAYLOAD, sources=2, gate=str(gate)))
    async with ground(folder) as agents, agents.run(workload, PLACES, {"kind": "max"}, ControlSettings()) as play:
        start_ns = await play.coordinator.start()
        before = most = rss(play)
        for second in range(1, 2 * round(seconds) + 1):
            await play.coordinator.wait_until(start_ns + second * NS // 2)
            most = {at: max(held, most[at]) for at, held in rss(play).items()}
        gate.unlink()
        verdict = await play.end()
        assert verdict.passed, verdict.message
        emitted = sum(play.coordinator.positions.values())
        traces = play.traces()
    growth = {at: held - before[at] for at, held in most.items()}
    assert max(growth.values()) < MOST_BYTES, growth
    # Without bounds the sources would have held, by now, what they emit in a second, times the seconds.
    assert emitted * PAYLOAD > QUEUE_BYTES
    rows = traces["executor"].to_pylist()
    blocked = {row["executor"]: 0 for row in rows}
    queued = dict(blocked)
    for row in rows:
        blocked[row["executor"]] += row["blocked_ns"]
        queued[row["executor"]] = max(queued[row["executor"]], row["queued"])
    # The sources and the relay stood still most of the time, and what waits is seen where it waits. How much of it the
    # sink's worker has read, and how much is still in the kernel, is the kernel's affair.
    assert all(blocked[name] > 0.5 * seconds * NS for name in ("source[0]", "source[1]", "relay[0]")), blocked
    assert blocked["sink[0]"] == 0
    assert queued["relay[0]"] * PAYLOAD > QUEUE_BYTES / 4, queued


@pytest.mark.slow
def test_a_stuck_sink_stops_the_sources_and_not_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed(tmp_path / "site")))
    asyncio.run(stuck_for(tmp_path, 6))


def test_smaller_buffers_stop_the_sources_earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the relay's two channels, each has a window of 100 kB, and may exceed it by a batch."""
    monkeypatch.setenv("PYTHONPATH", str(installed(tmp_path / "site")))
    (tmp_path / "stuck").touch()
    workload = Known(Params(payload=PAYLOAD, sources=2, gate=str(tmp_path / "stuck")))

    async def queued_while_stuck() -> int:
        settings, rate = ControlSettings(), {"kind": "max"}
        async with (
            ground(tmp_path) as agents,
            agents.run(workload, PLACES, rate, settings, buffer_bytes=200_000) as play,
        ):
            start_ns = await play.coordinator.start()
            await play.coordinator.wait_until(start_ns + 3 * NS)
            (tmp_path / "stuck").unlink()
            verdict = await play.end()
            assert verdict.passed, verdict.message
            rows = play.traces()["executor"].to_pylist()
            return max(row["queued"] for row in rows if row["executor"] == "relay[0]")

    queued = asyncio.run(queued_while_stuck())
    assert 0 < queued * PAYLOAD < 2 * (100_000 + 2**18), queued


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_so_it_is_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(installed(tmp_path / "site")))
    asyncio.run(stuck_for(tmp_path, 60))
