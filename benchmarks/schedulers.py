"""Measure W and CPU time of `optimal`, `local-search` and `i-scheduler`, beside METIS, CP-SAT and greedy growth.

    .venv/bin/python benchmarks/schedulers.py [--max-executors 10000] [--peer-seconds 5] [--figure quality.svg]
        [--calibrate]

Three sets: I-Scheduler's 72 micro-benchmarks, its applications, and random layered graphs and chains on nodes of five
sizes. W is the rate between nodes. Every placement is validated. METIS (k-way and recursive, several tolerances)
is repaired where it exceeds a capacity, and also refined as `local-search` refines its own starts.
`--calibrate` prints theta and phi for `scheduler/algorithms/i_scheduler.py` instead.
"""

import argparse
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from partitioners.peer_client import make_task, metis_tasks, refine, repair_capacities, solve_tasks

from inventory.cluster import Cluster, Node
from scheduler.algorithms.i_scheduler import IScheduler, ISchedulerParams
from scheduler.algorithms.local_search import LocalSearch, LocalSearchParams
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning.instance import Instance, instance_of
from scheduler.partitioning.solving import deal, solve
from scheduler.problem import Plan, Problem
from scheduler.registry import Checked
from scheduler.toolkit.cost import cost
from workloads.example_topologies import MICRO_SIZES, chain, diamond, layered, linear, smart_home, star, taxi

TIME_LIMITS = {1_000: 1, 10_000: 5, 100_000: 30}
"""Seconds by number of executors."""

NODE_SIZES = (8, 16, 24, 32, 48)

MARKERS = (
    ("local-search", "o", "C3"),
    ("METIS recursive, refined", "s", "C0"),
    ("METIS k-way, refined", "^", "C1"),
    ("METIS recursive", "s", "C9"),
    ("METIS k-way", "^", "C8"),
    ("greedy", "x", "0.3"),
)
"""Tool, marker and colour in the figure."""

MAX_RATIO = 1.6
"""Attempts with a higher W, as a multiple of the lowest, are not drawn."""


@dataclass
class Result:
    """Result of one tool on one problem."""

    w: float | None
    seconds: float
    proven: bool = False


def make_cluster(capacities: list[int]) -> Cluster:
    """Return nodes of these capacities."""
    return Cluster(tuple(Node(id=f"n{at:05d}", capacity=c, slots=64) for at, c in enumerate(capacities)))


def micro_benchmarks() -> Iterator[tuple[str, Problem]]:
    """Yield the name of the set and the problem of I-Scheduler's 72 micro-benchmarks."""
    clusters = {"homogeneous": make_cluster([4] * 10), "heterogeneous": make_cluster([6] * 3 + [4] * 3 + [2] * 4)}
    for shape in (linear, diamond, star):
        for name, nodes in clusters.items():
            for size in MICRO_SIZES:
                yield f"{shape.__name__}, {name}", Problem(nodes, (shape(size),))


def applications() -> Iterator[tuple[str, Problem]]:
    """Yield the name and the problem of I-Scheduler's four applications."""
    yield "smart homes, 8 high", Problem(make_cluster([10] * 8), (smart_home(),))
    yield "smart homes, 2 high + 4 low", Problem(make_cluster([10] * 2 + [5] * 4), (smart_home(),))
    yield "taxi, 8 high", Problem(make_cluster([15] * 8), (taxi(),))
    yield "taxi, 2 high + 2 low", Problem(make_cluster([15] * 2 + [8] * 2), (taxi(),))


def mixed_cluster(executors: int, seed: int) -> Cluster:
    """Return nodes of five sizes with a total capacity of 1.15 times the executors."""
    random = Random(seed)  # noqa: S311 - no secret
    sizes: list[int] = []
    while sum(sizes) < 1.15 * executors:
        sizes.append(random.choice(NODE_SIZES))
    return make_cluster(sizes)


def inter_node_rate(problem: Problem, plan: Plan) -> float | None:
    """Return W; None when an executor is not placed."""
    if any(placement.status != "placed" for placement in plan.placements.values()):
        return None
    costs = cost(problem, plan.placements)
    return costs.inter_node_edges if costs.inter_node_tuples_per_s is None else costs.inter_node_tuples_per_s


def measure_scheduler(scheduler: Checked, problem: Problem) -> Result:
    """Place once with a validated scheduler."""
    start = process_time()
    plan = scheduler.place(problem)
    seconds = process_time() - start
    return Result(inter_node_rate(problem, plan), seconds, bool(plan.details.get("proven")))


