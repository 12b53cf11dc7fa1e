"""Measure what `optimal` proves: 20 random cases of 60 to 100 executors, or published benchmarks in two racks.

    .venv/bin/python benchmarks/proofs.py [--seconds 60] [--cases 1 20] [--racks] [--peer-seeds 10]
        [--results proofs.jsonl]

Random cases are `layered` topologies on nodes of 4 to 12 executors, with a total capacity of 1.15 times the executors.
Odd seeds have observed rates; for even seeds every communicating pair has rate 1. The limit is CPU time. `--racks`
measures the minimum cost of the 72 micro-benchmarks and the four applications, with the first half of the nodes in one
rack and the rest in another, beside Mt-KaHyPar on the same target graph; an answer above a capacity is invalid. Every
case is printed as soon as it ends. `--results` also appends it to a file, and skips cases that the file has, so that
cases can be run in parts. The table at the end has all results of the file.
"""

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired
from time import process_time
from typing import Any
from unittest import mock

from msgspec.structs import replace as replaced
from partitioners.peer_client import make_task, solve_tasks
from schedulers import applications, make_cluster, micro_benchmarks, print_table

from scheduler.algorithms import optimal
from scheduler.algorithms.local_search import LocalSearch, LocalSearchParams
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning.hops import hop_table
from scheduler.partitioning.instance import instance_of
from scheduler.problem import Problem
from scheduler.registry import Checked
from scheduler.toolkit.objective import objective_value
from workloads.example_topologies import layered

NODE_SIZES = (4, 6, 8, 12)
PRESETS = ("DEFAULT", "QUALITY", "HIGHEST_QUALITY")

RANDOM_CASES = 20

PEER_SECONDS = 60.0
"""Limit of all seeds of a peer with one preset on one case."""

Result = dict[str, Any]


def random_cases(count: int) -> Iterator[tuple[int, Problem]]:
    """Yield the number of executors and the problem of each seed from 1."""
    for seed in range(1, count + 1):
        random = Random(seed)  # noqa: S311 - no secret
        executors = 60 + 40 * (seed - 1) // max(1, count - 1)
        sizes: list[int] = []
        while sum(sizes) < 1.15 * executors:
            sizes.append(random.choice(NODE_SIZES))
        topology, traffic = layered(executors, seed)
        yield executors, Problem(make_cluster(sizes), (topology,), traffic if seed % 2 else None)


def prove(problem: Problem, seconds: float) -> Result:
    """Run `optimal` on one case; return W, bound, gap, CPU seconds and why it ended."""
    start = process_time()
    plan = Checked(Optimal, OptimalParams(time_limit_s=seconds)).place(problem)
    cpu_s = process_time() - start
    details, bound = plan.details, plan.lower_bound
    w = bound if details["proven"] else bound / (1 - details["gap"])
    end = "proven" if details["proven"] else "time" if details["limit_hit"] else "states"
    return {"w": w, "bound": bound, "gap": details["gap"], "cpu_s": cpu_s, "end": end}


def print_proofs(numbers: range, seconds: float, file: Path | None) -> None:
    """Run the random cases of these numbers; print the results."""
    results = read_results(file)
    for seed, (executors, problem) in enumerate(random_cases(RANDOM_CASES), 1):
        if seed not in numbers or seed in results:
            continue
        nodes = len(problem.cluster.nodes)
        case = {"case": seed, "executors": executors, "nodes": nodes, "seconds": seconds}
        results[seed] = record(file, {**case, **prove(problem, seconds)})
    head = ("seed", "executors", "nodes", "rates", "W", "bound", "gap", "CPU s", "end")
    rows = [
        (
            *(f"{seed}", f"{one['executors']}", f"{one['nodes']}", "observed" if seed % 2 else "1"),
            *(f"{one['w']:,.0f}", f"{one['bound']:,.0f}", f"{one['gap']:.2%}", f"{one['cpu_s']:.1f}", one["end"]),
        )
        for seed, one in sorted(results.items())
    ]
    print()
    print_table(head, rows)
    proven = sum(one["end"] == "proven" for one in results.values())
    print(f"\n{proven} of {len(results)} proven in {seconds:g} s each")


