"""Measure how long a topology has no output when a revision restarts it, with kept processes and with new ones.

    .venv/bin/python benchmarks/online/restarts.py [--restarts 10] [--bolts 18] [--state-kb 10] [--nodes 3]

Two spouts and many bolts with little state, distributed over the nodes, at a rate far below the maximum. A tenth of the
executors moves to the next node, alternately by a restart and live, in the same run. One run keeps the worker
processes, the other starts new ones. Pause of a restart: from the last batch of any bolt before it to the first batch
of any bolt after it. Pause of a live move: from the last batch of the moving bolt in its old slot to its first in the
new one. The limits are 0.5 s with kept processes and 3 s with new ones, without `wait_s`. Every answer is compared with
the reference.

The second table has the steps of a restart, medians in ms: each step ends with the last message of its kind.

Example: .venv/bin/python benchmarks/online/restarts.py --restarts 3
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import monotonic_ns, process_time
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Nodes, Run, cpu_s, load, processes, read_batch_log, start_nodes, wait

from agents.protocol import Connected, Go, Listening, Message, MoveToPlace, Passed, Ready, Slot, Start, Stored
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules
from workloads.workload import load_workload

LIMITS_S = {"kept": 0.5, "new": 3.0}
VALUE_BYTES = 100
SPOUTS = 2
RATE = 20_000.0
SETTLE_S = 1.5
STEPS = (
    ("ready", Ready),
    ("cut, passed", Passed),
    ("stored by workers", Stored),
    ("copied", Start),
    ("workers listen", Listening),
    ("connected", Connected),
    ("sources start", Go),
)
"""Step of a restart, and the message of which the last one ends it."""
MESSAGES = tuple(message for _, message in STEPS)


class StepTimes:
    """Times of the last message of each step of a restart."""

    def __init__(self) -> None:
        self.last_ns: dict[type[Message], int] = {}

    def __call__(self, direction: str, node: str, message: Message) -> None:
        """Record the time of a message."""
        if isinstance(message, MESSAGES):
            self.last_ns[type(message)] = monotonic_ns()

    def durations_ms(self, begun_ns: int, first_batch_ns: int) -> Mapping[str, float]:
        """Return the duration of each step in milliseconds."""
        durations, before_ns = {}, begun_ns
        for name, kind in STEPS:
            durations[name], before_ns = (self.last_ns[kind] - before_ns) / 1e6, self.last_ns[kind]
        return {**durations, "first batch": (first_batch_ns - before_ns) / 1e6}


class Results:
    """Results of one run.

    Attributes:
        restarts: pauses of restarts in seconds.
        live: pauses of live moves in seconds.
        steps: milliseconds of each step, per restart.
        cpu: CPU seconds of controller and nodes, per restart.
    """

    def __init__(self) -> None:
        self.restarts: list[float] = []
        self.live: list[float] = []
        self.steps: list[Mapping[str, float]] = []
        self.cpu: list[tuple[float, float]] = []


async def revise(run: Run, revision: int | None, moves: Sequence[MoveToPlace]) -> None:
    """Execute moves: with the number of a revision by a restart, with None live."""
    carried = await run.coordinator._checkpoint_loop.carry(revision, (tuple(moves),))
    if carried.outcome != "done":
        raise SystemExit(f"moves were not executed: {carried}")


async def measure_run(nodes: Nodes, options: argparse.Namespace, new_processes: bool) -> Results:
    """Alternate between restarts and live moves in one run."""
    count = options.nodes
    names = [*(f"spout[{at}]" for at in range(SPOUTS)), *(f"count[{at}]" for at in range(options.bolts))]
    node_of = {name: int(name[name.index("[") + 1 : -1]) % count for name in names}
    bolts, moving = names[SPOUTS:], max(1, round(len(names) / 10))
    log = nodes.folder / f"batch_log-{new_processes}"
    params: dict[str, Any] = {
        "keys": options.bolts * options.state_kb * 1000 // VALUE_BYTES,
        "value_bytes": VALUE_BYTES,
        "parallelism": {"spout": SPOUTS, "count": options.bolts},
        "batch_log": str(log),
    }
    settings = ControlSettings(checkpoint_s=3600.0, restart=RestartRules(0.0, new_processes))
    places = {name: f"n{node}/0" for name, node in node_of.items()}
    rate = {"kind": "constant", "tuples_per_s": RATE}
    steps, results, read = StepTimes(), Results(), 0
    async with nodes.run(load_workload("keyed-state", params), places, rate, settings, steps) as run:
        await run.coordinator.wait_until(await run.coordinator.start())
        for turn in range(2 * options.restarts):
            await wait(run, SETTLE_S)
            chosen = [bolts[(turn * moving + at) % len(bolts)] for at in range(moving)]
            node_of |= {name: (node_of[name] + 1) % count for name in chosen}
            moves = [MoveToPlace(name, Slot(f"n{node_of[name]}", 0)) for name in chosen]
            is_restart = turn % 2 == 0
            before = processes(nodes)
            nodes_cpu, controller_cpu, begun_ns = cpu_s(before), process_time(), monotonic_ns()
            await revise(run, turn if is_restart else None, moves)
            controller_cpu, nodes_cpu = process_time() - controller_cpu, cpu_s(before) - nodes_cpu
            expected = len(bolts) if is_restart else moving
            await run.until(lambda: len(read_batch_log(log)) >= read + expected, "the first batches")  # noqa: B023
            lines, read = read_batch_log(log)[read:], read + expected
            last_ns, first_ns = max(line[1] for line in lines), min(line[2] for line in lines)
            if is_restart:
                results.restarts.append((first_ns - last_ns) / 1e9)
                results.steps.append(steps.durations_ms(begun_ns, first_ns))
                results.cpu.append((controller_cpu, nodes_cpu))
            else:
                results.live += [(after - last) / 1e9 for _, last, after in lines]
        verdict = await run.end()
        if not verdict.passed or run.coordinator.event_log.recoveries:
            raise SystemExit(f"the answer is wrong, or the topology failed: {verdict.message}")
    return results


async def measure(options: argparse.Namespace) -> int:
    """Measure both kinds of restarts, and print tables."""
    results = {}
    print(load())
    for kind in LIMITS_S:
        async with start_nodes(options.nodes) as nodes:
            results[kind] = await measure_run(nodes, options, new_processes=kind == "new")
    print(f"{load()}\n\n| pause | median, s | longest, s | limit | live moves, same run: median, ms | longest, ms |")
    print("|---|---|---|---|---|---|")
    for kind, limit in LIMITS_S.items():
        restarts, live = results[kind].restarts, [1e3 * pause for pause in results[kind].live]
        row = f"{median(restarts):.2f} | {max(restarts):.2f} | {limit:g} | {median(live):.0f} | {max(live):.0f}"
        print(f"| {kind} processes | {row} |")
    print("\n| step, ms | " + " | ".join(f"{kind} processes" for kind in LIMITS_S) + " |\n|---|---|---|")
    for step in (*(name for name, _ in STEPS), "first batch"):
        print(f"| {step} | " + " | ".join(f"{median(e[step] for e in results[k].steps):.0f}" for k in LIMITS_S) + " |")
    controller, rest = (1e3 * median(column) for column in zip(*results["kept"].cpu, strict=True))
    print(f"\nCPU time until the sources start, kept processes: controller {controller:.0f} ms, nodes {rest:.0f} ms")
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--restarts", type=int, default=10, help="number per kind")
    parser.add_argument("--bolts", type=int, default=18)
    parser.add_argument("--state-kb", type=int, default=10, help="state per bolt")
    parser.add_argument("--nodes", type=int, default=3)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
