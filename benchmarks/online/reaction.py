"""How soon an overload is answered after a step of the rate, and how long a checkpoint holds up a revision.

    .venv/bin/python benchmarks/online/reaction.py [--steps 5] [--requests 10] [--keepers 18] [--state-kb 1000]

Reaction: `linear` with 3 ms of work per row, on three nodes of which n0 has half a core, and `er-stream` with its own
windows of 5 s. The rate rises from 10 to 25 rows/s, in every run at another moment of a window; n0 is then above its
bound, and an executor leaves it. Counted are the seconds from the step to the end of the window that is decided about,
to the checked answer, and to the end of the revision. The limit is two windows and a second.

Checkpoints: two spouts and keepers of `--state-kb` each on three nodes, half of the rows that they take. A tenth of the
executors is to move, by turns when nothing else goes on, and in the moment in which the barrier of a checkpoint was
sent. A move has a barrier of its own: counted are the milliseconds from its request to this barrier, from the end of
the alignment of the checkpoint (all executors have passed its barrier) to this barrier, and until all snapshots are
stored and copied, for which a move does not wait.

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

from loopback import Ground, Play, Totals, load, nodes, rows_per_s, run, wait

from agents.protocol import Message, Move, Passed, Prepare, Slot
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
"""The first question is at 10 s, and the step in the window after it."""

PARAMS = {"save": "off", "period_s": 1e6}
"""Neither clocks nor new partitions: only what overload causes is counted."""

BOUND = 0.125
"""n0 has a load of about 0.085 before the step, and 0.2 after it."""

LINEAR = {"operators": 3, "tasks": 2, "workers": 3, "cost_us": 3000}
VALUE_BYTES, SPOUTS, QUIET_S = 100, 2, 2.0
ALONE = "request to barrier, alone"
AFTER = "end of the alignment of a checkpoint to barrier"
ALIGNED = "alignment of a checkpoint"
STORED = "checkpoint, stored and copied"


async def reaction(on: Ground, step_s: float) -> Sequence[float]:
    """Seconds from the step at `step_s` to the end of the window, to the answer, and to the end of the revision."""
    workload = load_workload("linear", LINEAR)
    topology = workload.topology()
    places = {e.name: "n0/0" if e.component == "op1" else f"n{1 + e.index}/0" for e in topology.executors}
    small, large = {"cores": 2, "cpu": 50.0}, {"cores": 8, "cpu": 200.0}
    cluster = Cluster(tuple(Node(id=f"n{at}", slots=2, capacity=4.0, **(large if at else small)) for at in range(3)))
    scheduler = SchedulerInFile("er-stream", {**PARAMS, "B": BOUND})
    decider = Decider(scheduler, on.folder / "decisions", on.folder / "log", 30.0)
    settings = OnlineSettings(decider, RHYTHM, RevisionSettings(), Problem(cluster, (topology,)), inf, {})
    rate = {"kind": "steps", "steps": [[0, BEFORE_PER_S], [step_s, AFTER_PER_S]]}
    course = ControlSettings(("cpu",), 2.0)
    async with on.run(workload, places, rate, course, online=settings) as play:
        await play.coordinator.wait_until(await play.coordinator.start())
        log = play.coordinator.event_log
        await play.until(lambda: any(each.outcome == "done" for each in log.revisions), "a revision")
        done = next(each for each in log.revisions if each.outcome == "done")
        verdict = await play.end()
    if not verdict.passed or done.reason != "overload" or done.at_s < step_s or done.ended_s is None:
        raise SystemExit(f"not the answer to the step: {done} {verdict.message}")
    return [done.at_s - step_s, done.at_s + done.decided_s - step_s, done.ended_s - step_s]


class Watched:
    """Rows, and the last barriers of a checkpoint and of moves.

    Attributes:
        begun_s, passed_s: when that of a checkpoint was sent, and when the last worker reported that it was passed.
        moving_s: when that of moves was sent; infinite until then.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.begun_s = self.passed_s = 0.0
        self.moving_s = inf
        self._barrier = 0

    def __call__(self, way: str, node: str, message: Message) -> None:
        """Watch what is sent and received."""
        self.totals(way, node, message)
        if isinstance(message, Prepare) and message.moves:
            self.moving_s = min(self.moving_s, monotonic())
        elif isinstance(message, Prepare) and message.barrier != self._barrier:
            self._barrier, self.begun_s = message.barrier, monotonic()
        elif isinstance(message, Passed) and message.barrier == self._barrier:
            self.passed_s = monotonic()