def with_racks(problem: Problem) -> Problem:
    """Return the problem with the first half of the nodes in rack a and the rest in rack b."""
    nodes = problem.cluster.nodes
    split = tuple(replaced(n, rack="a" if at < len(nodes) // 2 else "b") for at, n in enumerate(nodes))
    return replace(problem, cluster=replaced(problem.cluster, nodes=split))


def solve_with_racks(plain: Problem, seeds: int) -> Result:
    """Solve one case in two racks with `optimal`, `local-search` and Mt-KaHyPar."""
    problem = with_racks(plain)
    solved = []
    for scheduler in (
        Checked(Optimal, OptimalParams(objective="cost")),
        Checked(LocalSearch, LocalSearchParams(objective="cost")),
    ):
        start = process_time()
        plan = scheduler.place(problem)
        cpu_s = process_time() - start
        assert plan.aim is not None
        solved.append((objective_value(problem, plan.placements, plan.aim), cpu_s, plan.details.get("proven")))
    instance, hops = instance_of(problem, problem.topologies), hop_table(problem, "racks")
    task, order = make_task(instance)
    weights = [(i, j, hops.of(a, b)) for i, a in enumerate(order) for j, b in enumerate(order) if i < j]
    task = {**task, "peer": "mt-kahypar-target", "seeds": seeds, "target": weights}
    best, seconds, timed_out = None, 0.0, []
    for preset in PRESETS:
        try:
            (answers,) = solve_tasks([{**task, "preset": preset}], PEER_SECONDS)
        except TimeoutExpired:
            timed_out.append(preset)
            continue
        for answer in answers:
            seconds += answer["seconds"]
            nodes = answer["part"] and [order[p] for p in answer["part"]]
            if nodes and instance.fits(nodes):
                cost = float(hops.cost(instance, nodes) / instance.rate_scale / hops.scale)
                best = cost if best is None else min(best, cost)
    (optimum, cpu_s, proven), (local, local_cpu_s, _) = solved
    ours = {"optimum": optimum, "proven": proven, "cpu_s": cpu_s, "local": local, "local_cpu_s": local_cpu_s}
    return {**ours, "peer": best, "peer_cpu_s": seconds, "timed_out": timed_out}


def print_racks(numbers: range, seeds: int, file: Path | None) -> None:
    """Run the published cases of these numbers in two racks; print the costs by set."""
    results = read_results(file)
    for case, (name, plain) in enumerate([*micro_benchmarks(), *applications()], 1):
        if case in numbers and case not in results:
            results[case] = record(file, {"case": case, "set": name, **solve_with_racks(plain, seeds)})
    groups: dict[str, list[Result]] = {}
    for _, one in sorted(results.items()):
        groups.setdefault(one["set"], []).append(one)
    rows = []
    for name, cases in groups.items():
        valid = [one for one in cases if one["peer"] is not None]
        ratio = sum(one["peer"] for one in valid) / sum(one["optimum"] for one in valid) if valid else None
        rows.append(
            (
                name,
                f"{sum(one['proven'] for one in cases)} of {len(cases)}",
                f"{sum(one['optimum'] for one in cases):g}",
                f"{1000 * max(one['cpu_s'] for one in cases):.0f}",
                f"{sum(one['local'] == one['optimum'] for one in cases)}",
                f"{1000 * max(one['local_cpu_s'] for one in cases):.0f}",
                f"{sum(one['peer'] == one['optimum'] for one in valid)} of {len(valid)}",
                "" if ratio is None else f"{ratio:.3f}",
                f"{1000 * max(one['peer_cpu_s'] for one in cases):.0f}",
                f"{sum(len(one['timed_out']) for one in cases)}",
            )
        )
    head = ("set", "proven", "sum of costs", "longest, ms", "local-search: optima", "longest, ms")
    peer_head = (
        "Mt-KaHyPar: optima of valid answers",
        "cost / optimum",
        "longest, ms, all attempts",
        "presets timed out",
    )
    print()
    print_table((*head, *peer_head), rows)


def read_results(file: Path | None) -> dict[int, Result]:
    """Return the results in `file` by case."""
    if file is None or not file.exists():
        return {}
    return {one["case"]: one for one in map(json.loads, file.read_text().splitlines())}


def record(file: Path | None, result: Result) -> Result:
    """Print one result, append it to `file`, and return it."""
    line = json.dumps(result)
    print(line, flush=True)
    if file is not None:
        with file.open("a") as output:
            output.write(line + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="limit of CPU time of `optimal`")
    parser.add_argument("--cases", type=int, nargs=2, metavar=("FIRST", "LAST"), default=(1, 100))
    parser.add_argument("--racks", action="store_true", help="run the 76 published cases in two racks instead")
    parser.add_argument("--peer-seeds", type=int, default=10, help="seeds per preset of Mt-KaHyPar")
    parser.add_argument("--results", type=Path, help="file of results; its cases are skipped")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    numbers = range(chosen.cases[0], chosen.cases[1] + 1)
    # Other processes on the machine must not change the result.
    with mock.patch.object(optimal, "perf_counter", process_time):
        if chosen.racks:
            print_racks(numbers, chosen.peer_seeds, chosen.results)
        else:
            print_proofs(numbers, chosen.seconds, chosen.results)


if __name__ == "__main__":
    main()
