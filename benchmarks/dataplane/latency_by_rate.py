"""Measure latency and CPU time against the rate, for placements in one worker, two workers, and two nodes.

    python benchmarks/dataplane/latency_by_rate.py [--topology hop wordcount] [--rates 50 400 4000 40000] [--rounds 3]

`hop` is a source and a sink that does nothing; `wordcount` has two executors of each component. Runs go through real
agents, without checkpoints and sensors; the source follows its schedule, and a latency begins when a row is due.
Rounds alternate between the placements; the table has medians of the rounds. Latencies are in buckets of 1 %; CPU time
is that of the workers, in cores.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from statistics import median
from typing import Any, NamedTuple

import psutil
from loopback import Nodes, cpu_s, load, start_nodes, start_run, wait

from agents.worker.executors.executor import percentile
from workloads.workload import load_workload

WARM_UP_S = 2.0

TOPOLOGIES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hop": ("linear", {"operators": 2, "tasks": 1, "workers": 2, "cost_us": 0.0, "tuple_bytes": 16}),
    "wordcount": ("wordcount", {"ackers": 0, "parallelism": dict.fromkeys(("spout", "split", "count"), 2)}),
}
PLACEMENTS: Mapping[str, tuple[str, str]] = {
    "1 worker": ("n0/0", "n0/0"),
    "2 workers": ("n0/0", "n0/1"),
    "2 nodes": ("n0/0", "n1/0"),
}


class Result(NamedTuple):
    """Result of one run."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    cpu: float


async def measure_run(nodes: Nodes, topology: str, placement: str, rate: int, seconds: float) -> Result:
    """Measure one run."""
    workload, params = TOPOLOGIES[topology]
    executors = load_workload(workload, params).topology().executors
    slots = PLACEMENTS[placement]
    # Of a topology with one executor each, the source is alone; otherwise every component is on both.
    alone = all(entry.index == 0 for entry in executors)
    places = {entry.name: slots[(at if alone else entry.index) % 2] for at, entry in enumerate(executors)}
    async with start_run(nodes, workload, params, places, {"kind": "constant", "tuples_per_s": rate}) as (run, _):
        await wait(run, WARM_UP_S)
        began_ns = await run.coordinator.mark("measure_start")
        workers = [psutil.Process(worker.pid) for worker in run.workers.values() if worker is not None]
        before = cpu_s(workers)
        await wait(run, seconds)
        cpu = (cpu_s(workers) - before) / seconds
        ended_ns = await run.coordinator.mark("measure_end")
        await wait(run, 0.2)
    rows = [row for row in run.traces()["latency"].to_pylist() if began_ns < row["t_ns"] <= ended_ns]
    counts = sorted((row["value_ns"], row["count"]) for row in rows)
    p50, p95, p99 = (percentile(counts, fraction) for fraction in (0.5, 0.95, 0.99))
    if p50 is None or p95 is None or p99 is None:
        sys.exit("no row was sampled")
    return Result(p50 / 1e6, p95 / 1e6, p99 / 1e6, cpu)


async def measure(options: argparse.Namespace) -> int:
    """Measure all rounds, and print the table."""
    results: dict[tuple[str, int, str], list[Result]] = {}
    async with start_nodes(2) as nodes:
        for _ in range(options.rounds):
            for topology in options.topology:
                for rate in options.rates:
                    for placement in PLACEMENTS:
                        result = await measure_run(nodes, topology, placement, rate, options.seconds)
                        results.setdefault((topology, rate, placement), []).append(result)
                        shown = ", ".join(f"{name} {value:.3f}" for name, value in result._asdict().items())
                        print(f"{topology}, {rate:,}/s, {placement}: {shown}; {load()}", flush=True)
    print(
        "\n| topology | rows/s | placement | p50, ms | p95, ms | p99, ms | CPU, cores |\n|---|---|---|---|---|---|---|"
    )
    for (topology, rate, placement), runs in results.items():
        p50, p95, p99, cpu = (median(column) for column in zip(*runs, strict=True))
        print(f"| {topology} | {rate:,} | {placement} | {p50:.2f} | {p95:.2f} | {p99:.2f} | {cpu:.3f} |")
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", nargs="*", choices=TOPOLOGIES, default=list(TOPOLOGIES))
    parser.add_argument("--rates", type=int, nargs="*", default=[50, 400, 4000, 40_000], help="rows/s of all sources")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0, help="measured per run")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