def measure_method(instance: Instance, method: Callable[[], list[int] | None], before: float = 0) -> Result:
    """Return W and seconds of `method`, plus `before` seconds."""
    start = process_time()
    nodes = method()
    seconds = before + process_time() - start
    if nodes is None or not instance.fits(nodes):
        return Result(None, seconds)
    return Result(instance.cut(nodes) / instance.rate_scale, seconds)


def nodes_of(order: list[int], part: list[int]) -> list[int]:
    """Return the node of each executor from the part of each and the node of each part."""
    return [order[p] for p in part]


def measure_metis(instance: Instance) -> dict[str, list[Result]]:
    """Return the results of all METIS attempts by kind, plain and refined."""
    task, order = make_task(instance)
    results: dict[str, list[Result]] = {}
    tasks = metis_tasks(task)
    for attempt, answer in zip(tasks, solve_tasks(tasks), strict=True):
        kind = f"METIS {'recursive' if attempt['recursive'] else 'k-way'}"
        start = process_time()
        part = answer["part"] and repair_capacities(task, task["cap"], answer["part"])
        seconds = answer["seconds"] + process_time() - start
        if part is None:
            results.setdefault(kind, []).append(Result(None, seconds))
            continue
        plain = measure_method(instance, partial(nodes_of, order, part), seconds)
        results.setdefault(kind, []).append(plain)
        refined = measure_method(instance, partial(refine, instance, order, part), seconds)
        results.setdefault(f"{kind}, refined", []).append(refined)
    return results


def measure_cp_sat(instance: Instance, limit: float) -> Result:
    """Run CP-SAT on the whole problem, for `limit` seconds at most."""
    task, order = make_task(instance)
    (answer,) = solve_tasks([{**task, "peer": "cp-sat", "seconds": limit}])
    part = answer["part"]
    nodes = part and [order[p] for p in part]
    total = instance.cut(nodes) / instance.rate_scale if nodes and instance.fits(nodes) else None
    return Result(total, answer["seconds"], answer["proven"])


def best(results: list[Result]) -> Result:
    """Return the lowest W, with the time of all attempts."""
    seconds = sum(result.seconds for result in results)
    return replace(min(results, key=lambda r: float("inf") if r.w is None else r.w), seconds=seconds)


