"""Measure the CPU time for observing a running topology, in the controller's monitor and in reporting workers.

    .venv/bin/python benchmarks/online/monitor.py [--seconds 120] [--rounds 5] [--executors 100] [--workers 20]

A chain of three components, in which every executor sends to every executor of the next component. All workers report
once a second. Controller: CPU time for decoding and recording the reports, and for one observation per 5 s, in cores;
with and without executor pairs. Worker: CPU time per second for counting and encoding its executor pairs, with the
executors spread evenly over all workers, and with all of them in one. Results are medians of the rounds.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from time import process_time_ns

from msgspec import to_builtins
from msgspec.structs import replace

from agents.protocol import (
    ExecutorSpec,
    PairSent,
    Progress,
    RunSpec,
    Sent,
    Slot,
    Vitals,
    Work,
    decode_report,
    encode,
    workers_of,
)
from agents.worker.process.metrics_reporter import PairTotals
from controller.coordinator.live_metrics import LiveMetrics
from controller.coordinator.monitor import Monitor
from inventory.cluster import Cluster, Node
from inventory.times import NS
from scheduler.online.revision import Rhythm
from workloads.topology import Component, Input, Topology

OBSERVATION_INTERVAL_S = 5
SLOTS = 2
RHYTHMS = {
    "mean of 60 s": Rhythm(window_s=60),
    "trimmed mean of 5 s": Rhythm(window_s=5, average="trimmed"),
    "exponentially weighted": Rhythm(window_s=20, sample_s=20, average="ewma"),
}

Lines = list[tuple[str, float, bytes]]
"""Node, time and encoded line of every report."""


@dataclass(frozen=True)
class Run:
    """A run, its cluster, and the executor pairs of each worker, as executor numbers."""

    spec: RunSpec
    cluster: Cluster
    pairs: dict[Slot, list[tuple[int, int]]]


def chain(executors: int, workers: int) -> Run:
    """Return a chain whose middle has 28 % of the executors, so that 100 executors have about 2,000 pairs."""
    middle = round(0.28 * executors)
    first = (executors - middle) // 2
    s = Component("s", "spout", first)
    b = Component("b", "bolt", middle, inputs=(Input("s"),))
    k = Component("k", "bolt", executors - middle - first, inputs=(Input("b"),))
    topology = Topology("t", (s, b, k))
    places = [Slot(f"n{at // SLOTS % (workers // SLOTS)}", at % SLOTS) for at in range(executors)]
    specs = tuple(
        ExecutorSpec(e.component, e.index, place) for e, place in zip(topology.executors, places, strict=True)
    )
    spec = RunSpec(
        run="r",
        epoch=1,
        workload="w",
        params={},
        topology=to_builtins(topology),
        executors=specs,
        addresses={},
        key="",
        rate={},
        seed=1,
        workers=workers_of(specs),
        observed=True,
    )
    number = topology.number_of
    of_worker: dict[Slot, list[tuple[int, int]]] = {place: [] for place in spec.workers}
    for source, destination, _ in topology.links():
        for sender in topology.executors_of(source.id):
            for receiver in topology.executors_of(destination.id):
                of_worker[places[number[sender]]].append((number[sender], number[receiver]))
    nodes = tuple(Node(id=name) for name in sorted({place.node for place in places}))
    return Run(spec, Cluster(nodes), of_worker)


def reports(run: Run, seconds: int) -> Iterator[tuple[str, float, Progress | Vitals]]:
    """Generate all reports of an observed run at constant rates."""
    nodes = sorted({place.node for place in run.spec.workers})
    for second in range(seconds):
        at_ns, tuples = second * NS, 1000 * second
        for place, pairs in run.pairs.items():
            names = [f"{e.component}[{e.index}]" for e in run.spec.executors if e.place == place]
            bolt = Work(10 * tuples, 10 * tuples, 5, second * NS // 10, 0)
            spout = Work(10 * tuples, None, None, second * NS // 10, 0, 1000, 10 * tuples, 10 * tuples)
            yield (
                place.node,
                float(second),
                Progress(
                    epoch=1,
                    slot=place.index,
                    at_ns=at_ns,
                    emitted=tuples,
                    sunk=tuples,
                    latency_p50_ns=5_000_000,
                    latency_p99_ns=9_000_000,
                    executors={name: spout if name.startswith("s") else bolt for name in names},
                    sent=tuple(Sent("inter_node", node, 10 * tuples, 100 * tuples) for node in nodes),
                    pairs=tuple(PairSent(*pair, tuples + pair[1], 100 * tuples) for pair in pairs),
                ),
            )
        for node in nodes:
            workers = {place.index: 0.5 for place in run.spec.workers if place.node == node}
            yield (
                node,
                float(second),
                Vitals(
                    epoch=1,
                    cores=1.2,
                    workers=workers,
                    at_ns=at_ns,
                    joules=30.0 * second,
                    joules_ns=at_ns,
                    source="rapl",
                    hz=2.4e9,
                ),
            )


def unobserved(report: Progress | Vitals) -> Progress | Vitals:
    """Return the same report as in a run that is not observed."""
    if isinstance(report, Vitals):
        return Vitals(epoch=report.epoch, cores=report.cores, workers=report.workers)
    works = {name: replace(work, due=None) for name, work in report.executors.items()}
    return replace(report, pairs=None, latency_p99_ns=None, executors=works)


def cpu_ns(work: Callable[[], None]) -> int:
    """Return the CPU time of `work`."""
    begun = process_time_ns()
    work()
    return process_time_ns() - begun


def live_metrics_work(lines: Lines) -> Callable[[], None]:
    """Return the controller's work in a run that is not observed."""

    def work() -> None:
        live = LiveMetrics()
        for node, at_s, line in lines:
            live.record(node, decode_report(line), at_s)

    return work


