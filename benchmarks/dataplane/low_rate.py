"""Measure latency and CPU time of WordCount by rows and by columns, at rates far below the maximum.

    python benchmarks/dataplane/low_rate.py [--rounds 4] [--other-rates 4000 40000]

Two workers on real agents, two executors of each component, a checkpoint every two seconds; every answer is compared
with the reference. A round at the demo's rate, 400 lines/s, is a run by rows, one by columns, and one by rows again.
The difference between both runs by rows is noise: columns are within noise if the median of their ratios to the rows
of the same round differs from 1 by at most twice the median ratio of rows to rows (on a log scale). Other rates have
one round and no verdict. Latencies are those of sampled lines, in buckets of 1 %; CPU time is that of the workers, in
cores; memory is the resident size of both workers. A measurement takes three minutes.
"""

import argparse
import asyncio
import sys
from math import sqrt
from statistics import median
from typing import NamedTuple

import psutil
from loopback import Nodes, cpu_s, load, start_nodes, start_run, wait

from agents.worker.executors.executor import percentile
from workloads.workload import load_workload

DEMO_PER_S = 400
WARM_UP_S = 2.0


class Result(NamedTuple):
    """Result of one run."""

    p50_ms: float
    p99_ms: float
    cpu: float
    rss_mb: float


async def measure_run(nodes: Nodes, api: str, rate: int, seconds: float) -> Result:
    """Measure one run, and print its result."""
    params = {"api": api, "ackers": 0, "parallelism": dict.fromkeys(("spout", "split", "count"), 2)}
    executors = load_workload("wordcount", params).topology().executors
    places = {entry.name: f"n{entry.index % 2}/0" for entry in executors}
    constant = {"kind": "constant", "tuples_per_s": rate}
    async with start_run(nodes, "wordcount", params, places, constant, checkpoint_s=2.0) as (run, _):
        await wait(run, WARM_UP_S)
        began_ns = await run.coordinator.mark("measure_start")
        workers = [psutil.Process(worker.pid) for worker in run.workers.values() if worker is not None]
        before = cpu_s(workers)
        await wait(run, seconds)
        cpu = (cpu_s(workers) - before) / seconds
        rss = sum(worker.memory_info().rss for worker in workers) / 1e6
        ended_ns = await run.coordinator.mark("measure_end")
        await wait(run, 0.2)
    rows = [row for row in run.traces()["latency"].to_pylist() if began_ns < row["t_ns"] <= ended_ns]
    counts = sorted((row["value_ns"], row["count"]) for row in rows)
    p50, p99 = (percentile(counts, fraction) for fraction in (0.5, 0.99))
    if p50 is None or p99 is None:
        sys.exit("no line was sampled")
    result = Result(p50 / 1e6, p99 / 1e6, cpu, rss)
    shown = f"p50 {result.p50_ms:.2f} ms, p99 {result.p99_ms:.2f} ms, {cpu:.3f} cores, {rss:.0f} MB"
    print(f"{rate:,}/s, {api}: {shown}; {load()}", flush=True)
    return result


class Round(NamedTuple):
    """Runs of one round at the demo's rate."""

    rows: Result
    columns: Result
    rows_again: Result


def verdict(rounds: list[Round], field: str) -> str:
    """Compare columns with rows, and both runs by rows with each other."""
    ratios, noise = [], []
    for each in rounds:
        first, columns, again = (float(getattr(result, field)) for result in each)
        ratios.append(columns / sqrt(first * again))
        noise.append(max(first / again, again / first))
    middle, limit = median(ratios), median(noise) ** 2
    outcome = "within noise" if max(middle, 1 / middle) <= limit else "better" if middle < 1 else "WORSE"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{field}: columns {middle:.2f} x rows ({spread}), noise up to {limit:.2f} x: {outcome}"


def table(results: dict[tuple[int, str], list[Result]]) -> str:
    """Return the medians as a Markdown table."""
    lines = ["| lines/s | | p50, ms | p99, ms | CPU, cores | MB, both workers |", "|---|---|---|---|---|---|"]
    for (rate, api), runs in results.items():
        p50, p99, cpu, rss = (median(column) for column in zip(*runs, strict=True))
        lines.append(f"| {rate:,} | {api} | {p50:.2f} | {p99:.2f} | {cpu:.3f} | {rss:.0f} |")
    return "\n".join(lines)


async def measure(options: argparse.Namespace) -> int:
    """Alternate between rows and columns, and print the table and the verdicts."""
    async with start_nodes(2) as nodes:
        rounds = [
            Round(*[await measure_run(nodes, api, DEMO_PER_S, options.seconds) for api in ("rows", "columns", "rows")])
            for _ in range(options.rounds)
        ]
        results = {
            (DEMO_PER_S, "rows"): [result for each in rounds for result in (each.rows, each.rows_again)],
            (DEMO_PER_S, "columns"): [each.columns for each in rounds],
        }
        for rate in options.other_rates:
            for api in ("rows", "columns"):
                results[rate, api] = [await measure_run(nodes, api, rate, options.seconds)]
    print(f"\n{table(results)}\n")
    for field in Result._fields:
        print(verdict(rounds, field))
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="at the demo's rate")
    parser.add_argument("--seconds", type=float, default=6.0, help="measured per run")
    parser.add_argument("--other-rates", type=int, nargs="*", default=[4000, 40_000], help="lines/s, one round each")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
