"""Measure the pause of a moving executor by state size: state copied ahead of the barrier, or sent at the barrier.

    .venv/bin/python benchmarks/dataplane/precopy.py [--moves 6] [--mb 1 10 107] [--value-bytes 100]

Two workers, two spouts and two bolts with the given state each, of which 1 % of the bytes change per second. One bolt
moves between the workers. Runs with and without pre-copy alternate, and all answers are compared with the reference.
For comparison, the topology is stopped and restarted, with state of the same size that starts empty.

The pause is the reported one, from the last work in the old slot to the first in the new one. The pause that the bolt
observes also includes waiting for the next row. The total time starts when the move is due, or when the previous one
has ended, and lasts until the bolt works again; its limit is twice that of moves at the barrier. For rows of the bolt
that stays, the limit is twice the p99 latency of the two seconds before the first move.

Example: .venv/bin/python benchmarks/dataplane/precopy.py --moves 2 --mb 1
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from loopback import Nodes, load, read_batch_log, start_nodes, start_run, stop_and_restart, wait

from controller.coordinator.scripted_events import MoveExecutors, MoveRequest

FIRST_S, INTERVAL_S = 4.0, 1.0
FILL_S_PER_MB, FILL_S_PER_KEY = 0.02, 2e-5
PLACES = {"spout[0]": "n0/0", "count[0]": "n0/0", "spout[1]": "n1/0", "count[1]": "n1/0"}
KEY_BYTES = 7
CHANGING_PER_S = 0.01


BASELINE_S = 2.0
"""Time before the first move in which the latency of the bolt that stays is measured."""


@dataclass
class Moves:
    """Moves of one state size and kind; times are in ms.

    Attributes:
        reported, predicted, observed: pauses as reported, as predicted in advance, and as observed by the bolt.
        total: from when a move is due, or the previous one has ended, until the bolt works again.
        sent: MB per move.
        before, during: number of rows of the bolt that stays by latency, before the moves and during them.
    """

    reported: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    observed: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    before: Counter[float] = field(default_factory=Counter)
    during: Counter[float] = field(default_factory=Counter)

    def __str__(self) -> str:
        """Return the cells of a table row."""
        predicted = f"{median(self.predicted):.1f}" if self.predicted else "-"
        return (
            f"{median(self.reported):.1f} ({max(self.reported):.1f}) | {predicted} | {median(self.observed):.1f} "
            f"| {median(self.sent):.1f} | {median(self.total):.0f} | {p99(self.before):.1f}, {p99(self.during):.1f}"
        )


def p99(latencies: Counter[float]) -> float:
    """Return the 99th percentile."""
    left = 0.01 * latencies.total()
    for value in sorted(latencies, reverse=True):
        left -= latencies[value]
        if left < 0:
            return value
    return float("nan")


def workload(megabytes: float, value_bytes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of the workload, and its rate."""
    keys = round(2 * megabytes * 1e6 / (value_bytes + KEY_BYTES))
    return {"keys": keys, "value_bytes": value_bytes}, {"kind": "constant", "tuples_per_s": keys * CHANGING_PER_S}


async def measure_moves(megabytes: float, value_bytes: int, precopy: bool, count: int, results: Moves) -> None:
    """Move one bolt `count` times between two nodes, and add to `results`.

    Every run has its own agents, because they miss heartbeats while a large answer is compared.
    """
    async with start_nodes(2) as nodes:
        await _measure_moves(nodes, megabytes, value_bytes, precopy, count, results)


async def _measure_moves(
    nodes: Nodes, megabytes: float, value_bytes: int, precopy: bool, count: int, results: Moves
) -> None:
    file = nodes.folder / "batch_log"
    params, rate = workload(megabytes, value_bytes)
    params = {**params, "precopy": precopy, "batch_log": str(file)}
    first_s = FIRST_S + megabytes * FILL_S_PER_MB + params["keys"] * FILL_S_PER_KEY / 2
    plans = tuple(
        MoveExecutors(first_s + INTERVAL_S * at, (MoveRequest("count[0]", f"n{(at + 1) % 2}"),)) for at in range(count)
    )
    async with start_run(nodes, "keyed-state", params, PLACES, rate, moves=plans) as (run, _):
        start_ns = time.monotonic_ns()
        moves = run.coordinator.event_log.moves
        while len(moves) < count:
            await wait(run, 0.5)
        ended_ns = time.monotonic_ns()
        await wait(run, 1.0)
        if any(move.abandoned for move in moves):
            raise SystemExit(f"moves were abandoned: {moves}")
    previous_ended_s = 0.0
    for plan, move in zip(plans, moves, strict=True):
        pause_s, ended_s = move.pause_s or 0.0, move.at_s + (move.pause_s or 0.0)
        results.reported.append(pause_s * 1e3)
        if move.predicted_s is not None:
            results.predicted.append(move.predicted_s * 1e3)
        results.sent.append((move.state_bytes or 0) / 1e6)
        results.total.append((ended_s - max(previous_ended_s, plan.at_s)) * 1e3)
        previous_ended_s = ended_s
    results.observed += [(after - before) / 1e6 for _, before, after in read_batch_log(file)]
    moving_ns = start_ns + round(first_s * 1e9)
    for row in run.traces()["latency"].to_pylist():
        if row["executor"] == "count[1]":
            if moving_ns - BASELINE_S * 1e9 < row["t_ns"] <= moving_ns:
                results.before[row["value_ns"] / 1e6] += row["count"]
            elif moving_ns < row["t_ns"] <= ended_ns:
                results.during[row["value_ns"] / 1e6] += row["count"]


async def measure(options: argparse.Namespace) -> int:
    """Measure all sizes, and print a table."""
    print(f"{options.moves} moves of each size and kind; {load()}\n")
    print(
        "| state, MB | | pause, ms (longest) | predicted, ms | observed by the bolt, ms | sent, MB | total, ms "
        "| p99 of the other bolt before, during, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for megabytes in options.mb:
        ahead, at_barrier = Moves(), Moves()
        for turn in range(2):
            for results in (ahead, at_barrier) if turn else (at_barrier, ahead):
                count = (options.moves + 1 - turn) // 2
                if count:
                    await measure_moves(megabytes, options.value_bytes, results is ahead, count, results)
        print(f"| {megabytes:g} | pre-copy | {ahead} |\n| | at the barrier | {at_barrier} |", flush=True)
        print(
            f"| | pause: barrier / pre-copy; total: pre-copy / barrier "
            f"| {median(at_barrier.reported) / median(ahead.reported):.1f} | | | "
            f"| {median(ahead.total) / median(at_barrier.total):.2f} | |",
            flush=True,
        )
        async with start_nodes(2) as nodes:
            params, rate = workload(megabytes, options.value_bytes)
            stopped = await stop_and_restart(nodes, params, PLACES, rate, max(2, options.moves // 2))
        print(f"| | stop and restart | {median(stopped) * 1e3:.0f} ({max(stopped) * 1e3:.0f}) | | | | | |", flush=True)
    print(f"\n{load()}")
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=6, help="number per size and kind")
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 10, 107], help="sizes of a bolt's state")
    parser.add_argument("--value-bytes", type=int, default=100, help="state per key; larger values mean fewer keys")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
