"""How good and how fast `optimal`, `local-search` and `i-scheduler` are, beside METIS, CP-SAT and greedy growth.

    .venv/bin/python benchmarks/schedulers.py [--largest 10000] [--peer-seconds 5] [--figure quality.svg] [--calibrate]

Three sets: I-Scheduler's 72 micro-benchmarks, its applications, and random layered graphs and chains on nodes of five
sizes. W is the rate between nodes; every placement is checked. METIS (k-way and recursive, several tolerances) is
made to fit, and also refined as `local-search` refines its own starts. Seconds are CPU seconds.
`--calibrate` prints theta and phi for `scheduler/algorithms/i_scheduler.py` instead.
"""

import argparse
import os
import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from time import perf_counter, process_time

from partitioners.rivals import ask, legal, metis_tasks, posed, refined

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

LIMITS = {1_000: 1, 10_000: 5, 100_000: 30}
SIZES = (8, 16, 24, 32, 48)


MARKS = (
    ("local-search", "o", "C3"),
    ("METIS recursive, refined", "s", "C0"),
    ("METIS k-way, refined", "^", "C1"),
    ("METIS recursive", "s", "C9"),
    ("METIS k-way", "^", "C8"),
    ("greedy", "x", "0.3"),
)
"""Tool, marker and colour in the figure."""

WORST = 1.6
"""Attempts above are not drawn."""


@dataclass
class Result:
    """What one tool did on one problem."""

    w: float | None
    seconds: float
    proven: bool = False


def cluster(capacities: list[int]) -> Cluster:
    return Cluster(tuple(Node(id=f"n{at:05d}", capacity=c, slots=64) for at, c in enumerate(capacities)))


def micro() -> Iterator[tuple[str, Problem]]:
    clusters = {"homogeneous": cluster([4] * 10), "heterogeneous": cluster([6] * 3 + [4] * 3 + [2] * 4)}
    for shape in (linear, diamond, star):
        for name, nodes in clusters.items():
            for size in MICRO_SIZES:
                yield f"{shape.__name__}, {name}", Problem(nodes, (shape(size),))


def applications() -> Iterator[tuple[str, Problem]]:
    yield "smart homes, 8 high", Problem(cluster([10] * 8), (smart_home(),))
    yield "smart homes, 2 high + 4 low", Problem(cluster([10] * 2 + [5] * 4), (smart_home(),))
    yield "taxi, 8 high", Problem(cluster([15] * 8), (taxi(),))
    yield "taxi, 2 high + 2 low", Problem(cluster([15] * 2 + [8] * 2), (taxi(),))


def mixed(executors: int, seed: int) -> Cluster:
    """Nodes of five sizes that hold 1.15 times the executors."""
    random, sizes = Random(seed), []  # noqa: S311 - no secret
    while sum(sizes) < 1.15 * executors:
        sizes.append(random.choice(SIZES))
    return cluster(sizes)


def w(problem: Problem, plan: Plan) -> float | None:
    if any(placement.status != "placed" for placement in plan.placements.values()):
        return None
    judged = cost(problem, plan.placements)
    return judged.inter_node_edges if judged.inter_node_tuples_per_s is None else judged.inter_node_tuples_per_s


def run(scheduler: Checked, problem: Problem) -> tuple[Result, Plan]:
    start = process_time()
    plan = scheduler.place(problem)
    seconds = process_time() - start
    return Result(w(problem, plan), seconds, bool(plan.details.get("proven"))), plan


def timed(instance: Instance, method: Callable[[], list[int] | None], before: float = 0) -> Result:
    """W and seconds of `method`, `before` more."""
    start = process_time()
    nodes = method()
    seconds = before + process_time() - start
    if nodes is None or not instance.fits(nodes):
        return Result(None, seconds)
    return Result(instance.cut(nodes) / instance.rate_scale, seconds)


def metis(instance: Instance) -> dict[str, list[Result]]:
    """METIS by kind, every attempt, as it comes and refined."""
    task, order = posed(instance)
    found: dict[str, list[Result]] = {}
    tasks = metis_tasks(task)
    for asked, answer in zip(tasks, ask(tasks), strict=True):
        kind = f"METIS {'recursive' if asked['recursive'] else 'k-way'}"
        start = process_time()
        part = answer["part"] and legal(task, task["cap"], answer["part"])
        seconds = answer["seconds"] + process_time() - start
        if part is None:
            found.setdefault(kind, []).append(Result(None, seconds))
            continue
        plain = timed(instance, lambda part=part: [order[p] for p in part], seconds)
        found.setdefault(kind, []).append(plain)
        better = timed(instance, lambda part=part: refined(instance, order, part), seconds)
        found.setdefault(f"{kind}, refined", []).append(better)
    return found


def cp_sat(instance: Instance, limit: float) -> Result:
    """CP-SAT alone."""
    task, order = posed(instance)
    (answer,) = ask([{**task, "peer": "cp-sat", "seconds": limit}])
    part = answer["part"]
    nodes = part and [order[p] for p in part]
    total = instance.cut(nodes) / instance.rate_scale if nodes and instance.fits(nodes) else None
    return Result(total, answer["seconds"], answer["proven"])


