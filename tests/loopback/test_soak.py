"""Ten minutes at 80 % of the highest rate, with checkpoints, and half an hour of moves: no process grows."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest
from loopback_agents import ControlledRun, LoopbackAgents, loopback_agents

from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from inventory.times import NS
from workloads.workload import Workload, load_workload

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


MOVED_MINUTES = 30
MOVE_EVERY_S = 5.0
MOST_KB_PER_MINUTE_MOVED = 10.0
TEXT = "to be or not to be that is the question\nwhether tis nobler in the mind to suffer\n"
"""Few words, so that the counts do not grow."""


def anonymous_mb(agents: LoopbackAgents, run: ControlledRun) -> dict[str, float]:
    """Return anonymous memory (heap, stacks) of all workers and agents.

    Other resident memory, pages of libraries, varies with the load of the machine and shows no leaks.
    """
    processes = {f"{place.node}/{place.index}": process for place, process in run.workers.items()}
    processes |= {f"agent of {node}": process for node, process in agents.agent_processes.items()}
    return {name: anonymous_kb(process.pid) / 1e3 for name, process in processes.items() if process is not None}


def anonymous_kb(pid: int) -> int:
    lines = (line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line[1]) for line in lines if line[0] in ("RssAnon:", "VmSwap:"))


def growth_per_minute(values: Sequence[float]) -> float:
    """Return the growth of values read every `EVERY_S`: the median over pieces of three minutes.

    A leak is in most pieces. A burst, while another program delayed the machine, raises the heap once.
    """
    piece = 180 // EVERY_S
    return median(_slope_per_minute(values[at : at + piece]) for at in range(0, len(values) - piece + 1, piece))


def _slope_per_minute(values: Sequence[float]) -> float:
    """Return the growth by least squares."""
    n = len(values)
    mean_at, mean = (n - 1) / 2, sum(values) / n
    above = sum((at - mean_at) * (value - mean) for at, value in enumerate(values))
    return above / sum((at - mean_at) ** 2 for at in range(n)) * 60 / EVERY_S


async def capacity(agents: LoopbackAgents, workload: Workload, seconds: float) -> float:
    """Return the records per second of a run whose sources never wait."""
    async with agents.run(workload, PLACES, {"kind": "max"}, ControlSettings(checkpoint_s=CHECKPOINT_S)) as run:
        start_ns = await run.coordinator.start()
        await run.coordinator.wait_until(start_ns + round(seconds * NS))
        assert (await run.end()).passed
        return sum(run.coordinator.positions.values()) / seconds


async def soak(folder: Path) -> tuple[float, dict[str, list[float]], int]:
    """Return the rate, memory over time by process, and the number of checkpoints."""
    workload = load_workload("wordcount", {"ackers": 0, "parallelism": {"spout": 2, "split": 2, "count": 2}})
    memory: dict[str, list[float]] = {}
    async with loopback_agents(folder) as agents:
        per_s = SHARE * await capacity(agents, workload, 15)
        rate = {"kind": "constant", "tuples_per_s": per_s}
        async with agents.run(workload, PLACES, rate, ControlSettings(checkpoint_s=CHECKPOINT_S)) as run:
            start_ns = await run.coordinator.start()
            for at in range(1, MINUTES * 60 // EVERY_S + 1):
                await run.coordinator.wait_until(start_ns + at * EVERY_S * NS)
                for name, held in anonymous_mb(agents, run).items():
                    memory.setdefault(name, []).append(held)
            assert (await run.end()).passed
            return per_s, memory, run.coordinator.event_log.checkpoints


@pytest.mark.timeout(1500)
def test_memory_is_flat_in_the_second_half(tmp_path: Path) -> None:
    per_s, memory, checkpoints = asyncio.run(soak(tmp_path))
    halves = {name: values[len(values) // 2 :] for name, values in memory.items()}
    growth = {name: growth_per_minute(values) for name, values in halves.items()}
    held = {name: values[-1] for name, values in halves.items()}
    print(f"{per_s:,.0f} records/s, {checkpoints} checkpoints; MB at the end {held}; MB per minute {growth}")
    assert checkpoints > MINUTES * 60 / CHECKPOINT_S / 2
    assert max(growth.values()) <= MOST_MB_PER_MINUTE, growth


def moves(until_s: float) -> tuple[MoveExecutors, ...]:
    """Return moves of one executor after the other, to the other node and back."""
    places, plans = dict(PLACES), []
    for at in range(1, int(until_s / MOVE_EVERY_S)):
        name = list(places)[at % len(places)]
        places[name] = "n1/0" if places[name] == "n2/0" else "n2/0"
        plans.append(MoveExecutors(at * MOVE_EVERY_S, (MoveRequest(name, places[name].partition("/")[0], 0),)))
    return tuple(plans)


async def soak_with_moves(folder: Path) -> tuple[dict[str, list[float]], int]:
    """Return memory over time by process, and the number of moves."""
    (folder / "text.txt").write_text(TEXT)
    parallelism = {"spout": 2, "split": 2, "count": 2}
    workload = load_workload("wordcount", {"text": str(folder / "text.txt"), "ackers": 0, "parallelism": parallelism})
    memory: dict[str, list[float]] = {}
    rate = {"kind": "constant", "tuples_per_s": 1000.0}
    settings = ControlSettings(checkpoint_s=CHECKPOINT_S, events=moves(60 * MOVED_MINUTES))
    async with loopback_agents(folder) as agents, agents.run(workload, PLACES, rate, settings) as run:
        start_ns = await run.coordinator.start()
        for at in range(1, MOVED_MINUTES * 60 // EVERY_S + 1):
            await run.coordinator.wait_until(start_ns + at * EVERY_S * NS)
            for name, held in anonymous_mb(agents, run).items():
                memory.setdefault(name, []).append(held)
        assert (await run.end()).passed
        return memory, sum("pause_s" in move for move in run.coordinator.event_log.moves)


@pytest.mark.timeout(60 * MOVED_MINUTES + 600)
def test_memory_is_flat_in_the_second_half_while_an_executor_moves_every_five_seconds(tmp_path: Path) -> None:
    memory, moved = asyncio.run(soak_with_moves(tmp_path))
    growth = {name: 1000 * growth_per_minute(values[len(values) // 2 :]) for name, values in memory.items()}
    print(f"{moved} moves; KB per minute {growth}; MB at the end { {n: v[-1] for n, v in memory.items()} }")
    assert moved > 60 * MOVED_MINUTES / MOVE_EVERY_S / 2
    minutes = {name: [round(value, 2) for value in values[:: 60 // EVERY_S]] for name, values in memory.items()}
    assert max(growth.values()) <= MOST_KB_PER_MINUTE_MOVED, (growth, minutes)