def monitor_work(run: Run, lines: Lines, rhythm: Rhythm) -> Callable[[], None]:
    """Return the same work with the monitor and its observations."""

    def work() -> None:
        live, monitor = LiveMetrics(), Monitor(rhythm, run.cluster, 2.0)
        monitor.start_epoch(run.spec, 0.0)
        observed_s = 0.0
        complete = 0
        for node, at_s, line in lines:
            if at_s >= observed_s + OBSERVATION_INTERVAL_S:
                observed_s = at_s
                complete += monitor.conclude(monitor.window(at_s).observe()).complete
            report = decode_report(line)
            live.record(node, report, at_s)
            if isinstance(report, Progress | Vitals):
                monitor.record(node, report, at_s)
        if not complete:
            raise SystemExit("no observation is complete: increase --seconds")

    return work


def pair_report_work(pairs: list[tuple[int, int]], report: Progress, seconds: int) -> Callable[[], None]:
    """Return a worker's work for counting its pairs and encoding its reports, once a second."""

    def work() -> None:
        totals = PairTotals(len(pairs))
        for second in range(seconds):
            for sender, receiver in pairs:
                totals.add(sender, receiver, 1000, 10_000)
            encode(replace(report, pairs=totals.take(second * NS)))

    return work


def plain_report_work(report: Progress, seconds: int) -> Callable[[], None]:
    """Return a worker's work for encoding the same reports without pairs."""

    def work() -> None:
        for _ in range(seconds):
            encode(report)

    return work


def main() -> int:
    """Parse the options, measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120, help="duration of the simulated run")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, default=100)
    parser.add_argument("--workers", type=int, default=20, help="an even number")
    options = parser.parse_args()
    run = chain(options.executors, options.workers)
    seconds = options.seconds
    total = sum(map(len, run.pairs.values()))
    print(f"{options.executors} executors, {total} pairs, {len(run.spec.workers)} workers, {seconds} s", end="; ")
    print(f"load {os.getloadavg()[0]:.1f}\n")
    all_reports = list(reports(run, seconds))
    lines = [(node, at_s, encode(report)) for node, at_s, report in all_reports]
    unobserved_lines = [(node, at_s, encode(unobserved(report))) for node, at_s, report in all_reports]
    print("| controller | kB per second | CPU, share of a core |\n|---|---|---|")

    def print_row(name: str, sent: Lines, work: Callable[[], None]) -> None:
        share = median(cpu_ns(work) for _ in range(options.rounds)) / seconds / NS
        print(f"| {name} | {sum(len(line) for *_, line in sent) / seconds / 1000:.0f} | {share:.2%} |", flush=True)

    print_row("not observed", unobserved_lines, live_metrics_work(unobserved_lines))
    for name, rhythm in RHYTHMS.items():
        print_row(name, lines, monitor_work(run, lines, rhythm))
    print("\n| worker | pairs | ms of CPU per second |\n|---|---|---|")
    all_pairs = [pair for pairs in run.pairs.values() for pair in pairs]
    most_pairs = max(run.pairs.values(), key=len)
    report = next(report for _, _, report in all_reports if isinstance(report, Progress))
    base = replace(report, pairs=None)
    for name, pairs in ((f"one of {len(run.spec.workers)}", most_pairs), ("the only one", all_pairs)):
        costs = [
            cpu_ns(pair_report_work(pairs, base, seconds)) - cpu_ns(plain_report_work(base, seconds))
            for _ in range(options.rounds)
        ]
        print(f"| {name} | {len(pairs)} | {median(costs) / seconds / 1e6:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
