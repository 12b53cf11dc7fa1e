"""What an online scheduler that never revises adds to the CPU time of a run.

    .venv/bin/python benchmarks/online/idle.py [--pairs 9] [--windows 3] [--words-per-s 60000] [--static]

WordCount with a running count on two workers, at a fixed rate, with the sensor `cpu`. Pairs of runs at the same time,
each with a controller and agents of its own: one static, one observed, with `matrix`, which is asked every five seconds
and changes nothing. Whatever else the machine does meets both alike. Of windows of five seconds, the CPU time of agents
and workers, and of these, the controller and the scheduler's process. For each pair the median over its windows of the
ratio in the same window; of these the median over the pairs with its 95 % interval (order statistics): processes differ
by how their memory happens to lie, which windows of one pair do not show. The limit is 1 %: undecided if the interval
spans it. Beside it, the 99th percentile of the latency of each run, from its traces. `--static` compares two static
runs: what this measurement itself shows. Every answer is compared with the reference.

Example: .venv/bin/python benchmarks/online/idle.py --pairs 3 --windows 2
"""

import argparse
import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from itertools import pairwise
from math import comb, inf
from pathlib import Path
from statistics import fmean, median
from time import monotonic_ns

import psutil

sys.path.append(str(Path(__file__).parents[1] / "dataplane"))

from loopback import cpu_s, load, nodes, processes, run, wait

from controller.coordinator.decider import Decider
from controller.coordinator.online_loop import OnlineSettings
from controller.coordinator.rescheduling import RevisionSettings
from inventory.cluster import Cluster, Node
from scheduler.deciding import SchedulerInFile
from scheduler.online.revision import Rhythm
from scheduler.problem import Problem
from workloads.workload import load_workload

WARM_UP_S = 6.0
"""The first question is part of it."""
ASK_S = 5.0
RHYTHM = Rhythm(window_s=4, first_s=4, ask_s=ASK_S)
LIMIT = 0.01
PARAMS = {"parallelism": dict.fromkeys(("spout", "split", "count", "out"), 2), "ackers": 0}
WHAT = ("nodes", "nodes, controller, scheduler")


async def one(online: bool, words_per_s: float) -> None:
    """A run that says which processes it has, goes on until its standard input ends, and is checked."""
    async with nodes(2) as on:
        (prepared,) = load_workload("wordcount", {}).prepare(on.folder / "text")
        words_per_line = len(prepared.path.read_text(encoding="utf-8").split()) / prepared.records
        rate = {"kind": "constant", "tuples_per_s": words_per_s / words_per_line}
        topology = load_workload("running-count", PARAMS).topology()
        places = {entry.name: f"n{entry.index % 2}/0" for entry in topology.executors}
        settings = None
        if online:
            cluster = Cluster(tuple(Node(id=f"n{at}") for at in range(2)))
            decider = Decider(SchedulerInFile("matrix", {}), on.folder / "decisions", on.folder / "log", 30.0)
            settings = OnlineSettings(decider, RHYTHM, RevisionSettings(), Problem(cluster, (topology,)), inf, {})
        async with run(on, "running-count", PARAMS, places, rate, settings, sensors=("cpu",)) as (play, totals):
            begun_ns = monotonic_ns()
            await wait(play, WARM_UP_S)
            of_nodes = [process.pid for process in processes(on)]
            own = [os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))]
            print(json.dumps([of_nodes, sorted({*own, *of_nodes})]), flush=True)
            begun, before = asyncio.get_running_loop().time(), totals.emitted
            ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
            while not ended.done():
                await wait(play, 0.2)
            seconds, emitted = asyncio.get_running_loop().time() - begun, totals.emitted - before
            decisions = play.coordinator.event_log.revisions
            if online and (not decisions or any(each.outcome != "no" for each in decisions)):
                raise SystemExit(f"the scheduler was to be asked and to say no: {decisions}")
            # Reports come once a second.
            if abs(emitted * words_per_line / words_per_s - seconds) > 2 + 0.01 * seconds:
                raise SystemExit(f"{emitted * words_per_line / seconds:,.0f} words/s instead of {words_per_s:,.0f}")
            ended_ns = monotonic_ns()
        rows = play.traces()["latency"].to_pylist()
        # Those of the warm-up and of the end are left out.
        settled = sorted((r["value_ns"], r["count"]) for r in rows if begun_ns + WARM_UP_S * 1e9 < r["t_ns"] < ended_ns)
        left = 0.01 * sum(count for _, count in settled)
        while settled and left >= 0:
            value_ns, count = settled.pop()
            left -= count
        print(json.dumps(value_ns / 1e6))


