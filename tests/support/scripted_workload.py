"""Workloads on the scripted data plane: real operators, random interleaving, and kills and moves at any time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import msgspec
from gated_runs import random_gates
from scripted_cluster import ScriptedCluster
from scripted_run import LAST, Limits, run_spec, scripted_run

from agents.protocol import Gates, Slot
from agents.worker.task_graph.interfaces import AnswerRows
from controller.coordinator import timeline
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.scripted_events import MoveExecutors, MoveRequest, ScaleComponents
from controller.simulation.virtual_loop import run_in_virtual_time
from workloads.operators import Context, Operator, Row
from workloads.scaling import resized, sizes_of
from workloads.topology import Executor
from workloads.workload import PreparedInput, Verdict, Workload

NODES = ("n1", "n2", "n3")
STEP_S = 0.001
TIMEOUT_S = 600.0


def with_inputs(workload: Workload, inputs: Sequence[PreparedInput]) -> Callable[[str], Operator]:
    """Return a factory of the workload's operators with their prepared inputs."""
    paths = {entry.name: str(entry.path) for entry in inputs}

    def made(component: str) -> Operator:
        operator = workload.operator(component)
        opened = operator.open

        def open_supplied(context: Context) -> None:
            opened(replace(context, inputs=paths))

        operator.open = open_supplied  # type: ignore[method-assign]
        return operator

    return made


def _random_limits(random: Random) -> Limits:
    return Limits(
        batch_rows=random.randint(1, 9),
        batch_bytes=random.choice([60, 2000, 100_000]),
        window_rows=random.randint(1, 40),
        window_bytes=random.choice([60, 2000, 100_000]),
        turn_rows=random.randint(1, 40),
        stride=random.randint(1, 9),
    )


def answer_tables(parts: Sequence[AnswerRows]) -> Mapping[str, Sequence[Row]]:
    tables: dict[str, list[Row]] = {}
    for part in parts:
        assert all(len(row) == len(part.schema) for row in part.rows)
        tables.setdefault(part.table, []).extend(part.rows)
    return tables


def run_workload(
    workload: Workload, folder: Path, seed: int, workers: int | None = None
) -> tuple[Mapping[str, Sequence[Row]], Verdict]:
    """Run to the end of the input in random order; return the answer and its verdict.

    Args:
        workload: the workload.
        folder: folder of its prepared inputs.
        seed: seed of the order.
        workers: maximum number of workers; None: random.
    """
    inputs = workload.prepare(folder)
    random = Random(seed)  # noqa: S311 - it must be repeatable
    topology = workload.topology()
    slots = [Slot(node, slot) for node in NODES for slot in range(2)][: workers or random.randint(1, 6)]
    spec = run_spec(topology, [random.choice(slots) for _ in topology.executors])
    with scripted_run(spec, with_inputs(workload, inputs), _random_limits(random)) as run:
        run.run([], seed)
        positions = [spout.position for spout in sorted(run.spouts, key=lambda spout: spout.executor.index)]
        parts = [
            part
            for worker in run.workers.values()
            for name, part in worker.store.files.items()
            if name.startswith(LAST) and isinstance(part, AnswerRows)
        ]
    answer = answer_tables(parts)
    return answer, workload.compare(answer, workload.reference(positions, inputs))


def run_with_faults(
    workload: Workload,
    folder: Path,
    seed: int,
    rate: Mapping[str, Any],
    elastic: Sequence[str] = (),
    gated: bool = False,
    workers: int = 6,
) -> tuple[Counter[str], Verdict]:
    """Run with checkpoints, moves, kills and perhaps an early stop; return the events by kind, and the verdict.

    Components in `elastic` are scaled while workers are killed at any step of that. With `gated` the run follows a
    communication schedule. It starts in at most `workers` workers, 1 to 6.
    """
    inputs = workload.prepare(folder)
    random = Random(seed)  # noqa: S311 - it must be repeatable
    topology = workload.topology()
    names = [executor.name for executor in topology.executors]
    slots = [Slot(node, slot) for node in NODES for slot in range(2)]
    first_slots = slots[:workers]
    moves = [
        MoveExecutors(
            round(random.uniform(0.0, 0.2), 3),
            tuple(MoveRequest(name, random.choice(NODES), None) for name in random.sample(names, min(3, len(names)))),
        )
        for _ in range(2)
    ]
    kills = sorted(random.uniform(0.0, 0.3) for _ in range(3))
    scaling_kills = [random.randint(0, 20) for _ in range(random.choice([0, 1, 2]))] if elastic else []
    stop_ns = random.choice([random.randint(0, 400_000_000), 10**12])

    if elastic:
        stop_ns = random.randint(400_000_000, 700_000_000)  # also for sources without an end
        kills = kills[: random.choice([0, 1, 3])]
    scalings = [
        ScaleComponents(round(at_s, 3), (random.choice(elastic),), random.randint(1, 5))
        for at_s in sorted(random.uniform(0.0, 0.25) for _ in range(3 if elastic else 0))
    ]
    if gated:
        # A barrier takes several rounds.
        scalings, kills, moves = scalings[:1], kills[:1], []
        stop_ns += 1_000_000_000

    def place(lost: Set[str], places: Mapping[str, Slot]) -> Mapping[str, Slot]:
        left = [slot for slot in slots if slot.node not in lost]
        return {name: random.choice(left) for name in places}

    events: Counter[str] = Counter()

    async def run_cluster() -> ScriptedCluster:
        spec = run_spec(topology, [random.choice(first_slots) for _ in names], rate=rate)

        def gates(lost: Set[str]) -> Gates | None:
            return random_gates(random, topology, [node for node in NODES if node not in lost]) if gated else None

        spec = msgspec.structs.replace(spec, gates=gates(set()))
        settings = ControlSettings(checkpoint_s=0.05, events=(*moves, *scalings))
        cluster = ScriptedCluster(spec, with_inputs(workload, inputs), limits, settings, NODES, place, gates)

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
                phase = "in a restart" if cluster.restarts else cluster.phase
                if scaling_kills and cluster.run.workers and phase in ("in a copy", "in a scaling", "in a restart"):
                    # At a random step of the copy, of the barrier, or of the restart after it.
                    scaling_kills[-1] -= 1
                    if scaling_kills[-1] < 0:
                        scaling_kills.pop()
                        events[f"killed {phase}"] += 1
                        cluster.kill_worker(random.choice(list(cluster.run.workers)))
                cluster.step(random, random.choice([0, 0, 3_000_000]))
                assert loop.time() < TIMEOUT_S, "stuck"
            task.result()
        return cluster

    limits = _random_limits(random)
    # Scalings that a kill prevents are retried before the stop.
    with limits.applied(), mock.patch.object(timeline, "RETRY_S", 0.03):
        cluster = run_in_virtual_time(run_cluster())
    found = cluster.coordinator.positions
    after = resized(topology, sizes_of(found))
    positions = [found[executor.name] for executor in after.executors if executor.name in found]
    emitted, _ = cluster.traced()
    spouts = {Executor.named(name).component for name in found}
    if not spouts & {subject for kind, subject, *_ in cluster.events if kind == "scaled"}:
        assert {name: emitted[name] for name in found} == found, cluster.events
    else:
        of_sources = sum(rows for name, rows in emitted.items() if Executor.named(name).component in spouts)
        assert of_sources == sum(found.values()), cluster.events
    verdict = workload.compare(answer_tables(cluster.answer()), workload.reference(positions, inputs))
    events.update(kind for kind, *_ in cluster.events)
    events.update(f"scaled {scaling.how}" for scaling in cluster.coordinator.event_log.scalings)
    return events, verdict
