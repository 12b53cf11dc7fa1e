"""Measure the time and memory that online schedulers need for a decision.

    .venv/bin/python benchmarks/online/decisions.py [--executors 100,1000,10000] [--schedulers er-stream,t-storm]
        [--timeout-s 120]

Random layered graphs with skewed traffic (about three pairs per executor), assigned round robin to nodes of four cores,
so that nearly all traffic is between nodes. Every scheduler has a process of its own, as in a run, and makes two
decisions: for a window with an overloaded node, and for a window 600 s later in which all nodes are half loaded. The
result is the CPU time of the longer one, without imports, in seconds and as a multiple of the time to decode the
request. Limits: 0.1, 1 and 10 s; the optimiser of i-scheduler has its theta in addition, and the search of er-stream
has no limit. `matrix` runs with `watch_load`.

Further tables: the overload rule alone, with a limit of 50 ms at 10,000 executors; the delay of the controller's event
loop while it observes and invokes `matrix`, with a limit of 20 ms at the 99th percentile in CPU time (other programs
add to it on the clock); and ordering moves of all executors in waves of 100, with a limit of 1 s of CPU time for
10,000.

Example: .venv/bin/python benchmarks/online/decisions.py --executors 100,1000
"""

import argparse
import asyncio
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import msgspec
from msgspec.structs import replace

from agents.protocol import ExecutorSpec, MoveToPlace, PairSent, Progress, RunSpec, Slot, Vitals, Work, workers_of
from controller.coordinator.decider import Decider
from controller.coordinator.monitor import Monitor
from controller.coordinator.online_loop import brief_pauses
from controller.coordinator.waves import WaveLoads, waves_of
from inventory.cluster import Cluster, Node
from inventory.plugins import plain_parameters
from inventory.times import NS
from scheduler.deciding import Question, SchedulerInFile
from scheduler.online.observation import (
    Observation,
    ObservedExecutor,
    ObservedNode,
    ObservedTraffic,
    PairRate,
    problem_at,
)
from scheduler.online.overload import relieve
from scheduler.online.predicted_loads import PredictedLoads
from scheduler.online.revision import Rhythm
from scheduler.online.validation import make_online_scheduler
from scheduler.problem import Problem
from scheduler.toolkit.local_traffic import observed_rates
from workloads.example_topologies import layered

LIMITS = {100: 0.1, 1_000: 1.0, 10_000: 10.0}
RULE, RULE_S = "rule", {10_000: 0.05}
LOOP, LOOP_MS = "loop", 20.0
TICK_S = 0.001
"""Interval at which the event loop is probed."""
WAVES, WAVES_S, PER_WAVE = "waves", {10_000: 1.0}, 100
PER_NODE = 8
NORMAL_LOAD, OVERLOAD = 0.5, 0.97
CAPACITY = 1.5
"""Capacity of all nodes per executor; schedulers that fill nodes need a reserve."""

CASES: dict[str, tuple[str, Mapping[str, Any], float | None]] = {
    "aniello-online": ("aniello-online", {}, 0.0),
    "d-storm": ("d-storm", {}, 0.0),
    "er-stream": ("er-stream", {}, None),
    "er-stream, no search": ("er-stream", {"generations": 0}, 0.0),
    "i-scheduler, theta 1 s": ("i-scheduler", {}, 1.0),
    "i-scheduler, theta 0": ("i-scheduler", {"theta": 0}, 0.0),
    "matrix": ("matrix", {"watch_load": True}, 0.0),
    "p-scheduler": ("p-scheduler", {}, 0.0),
    "t-storm": ("t-storm", {}, 0.0),
}
"""Row -> scheduler, parameters, and CPU seconds allowed in addition to the limit; None: no limit."""


