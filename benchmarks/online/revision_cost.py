"""Measure how long executors pause, and how much throughput is lost, when a tenth of all executors moves at half load.

    .venv/bin/python benchmarks/online/revision_cost.py [--revisions 30] [--bolts 18] [--state-kb 1000] [--nodes 3]

Two spouts and many bolts with `--state-kb` of state each, distributed round robin over the nodes. The maximum rate is
measured first; then sources run at half of it, and every five seconds a tenth of the executors moves to the next node
at one barrier, as in a revision.

Pause: from the last batch of a bolt in its old slot to its first in the new one, per MB of its state; the limit is
30 ms at p99. Net loss: rows that sinks have not processed two seconds later, in seconds of the rate, compared with the
same between two revisions; the limit is 0.1 s. Every answer is compared with the reference.

Example: .venv/bin/python benchmarks/online/revision_cost.py --revisions 5
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

from loopback import (
    Nodes,
    Run,
    Totals,
    load,
    percentile,
    read_batch_log,
    rows_per_s,
    start_nodes,
    start_run,
    wait,
)

from controller.coordinator.scripted_events import MoveExecutors, MoveRequest
from inventory.times import NS

PAUSE_MS, LOSS_S = 30.0, 0.1
VALUE_BYTES = 100
SPOUTS = 2
FIRST_S, INTERVAL_S, WINDOW_S, MARK_S = 4.0, 5.0, 2.0, 0.2


def round_robin(bolts: int, nodes: int) -> dict[str, str]:
    """Return a slot for every executor."""
    spouts = {f"spout[{at}]": f"n{at % nodes}/0" for at in range(SPOUTS)}
    return spouts | {f"count[{at}]": f"n{at % nodes}/0" for at in range(bolts)}


async def sink_rows(run: Run, totals: Totals) -> tuple[int, float]:
    """Request reports; return the rows into sinks, and the mean time of the reports."""
    await run.coordinator.mark("measure_start")
    await wait(run, MARK_S)
    return totals.sink_rows, totals.at_s


async def net_loss_s(run: Run, totals: Totals, rate: float, begin_s: float) -> float:
    """Return the rows missing at sinks after a window that begins at `begin_s`, in seconds of the rate."""
    await run.coordinator.wait_until(round(begin_s * NS))
    before, before_s = await sink_rows(run, totals)
    await wait(run, WINDOW_S - MARK_S)
    after, after_s = await sink_rows(run, totals)
    return (after_s - before_s) - (after - before) / rate


async def measure(options: argparse.Namespace) -> int:
    """Measure the maximum rate, then revisions at half of it, and print a table."""
    bolts, count = options.bolts, options.nodes
    places = round_robin(bolts, count)
    moving = max(1, round((bolts + SPOUTS) / 10))
    params: dict[str, Any] = {
        "keys": bolts * options.state_kb * 1000 // VALUE_BYTES,
        "value_bytes": VALUE_BYTES,
        "parallelism": {"spout": SPOUTS, "count": bolts},
    }
    async with start_nodes(count) as nodes:
        async with start_run(nodes, "keyed-state", params, places, {"kind": "max"}) as (run, totals):
            await wait(run, 2.0)
            maximum = await rows_per_s(run, totals, 5.0)
        rate = maximum / 2
        print(
            f"{moving} of {bolts + SPOUTS} executors move; maximum {maximum / 1e6:.2f} M rows/s, half offered; {load()}"
        )
        losses, baseline, state = await measure_revisions(nodes, params, places, rate, moving, options.revisions)
        pauses = [(after - before) / 1e6 for _, before, after in read_batch_log(nodes.folder / "batch_log")]
    per_mb = [pause / max(1.0, state / 1e6) for pause in pauses]
    print(f"{len(pauses)} moves of {state / 1e6:.2f} MB in {len(losses)} revisions; {load()}\n")
    print("| | median | p99 | limit | share of the limit |\n|---|---|---|---|---|")
    p99 = percentile(per_mb, 0.99)
    print(f"| pause per MB, ms | {median(per_mb):.1f} | {p99:.1f} | {PAUSE_MS:g} | {p99 / PAUSE_MS:.0%} |")
    for name, values in (("net loss, s of the rate", losses), ("the same without a revision", baseline)):
        share = f"{median(values) / LOSS_S:.0%}"
        print(f"| {name} | {median(values):.3f} | {percentile(values, 0.99):.3f} | {LOSS_S:g} | {share} (median) |")
    return 0


async def measure_revisions(
    nodes: Nodes, params: Mapping[str, Any], places: Mapping[str, str], rate: float, moving: int, count: int
) -> tuple[list[float], list[float], float]:
    """Return net losses with a revision and without, alternating, and the mean state of a moved executor in bytes."""
    current = dict(places)
    names = [name for name in places if name.startswith("count")]
    node_count = len(set(places.values()))
    plans = []
    for turn in range(count):
        requests = []
        for at in range(moving):
            name = names[(turn * moving + at) % len(names)]
            current[name] = f"n{(int(current[name][1 : current[name].index('/')]) + 1) % node_count}/0"
            requests.append(MoveRequest(name, current[name].partition("/")[0]))
        plans.append(MoveExecutors(FIRST_S + turn * INTERVAL_S + INTERVAL_S / 2 + MARK_S, tuple(requests)))
    losses, baseline = [], []
    offered = {"kind": "constant", "tuples_per_s": rate}
    params = {**params, "batch_log": str(nodes.folder / "batch_log")}
    async with start_run(nodes, "keyed-state", params, places, offered, checkpoint_s=3600.0, moves=tuple(plans)) as (
        run,
        totals,
    ):
        begun_s = monotonic()
        for turn in range(count):
            window_s = begun_s + FIRST_S + turn * INTERVAL_S
            baseline.append(await net_loss_s(run, totals, rate, window_s))
            losses.append(await net_loss_s(run, totals, rate, window_s + INTERVAL_S / 2))
        log = run.coordinator.event_log
        if log.recoveries or any(entry.abandoned for entry in log.moves):
            raise SystemExit(f"moves were abandoned, or the topology failed: {log.recoveries} {log.moves}")
        moves = log.moves
    return losses, baseline, sum(entry.state_bytes or 0 for entry in moves) / len(moves)


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revisions", type=int, default=30)
    parser.add_argument("--bolts", type=int, default=18)
    parser.add_argument("--state-kb", type=int, default=1000, help="state per bolt")
    parser.add_argument("--nodes", type=int, default=3)
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
