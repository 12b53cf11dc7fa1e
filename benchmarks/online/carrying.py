"""How long executors pause, and what is lost, when a tenth of all executors moves at half load.

    .venv/bin/python benchmarks/online/carrying.py [--moves 30] [--keepers 18] [--state-kb 1000] [--nodes 3]

Two spouts and many keepers of `--state-kb` each, dealt over the nodes. How much they take is measured first; then half
of that is offered, and every five seconds a tenth of the executors goes to the next node at one barrier, as a revision
is carried out. Pause: what keepers see, from the last batch in one place to the first in the next, per MB of their
state; the limit is 30 ms at p99. Net loss: what sinks lack after two seconds, in seconds of the rate, beside the same
between two revisions; the limit is 0.1 s. Every answer is compared with the reference.

Example: .venv/bin/python benchmarks/online/carrying.py --moves 5
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Ground, Play, Totals, diary, load, nodes, percentile, rows_per_s, run, wait

from controller.coordinator.barrier import MovePlan, MoveRequest
from inventory.times import NS

PAUSE_MS, LOSS_S = 30.0, 0.1
VALUE_BYTES = 100
SPOUTS = 2
FIRST_S, EVERY_S, WINDOW_S, MARK_S = 4.0, 5.0, 2.0, 0.2


def placed(keepers: int, count: int) -> dict[str, str]:
    """A slot for every executor, by turns."""
    found = {f"spout[{at}]": f"n{at % count}/0" for at in range(SPOUTS)}
    return found | {f"keep[{at}]": f"n{at % count}/0" for at in range(keepers)}


async def sunk(play: Play, totals: Totals) -> tuple[int, float]:
    """Rows into sinks, and the mean time of the reports, which a mark asks for."""
    await play.coordinator.mark("measure_start")
    await wait(play, MARK_S)
    return totals.sunk, totals.at_s


async def lacking_s(play: Play, totals: Totals, rate: float, begin: float) -> float:
    """Rows that sinks lack from `begin` (on the monotonic clock) on, over a window, in seconds of the rate."""
    await play.coordinator.wait_until(round(begin * NS))
    before, before_s = await sunk(play, totals)
    await wait(play, WINDOW_S - MARK_S)
    after, after_s = await sunk(play, totals)
    return (after_s - before_s) - (after - before) / rate


async def measure(options: argparse.Namespace) -> int:
    """Most, then half with revisions."""
    keepers, count = options.keepers, options.nodes
    places = placed(keepers, count)
    moving = max(1, round((keepers + SPOUTS) / 10))
    params: dict[str, Any] = {
        "keys": keepers * options.state_kb * 1000 // VALUE_BYTES,
        "value_bytes": VALUE_BYTES,
        "parallelism": {"spout": SPOUTS, "keep": keepers},
    }
    async with nodes(count) as on:
        async with run(on, "keyed-state", params, places, {"kind": "max"}) as (play, totals):
            await wait(play, 2.0)
            most = await rows_per_s(play, totals, 5.0)
        rate = most / 2
        print(f"{moving} of {keepers + SPOUTS} move; {most / 1e6:.2f} M rows/s at most, half offered; {load()}")
        losses, still, state = await revisions(on, params, places, rate, moving, options.moves)
        seen = [(again - before) / 1e6 for _, before, again in diary(on.folder / "diary")]
    per_mb = [each / max(1.0, state / 1e6) for each in seen]
    print(f"{len(seen)} moves of {state / 1e6:.2f} MB in {len(losses)} revisions; {load()}\n")
    print("| | median | p99 | limit | of it |\n|---|---|---|---|---|")
    high = percentile(per_mb, 0.99)
    print(f"| pause per MB, ms | {median(per_mb):.1f} | {high:.1f} | {PAUSE_MS:g} | {high / PAUSE_MS:.0%} |")
    for name, found in (("net loss, s of the rate", losses), ("the same without a revision", still)):
        share = f"{median(found) / LOSS_S:.0%}"
        print(f"| {name} | {median(found):.3f} | {percentile(found, 0.99):.3f} | {LOSS_S:g} | {share} (median) |")
    return 0


async def revisions(
    on: Ground, params: Mapping[str, Any], places: Mapping[str, str], rate: float, moving: int, count: int
) -> tuple[list[float], list[float], float]:
    """Net losses with and without a revision, by turns, and the mean state of a moved executor in bytes."""
    now = dict(places)
    names = [name for name in places if name.startswith("keep")]
    number = len(set(places.values()))
    plans = []
    for turn in range(count):
        requests = []
        for at in range(moving):
            name = names[(turn * moving + at) % len(names)]
            now[name] = f"n{(int(now[name][1 : now[name].index('/')]) + 1) % number}/0"
            requests.append(MoveRequest(name, now[name].partition("/")[0]))
        plans.append(MovePlan(FIRST_S + turn * EVERY_S + EVERY_S / 2 + MARK_S, tuple(requests)))
    losses, still = [], []
    offered = {"kind": "constant", "tuples_per_s": rate}
    kept = {**params, "diary": str(on.folder / "diary")}
    async with run(on, "keyed-state", kept, places, offered, checkpoint_s=3600.0, moves=tuple(plans)) as (play, totals):
        begun = monotonic()
        for turn in range(count):
            still.append(await lacking_s(play, totals, rate, begun + FIRST_S + turn * EVERY_S))
            losses.append(await lacking_s(play, totals, rate, begun + FIRST_S + turn * EVERY_S + EVERY_S / 2))
        event_log = play.coordinator.event_log
        if event_log.recoveries or any(entry.abandoned for entry in event_log.moves):
            raise SystemExit(f"not all moves were made: {event_log.recoveries} {event_log.moves}")
        done = event_log.moves
    return losses, still, sum(entry.state_bytes or 0 for entry in done) / len(done)


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=30, help="number of revisions")
    parser.add_argument("--keepers", type=int, default=18)
    parser.add_argument("--state-kb", type=int, default=1000, help="of each keeper")
    parser.add_argument("--nodes", type=int, default=3)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
