"""What sensors, traces and latency samples add to the CPU time of a run.

    python benchmarks/dataplane/observing.py [--rounds 5] [--seconds 8]

WordCount with a running count, batch API, two workers, as fast as it goes. Rounds alternate between four ways to run:
observed in full, as an agenda has it; without sensors; without latency samples too; and without a worker's traces and
reports either. CPU seconds of workers and agents per million words; every answer is compared with the reference.
"""

import argparse
import asyncio
import sys
from statistics import median

import psutil
from loopback import Ground, cpu_s, load, nodes, processes, run, wait

from workloads.workload import load_workload

SENSORS = ("cpu", "memory", "network", "power")
WAYS = {
    "in full": ("all", SENSORS),
    "no sensors": ("all", ()),
    "no sensors, no samples": ("no samples", ()),
    "nothing": ("nothing", ()),
}
WARM_UP_S = 2.0


async def one(on: Ground, observed: str, sensors: tuple[str, ...], seconds: float, words_per_line: float) -> float:
    """CPU seconds per million words of one run."""
    parallelism = dict.fromkeys(("spout", "split", "count", "out"), 2)
    params = {"parallelism": parallelism, "ackers": 0, "observed": observed}
    executors = load_workload("running-count", params).topology().executors
    places = {entry.name: f"n{entry.index % 2}/0" for entry in executors}
    async with run(on, "running-count", params, places, {"kind": "max"}, sensors=sensors) as (play, totals):
        await wait(play, WARM_UP_S)
        measured = [process for process in processes(on) if process.pid != psutil.Process().pid]
        marks = []
        for kind in ("measure_start", "measure_end"):
            await play.coordinator.mark(kind)
            await wait(play, 0.2)
            marks.append((cpu_s(measured), totals.emitted))
            if kind == "measure_start":
                await wait(play, seconds)
    (cpu, lines), (cpu_then, lines_then) = marks
    return (cpu_then - cpu) / ((lines_then - lines) * words_per_line) * 1e6


async def measure(options: argparse.Namespace) -> int:
    """Alternate, print."""
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    async with nodes(2) as on:
        (prepared,) = load_workload("wordcount", {}).prepare(on.folder / "text")
        words_per_line = len(prepared.path.read_text(encoding="utf-8").split()) / prepared.records
        for number in range(options.rounds):
            for way, (observed, sensors) in WAYS.items():
                costs[way].append(await one(on, observed, sensors, options.seconds, words_per_line))
            said = ", ".join(f"{way} {cost[-1]:.3f}" for way, cost in costs.items())
            print(f"round {number + 1}: CPU s per million words: {said}; {load()}", flush=True)
    bare = costs["nothing"]
    print("\n| | CPU s per million words, median (least) | added, median of rounds | of the least |\n|---|---|---|---|")
    for way, cost in costs.items():
        added = median(a / b - 1 for a, b in zip(cost, bare, strict=True))
        least = min(cost) / min(bare) - 1
        print(f"| {way} | {median(cost):.3f} ({min(cost):.3f}) | {added:+.1%} | {least:+.1%} |")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
