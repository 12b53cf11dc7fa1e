"""Measure how long a topology pauses when a component is scaled: live, by a restart, and by stopping everything.

    .venv/bin/python benchmarks/online/scaling.py [--scalings 4] [--mb 1 10] [--revisions 5]

Word count on two nodes. Its four `count` executors have `--mb` of state together before the first scaling. A fifth
executor of `count` is added and removed alternately, while a hundredth of the words changes per second; one run scales
live, the other by restarts. The results are the pause (live: of the executors that take over, from the barrier on;
restart: until sources run again), the total time since the scaling was due or the previous one ended, and the longest
time in which no sink processes a row, with a resolution of 0.1 s. For comparison, the topology is stopped, drained and
started again, with state of the same size that starts empty. Then `count[0]` of a small word count moves by restarts,
with kept processes and with new ones. All answers of word count are compared with the reference.

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

from loopback import Nodes, Run, load, start_nodes, stop_and_restart, wait

from agents.protocol import Message, MoveToPlace, Progress, Slot, Stored
from controller.coordinator.checkpoint_loop import ControlSettings
from controller.coordinator.interfaces import RestartRules
from controller.coordinator.scripted_events import ScaleComponents
from inventory.times import NS
from workloads.workload import Workload, load_workload

SCALE_S, KEPT_S, NEW_S = 1.0, 0.5, 3.0
WORD_BYTES, WORDS_PER_LINE = 96, 10
SIZE = 4
PARALLELISM = {"spout": 2, "split": 2, "count": SIZE}
PLACES = {f"{name}[{at}]": f"n{at % 2}/0" for name, size in PARALLELISM.items() for at in range(size)}
INTERVAL_S, REPORT_S = 10.0, 0.1
MIN_FILL_S, FILL_S_PER_MB = 3.0, 0.25
CHANGING_PER_S = 0.01


class SinkReports:
    """Times of the reports in which sinks had processed more rows than before, and the size of their last state."""

    def __init__(self) -> None:
        self._processed: dict[tuple[int, str], int] = {}
        self._stored: dict[str, tuple[int, int]] = {}
        self.at_s: list[float] = []

    @property
    def state_bytes(self) -> int:
        """Bytes of all `count` executors at the last barrier."""
        last = max((barrier for barrier, _ in self._stored.values()), default=0)
        return sum(nbytes for barrier, nbytes in self._stored.values() if barrier == last)

    def record(self, _direction: str, _node: str, message: Message) -> None:
        """Record a report; other messages are ignored."""
        if isinstance(message, Stored) and message.executor.startswith("count"):
            self._stored[message.executor] = (message.barrier, message.nbytes)
        if isinstance(message, Progress):
            sinks = {name: work for name, work in message.executors.items() if name.startswith("count")}
            for name, work in sinks.items():
                before = self._processed.setdefault((message.epoch, name), work.processed or 0)
                if (work.processed or 0) > before:
                    self.at_s.append(message.at_ns / NS)
                    self._processed[message.epoch, name] = work.processed or 0

    def longest_gap_s(self, since_s: float, until_s: float) -> float:
        """Return the longest time without rows in an interval of the host's monotonic clock."""
        times = sorted(at for at in self.at_s if since_s <= at <= until_s)
        return max((after - before for before, after in pairwise(times)), default=float("nan"))


def word_count(folder: Path, megabytes: float) -> tuple[Workload, int]:
    """Return word count of different words of the given size in total, and its number of lines."""
    lines = round(megabytes * 1e6 / WORD_BYTES / WORDS_PER_LINE)
    path = folder / f"words-{megabytes:g}.txt"
    with path.open("w") as file:
        for line in range(lines):
            words = (f"{line * WORDS_PER_LINE + at:0{WORD_BYTES}}" for at in range(WORDS_PER_LINE))
            file.write(" ".join(words) + "\n")
    return load_workload("wordcount", {"text": str(path), "ackers": 0, "parallelism": PARALLELISM}), lines


async def request_reports(run: Run) -> None:
    """Request reports of workers until cancelled."""
    while True:
        await run.coordinator.mark("measure_start")
        await asyncio.sleep(REPORT_S / 2)


class Times(NamedTuple):
    """Seconds of scalings, and the size of the state."""

    paused: Sequence[float]
    total: Sequence[float]
    without_rows: Sequence[float]
    nbytes: int


