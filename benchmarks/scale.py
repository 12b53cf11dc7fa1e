"""Measure time, memory and growth of schedulers from a thousand to a million executors.

    .venv/bin/python benchmarks/scale.py [--schedulers even top-storm] [--topologies layered products]
        [--executors 1000 10000 100000 1000000] [--seconds 300] [--memory-gb 8] [--largest]

Two topologies: a random layered graph of small components with observed traffic (ten pairs per executor), and one of
few large components without traffic, whose pairs (up to 10^9) are never listed. A node hosts about a hundred executors:
nodes have three sizes and are in racks of forty; one worker per node is requested. Every plan is validated as in
`millrace place`, which is not part of the measured time. Each case runs in a process of its own with limits on CPU time
and memory. Its peak memory includes the problem. The growth exponent is the slope of log time over log executors
between two sizes.

`--largest` finds the largest size, in steps of 1, 2, 5, that a scheduler places in `--seconds`.
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

EXECUTORS_PER_NODE = 100
NODE_SIZES = (100, 115, 130)
"""Capacities in executors."""

NODES_PER_RACK = 40
SLOTS, HEAP_MB = 5, 4096.0

DEFAULT_CASES = (
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
LARGEST_CASES = ("pmod", "pipeline-linear", "er-stream", "optimal")

PARAMETERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "local-search": ("local-search", {"time_limit_s": 240.0}),
    "local-search, fast": ("local-search", {"preset": "fast", "time_limit_s": 240.0}),
    "local-search, no limit": ("local-search", {"time_limit_s": 86_400.0}),
    "resource-aware": ("resource-aware", {"time_limit_s": 86_400.0}),
}
"""Row -> scheduler and parameters; other rows are schedulers without parameters."""

TRAFFIC_REQUIRED = ("p-scheduler", "aniello-online")

MB = 1024


@dataclass
class Result:
    """Result of one scheduler; CPU seconds, except `wall`."""

    cpu: float
    wall: float
    check: float
    mb: float
    w: float
    note: str


def make_cluster(executors: int) -> Cluster:
    """Return nodes of three alternating sizes in racks."""
    nodes = []
    for at in range(-(-executors // EXECUTORS_PER_NODE)):
        size = NODE_SIZES[at % len(NODE_SIZES)]
        nodes.append(
            Node(
                id=f"n{at:05d}",
                rack=f"r{at // NODES_PER_RACK:03d}",
                slots=SLOTS,
                cpu=10.0 * size,
                memory_mb=128.0 * size,
                capacity=float(size),
                ghz=2.0 + 0.2 * (at % len(NODE_SIZES)),
                flops_per_cycle=16.0,
            )
        )
    return Cluster(tuple(nodes))


def make_problem(kind: str, executors: int) -> Problem:
    """Return the problem of a topology with about `executors`."""
    cluster = make_cluster(executors)
    traffic = None
    if kind == "layered":
        topology, traffic = layered(executors, 1, widest=8)
    else:
        parallelism = round(executors**0.5)
        topology = products(executors // parallelism, parallelism, 1)
    requested = replace(topology, workers=len(cluster.nodes), worker_max_heap_mb=HEAP_MB)
    return Problem(cluster, (requested,), traffic)


class RateBetweenNodes:
    """W of placements, with the observed pairs of a problem as arrays."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        if problem.traffic is None:
            return
        (topology,) = problem.topologies
        number = {executor.name: at for at, executor in enumerate(topology.executors)}
        edges = problem.traffic.edges
        self._sources = np.fromiter((number[edge.source] for edge in edges), np.int64, len(edges))
        self._targets = np.fromiter((number[edge.destination] for edge in edges), np.int64, len(edges))
        self._rates = np.fromiter((edge.tuples_per_s for edge in edges), np.float64, len(edges))

    def of(self, placement: Placement) -> float:
        """Return W in tuples per second; the number of cut pairs without traffic."""
        (topology,) = self._problem.topologies
        if self._problem.traffic is None:
            return cost(self._problem, {topology.id: placement}).inter_node_edges
        node = {node.id: at for at, node in enumerate(self._problem.cluster.nodes)}
        slots = (placement.assignments.get(executor) for executor in topology.executors)
        at = np.fromiter((-1 if slot is None else node[slot.node] for slot in slots), np.int64)
        source, target = at[self._sources], at[self._targets]
        return float(self._rates[(source != target) & (source >= 0) & (target >= 0)].sum())


def place(name: str, problem: Problem, w: RateBetweenNodes) -> Result:
    """Place once in this process.

    Raises:
        MillraceError: the scheduler refuses the problem, or its plan is invalid.
    """
    scheduler_name, params = PARAMETERS.get(name, (name, {}))
    scheduler = make_scheduler(scheduler_name, plain_parameters(dict(params), "params"))
    cpu_begin, wall_begin = process_time(), perf_counter()
    plan = scheduler.inner.place(problem)
    cpu, wall = process_time() - cpu_begin, perf_counter() - wall_begin
    mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MB
    check_begin = process_time()
    faults = plan_faults(problem, plan)
    check = process_time() - check_begin
    if faults:
        raise RunError(faults[0])
    (placement,) = plan.placements.values()
    note = "" if placement.status == "placed" else f"{placement.status}: {placement.message}"
    if "proven" in plan.details:
        note = "proven" if plan.details["proven"] else "not proven"
    return Result(cpu, wall, check, mb, w.of(placement), note)


