"""Measure how soon an overload is resolved after a step of the rate, and how long a checkpoint delays a revision.

    .venv/bin/python benchmarks/online/reaction.py [--steps 5] [--requests 10] [--bolts 18] [--state-kb 1000]

Reaction: `linear` with 3 ms of work per row, on three nodes of which n0 has half a core, and `er-stream` with its
default windows of 5 s. The rate rises from 10 to 25 rows/s, in every run at a different time within a window. n0 then
exceeds its bound, and one of its executors moves away. The results are the seconds from the step to the end of the
window that leads to the decision, to the validated decision, and to the end of the revision. The limit is two windows
and a second.

Checkpoints: two spouts and bolts with `--state-kb` of state each on three nodes, at half of the maximum rate. Moves of
a tenth of the executors are requested alternately without a checkpoint and immediately after the barrier of a
checkpoint was sent. A move has its own barrier. The results are the milliseconds from the request to this barrier, from
the end of the checkpoint's alignment (all executors have passed its barrier) to this barrier, and until all snapshots
are stored and copied, for which a move does not wait.

Example: .venv/bin/python benchmarks/online/reaction.py --steps 1 --requests 3
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Nodes, Run, load, rows_per_s, start_nodes, start_run, wait

from agents.protocol import Message, MoveToPlace, Passed, Prepare, Slot
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.decider import Decider
from controller.coordinator.online_loop import OnlineSettings
from controller.coordinator.rescheduling import RevisionSettings
from inventory.cluster import Cluster, Node
from scheduler.algorithms.er_stream import ErStream
from scheduler.deciding import SchedulerInFile
from scheduler.problem import Problem
from workloads.workload import load_workload

RHYTHM = replace(ErStream.rhythm, first_s=10.0)
WINDOW_S = RHYTHM.window_s
LIMIT_S = 2 * WINDOW_S + 1
STEP_S, BEFORE_PER_S, AFTER_PER_S = 11.0, 10.0, 25.0
"""The scheduler is first invoked at 10 s; the step is in the window after that."""

PARAMS = {"save": "off", "period_s": 1e6}
"""No changes of clocks and no new partitions: only revisions because of overload."""

BOUND = 0.125
"""n0 has a load of about 0.085 before the step, and 0.2 after it."""

LINEAR = {"operators": 3, "tasks": 2, "workers": 3, "cost_us": 3000}
VALUE_BYTES, SPOUTS, QUIET_S = 100, 2, 2.0
ALONE = "request to barrier, alone"
AFTER = "end of a checkpoint's alignment to barrier"
ALIGNED = "alignment of a checkpoint"
STORED = "checkpoint, stored and copied"


async def measure_reaction(nodes: Nodes, step_s: float) -> Sequence[float]:
    """Return the seconds from the step to the end of the window, to the decision, and to the end of the revision."""
    workload = load_workload("linear", LINEAR)
    topology = workload.topology()
    places = {e.name: "n0/0" if e.component == "op1" else f"n{1 + e.index}/0" for e in topology.executors}
    sizes = ((2, 50.0), (8, 200.0), (8, 200.0))
    nodes_of_sizes = (
        Node(id=f"n{at}", slots=2, capacity=4.0, cores=cores, cpu=cpu) for at, (cores, cpu) in enumerate(sizes)
    )
    cluster = Cluster(tuple(nodes_of_sizes))
    scheduler = SchedulerInFile("er-stream", {**PARAMS, "B": BOUND})
    decider = Decider(scheduler, nodes.folder / "decisions", nodes.folder / "log", 30.0)
    settings = OnlineSettings(decider, RHYTHM, RevisionSettings(), Problem(cluster, (topology,)), inf, {})
    rate = {"kind": "steps", "steps": [[0, BEFORE_PER_S], [step_s, AFTER_PER_S]]}
    control = ControlSettings(("cpu",), 2.0)
    async with nodes.run(workload, places, rate, control, online=settings) as run:
        await run.coordinator.wait_until(await run.coordinator.start())
        log = run.coordinator.event_log
        await run.until(lambda: any(each.outcome == "done" for each in log.revisions), "a revision")
        done = next(each for each in log.revisions if each.outcome == "done")
        verdict = await run.end()
    if not verdict.passed or done.reason != "overload" or done.at_s < step_s or done.ended_s is None:
        raise SystemExit(f"the revision was not a reaction to the step: {done} {verdict.message}")
    return [done.at_s - step_s, done.at_s + done.decided_s - step_s, done.ended_s - step_s]


class BarrierTimes:
    """Times of the last barriers of a checkpoint and of moves.

    Attributes:
        begun_s, passed_s: when the barrier of a checkpoint was sent, and when the last worker reported that it was
            passed.
        moves_s: when the barrier of moves was sent; infinite until then.
    """

    def __init__(self) -> None:
        self.begun_s = self.passed_s = 0.0
        self.moves_s = inf
        self._barrier = 0

    def __call__(self, direction: str, node: str, message: Message) -> None:
        """Record the time of a message."""
        if isinstance(message, Prepare) and message.moves:
            self.moves_s = min(self.moves_s, monotonic())
        elif isinstance(message, Prepare) and message.barrier != self._barrier:
            self._barrier, self.begun_s = message.barrier, monotonic()
        elif isinstance(message, Passed) and message.barrier == self._barrier:
            self.passed_s = monotonic()


async def measure_requests(nodes: Nodes, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the milliseconds until barriers of moves, alone and at a checkpoint, of alignments, and of checkpoints."""
    names = [f"count[{at}]" for at in range(options.bolts)]
    places = {f"spout[{at}]": f"n{at}/0" for at in range(SPOUTS)} | {n: f"n{at % 3}/0" for at, n in enumerate(names)}
    params: dict[str, Any] = {
        "keys": options.bolts * options.state_kb * 1000 // VALUE_BYTES,
        "value_bytes": VALUE_BYTES,
        "parallelism": {"spout": SPOUTS, "count": options.bolts},
        "precopy": False,  # copying would delay the barrier
    }
    async with start_run(nodes, "keyed-state", params, places, {"kind": "max"}) as (run, totals):
        await wait(run, 2.0)
        rate = await rows_per_s(run, totals, 5.0) / 2
    moving = max(1, round((options.bolts + SPOUTS) / 10))
    node_of = {name: at % 3 for at, name in enumerate(names)}
    results: dict[str, list[float]] = {name: [] for name in (ALONE, AFTER, ALIGNED, STORED)}
    times = BarrierTimes()
    control = ControlSettings(checkpoint_s=3 * QUIET_S)
    offered = {"kind": "constant", "tuples_per_s": rate}
    async with nodes.run(load_workload("keyed-state", params), places, offered, control, times) as run:
        await run.coordinator.wait_until(await run.coordinator.start())
        log = run.coordinator.event_log
        for turn in range(options.requests):
            for alone in (False, True):
                stored, begun_s, requested_s = log.checkpoints, times.begun_s, monotonic()
                if alone:
                    await wait(run, QUIET_S / 2)
                    requested_s = monotonic()
                else:
                    await run.until(lambda: times.begun_s > begun_s, "a checkpoint")  # noqa: B023
                times.moves_s = inf
                chosen = [names[(turn * moving + at) % len(names)] for at in range(moving)]
                node_of |= {name: (node_of[name] + 1) % 3 for name in chosen}
                await move(run, [MoveToPlace(name, Slot(f"n{node_of[name]}", 0)) for name in chosen])
                if alone:
                    results[ALONE].append((times.moves_s - requested_s) * 1e3)
                    continue
                await run.until(lambda: log.checkpoints > stored, "the end of the checkpoint")  # noqa: B023
                results[STORED].append((monotonic() - times.begun_s) * 1e3)
                results[ALIGNED].append((times.passed_s - times.begun_s) * 1e3)
                results[AFTER].append((times.moves_s - times.passed_s) * 1e3)
        verdict = await run.end()
        if not verdict.passed or log.recoveries:
            raise SystemExit(f"the answer is wrong, or the topology failed: {verdict.message}")
    return results