async def measure_scalings(nodes: Nodes, megabytes: float, count: int, is_live: bool) -> Times:
    """Scale the component `count` up and down, live or by restarts."""
    workload, lines = word_count(nodes.folder, megabytes)
    fill_s = max(MIN_FILL_S, megabytes * FILL_S_PER_MB)
    # The first scaling is due after twice the time of the first pass over all words.
    rate = {"kind": "steps", "steps": [[0, lines / fill_s], [fill_s, max(10.0, lines * CHANGING_PER_S)]]}
    times = [2 * fill_s + at * INTERVAL_S for at in range(count)]
    events = tuple(ScaleComponents(at_s, ("count",), SIZE + 1 - at % 2) for at, at_s in enumerate(times))
    # No checkpoints, because they pause the topology, too.
    settings = ControlSettings(events=events, restart=None if is_live else RestartRules())
    sinks = SinkReports()
    async with nodes.run(workload, PLACES, rate, settings, sinks.record) as run:
        start_s = await run.coordinator.start() / NS
        await wait(run, times[0] - 1)
        requests = asyncio.create_task(request_reports(run))
        while len(run.coordinator.event_log.scalings) < count:
            await wait(run, 0.5)
        await wait(run, INTERVAL_S / 2)
        requests.cancel()
        with suppress(asyncio.CancelledError):
            await requests
        scalings = run.coordinator.event_log.scalings
        await end_run(run)
    margin_s = INTERVAL_S / 2
    without_rows = [
        sinks.longest_gap_s(start_s + each.at_s - margin_s, start_s + each.at_s + each.pause_s + margin_s)
        for each in scalings
    ]
    # A scaling that takes longer than `INTERVAL_S` delays the next one.
    done = [each.at_s + each.pause_s for each in scalings]
    begun = [max(due_s, before) for due_s, before in zip(times, [0.0, *done], strict=False)]
    total = [end_s - begin_s for begin_s, end_s in zip(begun, done, strict=True)]
    return Times([each.pause_s for each in scalings], total, without_rows, sinks.state_bytes)


async def measure_revisions(nodes: Nodes, new_processes: bool, count: int) -> Sequence[float]:
    """Return the pauses of revisions that are executed by a restart."""
    workload, _ = word_count(nodes.folder, 0.1)
    settings = ControlSettings(restart=RestartRules(0.0, new_processes))
    async with nodes.run(workload, PLACES, {"kind": "constant", "tuples_per_s": 1000.0}, settings) as run:
        await run.coordinator.start()
        for at in range(count):
            await wait(run, 1.5)
            move = MoveToPlace("count[0]", Slot(f"n{(at + 1) % 2}", 0))
            carried = await run.coordinator._checkpoint_loop.carry(at + 1, [(move,)])
            if carried.outcome != "done":
                raise SystemExit(f"a revision was not executed: {carried}")
        pauses = [each.pause_s or 0.0 for each in run.coordinator.event_log.moves]
        await wait(run, 1.0)
        await end_run(run)
    return pauses


async def end_run(run: Run) -> None:
    """End a run and check its answer."""
    verdict = await run.end()
    if not verdict.passed or run.coordinator.event_log.recoveries:
        raise SystemExit(f"a run failed: {verdict.message} {run.coordinator.event_log.recoveries}")


async def measure_stop_and_restart(megabytes: float, count: int) -> Sequence[float]:
    """Return the pauses when everything is stopped and started again, with state of the same size that starts empty."""
    params: dict[str, Any] = {
        "keys": round(megabytes * 1e6 / WORD_BYTES),
        "value_bytes": WORD_BYTES,
        "parallelism": {"spout": 2, "count": SIZE},
    }
    places = {name: slot for name, slot in PLACES.items() if "split" not in name}
    async with start_nodes(2) as nodes:
        return await stop_and_restart(nodes, params, places, {"kind": "constant", "tuples_per_s": 1000.0}, count)


def print_row(name: str, seconds: Sequence[float], limit: str) -> None:
    """Print a row of the table."""
    print(f"| {name} | {median(seconds):.3f} | {max(seconds):.3f} | {len(seconds)} | {limit} |", flush=True)


async def measure(options: argparse.Namespace) -> int:
    """Measure all sizes, and print a table."""
    print(f"{load()}\n\n| s | median | longest | n | limit |\n|---|---|---|---|---|")
    ratios = []
    for megabytes in options.mb:
        async with start_nodes(2) as nodes:
            live = await measure_scalings(nodes, megabytes, options.scalings, is_live=True)
        async with start_nodes(2) as nodes:
            restarted = await measure_scalings(nodes, megabytes, options.scalings, is_live=False)
        stopped = await measure_stop_and_restart(megabytes, max(2, options.scalings // 2))
        for how, times in (("live", live), ("restart", restarted)):
            limit = f"{SCALE_S:g}" if how == "live" else ""
            print_row(f"{megabytes:g} MB, {how}: pause", times.paused, limit)
            print_row(f"{megabytes:g} MB, {how}: total", times.total, "")
            print_row(f"{megabytes:g} MB, {how}: without rows at sinks", times.without_rows, "")
        print_row(f"{megabytes:g} MB, stop and restart of everything", stopped, "")
        whole = median(stopped)
        ratios.append(
            f"{megabytes:g} MB ({restarted.nbytes / 1e6:.0f} MB stored): pause {median(live.paused) / whole:.3f} live, "
            f"{median(restarted.paused) / whole:.2f} by a restart; total {median(live.total) / whole:.2f} live, "
            f"{median(restarted.total) / whole:.2f} by a restart"
        )
    if options.revisions:
        async with start_nodes(2) as nodes:
            for kind, new_processes, limit_s in (("kept", False, KEPT_S), ("new", True, NEW_S)):
                pauses = await measure_revisions(nodes, new_processes, options.revisions)
                print_row(f"revision by a restart, {kind} processes", pauses, f"{limit_s:g}")
    print("\nAs a multiple of a stop and restart:", *ratios, load(), sep="\n")
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scalings", type=int, default=4, help="number per size and kind")
    parser.add_argument("--mb", type=float, nargs="+", default=[1, 10], help="sizes of the scaled component's state")
    parser.add_argument("--revisions", type=int, default=5, help="number per kind of processes")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
