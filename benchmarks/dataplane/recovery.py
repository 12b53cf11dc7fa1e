"""Measure how long a topology takes to recover from kill -9 of one of its four workers.

    python benchmarks/dataplane/recovery.py [--kills 20] [--state-kb 1000]

Four workers on two nodes, each with a spout and a stateful bolt, at half of the maximum rate. Workers are killed at
random times. The recovery time is measured from the kill until every bolt has processed its first row in the new
epoch. The part that the controller reports, from the detection of the failure until the sources restart, is printed
separately. For comparison, the topology is stopped and restarted.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from random import Random
from statistics import median

from loopback import (
    Nodes,
    kill,
    load,
    read_batch_log,
    rows_per_s,
    start_nodes,
    start_run,
    stop_and_restart,
    wait,
)

from agents.protocol import Slot
from controller.coordinator.event_log import EventLog

WORKERS = [Slot("n0", 0), Slot("n0", 1), Slot("n1", 0), Slot("n1", 1)]
PLACES = {f"{name}[{at}]": f"{w.node}/{w.index}" for name in ("spout", "count") for at, w in enumerate(WORKERS)}
VALUE_BYTES = 100


async def measure(options: argparse.Namespace) -> int:
    """Measure the maximum rate, then recoveries at half of it, then restarts."""
    keys = options.state_kb * 1000 * len(WORKERS) // VALUE_BYTES
    params = {"keys": keys, "value_bytes": VALUE_BYTES, "parallelism": {"spout": 4, "count": 4}}
    async with start_nodes(2) as nodes:
        async with start_run(nodes, "keyed-state", params, PLACES, {"kind": "max"}) as (run, totals):
            await wait(run, 1.0)
            maximum = await rows_per_s(run, totals, 5.0)
        rate = {"kind": "constant", "tuples_per_s": maximum / 2}
        print(f"maximum {maximum / 1e6:.2f} M rows/s, offered {maximum / 2e6:.2f} M rows/s; {load()}", flush=True)
        took, reported = await measure_recoveries(nodes, params, rate, options.kills)
        print(
            f"{len(took)} kills: time until every bolt processes rows again: median {median(took):.2f} s, "
            f"longest {max(took):.2f} s; "
            f"reported by the controller: median {median(reported):.2f} s, longest {max(reported):.2f} s; {load()}",
            flush=True,
        )
        paused = await stop_and_restart(nodes, params, PLACES, rate, 5)
        print(f"stop and restart: median {median(paused):.2f} s of {len(paused)}; {load()}")
    return 0


async def measure_recoveries(
    nodes: Nodes, params: Mapping[str, object], rate: Mapping[str, object], count: int
) -> tuple[list[float], list[float]]:
    """Kill workers; return the seconds of each recovery as seen by the bolts, and as reported by the controller."""
    random, file = Random(1), nodes.folder / "batch_log"  # noqa: S311 - no secret
    took, reported = [], []
    params = {**params, "batch_log": str(file)}

    async with start_run(nodes, "keyed-state", params, PLACES, rate, checkpoint_s=1.0) as (run, _):
        log = run.coordinator.event_log
        for number in range(count):
            await run.until(partial(_has_new_checkpoint, log, log.checkpoints), "a checkpoint")
            await wait(run, random.uniform(0.0, 1.0))
            killed_ns = time.monotonic_ns()
            kill(run.workers[random.choice(WORKERS)])
            await run.until(partial(_all_recovered, file, killed_ns), "a row at every bolt")
            took.append((max(_first_batches(file, killed_ns).values()) - killed_ns) / 1e9)
            reported.append(log.recoveries[number].took_s)
    return took, reported


def _has_new_checkpoint(log: EventLog, checkpoints: int) -> bool:
    return log.checkpoints > checkpoints


def _all_recovered(file: Path, killed_ns: int) -> bool:
    return len(_first_batches(file, killed_ns)) == len(WORKERS)


def _first_batches(file: Path, killed_ns: int) -> dict[int, int]:
    """Return the time of the first batch of each bolt after a kill, by index."""
    first: dict[int, int] = {}
    for index, _, after in read_batch_log(file):
        if after > killed_ns:
            first.setdefault(index, after)
    return first


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--state-kb", type=int, default=1000, help="state per bolt")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