async def requests(on: Ground, options: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds until barriers of moves, alone and at a checkpoint, of alignments, and of checkpoints."""
    names = [f"keep[{at}]" for at in range(options.keepers)]
    places = {f"spout[{at}]": f"n{at}/0" for at in range(SPOUTS)} | {n: f"n{at % 3}/0" for at, n in enumerate(names)}
    params: dict[str, Any] = {
        "keys": options.keepers * options.state_kb * 1000 // VALUE_BYTES,
        "value_bytes": VALUE_BYTES,
        "parallelism": {"spout": SPOUTS, "keep": options.keepers},
        "ahead": False,  # copies would come before the barrier
    }
    async with run(on, "keyed-state", params, places, {"kind": "max"}) as (play, totals):
        await wait(play, 2.0)
        rate = await rows_per_s(play, totals, 5.0) / 2
    moving = max(1, round((options.keepers + SPOUTS) / 10))
    now = {name: at % 3 for at, name in enumerate(names)}
    found: dict[str, list[float]] = {name: [] for name in (ALONE, AFTER, ALIGNED, STORED)}
    seen = Watched()
    course = ControlSettings(checkpoint_s=3 * QUIET_S)
    offered = {"kind": "constant", "tuples_per_s": rate}
    async with on.run(load_workload("keyed-state", params), places, offered, course, seen) as play:
        await play.coordinator.wait_until(await play.coordinator.start())
        log = play.coordinator.event_log
        for turn in range(options.requests):
            for alone in (False, True):
                stored, begun_s, asked_s = log.checkpoints, seen.begun_s, monotonic()
                if alone:
                    await wait(play, QUIET_S / 2)
                    asked_s = monotonic()
                else:
                    await play.until(lambda: seen.begun_s > begun_s, "a checkpoint")  # noqa: B023
                seen.moving_s = inf
                chosen = [names[(turn * moving + at) % len(names)] for at in range(moving)]
                now |= {name: (now[name] + 1) % 3 for name in chosen}
                await move(play, [Move(name, Slot(f"n{now[name]}", 0)) for name in chosen])
                if alone:
                    found[ALONE].append((seen.moving_s - asked_s) * 1e3)
                    continue
                await play.until(lambda: log.checkpoints > stored, "the end of the checkpoint")  # noqa: B023
                found[STORED].append((monotonic() - seen.begun_s) * 1e3)
                found[ALIGNED].append((seen.passed_s - seen.begun_s) * 1e3)
                found[AFTER].append((seen.moving_s - seen.passed_s) * 1e3)
        verdict = await play.end()
        if not verdict.passed or log.recoveries:
            raise SystemExit(f"the answer is wrong, or the run broke: {verdict.message}")
    return found


async def move(play: Play, moves: Sequence[Move]) -> None:
    """Request moves, and return when they have been carried out."""
    carried = await play.coordinator._checkpoint_loop.carry(None, (tuple(moves),))
    if carried.outcome != "done":
        raise SystemExit(f"not carried out: {carried}")


async def measure(options: argparse.Namespace) -> int:
    """Both, one after the other; print."""
    print(load())
    async with nodes(3) as on:
        steps = [await reaction(on, STEP_S + WINDOW_S * at / max(1, options.steps)) for at in range(options.steps)]
    if steps:
        print("\n| step of the rate, s after it | median | longest | limit |\n|---|---|---|---|")
        for at, name in enumerate(("end of the window", "answer", "revision done")):
            values = [each[at] for each in steps]
            print(f"| {name} | {median(values):.2f} | {max(values):.2f} | {LIMIT_S if at == 2 else ''} |")
    print(f"\n{load()}")
    if options.requests:
        async with nodes(3) as on:
            found = await requests(on, options)
        print("\n| move, ms | median | longest |\n|---|---|---|")
        for name, values in found.items():
            print(f"| {name} | {median(values):.0f} | {max(values):.0f} |")
        print(f"\n{load()}")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="runs with a step of the rate")
    parser.add_argument("--requests", type=int, default=10, help="of moves, of each kind")
    parser.add_argument("--keepers", type=int, default=18)
    parser.add_argument("--state-kb", type=int, default=1000, help="of each keeper")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
