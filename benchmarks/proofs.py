"""What `optimal` proves: 20 random cases of 60 to 100 executors, and the least cost of published benchmarks in racks.

    .venv/bin/python benchmarks/proofs.py [--seconds 60] [--cases 1 20] [--racks] [--peer-seeds 10]
        [--results proofs.jsonl]

Cases are `layered` topologies, on nodes of 4 to 12 executors that hold 1.15 times as many; odd seeds have observed
rates, for even ones every communicating pair counts 1. The limit is of CPU time. `--racks` has the 72 micro-benchmarks
and the four applications, the first half of the nodes in one rack and the rest in another, beside Mt-KaHyPar on the
same target graph (an answer above a capacity counts as none). Every case is printed as soon as it is done. With
`--results` it is also kept in a file, and not run again: so the whole can be run in parts, and what the file has is
printed as a table at the end.
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

from msgspec.structs import replace as replaced
from partitioners.rivals import ask, posed
from schedulers import applications, cluster, micro, table

from scheduler.algorithms import optimal
from scheduler.algorithms.local_search import LocalSearch, LocalSearchParams
from scheduler.algorithms.optimal import Optimal, OptimalParams
from scheduler.partitioning.hops import hop_table
from scheduler.partitioning.instance import instance_of
from scheduler.problem import Problem
from scheduler.registry import Checked
from scheduler.toolkit.objective import objective_value
from workloads.example_topologies import layered

SIZES = (4, 6, 8, 12)
PRESETS = ("DEFAULT", "QUALITY", "HIGHEST_QUALITY")

COUNT = 20
"""Random cases."""

PEER_SECONDS = 60.0
"""Limit of all attempts of a peer with one preset on one case."""

Result = dict[str, Any]


def cases(count: int) -> Iterator[tuple[int, Problem]]:
    for seed in range(1, count + 1):
        random = Random(seed)  # noqa: S311 - no secret
        executors, sizes = 60 + 40 * (seed - 1) // max(1, count - 1), []
        while sum(sizes) < 1.15 * executors:
            sizes.append(random.choice(SIZES))
        topology, traffic = layered(executors, seed)
        yield executors, Problem(cluster(sizes), (topology,), traffic if seed % 2 else None)


def prove(problem: Problem, seconds: float) -> Result:
    """Prove one case."""
    start = process_time()
    plan = Checked(Optimal, OptimalParams(time_limit_s=seconds)).place(problem)
    spent = process_time() - start
    details, bound = plan.details, plan.lower_bound
    w = bound if details["proven"] else bound / (1 - details["gap"])
    end = "proven" if details["proven"] else "time" if details["limit_hit"] else "states"
    return {"w": w, "bound": bound, "gap": details["gap"], "spent": spent, "end": end}


def proofs(numbers: range, seconds: float, file: Path | None) -> None:
    """Print what is proven of the random cases."""
    results = kept(file)
    for seed, (executors, problem) in enumerate(cases(COUNT), 1):
        if seed not in numbers or seed in results:
            continue
        nodes = len(problem.cluster.nodes)
        what = {"executors": executors, "nodes": nodes, "seconds": seconds}
        results[seed] = keep(file, {"case": seed, **what, **prove(problem, seconds)})
    head = ("seed", "executors", "nodes", "rates", "W", "bound", "gap", "CPU s", "end")
    rows = [
        (
            *(f"{seed}", f"{one['executors']}", f"{one['nodes']}", "observed" if seed % 2 else "1"),
            *(f"{one['w']:,.0f}", f"{one['bound']:,.0f}", f"{one['gap']:.2%}", f"{one['spent']:.1f}", one["end"]),
        )
        for seed, one in sorted(results.items())
    ]
    print()
    table(head, rows)
    done = sum(one["end"] == "proven" for one in results.values())
    print(f"\n{done} of {len(results)} proven in {seconds:g} s each")


def in_racks(problem: Problem) -> Problem:
    nodes = problem.cluster.nodes
    split = tuple(replaced(n, rack="a" if at < len(nodes) // 2 else "b") for at, n in enumerate(nodes))
    return replace(problem, cluster=replaced(problem.cluster, nodes=split))


def in_two_racks(plain: Problem, seeds: int) -> Result:
    """Solve one case by ours and by Mt-KaHyPar."""
    problem = in_racks(plain)
    found = []
    for scheduler in (
        Checked(Optimal, OptimalParams(objective="cost")),
        Checked(LocalSearch, LocalSearchParams(objective="cost")),
    ):
        start = process_time()
        plan = scheduler.place(problem)
        spent = process_time() - start
        found.append((objective_value(problem, plan.placements, plan.aim), spent, plan.details.get("proven")))
    instance, hops = instance_of(problem, problem.topologies), hop_table(problem, "racks")
    task, order = posed(instance)
    weights = [(i, j, hops.of(a, b)) for i, a in enumerate(order) for j, b in enumerate(order) if i < j]
    task = {**task, "peer": "mt-kahypar-target", "seeds": seeds, "target": weights}
    best, seconds, late = None, 0.0, []
    for preset in PRESETS:
        try:
            (answers,) = ask([{**task, "preset": preset}], PEER_SECONDS)
        except TimeoutExpired:
            late.append(preset)
            continue
        for answer in answers:
            seconds += answer["seconds"]
            nodes = answer["part"] and [order[p] for p in answer["part"]]
            if nodes and instance.fits(nodes):
                cost = float(hops.cost(instance, nodes) / instance.rate_scale / hops.scale)
                best = cost if best is None else min(best, cost)
    (optimum, spent, proven), (local, local_spent, _) = found
    ours = {"optimum": optimum, "proven": proven, "spent": spent, "local": local, "local_spent": local_spent}
    return {**ours, "peer": best, "peer_spent": seconds, "late": late}


def racks(numbers: range, seeds: int, file: Path | None) -> None:
    """Print the least costs in two racks, by set."""
    results = kept(file)
    for case, (name, plain) in enumerate([*micro(), *applications()], 1):
        if case in numbers and case not in results:
            results[case] = keep(file, {"case": case, "set": name, **in_two_racks(plain, seeds)})
    groups: dict[str, list[Result]] = {}
    for _, one in sorted(results.items()):
        groups.setdefault(one["set"], []).append(one)
    rows = []
    for name, mine in groups.items():
        legal = [one for one in mine if one["peer"] is not None]
        ratio = sum(one["peer"] for one in legal) / sum(one["optimum"] for one in legal) if legal else None
        rows.append(
            (
                name,
                f"{sum(one['proven'] for one in mine)} of {len(mine)}",
                f"{sum(one['optimum'] for one in mine):g}",
                f"{1000 * max(one['spent'] for one in mine):.0f}",
                f"{sum(one['local'] == one['optimum'] for one in mine)}",
                f"{1000 * max(one['local_spent'] for one in mine):.0f}",
                f"{sum(one['peer'] == one['optimum'] for one in legal)} of {len(legal)}",
                "" if ratio is None else f"{ratio:.3f}",
                f"{1000 * max(one['peer_spent'] for one in mine):.0f}",
                f"{sum(len(one['late']) for one in mine)}",
            )
        )
    head = ("set", "proven", "sum of costs", "longest, ms", "local-search: optima", "longest, ms")
    theirs = (
        "Mt-KaHyPar: optima of legal answers",
        "cost / optimum",
        "longest, ms, all attempts",
        "late presets",
    )
    print()
    table((*head, *theirs), rows)


def kept(file: Path | None) -> dict[int, Result]:
    """Return the results in `file` by case."""
    if file is None or not file.exists():
        return {}
    return {one["case"]: one for one in map(json.loads, file.read_text().splitlines())}


def keep(file: Path | None, result: Result) -> Result:
    """Print one result, and append it to `file`."""
    line = json.dumps(result)
    print(line, flush=True)
    if file is not None:
        with file.open("a") as into:
            into.write(line + "\n")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="limit of `optimal`, of CPU time")
    parser.add_argument("--cases", type=int, nargs=2, metavar=("FIRST", "LAST"), default=(1, 100))
    parser.add_argument("--racks", action="store_true", help="the 76 cases in two racks instead")
    parser.add_argument("--peer-seeds", type=int, default=10, help="seeds of each preset of Mt-KaHyPar")
    parser.add_argument("--results", type=Path, help="file of results that are kept; its cases are not run again")
    chosen = parser.parse_args()
    optimal.perf_counter = process_time  # others on the machine must not decide
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    numbers = range(chosen.cases[0], chosen.cases[1] + 1)
    if chosen.racks:
        racks(numbers, chosen.peer_seeds, chosen.results)
    else:
        proofs(numbers, chosen.seconds, chosen.results)


if __name__ == "__main__":
    main()