def print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print a Markdown table."""
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def print_published_cases(cases: list[tuple[str, Problem]], cp_seconds: float) -> None:
    """Print the number of optima, the sum of W and the longest time per set and tool."""
    tools = {
        "optimal": Checked(Optimal, OptimalParams()),
        "local-search": Checked(LocalSearch, LocalSearchParams()),
        "i-scheduler": Checked(IScheduler, ISchedulerParams()),
        "i-scheduler, fallback": Checked(IScheduler, ISchedulerParams(theta=0)),
    }
    groups: dict[str, dict[str, list[Result]]] = {}
    for name, problem in cases:
        group = groups.setdefault(name, {})
        instance = instance_of(problem, problem.topologies)
        for tool, scheduler in tools.items():
            group.setdefault(tool, []).append(measure_scheduler(scheduler, problem))
        group.setdefault("greedy", []).append(measure_method(instance, partial(deal, instance)))
        for tool, results in measure_metis(instance).items():
            group.setdefault(tool, []).append(best(results))
        if cp_seconds:
            group.setdefault("CP-SAT", []).append(measure_cp_sat(instance, cp_seconds))
    rows = []
    for name, group in groups.items():
        optima = [result.w for result in group["optimal"]]
        for tool, of_tool in group.items():
            hits = sum(a.w == b for a, b in zip(of_tool, optima, strict=True))
            proven = sum(result.proven for result in of_tool)
            total = sum(result.w or 0 for result in of_tool)
            rows.append(
                (
                    name,
                    tool,
                    f"{hits}/{len(of_tool)}",
                    f"{proven}" if proven else "",
                    f"{total:g}",
                    f"{1000 * max(result.seconds for result in of_tool):.0f}",
                )
            )
    print_table(("set", "tool", "optima", "proven", "sum of W", "longest, ms"), rows)


def print_scale(max_executors: int) -> list[tuple[int, str, Result]]:
    """Print `local-search` beside METIS on layered graphs and chains; return all attempts for the figure."""
    points: list[tuple[int, str, Result]] = []
    rows = []
    for executors in (size for size in TIME_LIMITS if size <= max_executors):
        topology, traffic = layered(executors, 1)
        for name, problem in (
            ("layered", Problem(mixed_cluster(executors, 5), (topology,), traffic)),
            ("chain", Problem(mixed_cluster(executors, 5), (chain(executors),))),
        ):
            # Ten times the usual limit: other processes on the machine must not change the result.
            params = LocalSearchParams(time_limit_s=10 * TIME_LIMITS[executors])
            result = measure_scheduler(Checked(LocalSearch, params), problem)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            instance = instance_of(problem, problem.topologies)
            unplaced, lower_bound = executors, -1
            for capacity in sorted(instance.capacity, reverse=True):
                unplaced, lower_bound = unplaced - capacity, lower_bound + (unplaced > 0)
            attempts = {"local-search": [result], **measure_metis(instance)}
            if executors < 100_000:  # greedy growth takes minutes for more
                attempts["greedy"] = [measure_method(instance, partial(deal, instance))]
            lowest = min(r.w for results in attempts.values() for r in results if r.w is not None)
            for tool, results in attempts.items():
                first = best(results)
                if name == "layered":
                    points.extend((executors, tool, each) for each in results)
                rows.append(
                    (
                        f"{name} {executors:,}",
                        tool,
                        "" if first.w is None else f"{first.w:,.10g}",
                        "" if first.w is None else f"{first.w / lowest:.3f}",
                        f"{lower_bound}" if name == "chain" else "",
                        f"{len(results)}",
                        f"{first.seconds:.2f}",
                        f"{peak}" if tool == "local-search" else "",
                    )
                )
    head = ("graph", "tool", "W", "W / best", "lower bound", "attempts", "CPU s, all attempts", "peak MB so far")
    print_table(head, rows)
    return points


def draw(points: list[tuple[int, str, Result]], path: Path) -> None:
    """Plot W, as a multiple of the lowest, against CPU seconds; one panel per size."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "schedulers", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    sizes = sorted({size for size, _, _ in points})
    figure, panels = plt.subplots(1, len(sizes), figsize=(4 * len(sizes), 3.4), squeeze=False, layout="constrained")
    for panel, size in zip(panels[0], sizes, strict=True):
        valid = [(tool, r.seconds, r.w) for at, tool, r in points if at == size and r.w is not None]
        lowest = min(w for _, _, w in valid)
        for tool, marker, colour in MARKERS:
            seconds = [seconds for name, seconds, _ in valid if name == tool]
            ratios = [w / lowest for name, _, w in valid if name == tool]
            panel.scatter(seconds, ratios, marker=marker, color=colour, label=tool, s=28)
        panel.set(xscale="log", title=f"{size:,} executors", xlabel="CPU seconds", ylabel="W / lowest W")
        panel.set_ylim(0.98, MAX_RATIO)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, which="both", alpha=0.25)
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    print(f"figure: {path}")


def has_passed(time_s: float) -> bool:
    """Return whether `perf_counter` is past a time."""
    return perf_counter() > time_s


def calibrate() -> None:
    """Print the longest time of the optimiser for a micro-benchmark by size."""
    print("| phi | seconds, longest |\n|---|---|")
    for size in range(12, 65, 4):
        times = []
        for shape in (linear, diamond, star):
            for nodes in (make_cluster([4] * 18), make_cluster([6] * 5 + [4] * 6 + [2] * 8)):
                problem = Problem(nodes, (shape(size),))
                instance = instance_of(problem, problem.topologies)
                start = perf_counter()
                solve(instance, partial(has_passed, start + 20), 0)
                times.append(perf_counter() - start)
        print(f"| {size} | {max(times):.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-executors", type=int, default=100_000, help="largest layered graph and chain")
    parser.add_argument("--peer-seconds", type=float, default=5, help="time limit of CP-SAT per case; 0 omits CP-SAT")
    parser.add_argument("--figure", type=Path, default=Path("quality.svg"), help="figure of W against CPU seconds")
    parser.add_argument("--calibrate", action="store_true", help="print theta and phi of i-scheduler instead")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if chosen.calibrate:
        calibrate()
        return
    print_published_cases(list(micro_benchmarks()), chosen.peer_seconds)
    print()
    print_published_cases(list(applications()), chosen.peer_seconds)
    print()
    draw(print_scale(chosen.max_executors), chosen.figure)


if __name__ == "__main__":
    main()
