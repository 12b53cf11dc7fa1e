"""How long until a topology works again after kill -9 of one of its four workers.

    python benchmarks/dataplane/recovery.py [--kills 20] [--state-kb 1000]

Four workers on two nodes, a spout and a keeper each, at half of what they take. A worker is killed at a random moment,
again and again. Measured is from the kill until every keeper has processed its first row in the new epoch: what a user
waits. The part that the controller knows (from hearing of it until the sources are told to go on) is printed beside it.
The peer is a stop and restart of the topology in the same run.
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

from loopback import Ground, diary, kill, load, nodes, restarts, rows_per_s, run, wait

from agents.protocol import Slot
from controller.coordinator.event_log import EventLog

WORKERS = [Slot("n0", 0), Slot("n0", 1), Slot("n1", 0), Slot("n1", 1)]
PLACES = {f"{name}[{at}]": f"{w.node}/{w.index}" for name in ("spout", "keep") for at, w in enumerate(WORKERS)}
VALUE_BYTES = 100


async def measure(options: argparse.Namespace) -> int:
    """Kill, wait, read the diary; then the peer."""
    keys = options.state_kb * 1000 * len(WORKERS) // VALUE_BYTES
    params = {"keys": keys, "value_bytes": VALUE_BYTES, "parallelism": {"spout": 4, "keep": 4}}
    async with nodes(2) as on:
        async with run(on, "keyed-state", params, PLACES, {"kind": "max"}) as (play, totals):
            await wait(play, 1.0)
            most = await rows_per_s(play, totals, 5.0)
        rate = {"kind": "constant", "tuples_per_s": most / 2}
        print(f"{most / 1e6:.2f} M rows/s at most, {most / 2e6:.2f} M/s offered; {load()}", flush=True)
        took, known = await kills(on, params, rate, options.kills)
        print(
            f"{len(took)} kills: until every keeper works again median {median(took):.2f} s, "
            f"longest {max(took):.2f} s; "
            f"of that known to the controller median {median(known):.2f} s, longest {max(known):.2f} s; {load()}",
            flush=True,
        )
        paused = await restarts(on, params, PLACES, rate, 5)
        print(f"stop and restart: median {median(paused):.2f} s of {len(paused)}; {load()}")
    return 0


async def kills(
    on: Ground, params: Mapping[str, object], rate: Mapping[str, object], count: int
) -> tuple[list[float], list[float]]:
    """Seconds until all keepers worked again, and those that the controller knows of, per kill."""
    random, file = Random(1), on.folder / "diary"  # noqa: S311 - no secret
    took, known = [], []

    async with run(on, "keyed-state", {**params, "diary": str(file)}, PLACES, rate, checkpoint_s=1.0) as (play, _):
        journal = play.coordinator.event_log
        for number in range(count):
            await play.until(partial(_has_more, journal, journal.checkpoints), "a checkpoint")
            await wait(play, random.uniform(0.0, 1.0))
            killed_ns = time.monotonic_ns()
            kill(play.workers[random.choice(WORKERS)])
            await play.until(partial(_all_work, file, killed_ns), "a row at every keeper")
            took.append((max(_again(file, killed_ns).values()) - killed_ns) / 1e9)
            known.append(journal.recoveries[number]["took_s"])
    return took, known


def _has_more(journal: EventLog, checkpoints: int) -> bool:
    return journal.checkpoints > checkpoints


def _all_work(file: Path, killed_ns: int) -> bool:
    return len(_again(file, killed_ns)) == len(WORKERS)


def _again(file: Path, killed_ns: int) -> dict[int, int]:
    """When keepers first worked after a kill, by index."""
    first: dict[int, int] = {}
    for index, _, again in diary(file):
        if again > killed_ns:
            first.setdefault(index, again)
    return first


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--state-kb", type=int, default=1000)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
