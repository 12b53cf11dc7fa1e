"""How long online schedulers take for a decision, and how much memory.

    .venv/bin/python benchmarks/online/decisions.py [--executors 100,1000,10000] [--schedulers er-stream,t-storm]
        [--most-seconds 120]

Random layered graphs with skewed traffic (some three pairs per executor), dealt to nodes of four cores by turns, so
that nearly all traffic is between nodes. Every scheduler has a process of its own, as in a run, and decides twice:
about a window in which one node is above all limits, and 600 s later, when all are half loaded. The longer one counts,
in CPU seconds without imports; the other unit is decoding the question, as the decider does. Limits: 0.1, 1 and 10 s;
the optimiser of i-scheduler has its theta besides, and the search of er-stream has none. `matrix` watches loads. The
last tables have the rule about overloaded nodes by itself, whose limit is 50 ms at 10,000 executors, and how late the
controller's event loop is while it observes and asks `matrix`: what happens in it at any time waits so long. The limit
is 20 ms at the 99th percentile of the CPU time that the controller uses meanwhile; others on the host add to it on the
clock. Last, ordering moves of all executors in waves of 100, in CPU seconds; the limit is 1 s for 10,000.

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

from agents.protocol import ExecutorSpec, Move, PairSent, Progress, RunSpec, Slot, Vitals, Work, workers_of
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
from scheduler.toolkit.local_traffic import observed
from workloads.example_topologies import layered

LIMITS = {100: 0.1, 1_000: 1.0, 10_000: 10.0}
RULE, RULE_S = "rule", {10_000: 0.05}
LOOP, LOOP_MS = "loop", 20.0
TICK_S = 0.001
WAVES, WAVES_S, PER_WAVE = "waves", {10_000: 1.0}, 100
PER_NODE = 8
CALM, HOT = 0.5, 0.97
HEDGE = 1.5
"""Places for executors per executor; a planner that fills nodes needs some."""

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
"""Row -> scheduler, parameters, and CPU seconds beyond the limit; None: no limit."""


def world(executors: int) -> tuple[Problem, Observation, Observation]:
    """The topology, its cluster, and two windows: with an overloaded node, and without."""
    topology, traffic = layered(executors, 1)
    count = -(-executors // PER_NODE)
    node = Node(id="-", slots=PER_NODE, capacity=float(round(HEDGE * PER_NODE)), ghz=2.0, flops_per_cycle=16.0)
    cluster = Cluster(tuple(replace(node, id=f"n{at:05d}") for at in range(count)))
    random = Random(2)  # noqa: S311 - no secret
    weights = [random.uniform(0.5, 1.5) for _ in topology.executors]
    on: dict[int, list[int]] = {}
    for at in range(executors):
        on.setdefault(at % count, []).append(at)
    windows = []
    for at_s, shares in ((60.0, {0: HOT}), (660.0, {})):
        found, nodes = {}, {}
        for number, members in on.items():
            share, points = shares.get(number, CALM), cluster.nodes[number].cpu_points
            total = sum(weights[each] for each in members)
            for at, each in enumerate(members):
                load = share * points * weights[each] / total
                found[topology.executors[each].name] = ObservedExecutor(
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
                executors={executor.name: found[executor.name] for executor in topology.executors},
                nodes=nodes,
            )
        )
    return Problem(cluster, (topology,)), windows[0], windows[1]


def peak_mb() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def decide(case: str, executors: int) -> dict[str, Any]:
    """Make both decisions; return CPU seconds, memory and answers."""
    name, params, _ = CASES[case]
    small, *windows = world(20)
    origin = plain_parameters(dict(params), "params")
    warm = make_online_scheduler(name, None, origin)
    for window in windows:
        warm.revise(problem_at(small, window), window)
    problem, *windows = world(executors)
    before_mb = peak_mb()
    scheduler = make_online_scheduler(name, None, origin)
    seconds, answers = [], []
    for window in windows:
        asked = problem_at(problem, window)
        begun = process_time()
        revision = scheduler.revise(asked, window)
        seconds.append(process_time() - begun)
        moves = 0 if revision is None else len(revision.moves)
        answers.append(f"{moves} moves" if moves else "no")
    after_mb = peak_mb()
    line = msgspec.json.encode(Question(1, problem_at(problem, windows[0]), windows[0]))
    begun = process_time()
    msgspec.json.decode(line, type=Question)
    return {
        "seconds": seconds,
        "answers": answers,
        "peak_mb": after_mb,
        "more_mb": after_mb - before_mb,
        "decoding_s": process_time() - begun,
    }


def overload_rule(executors: int) -> dict[str, Any]:
    """CPU seconds of reading a window and of the rule, the best of five."""
    problem, hot, _ = world(executors)
    asked = problem_at(problem, hot)
    (topology,) = asked.topologies
    rates = observed(topology, hot.as_traffic) or {}
    times = []
    for _ in range(5):
        begun = process_time()
        loads = PredictedLoads(asked, hot, 0.85)
        read = process_time()
        found = relieve(topology, loads, rates, 1)
        times.append((process_time() - read, read - begun))
    return {
        "rule_s": min(times)[0],
        "reading_s": min(times)[1],
        "moved": sum(each.victim is not None for each in found),
    }


def reported(problem: Problem, window: Observation) -> Monitor:
    """A monitor with the reports of a window of 10 s, five seconds apart."""
    (topology,) = problem.topologies
    places = window.places
    specs = tuple(ExecutorSpec(e.component, e.index, places[e.name]) for e in topology.executors)
    monitor = Monitor(Rhythm(window_s=10, sample_s=5), problem.cluster, 0.0)
    run = {"run": "r", "epoch": 1, "workload": "w", "params": {}, "topology": {}, "addresses": {}, "key": ""}
    monitor.start_epoch(RunSpec(**run, rate={}, executors=specs, seed=1, workers=workers_of(specs), observed=True), 0.0)
    number = {executor.name: at for at, executor in enumerate(topology.executors)}
    names: dict[Slot, list[str]] = {}
    for name, place in places.items():
        names.setdefault(place, []).append(name)
    pairs: dict[Slot, list[PairRate]] = {place: [] for place in names}
    for edge in window.traffic.edges:
        pairs[places[edge.source]].append(edge)
    for second in range(0, 20, 5):
        work = Work(10 * second, 10 * second, 5, second * NS // 10, 0)
        totals = {"epoch": 1, "at_ns": second * NS, "emitted": second, "sunk": second}
        rest = {"latency_p50_ns": 5_000_000, "latency_p99_ns": 9_000_000, "sent": ()}
        for place, own in names.items():
            sent = tuple(
                PairSent(number[e.source], number[e.destination], round(e.tuples_per_s * second), None)
                for e in pairs[place]
            )
            report = Progress(slot=place.index, executors=dict.fromkeys(own, work), pairs=sent, **totals, **rest)
            monitor.record(place.node, report, float(second))
        for node in problem.cluster.nodes:
            cores = dict.fromkeys(range(node.slots), 0.4)
            monitor.record(node.id, Vitals(epoch=1, cores=3.3, workers=cores, at_ns=second * NS), float(second))
    return monitor


async def lateness(executors: int) -> dict[str, Any]:
    """How late the event loop is while it observes and asks, for what happens at any time."""
    problem, hot, _ = world(executors)
    loop = asyncio.get_running_loop()
    late: list[float] = []
    late_cpu: list[float] = []
    used: list[float] = []

    async def tick() -> None:
        while True:
            due, used_s = loop.time() + TICK_S, process_time()
            await asyncio.sleep(TICK_S)
            used.append(process_time() - used_s)
            late_s = loop.time() - due
            for seconds, each_s in ((late, late_s), (late_cpu, min(late_s, used[-1]))):
                seconds.extend(each_s - at * TICK_S for at in range(1 + int(each_s / TICK_S)))

    with TemporaryDirectory() as folder, brief_pauses():
        monitor = reported(problem, hot)
        decider = Decider(SchedulerInFile("matrix"), Path(folder, "decisions"), Path(folder, "log"), 600.0)
        await decider.start()
        ticking = asyncio.create_task(tick())
        begun = loop.time()
        observation = monitor.conclude(await asyncio.to_thread(monitor.window(16.0).observe))
        observed_s, observing_s = loop.time() - begun, sum(used)
        answer = await decider.ask(problem, observation)
        expected = observation.measured
        took_s = loop.time() - begun
        await asyncio.sleep(0)
        ticking.cancel()
        await decider.close()
    if answer.fault or answer.late or not observation.complete or not expected.cut:
        raise SystemExit(f"not decided: {answer} {observation.missing}")
    used.sort()
    return {
        "observed_s": observed_s,
        "observing_s": observing_s,
        "steps_ms": [round(each * 1e3, 1) for each in used[:-4:-1]],
        "took_s": took_s,
        "p99_ms": percentile(late, 0.99) * 1e3,
        "p99_cpu_ms": percentile(late_cpu, 0.99) * 1e3,
    }


def percentile(values: list[float], share: float) -> float:
    """The smallest of `values` that is not below so much of them."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def ordering(executors: int) -> dict[str, Any]:
    """CPU seconds of ordering moves of all executors to random nodes in waves, the best of three."""
    problem, _, window = world(executors)
    nodes = problem.cluster.nodes
    loads = WaveLoads(
        {name: executor.load for name, executor in window.executors.items()},
        {name: node.load for name, node in window.nodes.items() if node.load is not None},
        {node.id: node.cpu_points for node in nodes},
        {},
    )
    random = Random(3)  # noqa: S311 - no secret
    moves = [Move(name, Slot(random.choice(nodes).id, 0)) for name in window.executors]
    times = []
    for _ in range(3):
        begun = process_time()
        waves = waves_of(moves, window.places, loads, PER_WAVE)
        times.append(process_time() - begun)
    return {"seconds": min(times), "waves": len(waves)}


