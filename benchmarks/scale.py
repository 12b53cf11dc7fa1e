"""Time and memory of schedulers from a thousand to a million executors, and how they grow.

    .venv/bin/python benchmarks/scale.py [--schedulers even top-storm] [--topologies layered products]
        [--executors 1000 10000 100000 1000000] [--seconds 300] [--memory-gb 8] [--largest]

Two topologies: a random layered graph of small components with observed traffic (ten pairs per executor), and one of
few large components without traffic, whose pairs (up to 10^9) are never listed. A node hosts about a hundred executors:
nodes of three sizes in racks of forty, one requested worker per node. Every answer is checked like those of `millrace
place`, apart from the time. Each case has a process of its own, with a limit on CPU time and on memory; its peak of
memory includes the problem. The growth exponent is the slope of log time over log executors between two sizes.

`--largest` finds the largest size, by steps of 1, 2, 5, that a scheduler answers in `--seconds`.
"""

import argparse
import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from math import log
from time import perf_counter, process_time
from typing import Any

import numpy as np
from msgspec.structs import replace

from inventory.cluster import Cluster, Node
from inventory.errors import MillraceError, RunError
from inventory.plugins import plain_parameters
from scheduler.problem import Placement, Problem
from scheduler.registry import make_scheduler
from scheduler.toolkit.cost import cost
from scheduler.toolkit.plan_faults import plan_faults
from workloads.example_topologies import layered, products

PER_NODE = 100
SIZES = (100, 115, 130)
"""Executors that nodes of the three sizes should host."""

RACK = 40
SLOTS, HEAP_MB = 5, 4096.0

NAMED = (
    "even",
    "default",
    "top-storm",
    "r-storm",
    "resource-aware",
    "t-storm",
    "d-storm",
    "p-scheduler",
    "aniello-offline",
    "aniello-online",
    "i-scheduler",
    "local-search",
    "local-search, fast",
)
REST = ("pmod", "pipeline-linear", "er-stream", "optimal")

CASES: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "local-search": ("local-search", {"time_limit_s": 240.0}),
    "local-search, fast": ("local-search", {"preset": "fast", "time_limit_s": 240.0}),
    "local-search, no limit": ("local-search", {"time_limit_s": 86_400.0}),
    "resource-aware": ("resource-aware", {"time_limit_s": 86_400.0}),
}
"""Row -> scheduler and parameters; others have their names and no parameters."""

TRAFFIC_REQUIRED = ("p-scheduler", "aniello-online")

MB = 1024


@dataclass
class Result:
    """What one scheduler did; times in seconds, CPU time unless `wall`."""

    cpu: float
    wall: float
    check: float
    mb: float
    w: float
    note: str


