"""How long an executor pauses when it moves, by the size of its state: copied ahead of the barrier, or sent at it.

    .venv/bin/python benchmarks/dataplane/precopy.py [--moves 6] [--mb 1 10 107]

Two workers, two spouts and two keepers with so much state each, of which 1 % of the bytes change per second. One keeper
moves from worker to worker; runs whose state is copied ahead and runs whose state is not take turns, and all answers
are compared with the reference. The pause is the reported one, from the last work in one place to the first in the
next; beside it what the keeper sees, which includes waiting for the next row. The total is the time from when the move
is due, or the one before it has ended, until the keeper works again; its limit is twice that of moves at the barrier.

Example: .venv/bin/python benchmarks/dataplane/precopy.py --moves 2 --mb 1
"""

import argparse
import asyncio
import sys
from statistics import median
from typing import NamedTuple

from loopback import Ground, diary, load, nodes, run, wait

from controller.coordinator.barrier import MovePlan, MoveRequest

FIRST_S, EVERY_S = 4.0, 1.0
PLACES = {"spout[0]": "n0/0", "keep[0]": "n0/0", "spout[1]": "n1/0", "keep[1]": "n1/0"}
VALUE_BYTES, KEY_BYTES = 100, 7
CHANGING_PER_S = 0.01


class Moved(NamedTuple):
    """Reported pauses, those that the keeper saw, and total times, in ms, and MB sent per move."""

    said: list[float]
    seen: list[float]
    total: list[float]
    sent: float


async def pauses(megabytes: float, ahead: bool, count: int) -> Moved:
    """Move one keeper to and fro.

    Comparing a large answer takes so long that agents miss heartbeats, so every run has its own.
    """
    async with nodes(2) as on:
        return await _pauses(on, megabytes, ahead, count)


async def _pauses(on: Ground, megabytes: float, ahead: bool, count: int) -> Moved:
    keys = round(2 * megabytes * 1e6 / (VALUE_BYTES + KEY_BYTES))
    file = on.folder / f"diary-{megabytes}-{ahead}-{count}"
    file.unlink(missing_ok=True)
    params = {"keys": keys, "value_bytes": VALUE_BYTES, "ahead": ahead, "diary": str(file)}
    rate = {"kind": "constant", "tuples_per_s": keys * CHANGING_PER_S}
    plans = tuple(
        MovePlan(FIRST_S + EVERY_S * at, (MoveRequest("keep[0]", f"n{(at + 1) % 2}"),)) for at in range(count)
    )
    async with run(on, "keyed-state", params, PLACES, rate, moves=plans) as (play, _):
        moves = play.coordinator.event_log.moves
        while len(moves) < count:
            await wait(play, 0.5)
        await wait(play, 1.0)
        if any(move.abandoned for move in moves):
            raise SystemExit(f"not all moves were made: {moves}")
        said = [(move.pause_s or 0.0) * 1e3 for move in moves]
        sent = median((move.state_bytes or 0) / 1e6 for move in moves)
        total, free_s = list[float](), 0.0
        for plan, move in zip(plans, moves, strict=True):
            ended_s = move.at_s + (move.pause_s or 0.0)
            total.append((ended_s - max(free_s, plan.at_s)) * 1e3)
            free_s = ended_s
    return Moved(said, [(again - before) / 1e6 for _, before, again in diary(file)], total, sent)


async def measure(options: argparse.Namespace) -> int:
    """All sizes."""
    print(f"{options.moves} moves of each size and kind; {load()}\n")
    print(
        "| state, MB | ahead: pause, ms (worst) | sent, MB | at the barrier: pause, ms (worst) | ratio | seen, ms "
        "| total, ms | times that at the barrier |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for megabytes in options.mb:
        found = {ahead: Moved([], [], [], 0.0) for ahead in (True, False)}
        for turn in range(2):
            for ahead in (True, False) if turn else (False, True):
                more = await pauses(megabytes, ahead, (options.moves + 1 - turn) // 2)
                before = found[ahead]
                found[ahead] = Moved(
                    before.said + more.said, before.seen + more.seen, before.total + more.total, more.sent
                )
        (copied, seen, total, sent), (whole, seen_whole, total_whole, _) = found[True], found[False]
        print(
            f"| {megabytes:g} | {median(copied):.1f} ({max(copied):.1f}) | {sent:.1f} "
            f"| {median(whole):.1f} ({max(whole):.1f}) | {median(whole) / median(copied):.1f} "
            f"| {median(seen):.1f}, {median(seen_whole):.1f} | {median(total):.0f}, {median(total_whole):.0f} "
            f"| {median(total) / median(total_whole):.1f} |",
            flush=True,
        )
    print(f"\n{load()}")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moves", type=int, default=6, help="of each size and kind")
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 10, 107], help="sizes of a keeper's state")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
