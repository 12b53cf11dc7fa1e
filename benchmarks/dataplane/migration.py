"""Measure how long an executor with 1 MB of state pauses when it moves at half load, compared with stop and restart.

    python benchmarks/dataplane/migration.py [--moves 100] [--state-kb 1000]

Two workers, two spouts and two stateful bolts. The maximum rate is measured first; then sources run at half of it while
one bolt moves between the workers. The bolt itself measures the pause: from its last batch in the old slot to its
first batch in the new one. The alternative without moves is to stop the topology, drain it, and start it again.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from statistics import median

from loopback import (
    Nodes,
    load,
    percentile,
    read_batch_log,
    rows_per_s,
    start_nodes,
    start_run,
    stop_and_restart,
    wait,
)

from controller.coordinator.scripted_events import MoveExecutors, MoveRequest

INTERVAL_S = 0.4
PLACES = {"spout[0]": "n0/0", "count[0]": "n0/0", "spout[1]": "n1/0", "count[1]": "n1/0"}
VALUE_BYTES = 100


async def measure(options: argparse.Namespace) -> int:
    """Measure the maximum rate, then moves at half of it, then restarts."""
    params = {"keys": 2 * options.state_kb * 1000 // VALUE_BYTES, "value_bytes": VALUE_BYTES}
    async with start_nodes(2) as nodes:
        async with start_run(nodes, "keyed-state", params, PLACES, {"kind": "max"}) as (run, totals):
            await wait(run, 1.0)
            maximum = await rows_per_s(run, totals, 5.0)
        half = {"kind": "constant", "tuples_per_s": maximum / 2}
        print(f"maximum {maximum / 1e6:.2f} M rows/s, offered {maximum / 2e6:.2f} M rows/s; {load()}", flush=True)
        await measure_moves(nodes, params, half, options.moves)
        paused = await stop_and_restart(nodes, params, PLACES, half, 5)
        print(f"stop and restart: median {median(paused) * 1e3:.0f} ms of {len(paused)}; {load()}")
    return 0


async def measure_moves(nodes: Nodes, params: Mapping[str, object], rate: Mapping[str, object], count: int) -> None:
    """Move one bolt `count` times between two nodes, and print its pauses."""
    file = nodes.folder / "batch_log"
    plans = tuple(
        MoveExecutors(2.0 + INTERVAL_S * at, (MoveRequest("count[0]", f"n{(at + 1) % 2}"),)) for at in range(count)
    )
    params = {**params, "batch_log": str(file)}
    async with start_run(nodes, "keyed-state", params, PLACES, rate, checkpoint_s=5.0, moves=plans) as (run, _):
        await wait(run, 3.0 + INTERVAL_S * count)
        done = [entry for entry in run.coordinator.event_log.moves if entry.abandoned is None]
        recoveries = len(run.coordinator.event_log.recoveries)
    observed = [(after - before) / 1e6 for _, before, after in read_batch_log(file)]
    reported = [(entry.pause_s or 0.0) * 1e3 for entry in done]
    print(
        f"{len(observed)} moves of {(done[0].state_bytes or 0) / 1e6:.2f} MB, {recoveries} recoveries; "
        f"pause observed by the bolt: "
        f"median {median(observed):.1f} ms, p99 {percentile(observed, 0.99):.1f} ms, longest {max(observed):.1f} ms; "
        f"reported by Millrace: median {median(reported):.1f} ms, p99 {percentile(reported, 0.99):.1f} ms; "
        f"CPU {median(entry.cpu_ms or 0.0 for entry in done):.1f} ms; {load()}",
        flush=True,
    )


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--state-kb", type=int, default=1000, help="state per bolt")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
