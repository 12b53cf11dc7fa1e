"""A workload on the scripted data plane: its own operators, any interleaving, and kills and moves at any moment."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import virtual_time
from scripted import Limits, run_spec, scripted_run
from scripted_cluster import ScriptedCluster
from scripted_disk import LAST

from agents.protocol import Place
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.migrations import MovePlan, MoveRequest
from workloads.operators import Context, Operator, Row
from workloads.workload import PreparedInput, Verdict, Workload

NODES = ("n1", "n2", "n3")
STEP_S = 0.001
PATIENCE_S = 600.0


def _supplied(workload: Workload, inputs: Sequence[PreparedInput]) -> Callable[[str], Operator]:
    """The workload's operators, which find their prepared inputs."""
    paths = {entry.name: str(entry.path) for entry in inputs}

    def made(component: str) -> Operator:
        operator = workload.operator(component)
        opened = operator.open

        def open_supplied(context: Context) -> None:
            opened(replace(context, inputs=paths))

        operator.open = open_supplied  # type: ignore[method-assign]
        return operator

    return made


def _drawn(random: Random) -> Limits:
    return Limits(
        batch_rows=random.randint(1, 9),
        batch_bytes=random.choice([60, 2000, 100_000]),
        window_rows=random.randint(1, 40),
        window_bytes=random.choice([60, 2000, 100_000]),
        turn_rows=random.randint(1, 40),
        stride=random.randint(1, 9),
    )


def _tables(parts: Sequence[AnswerRows]) -> Mapping[str, Sequence[Row]]:
    tables: dict[str, list[Row]] = {}
    for part in parts:
        assert all(len(row) == len(part.schema) for row in part.rows)
        tables.setdefault(part.table, []).extend(part.rows)
    return tables


def play(workload: Workload, folder: Path, seed: int) -> tuple[Mapping[str, Sequence[Row]], Verdict]:
    """Run to the end of the input, in some order; the answer, and the verdict on it."""
    inputs = workload.prepare(folder)
    random = Random(seed)  # noqa: S311 - it must be repeatable
    topology = workload.topology()
    slots = [Place(node, slot) for node in NODES for slot in range(2)][: random.randint(1, 6)]
    spec = run_spec(topology, [random.choice(slots) for _ in topology.executors])
    with scripted_run(spec, _supplied(workload, inputs), _drawn(random)) as run:
        run.run([], seed)
        positions = [spout.position for spout in sorted(run.spouts, key=lambda spout: spout.executor.index)]
        parts = [
            part
            for worker in run.workers.values()
            for name, part in worker.shelf.files.items()
            if name.startswith(LAST) and isinstance(part, AnswerRows)
        ]
    answer = _tables(parts)
    return answer, workload.compare(answer, workload.reference(positions, inputs))


def play_with_faults(
    workload: Workload, folder: Path, seed: int, rate: Mapping[str, Any]
) -> tuple[Counter[str], Verdict]:
    """Run with checkpoints, moves and kills, and perhaps a stop before the end; what happened, and the verdict."""
    inputs = workload.prepare(folder)
    random = Random(seed)  # noqa: S311 - it must be repeatable
    topology = workload.topology()
    names = [executor.name for executor in topology.executors]
    slots = [Place(node, slot) for node in NODES for slot in range(2)]
    moves = [
        MovePlan(
            round(random.uniform(0.0, 0.2), 3),
            tuple(MoveRequest(name, random.choice(NODES), None) for name in random.sample(names, min(3, len(names)))),
        )
        for _ in range(2)
    ]
    kills = sorted(random.uniform(0.0, 0.3) for _ in range(3))
    stop_ns = random.choice([random.randint(0, 400_000_000), 10**12])

    def place(lost: Set[str]) -> Mapping[str, Place]:
        left = [slot for slot in slots if slot.node not in lost]
        return {name: random.choice(left) for name in names}

    async def playing() -> ScriptedCluster:
        spec = run_spec(topology, [random.choice(slots) for _ in names], rate=rate)
        course = ControlSettings(checkpoint_s=0.05, moves=tuple(moves))
        cluster = ScriptedCluster(spec, _supplied(workload, inputs), limits, course, NODES, place)

        async def running() -> None:
            started = await cluster.coordinator.start()
            await cluster.coordinator.wait_until(started + stop_ns)
            await cluster.coordinator.stop()
            await cluster.coordinator.finish()

        async with cluster.coordinator:
            task = asyncio.create_task(running())
            loop = asyncio.get_running_loop()
            while not task.done():
                await asyncio.sleep(STEP_S)
                while kills and kills[0] <= loop.time() and cluster.run.workers:
                    kills.pop(0)
                    cluster.kill_worker(random.choice(list(cluster.run.workers)))
                cluster.step(random, random.choice([0, 0, 3_000_000]))
                assert loop.time() < PATIENCE_S, "stuck"
            task.result()
        return cluster

    limits = _drawn(random)
    with limits.applied():
        cluster = virtual_time.run(playing())
    found = cluster.coordinator.positions
    positions = [found[name] for name in names if name in found]
    verdict = workload.compare(_tables(cluster.answer()), workload.reference(positions, inputs))
    return Counter(kind for kind, *_ in cluster.events), verdict
