"""How long an executor pauses when it moves, by the size of its state: copied ahead of the barrier, or sent at it.

    .venv/bin/python benchmarks/dataplane/precopy.py [--moves 6] [--mb 1 10 107] [--value-bytes 100]

Two workers, two spouts and two keepers with so much state each, of which 1 % of the bytes change per second. One keeper
moves from worker to worker; runs whose state is copied ahead and runs whose state is not take turns, and all answers
are compared with the reference. Beside them, everything is stopped and started again, with as much state, which begins
anew. The pause is the reported one, from the last work in one place to the first in the
next; beside it what the keeper sees, which includes waiting for the next row. The total is the time from when the move
is due, or the one before it has ended, until the keeper works again; its limit is twice that of moves at the barrier.
For rows of the keeper that stays, the limit is twice the p99 latency of the two seconds before the first move.

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

from loopback import Ground, diary, load, nodes, restarts, run, wait

from controller.coordinator.barrier import MovePlan, MoveRequest

FIRST_S, EVERY_S = 4.0, 1.0
FILL_S_PER_MB, FILL_S_PER_KEY = 0.02, 2e-5
PLACES = {"spout[0]": "n0/0", "keep[0]": "n0/0", "spout[1]": "n1/0", "keep[1]": "n1/0"}
KEY_BYTES = 7
CHANGING_PER_S = 0.01


BEFORE_S = 2.0
"""How long rows of the keeper that stays are observed before the first move."""


@dataclass
class Moves:
    """Moves of one size and kind; times are in ms.

    Attributes:
        said, predicted, seen: pauses as reported, as predicted before, and as the keeper saw them.
        total: from when a move is due, or the one before it has ended, until the keeper works again.
        sent: MB per move.
        before, meanwhile: latencies of rows of the keeper that stays, before and while the other one moves, with their
            counts.
    """

    said: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    before: Counter[float] = field(default_factory=Counter)
    meanwhile: Counter[float] = field(default_factory=Counter)

    def __str__(self) -> str:
        """Return cells of a table."""
        expected = f"{median(self.predicted):.1f}" if self.predicted else "-"
        return (
            f"{median(self.said):.1f} ({max(self.said):.1f}) | {expected} | {median(self.seen):.1f} "
            f"| {median(self.sent):.1f} | {median(self.total):.0f} | {p99(self.before):.1f}, {p99(self.meanwhile):.1f}"
        )


def p99(latencies: Counter[float]) -> float:
    """Return the 99th percentile."""
    left = 0.01 * latencies.total()
    for value in sorted(latencies, reverse=True):
        left -= latencies[value]
        if left < 0:
            return value
    return float("nan")


def topology(megabytes: float, value_bytes: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parameters of the workload, and the rate."""
    keys = round(2 * megabytes * 1e6 / (value_bytes + KEY_BYTES))
    return {"keys": keys, "value_bytes": value_bytes}, {"kind": "constant", "tuples_per_s": keys * CHANGING_PER_S}


async def move_to_and_fro(megabytes: float, value_bytes: int, ahead: bool, count: int, found: Moves) -> None:
    """Move one keeper to and fro, and add to `found`.

    Comparing a large answer takes so long that agents miss heartbeats, so every run has its own.
    """
    async with nodes(2) as on:
        await _move(on, megabytes, value_bytes, ahead, count, found)


async def _move(on: Ground, megabytes: float, value_bytes: int, ahead: bool, count: int, found: Moves) -> None:
    file = on.folder / "diary"
    params, rate = topology(megabytes, value_bytes)
    params = {**params, "ahead": ahead, "diary": str(file)}
    first_s = FIRST_S + megabytes * FILL_S_PER_MB + params["keys"] * FILL_S_PER_KEY / 2
    plans = tuple(
        MovePlan(first_s + EVERY_S * at, (MoveRequest("keep[0]", f"n{(at + 1) % 2}"),)) for at in range(count)
    )
    async with run(on, "keyed-state", params, PLACES, rate, moves=plans) as (play, _):
        start_ns = time.monotonic_ns()
        moves = play.coordinator.event_log.moves
        while len(moves) < count:
            await wait(play, 0.5)
        ended_ns = time.monotonic_ns()
        await wait(play, 1.0)
        if any(move.abandoned for move in moves):
            raise SystemExit(f"not all moves were made: {moves}")
    free_s = 0.0
    for plan, move in zip(plans, moves, strict=True):
        pause_s, ended_s = move.pause_s or 0.0, move.at_s + (move.pause_s or 0.0)
        found.said.append(pause_s * 1e3)
        if move.predicted_s is not None:
            found.predicted.append(move.predicted_s * 1e3)
        found.sent.append((move.state_bytes or 0) / 1e6)
        found.total.append((ended_s - max(free_s, plan.at_s)) * 1e3)
        free_s = ended_s
    found.seen += [(again - before) / 1e6 for _, before, again in diary(file)]
    moving_ns = start_ns + round(first_s * 1e9)
    for row in play.traces()["latency"].to_pylist():
        if row["executor"] == "keep[1]":
            if moving_ns - BEFORE_S * 1e9 < row["t_ns"] <= moving_ns:
                found.before[row["value_ns"] / 1e6] += row["count"]
            elif moving_ns < row["t_ns"] <= ended_ns:
                found.meanwhile[row["value_ns"] / 1e6] += row["count"]


async def measure(options: argparse.Namespace) -> int:
    """All sizes."""
    print(f"{options.moves} moves of each size and kind; {load()}\n")
    print(
        "| state, MB | | pause, ms (worst) | predicted, ms | seen, ms | sent, MB | total, ms "
        "| p99 of others before, meanwhile, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for megabytes in options.mb:
        ahead, whole = Moves(), Moves()
        for turn in range(2):
            for found in (ahead, whole) if turn else (whole, ahead):
                count = (options.moves + 1 - turn) // 2
                if count:
                    await move_to_and_fro(megabytes, options.value_bytes, found is ahead, count, found)
        print(f"| {megabytes:g} | ahead | {ahead} |\n| | at the barrier | {whole} |", flush=True)
        print(
            f"| | times | {median(whole.said) / median(ahead.said):.1f} | | | "
            f"| {median(ahead.total) / median(whole.total):.2f} | |",
            flush=True,
        )
        async with nodes(2) as on:
            params, rate = topology(megabytes, options.value_bytes)
            stopped = await restarts(on, params, PLACES, rate, max(2, options.moves // 2))
        print(f"| | stop and restart | {median(stopped) * 1e3:.0f} ({max(stopped) * 1e3:.0f}) | | | | | |", flush=True)
    print(f"\n{load()}")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=6, help="of each size and kind")
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 10, 107], help="sizes of a keeper's state")
    parser.add_argument("--value-bytes", type=int, default=100, help="of each key; larger ones: fewer keys")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
