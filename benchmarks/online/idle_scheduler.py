"""Measure the CPU time that an online scheduler without revisions adds to a run.

    .venv/bin/python benchmarks/online/idle_scheduler.py [--pairs 9] [--windows 3] [--words-per-s 60000] [--static]

WordCount with a running count on two workers, at a fixed rate, with the sensor `cpu`. The two runs of a pair execute at
the same time, each with its own controller and agents, so that other programs on the machine affect both equally. One
is static; the other is observed, and its scheduler, `matrix`, is invoked every five seconds and changes nothing.

The CPU time is measured in windows of five seconds: of agents and workers, and of these plus the controller and the
scheduler's process. Each pair yields the median over its windows of the ratio in the same window. The result is the
median over the pairs with its 95 % interval (order statistics); pairs rather than windows are compared, because
processes differ in their memory layout. The limit is 1 %: undecided if the interval contains it. The 99th percentile of
the latency of each run is taken from its traces. `--static` compares two static runs, which shows the noise of this
measurement. Every answer is compared with the reference.

Example: .venv/bin/python benchmarks/online/idle_scheduler.py --pairs 3 --windows 2
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

from loopback import cpu_s, load, processes, start_nodes, start_run, wait

from controller.coordinator.decider import Decider
from controller.coordinator.online_loop import OnlineSettings
from controller.coordinator.rescheduling import RevisionSettings
from inventory.cluster import Cluster, Node
from scheduler.deciding import SchedulerInFile
from scheduler.online.revision import Rhythm
from scheduler.problem import Problem
from workloads.workload import load_workload

WARM_UP_S = 6.0
"""Includes the first decision."""
DECISION_S = 5.0
RHYTHM = Rhythm(window_s=4, first_s=4, ask_s=DECISION_S)
LIMIT = 0.01
PARAMS = {"parallelism": dict.fromkeys(("spout", "split", "count", "out"), 2), "ackers": 0}
SCOPES = ("nodes", "nodes, controller, scheduler")
"""Groups of processes whose CPU time is measured."""


async def run_until_eof(online: bool, words_per_s: float) -> None:
    """Run the topology until the end of the standard input.

    Prints the process ids of each scope, and at the end the 99th percentile of the latency in ms.
    """
    async with start_nodes(2) as nodes:
        (prepared,) = load_workload("wordcount", {}).prepare(nodes.folder / "text")
        words_per_line = len(prepared.path.read_text(encoding="utf-8").split()) / prepared.records
        rate = {"kind": "constant", "tuples_per_s": words_per_s / words_per_line}
        topology = load_workload("running-count", PARAMS).topology()
        places = {entry.name: f"n{entry.index % 2}/0" for entry in topology.executors}
        settings = None
        if online:
            cluster = Cluster(tuple(Node(id=f"n{at}") for at in range(2)))
            decider = Decider(SchedulerInFile("matrix", {}), nodes.folder / "decisions", nodes.folder / "log", 30.0)
            settings = OnlineSettings(decider, RHYTHM, RevisionSettings(), Problem(cluster, (topology,)), inf, {})
        async with start_run(nodes, "running-count", PARAMS, places, rate, settings, sensors=("cpu",)) as (run, totals):
            begun_ns = monotonic_ns()
            await wait(run, WARM_UP_S)
            of_nodes = [process.pid for process in processes(nodes)]
            own = [os.getpid(), *(process.pid for process in psutil.Process().children(recursive=True))]
            print(json.dumps([of_nodes, sorted({*own, *of_nodes})]), flush=True)
            begun, before = asyncio.get_running_loop().time(), totals.emitted
            eof = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
            while not eof.done():
                await wait(run, 0.2)
            seconds, emitted = asyncio.get_running_loop().time() - begun, totals.emitted - before
            decisions = run.coordinator.event_log.revisions
            if online and (not decisions or any(each.outcome != "no" for each in decisions)):
                raise SystemExit(f"expected decisions, all of them without a revision: {decisions}")
            # Reports come once a second.
            if abs(emitted * words_per_line / words_per_s - seconds) > 2 + 0.01 * seconds:
                raise SystemExit(f"{emitted * words_per_line / seconds:,.0f} words/s instead of {words_per_s:,.0f}")
            ended_ns = monotonic_ns()
        rows = run.traces()["latency"].to_pylist()
        # Latencies during warm-up and drain do not count.
        first_ns = begun_ns + WARM_UP_S * 1e9
        latencies = sorted((row["value_ns"], row["count"]) for row in rows if first_ns < row["t_ns"] < ended_ns)
        left = 0.01 * sum(count for _, count in latencies)
        while latencies and left >= 0:
            value_ns, count = latencies.pop()
            left -= count
        print(json.dumps(value_ns / 1e6))


async def start_controller(kind: str, words_per_s: float) -> tuple[Process, Sequence[Sequence[psutil.Process]]]:
    """Start a run with a controller process of its own; return the controller, and the processes of each scope."""
    command = (sys.executable, __file__, "--run", kind, "--words-per-s", str(words_per_s))
    controller = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    assert controller.stdout is not None
    line = await controller.stdout.readline()
    if not line:
        raise SystemExit("a run did not start")
    return controller, [[psutil.Process(pid) for pid in pids] for pids in json.loads(line)]


async def end_controller(controller: Process) -> float:
    """End a run, and return the 99th percentile of its latency in ms."""
    output, _ = await controller.communicate(b"")
    if controller.returncode:
        raise SystemExit("a run failed")
    return float(output)


async def measure_pair(
    kinds: Sequence[str], words_per_s: float, windows: int
) -> tuple[list[list[list[float]]], list[float]]:
    """Execute two runs at the same time; return CPU seconds by scope, run and window, and the p99 of each run in ms."""
    runs = await asyncio.gather(*(start_controller(kind, words_per_s) for kind in kinds))
    samples = []
    try:
        for at in range(windows + 1):
            await asyncio.sleep(DECISION_S if at else 0)
            samples.append([[cpu_s(group) for group in groups] for _, groups in runs])
    finally:
        p99 = await asyncio.gather(*(end_controller(controller) for controller, _ in runs))
    return [
        [[after[at][scope] - before[at][scope] for before, after in pairwise(samples)] for at in range(len(kinds))]
        for scope in range(len(SCOPES))
    ], p99


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return an interval with at least 95 % confidence for the median, by order statistics.

    For fewer than nine values, it is their whole range.
    """
    count = len(values)
    below = 0
    while 2 * sum(comb(count, at) for at in range(below + 1)) <= 0.05 * 2**count:
        below += 1
    lowest = max(below - 1, 0)
    ordered = sorted(values)
    return ordered[lowest], ordered[count - 1 - lowest]


