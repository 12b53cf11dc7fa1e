"""How long a topology pauses when a component is scaled: live, by a restart, and by stopping everything.

    .venv/bin/python benchmarks/online/scaling.py [--scalings 4] [--mb 1 10] [--revisions 5]

Word count on two nodes, whose four `count` have so much state together before the first scaling. By turns, `count` gets
a fifth executor and loses it, while lines go on that change a hundredth of the words per second; once live, once by
restarts. Reported are the pause (live: of the executors that take over, from the barrier on; restart: until sources run
again), the total time since it was due, or since the one before, and the time in which no sink processes a row, to
0.1 s. Beside them, everything is stopped, drained and started again, with the same amount of state, that begins anew.
Then `count[0]` of a small word count moves by restarts, with processes kept and new. All answers of word count are
compared with the reference.

Example: .venv/bin/python benchmarks/online/scaling.py --scalings 2 --mb 1 10 --revisions 2
"""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import Ground, Play, load, nodes, restarts, wait

from agents.protocol import Message, Move, Progress, Slot, Stored
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules
from controller.coordinator.timeline import ScaleComponents
from inventory.times import NS
from workloads.workload import Workload, load_workload

SCALE_S, KEPT_S, NEW_S = 1.0, 0.5, 3.0
WORD_BYTES, WORDS_PER_LINE = 96, 10
SIZE = 4
PARALLELISM = {"spout": 2, "split": 2, "count": SIZE}
PLACES = {f"{name}[{at}]": f"n{at % 2}/0" for name, size in PARALLELISM.items() for at in range(size)}
EVERY_S, REPORT_S = 10.0, 0.1
LEAST_FILL_S, FILL_S_PER_MB = 3.0, 0.25
CHANGING_PER_S = 0.01


class Sinks:
    """Times at which sinks had processed more rows, and the size of their last stored state."""

    def __init__(self) -> None:
        self._processed: dict[tuple[int, str], int] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        self.at_s: list[float] = []

    @property
    def state_bytes(self) -> int:
        """Bytes of all `count` at the last barrier."""
        last = max((barrier for barrier, _ in self._stored.values()), default=0)
        return sum(nbytes for barrier, nbytes in self._stored.values() if barrier == last)

    def watch(self, way: str, _node: str, message: Message) -> None:
        """Watch what is heard."""
        if way == "heard" and isinstance(message, Stored) and message.executor.startswith("count"):
            self._stored[message.executor] = (message.barrier, message.nbytes)
        if way == "heard" and isinstance(message, Progress):
            sinks = {name: work for name, work in message.executors.items() if name.startswith("count")}
            for name, work in sinks.items():
                before = self._processed.setdefault((message.epoch, name), work.processed or 0)
                if (work.processed or 0) > before:
                    self.at_s.append(message.at_ns / NS)
                    self._processed[message.epoch, name] = work.processed or 0

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """Longest time without rows in an interval of the host's monotonic clock."""
        times = sorted(at for at in self.at_s if since_s <= at <= until_s)
        return max((after - before for before, after in pairwise(times)), default=float("nan"))


def word_count(folder: Path, megabytes: float) -> tuple[Workload, int]:
    """Word count of so many bytes of different words, and its number of lines."""
    lines = round(megabytes * 1e6 / WORD_BYTES / WORDS_PER_LINE)
    path = folder / f"words-{megabytes:g}.txt"
    with path.open("w") as file:
        for line in range(lines):
            words = (f"{line * WORDS_PER_LINE + at:0{WORD_BYTES}}" for at in range(WORDS_PER_LINE))
            file.write(" ".join(words) + "\n")
    return load_workload("wordcount", {"text": str(path), "ackers": 0, "parallelism": PARALLELISM}), lines


async def ask(play: Play) -> None:
    """Have workers report again and again."""
    while True:
        await play.coordinator.mark("measure_start")
        await asyncio.sleep(REPORT_S / 2)


class Times(NamedTuple):
    """Seconds of some scalings, and the state that there was."""

    paused: Sequence[float]
    total: Sequence[float]
    silent: Sequence[float]
    nbytes: int


