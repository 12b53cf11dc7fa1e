"""Latency and CPU time of WordCount at rates below what machines can do, by rows and by columns.

    python benchmarks/dataplane/low_rate.py [--rounds 4] [--others 4000 40000]

Two workers on real agents, two executors of each component, a checkpoint every two seconds, every answer compared with
the reference. A round at the demo's rate, 400 lines/s, is rows, columns, and rows again, whose difference from the
first is noise: columns are within it if the median of their ratios to the rows around them is not farther from 1 than
twice the median ratio of rows to rows. Other rates have one round, and no verdict. Latencies are those of the sampled
lines, in buckets of 1 %; CPU time is that of the workers, in cores; memory is resident, of both workers. It takes three
minutes.
"""

import argparse
import asyncio
import sys
from math import sqrt
from statistics import median
from typing import NamedTuple

import psutil
from loopback import Ground, cpu_s, load, nodes, run, wait

from agents.worker.executors.executor import percentile
from workloads.workload import load_workload

DEMO_PER_S = 400
WARM_UP_S = 2.0


class Found(NamedTuple):
    """What a run took."""

    p50_ms: float
    p99_ms: float
    cpu: float
    rss_mb: float


async def one(on: Ground, api: str, rate: int, seconds: float) -> Found:
    """Measure one run, and print it."""
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
    found = Found(p50 / 1e6, p99 / 1e6, cpu, rss)
    shown = f"p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms, {cpu:.3f} cores, {rss:.0f} MB"
    print(f"{rate:,}/s, {api}: {shown}; {load()}", flush=True)
    return found


class Round(NamedTuple):
    """Runs of one round at the demo's rate."""

    rows: Found
    columns: Found
    rows_again: Found


def verdict(rounds: list[Round], field: str) -> str:
    """Compare columns with rows, and rows with themselves."""
    ratios, noise = [], []
    for each in rounds:
        first, columns, again = (float(getattr(found, field)) for found in each)
        ratios.append(columns / sqrt(first * again))
        noise.append(max(first / again, again / first))
    middle, limit = median(ratios), median(noise) ** 2
    outcome = "within noise" if max(middle, 1 / middle) <= limit else "better" if middle < 1 else "WORSE"
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{field}: columns {middle:.2f} x rows ({spread}), noise up to {limit:.2f} x: {outcome}"


def table(found: dict[tuple[int, str], list[Found]]) -> str:
    """Medians, as Markdown."""
    lines = ["| lines/s | | p50, ms | p99, ms | CPU, cores | MB |", "|---|---|---|---|---|---|"]
    for (rate, api), results in found.items():
        p50, p99, cpu, rss = (median(column) for column in zip(*results, strict=True))
        lines.append(f"| {rate:,} | {api} | {p50:.2f} | {p99:.2f} | {cpu:.3f} | {rss:.0f} |")
    return "\n".join(lines)


async def measure(options: argparse.Namespace) -> int:
    """Alternate, print."""
    async with nodes(2) as on:
        rounds = [
            Round(*[await one(on, api, DEMO_PER_S, options.seconds) for api in ("rows", "columns", "rows")])
            for _ in range(options.rounds)
        ]
        found = {
            (DEMO_PER_S, "rows"): [run for each in rounds for run in (each.rows, each.rows_again)],
            (DEMO_PER_S, "columns"): [each.columns for each in rounds],
        }
        for rate in options.others:
            for api in ("rows", "columns"):
                found[rate, api] = [await one(on, api, rate, options.seconds)]
    print(f"\n{table(found)}\n")
    for field in Found._fields:
        print(verdict(rounds, field))
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--others", type=int, nargs="*", default=[4000, 40_000])
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
