"""Measure the CPU time that sensors, traces and latency samples add to a run.

    python benchmarks/dataplane/instrumentation_overhead.py [--rounds 5] [--seconds 8]

WordCount with a running count, batch API, two workers, at the maximum rate. Rounds alternate between four cases: full
instrumentation, as agendas have by default; without sensors; also without latency samples; and also without a worker's
traces and reports. The result is CPU seconds of workers and agents per million words. Every answer is compared with
the reference.
"""

import argparse
import asyncio
import sys
from statistics import median

import psutil
from loopback import Nodes, cpu_s, load, processes, start_nodes, start_run, wait

from workloads.workload import load_workload

SENSORS = ("cpu", "memory", "network", "power")
CASES = {
    "full": ("all", SENSORS),
    "no sensors": ("all", ()),
    "no sensors, no samples": ("no samples", ()),
    "none": ("none", ()),
}
WARM_UP_S = 2.0


async def measure_run(
    nodes: Nodes, instrumentation: str, sensors: tuple[str, ...], seconds: float, words_per_line: float
) -> float:
    """Return the CPU seconds per million words of one run."""
    parallelism = dict.fromkeys(("spout", "split", "count", "out"), 2)
    params = {"parallelism": parallelism, "ackers": 0, "instrumentation": instrumentation}
    executors = load_workload("running-count", params).topology().executors
    places = {entry.name: f"n{entry.index % 2}/0" for entry in executors}
    rate = {"kind": "max"}
    async with start_run(nodes, "running-count", params, places, rate, sensors=sensors) as (run, totals):
        await wait(run, WARM_UP_S)
        measured = [process for process in processes(nodes) if process.pid != psutil.Process().pid]
        samples = []
        for kind in ("measure_start", "measure_end"):
            await run.coordinator.mark(kind)
            await wait(run, 0.2)
            samples.append((cpu_s(measured), totals.emitted))
            if kind == "measure_start":
                await wait(run, seconds)
    (cpu_before, lines_before), (cpu_after, lines_after) = samples
    return (cpu_after - cpu_before) / ((lines_after - lines_before) * words_per_line) * 1e6


async def measure(options: argparse.Namespace) -> int:
    """Alternate between all cases, and print a table."""
    costs: dict[str, list[float]] = {case: [] for case in CASES}
    async with start_nodes(2) as nodes:
        (prepared,) = load_workload("wordcount", {}).prepare(nodes.folder / "text")
        words_per_line = len(prepared.path.read_text(encoding="utf-8").split()) / prepared.records
        for number in range(options.rounds):
            for case, (instrumentation, sensors) in CASES.items():
                cost = await measure_run(nodes, instrumentation, sensors, options.seconds, words_per_line)
                costs[case].append(cost)
            results = ", ".join(f"{case} {of_case[-1]:.3f}" for case, of_case in costs.items())
            print(f"round {number + 1}: CPU s per million words: {results}; {load()}", flush=True)
    baseline = costs["none"]
    print("\n| | CPU s per million words, median (minimum) | added, median of rounds | added, minima |")
    print("|---|---|---|---|")
    for case, of_case in costs.items():
        added = median(a / b - 1 for a, b in zip(of_case, baseline, strict=True))
        of_minima = min(of_case) / min(baseline) - 1
        print(f"| {case} | {median(of_case):.3f} ({min(of_case):.3f}) | {added:+.1%} | {of_minima:+.1%} |")
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured per run")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