def verdict(low: float, high: float) -> str:
    """Compare an interval with the limit."""
    return "met" if high <= LIMIT else "missed" if low > LIMIT else "undecided"


async def measure(options: argparse.Namespace) -> int:
    """Measure all pairs, and print a table."""
    kinds = ("static", "static" if options.static else "online")
    seconds: list[list[list[float]]] = []
    added: list[list[float]] = []
    p99: list[list[float]] = []
    for number in range(options.pairs):
        # The order in which the two runs start alternates.
        order = (0, 1) if number % 2 else (1, 0)
        cpu, latencies = await measure_pair([kinds[at] for at in order], options.words_per_s, options.windows)
        p99.append([latencies[order.index(at)] for at in (0, 1)])
        costs = [[each[order.index(at)] for at in (0, 1)] for each in cpu]
        seconds.append([[fmean(cost) for cost in each] for each in costs])
        added.append([median(b / a for a, b in zip(*each, strict=True)) - 1 for each in costs])
        results = ", ".join(f"{scope} {share:+.2%}" for scope, share in zip(SCOPES, added[-1], strict=True))
        results += f"; p99 {p99[-1][0]:.2f} -> {p99[-1][1]:.2f} ms"
        print(f"pair {number + 1}, {kinds[0]} -> {kinds[1]}: {results}; {load()}", flush=True)
    million = options.words_per_s * DECISION_S / 1e6
    print(f"\n| CPU s per million words | {kinds[0]} | {kinds[1]} | added, median | 95 % interval | limit | |")
    print("|---|---|---|---|---|---|---|")
    for at, scope in enumerate(SCOPES):
        shares = [each[at] for each in added]
        low, high = interval(shares)
        static, online = (median(each[at][run] for each in seconds) / million for run in (0, 1))
        bound = f"{low:+.2%} to {high:+.2%} | {LIMIT:.0%} | {verdict(low, high)}"
        print(f"| {scope} | {static:.4f} | {online:.4f} | {median(shares):+.2%} | {bound} |")
    ratios = [online / static - 1 for static, online in p99]
    low, high = interval(ratios)
    static, online = (median(each[run] for each in p99) for run in (0, 1))
    print(
        f"| p99 latency, ms | {static:.2f} | {online:.2f} | {median(ratios):+.1%} | {low:+.1%} to {high:+.1%} | 0 % | |"
    )
    return 0


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--windows", type=int, default=3, help=f"number per pair, of {DECISION_S:g} s each")
    parser.add_argument("--words-per-s", type=float, default=60_000.0, help="rate of each run")
    parser.add_argument("--static", action="store_true", help="compare two static runs")
    parser.add_argument("--run", choices=("static", "online"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        asyncio.run(run_until_eof(options.run == "online", options.words_per_s))
        return 0
    return asyncio.run(measure(options))


if __name__ == "__main__":
    sys.exit(main())