def place_in_process(
    name: str, problem: Problem, w: RateBetweenNodes, seconds: float, memory_gb: float
) -> Result | str:
    """Place in a child process with limits; return the result, or why there is none."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        limit = int(memory_gb * MB**3)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 10))
        try:
            answer: dict[str, Any] = asdict(place(name, problem, w))
        except MemoryError:
            answer = {"failure": f"more than {memory_gb:g} GB"}
        except MillraceError as error:
            answer = {"failure": str(error)[:200]}
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        os.close(read)
        return f"more than {seconds:g} s"
    text = os.read(read, 1 << 16)
    os.close(read)
    if not text:
        return f"process ended, probably for more than {memory_gb:g} GB"
    data = json.loads(text)
    return str(data["failure"]) if "failure" in data else Result(**data)


def sizes(largest_power: int = 10_000_000) -> Iterator[int]:
    """Yield 10, 20, 50, 100, ..."""
    power = 10
    while power <= largest_power:
        yield from (power, 2 * power, 5 * power)
        power *= 10


def growth_exponent(results: Mapping[int, Result], first: int, last: int) -> str:
    """Return the growth exponent of CPU time as text; empty without both results."""
    if first not in results or last not in results or first == last:
        return ""
    times = [max(0.001, results[size].cpu) for size in (first, last)]
    return f"{log(times[1] / times[0]) / log(last / first):.2f}"


def print_cases(kind: str, names: list[str], executors: list[int], seconds: float, memory_gb: float) -> None:
    """Print a row per case, then the growth of each scheduler."""
    print(f"\n{kind}, load {os.getloadavg()[0]:.1f}\n")
    print("| executors | scheduler | CPU s | s | validation, CPU s | MB | W | |\n|---|---|---|---|---|---|---|---|")
    sys.stdout.flush()
    by_name: dict[str, dict[int, Result]] = {name: {} for name in names}
    for size in executors:
        problem = make_problem(kind, size)
        w = RateBetweenNodes(problem)
        gc.collect()
        gc.freeze()  # keeps the problem's pages shared with the children
        for name in names:
            if problem.traffic is None and name in TRAFFIC_REQUIRED:
                continue
            result = place_in_process(name, problem, w, seconds, memory_gb)
            if isinstance(result, str):
                print(f"| {size:,} | {name} | | | | | | {result} |", flush=True)
                continue
            by_name[name][size] = result
            times = f"{result.cpu:.2f} | {result.wall:.2f} | {result.check:.2f}"
            print(f"| {size:,} | {name} | {times} | {result.mb:,.0f} | {result.w:,.0f} | {result.note} |", flush=True)
        gc.unfreeze()
        del problem, w
    first, last = executors[0], executors[-1]
    print(f"\n| scheduler | exponent, {first:,} to {last:,} | of the last step |\n|---|---|---|")
    for name, results in by_name.items():
        if results:
            step = growth_exponent(results, executors[max(0, len(executors) - 2)], last)
            print(f"| {name} | {growth_exponent(results, first, last)} | {step} |", flush=True)


def print_largest(kind: str, names: list[str], seconds: float, memory_gb: float) -> None:
    """Print the largest size that each scheduler places."""
    print(f"\n{kind}, load {os.getloadavg()[0]:.1f}\n")
    print("| scheduler | executors | CPU s | MB | the next size |\n|---|---|---|---|---|", flush=True)
    for name in names:
        previous = ""
        for size in sizes():
            problem = make_problem(kind, size)
            result = place_in_process(name, problem, RateBetweenNodes(problem), seconds, memory_gb)
            if isinstance(result, str):
                print(f"| {name} | {previous} | {result} |", flush=True)
                break
            previous = f"{size:,} {result.note} | {result.cpu:.1f} | {result.mb:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", nargs="+")
    parser.add_argument("--topologies", nargs="+", choices=("layered", "products"), default=["layered", "products"])
    parser.add_argument("--executors", nargs="+", type=int, default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--seconds", type=float, default=300, help="limit of CPU time per case")
    parser.add_argument("--memory-gb", type=float, default=8, help="limit of memory per case")
    parser.add_argument("--largest", action="store_true", help="find the largest size instead")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    names = chosen.schedulers or list(LARGEST_CASES if chosen.largest else DEFAULT_CASES)
    for kind in chosen.topologies:
        if chosen.largest:
            print_largest(kind, names, chosen.seconds, chosen.memory_gb)
        else:
            print_cases(kind, names, sorted(chosen.executors), chosen.seconds, chosen.memory_gb)


if __name__ == "__main__":
    main()