def make_problem(executors: int) -> tuple[Problem, Observation, Observation]:
    """Return a topology with its cluster, and two observations: with an overloaded node, and without."""
    topology, traffic = layered(executors, 1)
    count = -(-executors // PER_NODE)
    node = Node(id="-", slots=PER_NODE, capacity=float(round(CAPACITY * PER_NODE)), ghz=2.0, flops_per_cycle=16.0)
    cluster = Cluster(tuple(replace(node, id=f"n{at:05d}") for at in range(count)))
    random = Random(2)  # noqa: S311 - no secret
    weights = [random.uniform(0.5, 1.5) for _ in topology.executors]
    executors_of: dict[int, list[int]] = {}
    for at in range(executors):
        executors_of.setdefault(at % count, []).append(at)
    windows = []
    for at_s, shares in ((60.0, {0: OVERLOAD}), (660.0, {})):
        observed_executors, nodes = {}, {}
        for number, members in executors_of.items():
            share, points = shares.get(number, NORMAL_LOAD), cluster.nodes[number].cpu_points
            total = sum(weights[each] for each in members)
            for at, each in enumerate(members):
                load = share * points * weights[each] / total
                observed_executors[topology.executors[each].name] = ObservedExecutor(
                    node=cluster.nodes[number].id, slot=at % PER_NODE, busy=load, load=load, state_bytes=1000
                )
            nodes[cluster.nodes[number].id] = ObservedNode(load=share, base=0.0, heartbeats=1.0)
        windows.append(
            Observation(
                at_s=at_s,
                since_s=at_s - 50,
                samples=50,
                traffic=ObservedTraffic(
                    tuple(PairRate(e.source, e.destination, e.tuples_per_s) for e in traffic.edges)
                ),
                executors={executor.name: observed_executors[executor.name] for executor in topology.executors},
                nodes=nodes,
            )
        )
    return Problem(cluster, (topology,)), windows[0], windows[1]


def peak_mb() -> float:
    """Return the peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decide(case: str, executors: int) -> dict[str, Any]:
    """Make both decisions; return CPU seconds, memory and outcomes."""
    name, params, _ = CASES[case]
    small, *windows = make_problem(20)
    origin = plain_parameters(dict(params), "params")
    # Imports and compilation happen here.
    warm_up = make_online_scheduler(name, None, origin)
    for window in windows:
        warm_up.revise(problem_at(small, window), window)
    problem, *windows = make_problem(executors)
    before_mb = peak_mb()
    scheduler = make_online_scheduler(name, None, origin)
    seconds, outcomes = [], []
    for window in windows:
        current = problem_at(problem, window)
        begun = process_time()
        revision = scheduler.revise(current, window)
        seconds.append(process_time() - begun)
        moves = 0 if revision is None else len(revision.moves)
        outcomes.append(f"{moves} moves" if moves else "no")
    after_mb = peak_mb()
    line = msgspec.json.encode(Question(1, problem_at(problem, windows[0]), windows[0]))
    begun = process_time()
    msgspec.json.decode(line, type=Question)
    return {
        "seconds": seconds,
        "outcomes": outcomes,
        "peak_mb": after_mb,
        "added_mb": after_mb - before_mb,
        "decoding_s": process_time() - begun,
    }


def overload_rule(executors: int) -> dict[str, Any]:
    """Return the CPU seconds of reading a window and of the overload rule, minimum of five."""
    problem, overloaded, _ = make_problem(executors)
    current = problem_at(problem, overloaded)
    (topology,) = current.topologies
    rates = observed_rates(topology, overloaded.as_traffic) or {}
    times = []
    for _ in range(5):
        begun = process_time()
        loads = PredictedLoads(current, overloaded, 0.85)
        read = process_time()
        relief = relieve(topology, loads, rates, 1)
        times.append((process_time() - read, read - begun))
    return {
        "rule_s": min(times)[0],
        "reading_s": min(times)[1],
        "moved": sum(each.victim is not None for each in relief),
    }


def monitor_with_reports(problem: Problem, window: Observation) -> Monitor:
    """Return a monitor with the reports of a window of 10 s, five seconds apart."""
    (topology,) = problem.topologies
    places = window.places
    specs = tuple(ExecutorSpec(e.component, e.index, places[e.name]) for e in topology.executors)
    monitor = Monitor(Rhythm(window_s=10, sample_s=5), problem.cluster, 0.0)
    spec = RunSpec(
        run="r",
        epoch=1,
        workload="w",
        params={},
        topology={},
        executors=specs,
        addresses={},
        key="",
        rate={},
        seed=1,
        workers=workers_of(specs),
        observed=True,
    )
    monitor.start_epoch(spec, 0.0)
    number = {executor.name: at for at, executor in enumerate(topology.executors)}
    names: dict[Slot, list[str]] = {}
    for name, place in places.items():
        names.setdefault(place, []).append(name)
    pairs: dict[Slot, list[PairRate]] = {place: [] for place in names}
    for edge in window.traffic.edges:
        pairs[places[edge.source]].append(edge)
    for second in range(0, 20, 5):
        work = Work(10 * second, 10 * second, 5, second * NS // 10, 0)
        for place, own in names.items():
            sent = tuple(
                PairSent(number[e.source], number[e.destination], round(e.tuples_per_s * second), None)
                for e in pairs[place]
            )
            report = Progress(
                epoch=1,
                slot=place.index,
                at_ns=second * NS,
                emitted=second,
                sunk=second,
                latency_p50_ns=5_000_000,
                latency_p99_ns=9_000_000,
                executors=dict.fromkeys(own, work),
                pairs=sent,
            )
            monitor.record(place.node, report, float(second))
        for node in problem.cluster.nodes:
            cores = dict.fromkeys(range(node.slots), 0.4)
            monitor.record(node.id, Vitals(epoch=1, cores=3.3, workers=cores, at_ns=second * NS), float(second))
    return monitor


async def event_loop_delay(executors: int) -> dict[str, Any]:
    """Measure the delay of the event loop while it observes and invokes a scheduler.

    A step that blocks the loop delays every event that is due meanwhile: it counts once per `TICK_S`, each time with
    the rest of its duration.
    """
    problem, overloaded, _ = make_problem(executors)
    loop = asyncio.get_running_loop()
    delays: list[float] = []
    cpu_delays: list[float] = []
    cpu: list[float] = []

    async def probe() -> None:
        while True:
            due, before_s = loop.time() + TICK_S, process_time()
            await asyncio.sleep(TICK_S)
            cpu.append(process_time() - before_s)
            delay_s = loop.time() - due
            for seconds, each_s in ((delays, delay_s), (cpu_delays, min(delay_s, cpu[-1]))):
                seconds.extend(each_s - at * TICK_S for at in range(1 + int(each_s / TICK_S)))

    with TemporaryDirectory() as folder, brief_pauses():
        monitor = monitor_with_reports(problem, overloaded)
        decider = Decider(SchedulerInFile("matrix"), Path(folder, "decisions"), Path(folder, "log"), 600.0)
        await decider.start()
        probing = asyncio.create_task(probe())
        begun = loop.time()
        observation = monitor.conclude(await asyncio.to_thread(monitor.window(16.0).observe))
        observed_s, observing_cpu_s = loop.time() - begun, sum(cpu)
        decision = await decider.ask(problem, observation)
        measured = observation.measured
        decided_s = loop.time() - begun
        await asyncio.sleep(0)
        probing.cancel()
        await decider.close()
    if decision.fault or decision.late or not observation.complete or not measured.cut:
        raise SystemExit(f"no decision: {decision} {observation.missing}")
    cpu.sort()
    return {
        "observed_s": observed_s,
        "observing_cpu_s": observing_cpu_s,
        "longest_steps_ms": [round(each * 1e3, 1) for each in cpu[:-4:-1]],
        "decided_s": decided_s,
        "p99_ms": percentile(delays, 0.99) * 1e3,
        "p99_cpu_ms": percentile(cpu_delays, 0.99) * 1e3,
    }


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that is at least as large as `share` of all values."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def wave_ordering(executors: int) -> dict[str, Any]:
    """Return the CPU seconds of ordering moves of all executors to random nodes in waves, minimum of three."""
    problem, _, window = make_problem(executors)
    nodes = problem.cluster.nodes
    loads = WaveLoads(
        {name: executor.load for name, executor in window.executors.items()},
        {name: node.load for name, node in window.nodes.items() if node.load is not None},
        {node.id: node.cpu_points for node in nodes},
        {},
    )
    random = Random(3)  # noqa: S311 - no secret
    moves = [MoveToPlace(name, Slot(random.choice(nodes).id, 0)) for name in window.executors]
    times = []
    for _ in range(3):
        begun = process_time()
        waves = waves_of(moves, window.places, loads, PER_WAVE)
        times.append(process_time() - begun)
    return {"seconds": min(times), "waves": len(waves)}


def measure_in_process(case: str, executors: int, timeout_s: float) -> dict[str, Any] | str:
    """Measure a case in a new process; return its results, or the reason if there are none."""
    command = [sys.executable, __file__, "--case", case, "--executors", str(executors)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return f"timeout after {timeout_s:g} s"
    if process.returncode:
        return (process.stderr.strip().splitlines() or ["failed"])[-1]
    results: dict[str, Any] = json.loads(process.stdout)
    return results


def measure_case(case: str, executors: int) -> dict[str, Any]:
    """Measure a case in this process."""
    if case == LOOP:
        return asyncio.run(event_loop_delay(executors))
    parts = {RULE: overload_rule, WAVES: wave_ordering}
    return parts[case](executors) if case in parts else decide(case, executors)


def main() -> int:
    """Parse the options, measure, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", default="100,1000,10000", help="numbers, separated by commas")
    parser.add_argument("--schedulers", help="only these schedulers, separated by commas")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="per scheduler and size")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(word) for word in options.executors.split(",")]
    if options.case:
        print(json.dumps(measure_case(options.case, sizes[0])))
        return 0
    only = None if options.schedulers is None else set(options.schedulers.split(","))
    print(f"load {os.getloadavg()[0]:.1f}\n")
    columns = "CPU s, overload | later | limit | share of the limit | times decoding | peak MB | outcomes"
    print(f"| scheduler | executors | {columns} |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case, (name, _, extra_s) in CASES.items():
        for size in sizes if only is None or name in only else ():
            result = measure_in_process(case, size, options.timeout_s)
            if isinstance(result, str):
                print(f"| {case} | {size:,} | {result} | | | | | | |", flush=True)
                continue
            first, later = result["seconds"]
            limit = LIMITS.get(size) if extra_s is not None else None
            total = None if limit is None or extra_s is None else limit + extra_s
            share = "" if total is None else f"{max(first, later) / total:.0%}"
            times = max(first, later) / max(result["decoding_s"], 1e-6)
            memory = f"{result['peak_mb']:.0f} (+{result['added_mb']:.0f})"
            row = f"{first:.3f} | {later:.3f} | {'' if total is None else f'{total:g}'} | {share} | {times:.1f}"
            print(f"| {case} | {size:,} | {row} | {memory} | {', '.join(result['outcomes'])} |", flush=True)
    print("\n| overload rule | reading the window, ms | rule, ms | limit | moved |\n|---|---|---|---|---|")
    for size in sizes:
        result = measure_in_process(RULE, size, options.timeout_s)
        if isinstance(result, str):
            print(f"| {size:,} | {result} | | | |")
            continue
        limit = RULE_S.get(size)
        bound = "" if limit is None else f"{limit * 1e3:g}"
        reading_ms, rule_ms = result["reading_s"] * 1e3, result["rule_s"] * 1e3
        print(f"| {size:,} | {reading_ms:.1f} | {rule_ms:.1f} | {bound} | {result['moved']} |")
    columns = (
        "observed, s | CPU s | decided, s | longest steps, CPU ms | delay at p99, CPU ms | limit | on the clock, ms"
    )
    print(f"\n| event loop | {columns} |\n|---|---|---|---|---|---|---|---|")
    for size in sizes:
        result = measure_in_process(LOOP, size, options.timeout_s)
        if isinstance(result, str):
            print(f"| {size:,} | {result} | | | | | | |")
            continue
        steps = ", ".join(map(str, result["longest_steps_ms"]))
        seconds = f"{result['observed_s']:.2f} | {result['observing_cpu_s']:.2f} | {result['decided_s']:.2f} | {steps}"
        print(f"| {size:,} | {seconds} | {result['p99_cpu_ms']:.1f} | {LOOP_MS:g} | {result['p99_ms']:.1f} |")
    print(f"\n| moves in waves of {PER_WAVE} | CPU s | limit | waves |\n|---|---|---|---|")
    for size in sizes:
        result = measure_in_process(WAVES, size, options.timeout_s)
        if isinstance(result, str):
            print(f"| {size:,} | {result} | | |")
            continue
        limit = WAVES_S.get(size)
        bound = "" if limit is None else f"{limit:g}"
        print(f"| {size:,} | {result['seconds']:.3f} | {bound} | {result['waves']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
