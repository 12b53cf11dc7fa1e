"""Rows per second of `smart-home` on one node, by rows and by columns, beside pandas on the same rows in the same run.

    python benchmarks/workloads/smart_home.py [--rows 3000000] [--workers 2] [--rounds 3]

The rows are generated, all slice lengths are predicted, sources run as fast as they can (rate max) under a campaign's
own control, with a checkpoint every five seconds, and every answer is compared with the reference. The rate is
that of the first 70 % of the rows. Pandas is the reference itself: one thread, all rows of the prepared file at once.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path
from statistics import median

import psutil

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Ground, cpu_s, load, nodes, run

from workloads.generate.smart_plugs import smart_plugs
from workloads.generate.writing import write_rows
from workloads.workload import load_workload

TASKS = {"source": 2, "house": 2, "plug": 2, "sink": 1}
CHECKPOINT_S = 5.0
MEASURED = 0.7
"""Share of the rows over which the rate is taken; workers that have drained report no more."""


async def ours(on: Ground, source: Path, workers: int, api: str) -> tuple[float, float, float]:
    """Rows per second, CPU seconds per million rows and resident MB of all workers."""
    params = {"input": str(source), "parallelism": TASKS, "api": api}
    workload = load_workload("smart-home", params)
    (prepared,) = workload.prepare(on.folder / "prepared")
    places = {entry.name: f"n0/{entry.index % workers}" for entry in workload.topology().executors}
    async with run(on, "smart-home", params, places, {"kind": "max"}, checkpoint_s=CHECKPOINT_S) as (play, totals):
        began = time.monotonic()
        processes = [psutil.Process(worker.pid) for worker in play.workers.values() if worker is not None]
        used = cpu_s(processes)
        await play.until(lambda: totals.emitted >= MEASURED * prepared.records, "most of the rows")
        rows, seconds = totals.emitted, totals.at_s - began
        used = cpu_s(processes) - used
        resident = sum(process.memory_info().rss for process in processes) / 1e6
    return rows / seconds, used / rows * 1e6, resident


def theirs(folder: Path, source: Path) -> float:
    """Rows per second of pandas."""
    workload = load_workload("smart-home", {"input": str(source), "parallelism": {"source": 1}})
    inputs = workload.prepare(folder)
    began = time.monotonic()
    workload.reference([inputs[0].records], inputs)
    return inputs[0].records / (time.monotonic() - began)


async def measure(options: argparse.Namespace) -> int:
    """Alternate, print."""
    found: dict[str, list[tuple[float, float, float]]] = {"rows": [], "columns": []}
    async with nodes(1) as on:
        source = on.folder / "readings.csv"
        write_rows(source, smart_plugs(options.rows, 1), lambda _rows: None)
        for number in range(options.rounds):
            pandas = theirs(on.folder / "prepared", source)
            for api, rounds in found.items():
                rate, cpu, resident = await ours(on, source, options.workers, api)
                rounds.append((rate, cpu, pandas))
                print(
                    f"round {number + 1}, {api}: {rate:,.0f} rows/s, {cpu:.2f} CPU s per million rows, "
                    f"{resident:.0f} MB in {options.workers} workers; pandas {pandas:,.0f} rows/s; {load()}",
                    flush=True,
                )
    for api, rounds in found.items():
        rates, costs, _ = zip(*rounds, strict=True)
        print(
            f"{api}: median {median(rates):,.0f} rows/s, {median(costs):.2f} CPU s per million rows, "
            f"{median(rate / pandas for rate, _, pandas in rounds):.2f} x pandas"
        )
    less = median(rows[1] / columns[1] for rows, columns in zip(found["rows"], found["columns"], strict=True))
    print(f"columns: {less:.2f} times less CPU than rows")
    return 0


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", type=int, default=3_000_000)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=3)
    return asyncio.run(measure(arguments.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
