"""Latency and CPU time of WordCount at rates below what machines can do, by rows and by columns.

    python benchmarks/dataplane/low_rate.py [--rounds 3] [--seconds 6] [--rates 400 4000 40000]

Two workers on real agents, two executors of each component, a checkpoint every two seconds, every answer compared with
the reference. Rows and columns alternate; the first rate is that of the demo. Latencies are those of the sampled
lines, in buckets of 1 %; CPU time is that of the workers, as a share of a core; memory is resident, of both workers.
"""

import argparse
import asyncio
import sys
from statistics import median
from typing import NamedTuple

import psutil
from loopback import Ground, cpu_s, load, nodes, run, wait

from agents.worker.executors.executor import percentile
from workloads.workload import load_workload

WARM_UP_S = 2.0


class Found(NamedTuple):
    """What a run took."""

    p50_ms: float
    p99_ms: float
    cpu: float
    rss_mb: float


async def one(on: Ground, api: str, rate: int, seconds: float) -> Found:
    """Measure one run."""
    params = {"api": api, "ackers": 0, "parallelism": dict.fromkeys(("spout", "split", "count"), 2)}
    executors = load_workload("wordcount", params).topology().executors
    places = {entry.name: f"n{entry.index % 2}/0" for entry in executors}
    constant = {"kind": "constant", "tuples_per_s": rate}
    async with run(on, "wordcount", params, places, constant, checkpoint_s=2.0) as (play, _):
        await wait(play, WARM_UP_S)
        began_ns = await play.coordinator.mark("measure_start")
        workers = [psutil.Process(worker.pid) for worker in play.workers.values() if worker is not None]
        before = cpu_s(workers)
        await wait(play, seconds)
        cpu = (cpu_s(workers) - before) / seconds
        rss = sum(worker.memory_info().rss for worker in workers) / 1e6
        ended_ns = await play.coordinator.mark("measure_end")
        await wait(play, 0.2)
    rows = [row for row in play.traces()["latency"].to_pylist() if began_ns < row["t_ns"] <= ended_ns]
    counts = sorted((row["value_ns"], row["count"]) for row in rows)
    p50, p99 = (percentile(counts, fraction) for fraction in (0.5, 0.99))
    if p50 is None or p99 is None:
        sys.exit("no line was sampled")
    return Found(p50 / 1e6, p99 / 1e6, cpu, rss)


async def measure(options: argparse.Namespace) -> int:
    """Alternate, print."""
    found: dict[tuple[int, str], list[Found]] = {}
    async with nodes(2) as on:
        for number in range(options.rounds):
            for rate in options.rates:
                for api in ("rows", "columns"):
                    result = await one(on, api, rate, options.seconds)
                    found.setdefault((rate, api), []).append(result)
                    print(f"round {number + 1}, {rate}/s, {api}: {result}; {load()}", flush=True)
    print("\n| lines/s | | p50, ms | p99, ms | CPU, cores | MB |\n|---|---|---|---|---|---|")
    for (rate, api), results in found.items():
        p50, p99, cpu, rss = (median(column) for column in zip(*results, strict=True))
        print(f"| {rate:,} | {api} | {p50:.2f} | {p99:.2f} | {cpu:.3f} | {rss:.0f} |")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rates", type=int, nargs="+", default=[400, 4000, 40_000])
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