async def started(way: str, words_per_s: float) -> tuple[Process, Sequence[Sequence[psutil.Process]]]:
    """A run in processes of its own: its controller, and its processes as in `WHAT`."""
    command = (sys.executable, __file__, "--one", way, "--words-per-s", str(words_per_s))
    controller = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert controller.stdout is not None
    line = await controller.stdout.readline()
    if not line:
        raise SystemExit("a run did not start")
    return controller, [[psutil.Process(pid) for pid in pids] for pids in json.loads(line)]


async def ended(controller: Process) -> float:
    """End a run, and return the 99th percentile of its latency in ms."""
    said, _ = await controller.communicate(b"")
    if controller.returncode:
        raise SystemExit("a run failed")
    return float(said)


async def windows_of(
    ways: Sequence[str], words_per_s: float, windows: int
) -> tuple[list[list[list[float]]], list[float]]:
    """Two runs at the same time: CPU seconds by what is counted (as in `WHAT`), run and window; and their p99 in ms."""
    runs = await asyncio.gather(*(started(way, words_per_s) for way in ways))
    marks = []
    try:
        for at in range(windows + 1):
            await asyncio.sleep(ASK_S if at else 0)
            marks.append([[cpu_s(group) for group in groups] for _, groups in runs])
    finally:
        late = await asyncio.gather(*(ended(controller) for controller, _ in runs))
    return [
        [[after[at][what] - before[at][what] for before, after in pairwise(marks)] for at in range(len(ways))]
        for what in range(len(WHAT))
    ], late


def interval(values: Sequence[float]) -> tuple[float, float]:
    """At least 95 % confidence for the median, by order statistics; the whole range of fewer than nine values."""
    count = len(values)
    below = 0
    while 2 * sum(comb(count, at) for at in range(below + 1)) <= 0.05 * 2**count:
        below += 1
    least = max(below - 1, 0)
    found = sorted(values)
    return found[least], found[count - 1 - least]


def verdict(low: float, high: float) -> str:
    """Whether the limit is kept."""
    return "kept" if high <= LIMIT else "missed" if low > LIMIT else "undecided"


async def measure(options: argparse.Namespace) -> int:
    """Pair after pair; print."""
    ways = ("static", "static" if options.static else "online")
    seconds: list[list[list[float]]] = []
    added: list[list[float]] = []
    p99: list[list[float]] = []
    for number in range(options.pairs):
        # Which one starts first alternates.
        order = (0, 1) if number % 2 else (1, 0)
        found, late = await windows_of([ways[at] for at in order], options.words_per_s, options.windows)
        p99.append([late[order.index(at)] for at in (0, 1)])
        costs = [[each[order.index(at)] for at in (0, 1)] for each in found]
        seconds.append([[fmean(cost) for cost in each] for each in costs])
        added.append([median(b / a for a, b in zip(*each, strict=True)) - 1 for each in costs])
        words = ", ".join(f"{what} {share:+.2%}" for what, share in zip(WHAT, added[-1], strict=True))
        words += f"; p99 {p99[-1][0]:.2f} -> {p99[-1][1]:.2f} ms"
        print(f"pair {number + 1}, {ways[0]} -> {ways[1]}: {words}; {load()}", flush=True)
    million = options.words_per_s * ASK_S / 1e6
    print(f"\n| CPU s per million words | {ways[0]} | {ways[1]} | added, median | 95 % interval | limit | |")
    print("|---|---|---|---|---|---|---|")
    for at, what in enumerate(WHAT):
        shares = [each[at] for each in added]
        low, high = interval(shares)
        static, online = (median(each[at][way] for each in seconds) / million for way in (0, 1))
        bound = f"{low:+.2%} to {high:+.2%} | {LIMIT:.0%} | {verdict(low, high)}"
        print(f"| {what} | {static:.4f} | {online:.4f} | {median(shares):+.2%} | {bound} |")
    ratios = [online / static - 1 for static, online in p99]
    low, high = interval(ratios)
    static, online = (median(each[way] for each in p99) for way in (0, 1))
    print(
        f"| p99 latency, ms | {static:.2f} | {online:.2f} | {median(ratios):+.1%} | {low:+.1%} to {high:+.1%} | 0 % | |"
    )
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--windows", type=int, default=3, help=f"of {ASK_S:g} s, of each pair")
    parser.add_argument("--words-per-s", type=float, default=60_000.0, help="of each run")
    parser.add_argument("--static", action="store_true", help="compare two static runs")
    parser.add_argument("--one", choices=("static", "online"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        asyncio.run(one(options.one == "online", options.words_per_s))
        return 0
    return asyncio.run(measure(options))


if __name__ == "__main__":
    sys.exit(main())