def best(results: list[Result]) -> Result:
    """The lowest W, with the time of all attempts."""
    seconds = sum(result.seconds for result in results)
    return replace(min(results, key=lambda r: float("inf") if r.w is None else r.w), seconds=seconds)


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def published(cases: list[tuple[str, Problem]], cp_seconds: float) -> None:
    """Per group and tool: how many optima, the sum of W, the longest time."""
    tools = {
        "optimal": Checked(Optimal, OptimalParams()),
        "local-search": Checked(LocalSearch, LocalSearchParams()),
        "i-scheduler": Checked(IScheduler, ISchedulerParams()),
        "i-scheduler, fallback": Checked(IScheduler, ISchedulerParams(theta=0)),
    }
    groups: dict[str, dict[str, list[Result]]] = {}
    for name, problem in cases:
        into = groups.setdefault(name, {})
        instance = instance_of(problem, problem.topologies)
        for tool, scheduler in tools.items():
            into.setdefault(tool, []).append(run(scheduler, problem)[0])
        into.setdefault("greedy", []).append(timed(instance, lambda instance=instance: deal(instance)))
        for tool, results in metis(instance).items():
            into.setdefault(tool, []).append(best(results))
        if cp_seconds:
            into.setdefault("CP-SAT", []).append(cp_sat(instance, cp_seconds))
    rows = []
    for name, results in groups.items():
        optima = [result.w for result in results["optimal"]]
        for tool, mine in results.items():
            hits = sum(a.w == b for a, b in zip(mine, optima, strict=True))
            proven = sum(result.proven for result in mine)
            total = sum(result.w or 0 for result in mine)
            rows.append(
                (
                    name,
                    tool,
                    f"{hits}/{len(mine)}",
                    f"{proven}" if proven else "",
                    f"{total:g}",
                    f"{1000 * max(result.seconds for result in mine):.0f}",
                )
            )
    table(("set", "tool", "optima", "proven", "sum of W", "longest, ms"), rows)


def scale(largest: int) -> list[tuple[int, str, Result]]:
    """Layered graphs and chains, ours beside METIS; returns all attempts for the figure."""
    points: list[tuple[int, str, Result]] = []
    rows = []
    for executors in (size for size in LIMITS if size <= largest):
        topology, traffic = layered(executors, 1)
        for name, problem in (
            ("layered", Problem(mixed(executors, 5), (topology,), traffic)),
            ("chain", Problem(mixed(executors, 5), (chain(executors),))),
        ):
            # The clock must not decide: others may be at work on the machine.
            result, _ = run(Checked(LocalSearch, LocalSearchParams(time_limit_s=10 * LIMITS[executors])), problem)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            instance = instance_of(problem, problem.topologies)
            need, least = executors, -1
            for capacity in sorted(instance.capacity, reverse=True):
                need, least = need - capacity, least + (need > 0)
            attempts = {"local-search": [result], **metis(instance)}
            if executors < 100_000:  # takes minutes there
                attempts["greedy"] = [timed(instance, lambda instance=instance: deal(instance))]
            lowest = min(r.w for all_of_them in attempts.values() for r in all_of_them if r.w is not None)
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
                        f"{least}" if name == "chain" else "",
                        f"{len(results)}",
                        f"{first.seconds:.2f}",
                        f"{peak}" if tool == "local-search" else "",
                    )
                )
    table(("graph", "tool", "W", "W / best", "lower bound", "attempts", "CPU s, all attempts", "peak MB so far"), rows)
    return points


def draw(points: list[tuple[int, str, Result]], path: Path) -> None:
    """W, as a multiple of the lowest, against seconds; one panel per size."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "schedulers", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    sizes = sorted({size for size, _, _ in points})
    figure, panels = plt.subplots(1, len(sizes), figsize=(4 * len(sizes), 3.4), squeeze=False, layout="constrained")
    for panel, size in zip(panels[0], sizes, strict=True):
        mine = [(tool, r) for at, tool, r in points if at == size and r.w is not None]
        lowest = min(r.w for _, r in mine)
        for tool, marker, colour in MARKS:
            chosen = [r for name, r in mine if name == tool]
            seconds, ratios = [r.seconds for r in chosen], [r.w / lowest for r in chosen]
            panel.scatter(seconds, ratios, marker=marker, color=colour, label=tool, s=28)
        panel.set(xscale="log", title=f"{size:,} executors", xlabel="CPU seconds", ylabel="W / lowest W")
        panel.set_ylim(0.98, WORST)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, which="both", alpha=0.25)
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None})
    print(f"figure: {path}")


def calibrate() -> None:
    """For each size, the longest that the optimiser takes for a micro-benchmark of that size."""
    print("| phi | seconds, longest |\n|---|---|")
    for size in range(12, 65, 4):
        times = []
        for shape in (linear, diamond, star):
            for nodes in (cluster([4] * 18), cluster([6] * 5 + [4] * 6 + [2] * 8)):
                problem = Problem(nodes, (shape(size),))
                instance = instance_of(problem, problem.topologies)
                start = perf_counter()
                solve(instance, lambda start=start: perf_counter() - start > 20, 0)
                times.append(perf_counter() - start)
        print(f"| {size} | {max(times):.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--largest", type=int, default=100_000, help="most executors of the graphs for scale")
    parser.add_argument("--peer-seconds", type=float, default=5, help="for CP-SAT, per case")
    parser.add_argument("--figure", type=Path, default=Path("quality.svg"), help="quality against time")
    parser.add_argument("--calibrate", action="store_true")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if chosen.calibrate:
        calibrate()
        return
    published(list(micro()), chosen.peer_seconds)
    print()
    published(list(applications()), chosen.peer_seconds)
    print()
    draw(scale(chosen.largest), chosen.figure)


if __name__ == "__main__":
    main()