async def scalings(on: Ground, megabytes: float, count: int, is_live: bool) -> Times:
    """Scale `count` to and fro, live or by restarts."""
    workload, lines = word_count(on.folder, megabytes)
    fill_s = max(LEAST_FILL_S, megabytes * FILL_S_PER_MB)
    # Twice the time that the first pass over all words should take.
    rate = {"kind": "steps", "steps": [[0, lines / fill_s], [fill_s, max(10.0, lines * CHANGING_PER_S)]]}
    times = [2 * fill_s + at * EVERY_S for at in range(count)]
    events = tuple(ScaleComponents(at_s, ("count",), SIZE + 1 - at % 2) for at, at_s in enumerate(times))
    # Without checkpoints, which would pause the topology, too.
    settings = ControlSettings(events=events, restart=None if is_live else RestartRules())
    sinks = Sinks()
    async with on.run(workload, PLACES, rate, settings, sinks.watch) as play:
        start_s = await play.coordinator.start() / NS
        await wait(play, times[0] - 1)
        asking = asyncio.create_task(ask(play))
        while len(play.coordinator.event_log.scalings) < count:
            await wait(play, 0.5)
        await wait(play, EVERY_S / 2)
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        found = play.coordinator.event_log.scalings
        await checked(play)
    ends = [(start_s + each.at_s, each.pause_s) for each in found]
    silent = [sinks.longest_gap_s(at_s - EVERY_S / 2, at_s + pause_s + EVERY_S / 2) for at_s, pause_s in ends]
    # One that takes longer than `EVERY_S` delays the next one.
    done = [each.at_s + each.pause_s for each in found]
    begun = [max(due_s, before) for due_s, before in zip(times, [0.0, *done], strict=False)]
    total = [end_s - begin_s for begin_s, end_s in zip(begun, done, strict=True)]
    return Times([each.pause_s for each in found], total, silent, sinks.state_bytes)


async def revisions(on: Ground, fresh: bool, count: int) -> Sequence[float]:
    """Pauses of revisions that a restart carries out."""
    workload, _ = word_count(on.folder, 0.1)
    settings = ControlSettings(restart=RestartRules(0.0, fresh))
    async with on.run(workload, PLACES, {"kind": "constant", "tuples_per_s": 1000.0}, settings) as play:
        await play.coordinator.start()
        for at in range(count):
            await wait(play, 1.5)
            move = Move("count[0]", Slot(f"n{(at + 1) % 2}", 0))
            carried = await play.coordinator._checkpoint_loop.carry(at + 1, [(move,)])
            if carried.outcome != "done":
                raise SystemExit(f"a revision was not carried out: {carried}")
        found = [each.pause_s or 0.0 for each in play.coordinator.event_log.moves]
        await wait(play, 1.0)
        await checked(play)
    return found


async def checked(play: Play) -> None:
    """End a run, whose answer must be right."""
    verdict = await play.end()
    if not verdict.passed or play.coordinator.event_log.recoveries:
        raise SystemExit(f"a run failed: {verdict.message} {play.coordinator.event_log.recoveries}")


async def stops(megabytes: float, count: int) -> Sequence[float]:
    """Pauses when everything is stopped and started again, with as much state that begins anew."""
    params: dict[str, Any] = {
        "keys": round(megabytes * 1e6 / WORD_BYTES),
        "value_bytes": WORD_BYTES,
        "parallelism": {"spout": 2, "keep": SIZE},
    }
    places = {name.replace("count", "keep"): slot for name, slot in PLACES.items() if "split" not in name}
    async with nodes(2) as on:
        return await restarts(on, params, places, {"kind": "constant", "tuples_per_s": 1000.0}, count)


def row(what: str, found: Sequence[float], limit: str) -> None:
    """Print a row of the table."""
    print(f"| {what} | {median(found):.3f} | {max(found):.3f} | {len(found)} | {limit} |", flush=True)


async def measure(options: argparse.Namespace) -> int:
    """All of it."""
    print(f"{load()}\n\n| s | median | longest | n | limit |\n|---|---|---|---|---|")
    ratios = []
    for megabytes in options.mb:
        async with nodes(2) as on:
            live = await scalings(on, megabytes, options.scalings, is_live=True)
        async with nodes(2) as on:
            restarted = await scalings(on, megabytes, options.scalings, is_live=False)
        stopped = await stops(megabytes, max(2, options.scalings // 2))
        for how, found in (("live", live), ("restart", restarted)):
            limit = f"{SCALE_S:g}" if how == "live" else ""
            row(f"{megabytes:g} MB, {how}: pause", found.paused, limit)
            row(f"{megabytes:g} MB, {how}: total", found.total, "")
            row(f"{megabytes:g} MB, {how}: without rows at sinks", found.silent, "")
        row(f"{megabytes:g} MB, stop and restart of everything", stopped, "")
        whole = median(stopped)
        ratios.append(
            f"{megabytes:g} MB ({restarted.nbytes / 1e6:.0f} MB stored): pause {median(live.paused) / whole:.3f} live, "
            f"{median(restarted.paused) / whole:.2f} by a restart; total {median(live.total) / whole:.2f} live, "
            f"{median(restarted.total) / whole:.2f} by a restart"
        )
    if options.revisions:
        async with nodes(2) as on:
            for what, fresh, limit in (("kept", False, KEPT_S), ("new", True, NEW_S)):
                found = await revisions(on, fresh, options.revisions)
                row(f"revision by a restart, processes {what}", found, f"{limit:g}")
    print("\nTimes of a stop and restart:", *ratios, load(), sep="\n")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalings", type=int, default=4)
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 10], help="sizes of the scaled component's state")
    parser.add_argument("--revisions", type=int, default=5, help="with processes kept, and with new ones")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
