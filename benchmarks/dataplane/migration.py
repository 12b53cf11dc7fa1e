"""How long an executor with 1 MB of state pauses when it moves at half load, beside a stop-and-restart.

    python benchmarks/dataplane/migration.py [--moves 100] [--state-kb 1000]

Two workers, two spouts and two keepers; how much they take is measured first, then half of that is offered while one
keeper moves from worker to worker. The pause is what the keeper itself sees: from its last batch in one place to its
first in the next. The peer is what a system without moves has to do: stop the topology, drain it, and start it again.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from statistics import median

from loopback import Ground, diary, load, nodes, percentile, restarts, rows_per_s, run, wait

from controller.coordinator.barrier import MovePlan, MoveRequest

EVERY_S = 0.4
PLACES = {"spout[0]": "n0/0", "keep[0]": "n0/0", "spout[1]": "n1/0", "keep[1]": "n1/0"}
VALUE_BYTES = 100


async def measure(options: argparse.Namespace) -> int:
    """Most, then half with moves, then restarts."""
    params = {"keys": 2 * options.state_kb * 1000 // VALUE_BYTES, "value_bytes": VALUE_BYTES}
    async with nodes(2) as on:
        async with run(on, "keyed-state", params, PLACES, {"kind": "max"}) as (play, totals):
            await wait(play, 1.0)
            most = await rows_per_s(play, totals, 5.0)
        half = {"kind": "constant", "tuples_per_s": most / 2}
        print(f"{most / 1e6:.2f} M rows/s at most, {most / 2e6:.2f} M/s offered; {load()}", flush=True)
        await moves(on, params, half, options.moves)
        paused = await restarts(on, params, PLACES, half, 5)
        print(f"stop and restart: median {median(paused) * 1e3:.0f} ms of {len(paused)}; {load()}")
    return 0


async def moves(on: Ground, params: Mapping[str, object], rate: Mapping[str, object], count: int) -> None:
    """Move one keeper to and fro."""
    file = on.folder / "diary"
    plans = tuple(MovePlan(2.0 + EVERY_S * at, (MoveRequest("keep[0]", f"n{(at + 1) % 2}"),)) for at in range(count))
    async with run(on, "keyed-state", {**params, "diary": str(file)}, PLACES, rate, checkpoint_s=5.0, moves=plans) as (
        play,
        _,
    ):
        await wait(play, 3.0 + EVERY_S * count)
        done = [entry for entry in play.coordinator.event_log.moves if entry.abandoned is None]
        recoveries = len(play.coordinator.event_log.recoveries)
    seen = [(again - before) / 1e6 for _, before, again in diary(file)]
    said = [(entry.pause_s or 0.0) * 1e3 for entry in done]
    print(
        f"{len(seen)} moves of {(done[0].state_bytes or 0) / 1e6:.2f} MB, {recoveries} recoveries; "
        f"pause as the keeper sees it: "
        f"median {median(seen):.1f} ms, p99 {percentile(seen, 0.99):.1f} ms, longest {max(seen):.1f} ms; "
        f"as reported: median {median(said):.1f} ms, p99 {percentile(said, 0.99):.1f} ms; "
        f"CPU {median(entry.cpu_ms or 0.0 for entry in done):.1f} ms; {load()}",
        flush=True,
    )


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--state-kb", type=int, default=1000)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