def cluster(executors: int) -> Cluster:
    """Nodes in racks, three sizes in turn."""
    nodes = []
    for at in range(-(-executors // PER_NODE)):
        size = SIZES[at % len(SIZES)]
        nodes.append(
            Node(
                id=f"n{at:05d}",
                rack=f"r{at // RACK:03d}",
                slots=SLOTS,
                cpu=10.0 * size,
                memory_mb=128.0 * size,
                capacity=float(size),
                ghz=2.0 + 0.2 * (at % len(SIZES)),
                flops_per_cycle=16.0,
            )
        )
    return Cluster(tuple(nodes))


def problem(kind: str, executors: int) -> Problem:
    """A round of one topology."""
    nodes = cluster(executors)
    traffic = None
    if kind == "layered":
        topology, traffic = layered(executors, 1, widest=8)
    else:
        each = round(executors**0.5)
        topology = products(executors // each, each, 1)
    return Problem(nodes, (replace(topology, workers=len(nodes.nodes), worker_max_heap_mb=HEAP_MB),), traffic)


class Judge:
    """W of placements; observed pairs as arrays, which are made once per problem."""

    def __init__(self, case: Problem) -> None:
        self._case = case
        if case.traffic is None:
            return
        (topology,) = case.topologies
        number = {executor.name: at for at, executor in enumerate(topology.executors)}
        edges = case.traffic.edges
        self._sources = np.fromiter((number[edge.source] for edge in edges), np.int64, len(edges))
        self._targets = np.fromiter((number[edge.destination] for edge in edges), np.int64, len(edges))
        self._rates = np.fromiter((edge.tuples_per_s for edge in edges), np.float64, len(edges))

    def w(self, placement: Placement) -> float:
        (topology,) = self._case.topologies
        if self._case.traffic is None:
            return cost(self._case, {topology.id: placement}).inter_node_edges
        node = {node.id: at for at, node in enumerate(self._case.cluster.nodes)}
        homes = (placement.assignments.get(executor) for executor in topology.executors)
        at = np.fromiter((-1 if slot is None else node[slot.node] for slot in homes), np.int64)
        one, other = at[self._sources], at[self._targets]
        return float(self._rates[(one != other) & (one >= 0) & (other >= 0)].sum())


def answer(name: str, case: Problem, judge: Judge) -> Result:
    """Place once, in this process."""
    kind, params = CASES.get(name, (name, {}))
    scheduler = make_scheduler(kind, plain_parameters(dict(params), "params"))
    begun, start = process_time(), perf_counter()
    plan = scheduler.inner.place(case)
    cpu, wall = process_time() - begun, perf_counter() - start
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB
    begun = process_time()
    faults = plan_faults(case, plan)
    check = process_time() - begun
    if faults:
        raise RunError(faults[0])
    (placement,) = plan.placements.values()
    note = "" if placement.status == "placed" else f"{placement.status}: {placement.message}"
    if "proven" in plan.details:
        note = "proven" if plan.details["proven"] else "not proven"
    return Result(cpu, wall, check, mb, judge.w(placement), note)


def apart(name: str, case: Problem, judge: Judge, seconds: float, memory_gb: float) -> Result | str:
    """`answer` in a process of its own; a text says why there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        limit = int(memory_gb * MB**3)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 10))
        try:
            found: dict[str, Any] = asdict(answer(name, case, judge))
        except MemoryError:
            found = {"why": f"more than {memory_gb:g} GB"}
        except MillraceError as fault:
            found = {"why": str(fault)[:200]}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        os.close(read)
        return f"more than {seconds:g} s"
    text = os.read(read, 1 << 16)
    os.close(read)
    if not text:
        return f"ended, probably for more than {memory_gb:g} GB"
    data = json.loads(text)
    return str(data["why"]) if "why" in data else Result(**data)


def sizes(most: int = 10_000_000) -> Iterator[int]:
    """10, 20, 50, 100, ..."""
    at = 10
    while at <= most:
        yield from (at, 2 * at, 5 * at)
        at *= 10


def exponent(results: Mapping[int, Result], first: int, last: int) -> str:
    if first not in results or last not in results or first == last:
        return ""
    times = [max(0.001, results[size].cpu) for size in (first, last)]
    return f"{log(times[1] / times[0]) / log(last / first):.2f}"


def table(kind: str, names: list[str], executors: list[int], seconds: float, memory_gb: float) -> None:
    """Print one row per case, then growth."""
    print(f"\n{kind}, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| executors | scheduler | CPU s | s | check, CPU s | MB | W | |\n|---|---|---|---|---|---|---|---|", flush=True
    )
    found: dict[str, dict[int, Result]] = {name: {} for name in names}
    for size in executors:
        case = problem(kind, size)
        judge = Judge(case)
        gc.collect()
        gc.freeze()  # the problem's pages stay shared with the children
        for name in names:
            if case.traffic is None and name in TRAFFIC_REQUIRED:
                continue
            got = apart(name, case, judge, seconds, memory_gb)
            if isinstance(got, str):
                print(f"| {size:,} | {name} | | | | | | {got} |", flush=True)
                continue
            found[name][size] = got
            times = f"{got.cpu:.2f} | {got.wall:.2f} | {got.check:.2f}"
            print(f"| {size:,} | {name} | {times} | {got.mb:,.0f} | {got.w:,.0f} | {got.note} |")
            sys.stdout.flush()
        gc.unfreeze()
        del case, judge
    first, last = executors[0], executors[-1]
    print(f"\n| scheduler | exponent, {first:,} to {last:,} | of the last step |\n|---|---|---|")
    for name, results in found.items():
        if results:
            step = exponent(results, executors[max(0, len(executors) - 2)], last)
            print(f"| {name} | {exponent(results, first, last)} | {step} |", flush=True)


def largest(kind: str, names: list[str], seconds: float, memory_gb: float) -> None:
    """Print the largest size that each scheduler answers."""
    print(f"\n{kind}, load {os.getloadavg()[0]:.1f}\n")
    print("| scheduler | executors | CPU s | MB | the next size |\n|---|---|---|---|---|", flush=True)
    for name in names:
        before = ""
        for size in sizes():
            case = problem(kind, size)
            got = apart(name, case, Judge(case), seconds, memory_gb)
            if isinstance(got, str):
                print(f"| {name} | {before} | {got} |", flush=True)
                break
            before = f"{size:,} {got.note} | {got.cpu:.1f} | {got.mb:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", nargs="+")
    parser.add_argument("--topologies", nargs="+", choices=("layered", "products"), default=["layered", "products"])
    parser.add_argument("--executors", nargs="+", type=int, default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--memory-gb", type=float, default=8)
    parser.add_argument("--largest", action="store_true")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    names = chosen.schedulers or list(REST if chosen.largest else NAMED)
    for kind in chosen.topologies:
        if chosen.largest:
            largest(kind, names, chosen.seconds, chosen.memory_gb)
        else:
            table(kind, names, sorted(chosen.executors), chosen.seconds, chosen.memory_gb)


if __name__ == "__main__":
    main()
