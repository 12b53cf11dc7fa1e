"""Measure trips per second of `taxi` and `taxi-profit` in one worker, beside the reference on one thread.

    python benchmarks/workloads/taxi.py [--rows 2000000] [--rounds 3] [--workloads taxi] [--answer both]
        [--api rows columns]

The trips are generated. There is one executor per component; sources run at rate max under a campaign's coordinator,
with a checkpoint every five seconds. Every answer is compared with the reference. Time is from the start of the source
until the worker has drained and the answer is written. The peer is the reference itself: one thread, NumPy and sorted
lists, on the same prepared file.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import psutil

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Nodes, cpu_s, load, start_nodes

from agents.protocol import Drained, Listening, Message
from controller.coordinator.checkpoint_loop import ControlSettings
from inventory.times import NS
from workloads.generate.taxi_trips import taxi_trips
from workloads.generate.writing import write_rows
from workloads.workload import load_workload

CHECKPOINT_S = 5.0
MAX_RUN_S = 3600
"""Limit of a run, which otherwise ends with its input."""


class WorkerObserver:
    """Observer of messages that measures the worker's process when it has drained."""

    def __init__(self) -> None:
        self.process: psutil.Process | None = None
        self.drained_s = self.cpu_s = self.resident = 0.0

    def __call__(self, direction: str, node: str, message: Message) -> None:
        """Find the process of the worker, and measure it when it has drained."""
        if isinstance(message, Listening):
            self.process = psutil.Process(message.pid)
        if isinstance(message, Drained) and self.process is not None:
            self.drained_s, self.cpu_s = time.monotonic(), cpu_s([self.process])
            self.resident = self.process.memory_info().rss / 1e6


async def measure_millrace(nodes: Nodes, name: str, params: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return trips per second, trips per CPU second, and resident MB of the worker."""
    workload = load_workload(name, params)
    (prepared,) = workload.prepare(nodes.folder / "prepared")
    places = {entry.name: "n0/0" for entry in workload.topology().executors}
    worker, settings = WorkerObserver(), ControlSettings(checkpoint_s=CHECKPOINT_S)
    async with nodes.run(workload, places, {"kind": "max"}, settings, worker) as run:
        start_s = await run.coordinator.start() / NS
        assert worker.process is not None
        used = cpu_s([worker.process])
        await run.coordinator.wait_until(round((start_s + MAX_RUN_S) * NS))
        verdict = await run.end()
        if not verdict.passed:
            raise SystemExit(f"the answer is wrong: {verdict.message}")
    return prepared.records / (worker.drained_s - start_s), prepared.records / (worker.cpu_s - used), worker.resident


def measure_reference(folder: Path, name: str, params: Mapping[str, Any]) -> float:
    """Return trips per CPU second of the reference."""
    workload = load_workload(name, params)
    inputs = workload.prepare(folder)
    begin = time.process_time()
    workload.reference([inputs[0].records], inputs)
    return inputs[0].records / (time.process_time() - begin)


async def measure(options: argparse.Namespace) -> int:
    """Run all rounds; print each and the medians."""
    async with start_nodes(1) as nodes:
        source = nodes.folder / "trips.csv"
        write_rows(source, taxi_trips(options.rows, 1), lambda _rows: None)
        for name in options.workloads:
            sizes = load_workload(name, {}).params.parallelism
            params = {"input": str(source), "answer": options.answer, "parallelism": dict.fromkeys(sizes, 1)}
            results: dict[str, list[tuple[float, float, float]]] = {api: [] for api in options.api}
            for number, api in product(range(options.rounds), options.api):
                rate, per_cpu_s, resident = await measure_millrace(nodes, name, {**params, "api": api})
                reference = measure_reference(nodes.folder / "prepared", name, params)
                results[api].append((rate, per_cpu_s, reference))
                print(
                    f"{name} by {api}, round {number + 1}: {rate:,.0f} trips/s, {per_cpu_s:,.0f} per CPU second, "
                    f"{resident:.0f} MB; the reference {reference:,.0f} per CPU second; {load()}",
                    flush=True,
                )
            for api, rounds in results.items():
                rates, per_cpu_s_all, references = zip(*rounds, strict=True)
                print(
                    f"{name} by {api}, median: {median(rates):,.0f} trips/s, {median(per_cpu_s_all):,.0f} per CPU "
                    f"second, {median(own / reference for _, own, reference in rounds):.2f} x the reference "
                    f"({median(references):,.0f})"
                )
    return 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=2_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--workloads", nargs="+", default=["taxi", "taxi-profit"], choices=["taxi", "taxi-profit"])
    arguments.add_argument("--answer", default="both", choices=["snapshots", "changes", "both"])
    arguments.add_argument("--api", nargs="+", default=["rows", "columns"], choices=["rows", "columns"])
    return asyncio.run(measure(arguments.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