def in_process(case: str, executors: int, most_s: float) -> dict[str, Any] | str:
    """What a process of its own prints, or why it prints nothing."""
    command = [sys.executable, __file__, "--one", case, "--executors", str(executors)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s, check=False)
    except subprocess.TimeoutExpired:
        return f"not within {most_s:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["failed"])[-1]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


PARTS = {RULE: overload_rule, WAVES: ordering}


def main() -> int:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executors", default="100,1000,10000", help="numbers, separated by commas")
    parser.add_argument("--schedulers", help="only these, separated by commas")
    parser.add_argument("--most-seconds", type=float, default=120.0, help="per scheduler and size, on the clock")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes = [int(word) for word in options.executors.split(",")]
    if options.one:
        if options.one == LOOP:
            found = asyncio.run(lateness(sizes[0]))
        elif options.one in PARTS:
            found = PARTS[options.one](sizes[0])
        else:
            found = decide(options.one, sizes[0])
        print(json.dumps(found))
        return 0
    only = None if options.schedulers is None else set(options.schedulers.split(","))
    print(f"load {os.getloadavg()[0]:.1f}\n")
    print("| scheduler | executors | CPU s, overload | later | limit | of it | times decoding | peak MB | answers |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case, (name, _, beyond_s) in CASES.items():
        for size in sizes if only is None or name in only else ():
            result = in_process(case, size, options.most_seconds)
            if isinstance(result, str):
                print(f"| {case} | {size:,} | {result} | | | | | | |", flush=True)
                continue
            first, later = result["seconds"]
            limit = LIMITS.get(size) if beyond_s is not None else None
            most = None if limit is None or beyond_s is None else limit + beyond_s
            share = "" if most is None else f"{max(first, later) / most:.0%}"
            times = max(first, later) / max(result["decoding_s"], 1e-6)
            memory = f"{result['peak_mb']:.0f} (+{result['more_mb']:.0f})"
            row = f"{first:.3f} | {later:.3f} | {'' if most is None else f'{most:g}'} | {share} | {times:.1f}"
            print(f"| {case} | {size:,} | {row} | {memory} | {', '.join(result['answers'])} |", flush=True)
    print("\n| overload rule | reading the window, ms | rule, ms | limit | moved |\n|---|---|---|---|---|")
    for size in sizes:
        result = in_process(RULE, size, options.most_seconds)
        if isinstance(result, str):
            print(f"| {size:,} | {result} | | | |")
            continue
        limit = RULE_S.get(size)
        bound = "" if limit is None else f"{limit * 1e3:g}"
        reading_ms, rule_ms = result["reading_s"] * 1e3, result["rule_s"] * 1e3
        print(f"| {size:,} | {reading_ms:.1f} | {rule_ms:.1f} | {bound} | {result['moved']} |")
    columns = (
        "observed, s | CPU s | decided, s | longest without it, CPU ms | late at p99, CPU ms | limit | on the clock"
    )
    print(f"\n| event loop | {columns} |\n|---|---|---|---|---|---|---|---|")
    for size in sizes:
        result = in_process(LOOP, size, options.most_seconds)
        if isinstance(result, str):
            print(f"| {size:,} | {result} | | | | | | |")
            continue
        steps = ", ".join(map(str, result["steps_ms"]))
        seconds = f"{result['observed_s']:.2f} | {result['observing_s']:.2f} | {result['took_s']:.2f} | {steps}"
        print(f"| {size:,} | {seconds} | {result['p99_cpu_ms']:.1f} | {LOOP_MS:g} | {result['p99_ms']:.1f} |")
    print(f"\n| moves in waves of {PER_WAVE} | CPU s | limit | waves |\n|---|---|---|---|")
    for size in sizes:
        result = in_process(WAVES, size, options.most_seconds)
        if isinstance(result, str):
            print(f"| {size:,} | {result} | | |")
            continue
        limit = WAVES_S.get(size)
        bound = "" if limit is None else f"{limit:g}"
        print(f"| {size:,} | {result['seconds']:.3f} | {bound} | {result['waves']} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
