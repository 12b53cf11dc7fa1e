"""How long an executor pauses when it moves, by the size of its state: copied ahead of the barrier, or sent at it.

    .venv/bin/python benchmarks/dataplane/precopy.py [--moves 6] [--mb 1 10 107]

Two workers, two spouts and two keepers with so much state each, of which 1 % of the bytes change per second. One keeper
moves from worker to worker; runs whose state is copied ahead and runs whose state is not take turns, and all answers
are compared with the reference. The pause is the reported one, from the last work in one place to the first in the
next; beside it what the keeper sees, which includes waiting for the next row.

Example: .venv/bin/python benchmarks/dataplane/precopy.py --moves 2 --mb 1
"""

import argparse
import asyncio
import sys
from statistics import median

from loopback import Ground, diary, load, nodes, run, wait

from controller.coordinator.barrier import MovePlan, MoveRequest

FIRST_S, EVERY_S = 4.0, 1.0
PLACES = {"spout[0]": "n0/0", "keep[0]": "n0/0", "spout[1]": "n1/0", "keep[1]": "n1/0"}
VALUE_BYTES, KEY_BYTES = 100, 7
CHANGING_PER_S = 0.01


async def pauses(megabytes: float, ahead: bool, count: int) -> tuple[list[float], list[float], float]:
    """Move one keeper to and fro; return reported pauses and those it saw, in ms, and MB sent per move.

    Comparing a large answer takes so long that agents miss heartbeats, so every run has its own.
    """
    async with nodes(2) as on:
        return await _pauses(on, megabytes, ahead, count)


async def _pauses(on: Ground, megabytes: float, ahead: bool, count: int) -> tuple[list[float], list[float], float]:
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
    return said, [(again - before) / 1e6 for _, before, again in diary(file)], sent


async def measure(options: argparse.Namespace) -> int:
    """All sizes."""
    print(f"{options.moves} moves of each size and kind; {load()}\n")
    print("| state, MB | ahead: pause, ms (worst) | sent, MB | at the barrier: pause, ms (worst) | ratio | seen, ms |")
    print("|---|---|---|---|---|---|")
    for megabytes in options.mb:
        found: dict[bool, tuple[list[float], list[float], float]] = {True: ([], [], 0.0), False: ([], [], 0.0)}
        for turn in range(2):
            for ahead in (True, False) if turn else (False, True):
                said, seen, sent = await pauses(megabytes, ahead, (options.moves + 1 - turn) // 2)
                found[ahead] = (found[ahead][0] + said, found[ahead][1] + seen, sent)
        (copied, seen, sent), (whole, seen_whole, _) = found[True], found[False]
        print(
            f"| {megabytes:g} | {median(copied):.1f} ({max(copied):.1f}) | {sent:.1f} "
            f"| {median(whole):.1f} ({max(whole):.1f}) | {median(whole) / median(copied):.1f} "
            f"| {median(seen):.1f}, {median(seen_whole):.1f} |",
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
