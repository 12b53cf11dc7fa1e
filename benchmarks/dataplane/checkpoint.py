"""Measure the cost of a checkpoint every 5 s with 100 MB of state, compared with the same topology without checkpoints.

    python benchmarks/dataplane/checkpoint.py [--rounds 3] [--seconds 20] [--state-mb 100] [--value-bytes 1000]

Two workers, each with a spout and a bolt that holds half of the keys, at the maximum rate. Runs with and without
checkpoints alternate. Every answer is compared with the reference. For comparison, the time to write and sync as many
bytes to the disk is measured first. On a busy machine the rates depend mostly on other programs; CPU time per
checkpoint is then the reliable figure.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from loopback import Nodes, cpu_s, load, processes, rows_per_s, start_nodes, start_run, wait

INTERVAL_S = 5.0
PLACES = {"spout[0]": "n0/0", "count[0]": "n0/0", "spout[1]": "n1/0", "count[1]": "n1/0"}


def disk_s(folder: Path, nbytes: int) -> float:
    """Return the seconds to write and sync `nbytes`."""
    data = os.urandom(1 << 20) * (nbytes >> 20)
    began = time.perf_counter()
    with (folder / "probe").open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    return time.perf_counter() - began


class Result(NamedTuple):
    """Rows per second, CPU seconds per row, and checkpoints in the measured interval of one run."""

    rows_per_s: float
    cpu_s: float
    checkpoints: int


async def measure_run(nodes: Nodes, options: argparse.Namespace, checkpoint_s: float) -> Result:
    """Measure one run; 0 means no checkpoints."""
    params = {"keys": options.state_mb * 1_000_000 // options.value_bytes, "value_bytes": options.value_bytes}
    rate = {"kind": "max"}
    async with start_run(nodes, "keyed-state", params, PLACES, rate, checkpoint_s=checkpoint_s) as (run, totals):
        await wait(run, 2.0)
        cpu_before, checkpoints_before = cpu_s(processes(nodes)), run.coordinator.event_log.checkpoints
        achieved = await rows_per_s(run, totals, options.seconds)
        cpu = cpu_s(processes(nodes)) - cpu_before
        checkpoints = run.coordinator.event_log.checkpoints - checkpoints_before
        return Result(achieved, cpu / (achieved * options.seconds), checkpoints)


async def measure(options: argparse.Namespace) -> int:
    """Alternate between runs without and with checkpoints, and print the results."""
    async with start_nodes(2) as nodes:
        disk = disk_s(nodes.folder, options.state_mb * 10**6)
        print(f"{load()}; writing and syncing the state alone takes {disk:.2f} s")
        loss, cpu_each = [], []
        for number in range(options.rounds):
            off = await measure_run(nodes, options, 0.0)
            on = await measure_run(nodes, options, INTERVAL_S)
            loss.append(1 - on.rows_per_s / off.rows_per_s)
            cpu_each.append((on.cpu_s - off.cpu_s) * on.rows_per_s * options.seconds / on.checkpoints)
            print(
                f"round {number + 1}, without and with checkpoints: "
                f"{off.rows_per_s / 1e6:.2f} and {on.rows_per_s / 1e6:.2f} M rows/s, "
                f"{off.cpu_s * 1e6:.2f} and {on.cpu_s * 1e6:.2f} CPU s per million; "
                f"{on.checkpoints} checkpoints; {load()}",
                flush=True,
            )
    print(
        f"throughput loss: {median(loss):.1%}; a checkpoint takes {median(cpu_each) * 1e3:.0f} ms of CPU, which is "
        f"{median(cpu_each) / INTERVAL_S / 2:.1%} of two cores (medians of {options.rounds} rounds)"
    )
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0, help="measured per run")
    parser.add_argument("--state-mb", type=int, default=100, help="state of all bolts")
    parser.add_argument("--value-bytes", type=int, default=1000, help="state per key")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
