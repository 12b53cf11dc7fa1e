"""What observing a running topology costs: the controller's monitor, and the workers that report executor pairs.

    .venv/bin/python benchmarks/online/monitor.py [--seconds 120] [--rounds 5] [--executors 100] [--workers 20]

A chain of three components, in which every executor sends to every one of the next; all workers report once a second.
Controller: CPU of decoding the reports, recording them, and one observation per 5 s, as a share of a core, without and
with pairs. Worker: CPU per second of counting its pairs and encoding them, the executors evenly over all workers and
all in one. Medians of the rounds.
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

ASKED_EVERY_S = 5
SLOTS = 2
RHYTHMS = {
    "mean of 60 s": Rhythm(window_s=60),
    "trimmed mean of 5 s": Rhythm(window_s=5, average="trimmed"),
    "exponentially weighted": Rhythm(window_s=20, sample_s=20, average="ewma"),
}

Lines = list[tuple[str, float, bytes]]
"""Node, time and line of every report."""


@dataclass(frozen=True)
class Run:
    """A run, its cluster, and the pairs of each worker by number."""

    spec: RunSpec
    cluster: Cluster
    pairs: dict[Slot, list[tuple[int, int]]]


def chain(executors: int, workers: int) -> Run:
    """A chain whose middle has 28 of 100 executors, which makes some 2,000 pairs of 100."""
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
    """All reports of a run at constant rates."""
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
            at = {"at_ns": at_ns, "joules": 30.0 * second, "joules_ns": at_ns, "source": "rapl", "hz": 2.4e9}
            yield node, float(second), Vitals(epoch=1, cores=1.2, workers=workers, **at)


def plain(report: Progress | Vitals) -> Progress | Vitals:
    """The same report of a run that is not observed."""
    if isinstance(report, Vitals):
        return Vitals(epoch=report.epoch, cores=report.cores, workers=report.workers)
    works = {name: replace(work, due=None) for name, work in report.executors.items()}
    return replace(report, pairs=None, latency_p99_ns=None, executors=works)


def cpu_ns(work: Callable[[], None]) -> int:
    """CPU time of `work`."""
    begun = process_time_ns()
    work()
    return process_time_ns() - begun


def display(lines: Lines) -> Callable[[], None]:
    """The work of a run that is not observed."""

    def work() -> None:
        live = LiveMetrics()
        for node, at_s, line in lines:
            live.record(node, decode_report(line), at_s)

    return work


def observe(run: Run, lines: Lines, rhythm: Rhythm) -> Callable[[], None]:
    """The same, the monitor and its observations."""

    def work() -> None:
        live, monitor = LiveMetrics(), Monitor(rhythm, run.cluster, 2.0)
        monitor.start_epoch(run.spec, 0.0)
        asked_s = 0.0
        complete = 0
        for node, at_s, line in lines:
            if at_s >= asked_s + ASKED_EVERY_S:
                asked_s = at_s
                complete += monitor.conclude(monitor.window(at_s).observe()).complete
            report = decode_report(line)
            live.record(node, report, at_s)
            if isinstance(report, Progress | Vitals):
                monitor.record(node, report, at_s)
        if not complete:
            raise SystemExit("no observation is complete: more --seconds are needed")

    return work


def count(pairs: list[tuple[int, int]], report: Progress, seconds: int) -> Callable[[], None]:
    """What a worker does for its pairs, once a second, and the encoding of its report."""

    def work() -> None:
        totals = PairTotals(len(pairs))
        for second in range(seconds):
            for sender, receiver in pairs:
                totals.add(sender, receiver, 1000, 10_000)
            encode(replace(report, pairs=totals.take(second * NS)))

    return work


def bare(report: Progress, seconds: int) -> Callable[[], None]:
    """The encoding of the same report without pairs."""

    def work() -> None:
        for _ in range(seconds):
            encode(report)

    return work


def main() -> int:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=120, help="of the run whose reports are handled")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--executors", type=int, default=100)
    parser.add_argument("--workers", type=int, default=20, help="an even number")
    options = parser.parse_args()
    run = chain(options.executors, options.workers)
    seconds = options.seconds
    total = sum(map(len, run.pairs.values()))
    print(f"{options.executors} executors, {total} pairs, {len(run.spec.workers)} workers, {seconds} s", end="; ")
    print(f"load {os.getloadavg()[0]:.1f}\n")
    made = list(reports(run, seconds))
    lines = [(node, at_s, encode(report)) for node, at_s, report in made]
    fewer = [(node, at_s, encode(plain(report))) for node, at_s, report in made]
    print("| controller | kB per second | CPU, share of a core |\n|---|---|---|")

    def row(name: str, sent: Lines, work: Callable[[], None]) -> None:
        share = median(cpu_ns(work) for _ in range(options.rounds)) / seconds / NS
        print(f"| {name} | {sum(len(line) for *_, line in sent) / seconds / 1000:.0f} | {share:.2%} |", flush=True)

    row("not observed", fewer, display(fewer))
    for name, rhythm in RHYTHMS.items():
        row(name, lines, observe(run, lines, rhythm))
    print("\n| worker | pairs | ms of CPU per second |\n|---|---|---|")
    every = [pair for pairs in run.pairs.values() for pair in pairs]
    share = max(run.pairs.values(), key=len)
    report = next(report for _, _, report in made if isinstance(report, Progress))
    for name, pairs in (("of many", share), ("alone", every)):
        base = replace(report, pairs=None)
        costs = [cpu_ns(count(pairs, base, seconds)) - cpu_ns(bare(base, seconds)) for _ in range(options.rounds)]
        print(f"| {name} | {len(pairs)} | {median(costs) / seconds / 1e6:.3f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