async def move(run: Run, moves: Sequence[MoveToPlace]) -> None:
    """Execute moves, and return when they are done."""
    carried = await run.coordinator._checkpoint_loop.carry(None, (tuple(moves),))
    if carried.outcome != "done":
        raise SystemExit(f"moves were not executed: {carried}")


async def measure(options: argparse.Namespace) -> int:
    """Measure reactions, then move requests, and print tables."""
    print(load())
    async with start_nodes(3) as nodes:
        times_s = [STEP_S + WINDOW_S * at / max(1, options.steps) for at in range(options.steps)]
        steps = [await measure_reaction(nodes, step_s) for step_s in times_s]
    if steps:
        print("\n| after the step of the rate, s | median | longest | limit |\n|---|---|---|---|")
        for at, name in enumerate(("end of the window", "decision", "revision done")):
            values = [each[at] for each in steps]
            print(f"| {name} | {median(values):.2f} | {max(values):.2f} | {LIMIT_S if at == 2 else ''} |")
    print(f"\n{load()}")
    if options.requests:
        async with start_nodes(3) as nodes:
            results = await measure_requests(nodes, options)
        print("\n| move, ms | median | longest |\n|---|---|---|")
        for name, values in results.items():
            print(f"| {name} | {median(values):.0f} | {max(values):.0f} |")
        print(f"\n{load()}")
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="runs with a step of the rate")
    parser.add_argument("--requests", type=int, default=10, help="number of move requests per kind")
    parser.add_argument("--bolts", type=int, default=18)
    parser.add_argument("--state-kb", type=int, default=1000, help="state per bolt")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
