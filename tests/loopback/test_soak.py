"""Ten minutes at 80 % of what the topology can take, with checkpoints: no process grows."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from ground import Ground, Play, ground

from controller.coordinator.checkpoint_loop import ControlSettings
from workloads.rates import NS
from workloads.registry import load_workload
from workloads.workload import Workload

pytestmark = [pytest.mark.loopback, pytest.mark.soak]

MINUTES = 10
EVERY_S = 2
SHARE = 0.8
CHECKPOINT_S = 5.0
MOST_MB_PER_MINUTE = 1.0
PLACES = dict(
    zip(
        ("spout[0]", "spout[1]", "split[0]", "split[1]", "count[0]", "count[1]"),
        ("n1/0", "n2/0", "n1/0", "n2/0", "n1/0", "n2/0"),
        strict=True,
    )
)


def resident_mb(agents: Ground, play: Play) -> dict[str, float]:
    """Memory of all workers and agents."""
    processes = {f"{place.node}/{place.slot}": process for place, process in play.workers.items()}
    processes |= {f"agent of {node}": process for node, process in agents.agent_processes.items()}
    return {
        name: psutil.Process(process.pid).memory_info().rss / 1e6
        for name, process in processes.items()
        if process is not None
    }


def slope_per_minute(values: Sequence[float]) -> float:
    """Growth by least squares of values that were read every `EVERY_S`."""
    n = len(values)
    mean_at, mean = (n - 1) / 2, sum(values) / n
    above = sum((at - mean_at) * (value - mean) for at, value in enumerate(values))
    return above / sum((at - mean_at) ** 2 for at in range(n)) * 60 / EVERY_S


async def capacity(agents: Ground, workload: Workload, seconds: float) -> float:
    """Records per second that go through when the sources never wait."""
    async with agents.run(workload, PLACES, {"kind": "max"}, ControlSettings(checkpoint_s=CHECKPOINT_S)) as play:
        start_ns = await play.session.start()
        await play.session.wait_until(start_ns + round(seconds * NS))
        assert (await play.end()).passed
        return sum(play.session.positions.values()) / seconds


async def soak(folder: Path) -> tuple[float, dict[str, list[float]], int]:
    """The rate, memory over time by process, and how many checkpoints were made."""
    workload = load_workload("wordcount", {"ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}})
    memory: dict[str, list[float]] = {}
    async with ground(folder) as agents:
        per_s = SHARE * await capacity(agents, workload, 15)
        rate = {"kind": "constant", "tuples_per_s": per_s}
        async with agents.run(workload, PLACES, rate, ControlSettings(checkpoint_s=CHECKPOINT_S)) as play:
            start_ns = await play.session.start()
            for at in range(1, MINUTES * 60 // EVERY_S + 1):
                await play.session.wait_until(start_ns + at * EVERY_S * NS)
                for name, held in resident_mb(agents, play).items():
                    memory.setdefault(name, []).append(held)
            assert (await play.end()).passed
            return per_s, memory, play.session.event_log.checkpoints


@pytest.mark.timeout(1500)
def test_memory_is_flat_in_the_second_half(tmp_path: Path) -> None:
    per_s, memory, checkpoints = asyncio.run(soak(tmp_path))
    halves = {name: values[len(values) // 2 :] for name, values in memory.items()}
    growth = {name: slope_per_minute(values) for name, values in halves.items()}
    held = {name: values[-1] for name, values in halves.items()}
    print(f"{per_s:,.0f} records/s, {checkpoints} checkpoints; MB at the end {held}; MB per minute {growth}")
    assert checkpoints > MINUTES * 60 / CHECKPOINT_S / 2
    assert max(growth.values()) <= MOST_MB_PER_MINUTE, growth
