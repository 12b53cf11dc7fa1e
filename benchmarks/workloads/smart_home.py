"""Measure rows per second of `smart-home` on one node, by rows and by columns, beside pandas on the same rows.

    python benchmarks/workloads/smart_home.py [--rows 3000000] [--workers 2] [--rounds 3]

The rows are generated, and all slice lengths are predicted. Sources run at rate max under a campaign's coordinator
with a checkpoint every five seconds. Every answer is compared with the reference. The rate covers the first 70 % of the
rows. The peer is the reference itself: pandas on one thread, with all rows of the prepared file at once.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from statistics import median

import psutil

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Nodes, cpu_s, load, start_nodes, start_run

from workloads.generate.smart_plugs import smart_plugs
from workloads.generate.writing import write_rows
from workloads.workload import load_workload

PARALLELISM = {"source": 2, "house": 2, "plug": 2, "sink": 1}
CHECKPOINT_S = 5.0
SILENCE_S = 2.5
"""Drained workers stop reporting: the measurement ends with the last report before so many seconds without one."""

LEAST_SHARE = 0.5
"""Share of the rows that the last report must cover, or else there were too few reports."""


async def measure_millrace(nodes: Nodes, source: Path, workers: int, api: str) -> tuple[float, float, float]:
    """Return rows per second, CPU seconds per million rows and resident MB of all workers."""
    params = {"input": str(source), "parallelism": PARALLELISM, "api": api}
    workload = load_workload("smart-home", params)
    (prepared,) = workload.prepare(nodes.folder / "prepared")
    places = {entry.name: f"n0/{entry.index % workers}" for entry in workload.topology().executors}
    rate = {"kind": "max"}
    async with start_run(nodes, "smart-home", params, places, rate, checkpoint_s=CHECKPOINT_S) as (run, totals):
        begin = time.monotonic()
        processes = [psutil.Process(worker.pid) for worker in run.workers.values() if worker is not None]
        before_s = cpu_s(processes)
        rows, cpu, last_change_s = 0, 0.0, begin

        def is_drained() -> bool:
            nonlocal rows, cpu, last_change_s
            if totals.emitted > rows:
                rows, cpu, last_change_s = totals.emitted, cpu_s(processes) - before_s, time.monotonic()
            return time.monotonic() - last_change_s > SILENCE_S

        await run.until(is_drained, "the last report")
        seconds = totals.at_s - begin
        resident = sum(process.memory_info().rss for process in processes) / 1e6
    if rows < LEAST_SHARE * prepared.records:
        raise SystemExit(f"the last report covers {rows:,} of {prepared.records:,} rows: repeat with more --rows")
    return rows / seconds, cpu / rows * 1e6, resident


def measure_pandas(folder: Path, source: Path) -> float:
    """Return rows per second of the reference in pandas."""
    workload = load_workload("smart-home", {"input": str(source), "parallelism": {"source": 1}})
    inputs = workload.prepare(folder)
    begin = time.monotonic()
    workload.reference([inputs[0].records], inputs)
    return inputs[0].records / (time.monotonic() - begin)


async def measure(options: argparse.Namespace) -> int:
    """Run all rounds; print each and the medians."""
    results: dict[str, list[tuple[float, float, float]]] = {"rows": [], "columns": []}
    async with start_nodes(1) as nodes:
        source = nodes.folder / "readings.csv"
        write_rows(source, smart_plugs(options.rows, 1), lambda _rows: None)
        for number in range(options.rounds):
            pandas = measure_pandas(nodes.folder / "prepared", source)
            for api, rounds in results.items():
                rate, cpu, resident = await measure_millrace(nodes, source, options.workers, api)
                rounds.append((rate, cpu, pandas))
                print(
                    f"round {number + 1}, {api}: {rate:,.0f} rows/s, {cpu:.2f} CPU s per million rows, "
                    f"{resident:.0f} MB in {options.workers} workers; pandas {pandas:,.0f} rows/s; {load()}",
                    flush=True,
                )
    for api, rounds in results.items():
        rates, costs, _ = zip(*rounds, strict=True)
        print(
            f"{api}: median {median(rates):,.0f} rows/s, {median(costs):.2f} CPU s per million rows, "
            f"{median(rate / pandas for rate, _, pandas in rounds):.2f} x pandas"
        )
    ratio = median(rows[1] / columns[1] for rows, columns in zip(results["rows"], results["columns"], strict=True))
    print(f"columns: {ratio:.2f} times less CPU than rows")
    return 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=3_000_000)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=3)
    return asyncio.run(measure(arguments.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
