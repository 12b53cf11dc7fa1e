"""What a checkpoint every 5 s costs a topology with 100 MB of state, beside the same topology without checkpoints.

    python benchmarks/dataplane/checkpoint.py [--rounds 3] [--seconds 20] [--state-mb 100] [--value-bytes 1000]

Two workers, a spout and a keeper of half the keys each, every key to where it belongs, as fast as it goes. Runs
without and with checkpoints alternate. Every answer is compared with the reference. The limit that everybody shares is
the disk: what it takes to write and sync as many bytes is measured in the same run. On a busy machine the rates say
more about the others than about us; CPU time per checkpoint says what it costs.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from loopback import Ground, cpu_s, load, nodes, processes, rows_per_s, run, wait

EVERY_S = 5.0


def disk_s(folder: Path, nbytes: int) -> float:
    """Seconds to write and sync so many bytes."""
    data = os.urandom(1 << 20) * (nbytes >> 20)
    began = time.perf_counter()
    with (folder / "probe").open("wb") as file:
        file.write(data)
        os.fsync(file.fileno())
    return time.perf_counter() - began


class Outcome(NamedTuple):
    """Rows per second, CPU seconds per row, checkpoints in the measured interval."""

    rows_per_s: float
    cpu_s: float
    checkpoints: int


async def one(on: Ground, options: argparse.Namespace, checkpoint_s: float) -> Outcome:
    """One run."""
    params = {"keys": options.state_mb * 1_000_000 // options.value_bytes, "value_bytes": options.value_bytes}
    places = {"spout[0]": "n0/0", "keep[0]": "n0/0", "spout[1]": "n1/0", "keep[1]": "n1/0"}
    async with run(on, "keyed-state", params, places, {"kind": "max"}, checkpoint_s=checkpoint_s) as (play, totals):
        await wait(play, 2.0)
        before, done = cpu_s(processes(on)), play.coordinator.event_log.checkpoints
        rate = await rows_per_s(play, totals, options.seconds)
        cpu, done = cpu_s(processes(on)) - before, play.coordinator.event_log.checkpoints - done
        return Outcome(rate, cpu / (rate * options.seconds), done)


async def measure(options: argparse.Namespace) -> int:
    """Alternate, print."""
    async with nodes(2) as on:
        print(f"{load()}; the disk takes {disk_s(on.folder, options.state_mb * 10**6):.2f} s for the state alone")
        lost, each = [], []
        for number in range(options.rounds):
            off = await one(on, options, 0.0)
            kept = await one(on, options, EVERY_S)
            lost.append(1 - kept.rows_per_s / off.rows_per_s)
            each.append((kept.cpu_s - off.cpu_s) * kept.rows_per_s * options.seconds / kept.checkpoints)
            print(
                f"round {number + 1}: {off.rows_per_s / 1e6:.2f} and {kept.rows_per_s / 1e6:.2f} M rows/s, "
                f"{off.cpu_s * 1e6:.2f} and {kept.cpu_s * 1e6:.2f} CPU s per million; "
                f"{kept.checkpoints} checkpoints; {load()}",
                flush=True,
            )
    print(
        f"throughput lost: {median(lost):.1%}; a checkpoint takes {median(each) * 1e3:.0f} ms of CPU, which is "
        f"{median(each) / EVERY_S / 2:.1%} of two cores (medians of {options.rounds})"
    )
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--state-mb", type=int, default=100)
    parser.add_argument("--value-bytes", type=int, default=1000)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
