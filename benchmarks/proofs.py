"""What `optimal` proves: 20 random cases of 60 to 100 executors, and the least cost of published benchmarks in racks.

    .venv/bin/python benchmarks/proofs.py [--seconds 60] [--cases 20] [--racks] [--peer-seeds 10]

Cases are `layered` topologies, on nodes of 4 to 12 executors that hold 1.15 times as many; odd seeds have observed
rates, for even ones every communicating pair counts 1. `--racks` has the 72 micro-benchmarks and the four applications,
the first half of the nodes in one rack and the rest in another, beside Mt-KaHyPar on the same target graph (an answer
above a capacity counts as none).
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from time import process_time

from msgspec.structs import replace as replaced
from partitioners.rivals import ask, posed
from schedulers import applications, cluster, micro, table

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


def cases(count: int) -> Iterator[tuple[int, Problem]]:
    for seed in range(1, count + 1):
        random = Random(seed)  # noqa: S311 - no secret
        executors, sizes = 60 + 40 * (seed - 1) // max(1, count - 1), []
        while sum(sizes) < 1.15 * executors:
            sizes.append(random.choice(SIZES))
        topology, traffic = layered(executors, seed)
        yield executors, Problem(cluster(sizes), (topology,), traffic if seed % 2 else None)


def prove(count: int, seconds: float) -> None:
    rows, proven = [], 0
    for seed, (executors, problem) in enumerate(cases(count), 1):
        start = process_time()
        plan = Checked(Optimal, OptimalParams(time_limit_s=seconds)).place(problem)
        spent = process_time() - start
        details, value = plan.details, plan.lower_bound
        proven += details["proven"]
        w = value if details["proven"] else value / (1 - details["gap"])
        nodes = len(problem.cluster.nodes)
        ends = "proven" if details["proven"] else "time" if details["limit_hit"] else "states"
        numbers = (f"{w:,.0f}", f"{value:,.0f}", f"{details['gap']:.2%}", f"{spent:.1f}")
        rates = "observed" if seed % 2 else "1"
        rows.append((f"{seed}", f"{executors}", f"{nodes}", rates, *numbers, ends))
        print(*rows[-1], flush=True)
    table(("seed", "executors", "nodes", "rates", "W", "bound", "gap", "CPU s", "end"), rows)
    print(f"\n{proven} of {count} proven in {seconds:g} s each")


def in_racks(problem: Problem) -> Problem:
    nodes = problem.cluster.nodes
    split = tuple(replaced(n, rack="a" if at < len(nodes) // 2 else "b") for at, n in enumerate(nodes))
    return replace(problem, cluster=replaced(problem.cluster, nodes=split))


def racks(seeds: int) -> None:
    groups: dict[str, list[tuple[float, bool, float, float, float, float | None, float]]] = {}
    for name, plain in [*micro(), *applications()]:
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
        best, seconds = None, 0.0
        task = {**task, "peer": "mt-kahypar-target", "seeds": seeds, "target": weights}
        for answers in ask([{**task, "preset": preset} for preset in PRESETS]):
            for answer in answers:
                seconds += answer["seconds"]
                nodes = answer["part"] and [order[p] for p in answer["part"]]
                if nodes and instance.fits(nodes):
                    cost = hops.cost(instance, nodes) / instance.rate_scale / hops.scale
                    best = cost if best is None else min(best, cost)
        (optimum, spent, proven), (local, local_spent, _) = found
        groups.setdefault(name, []).append((optimum, proven, spent, local, local_spent, best, seconds))
    rows = []
    for name, mine in groups.items():
        optima = sum(each[0] for each in mine)
        legal = [each for each in mine if each[5] is not None]
        rows.append(
            (
                name,
                f"{sum(each[1] for each in mine)} of {len(mine)}",
                f"{optima:g}",
                f"{1000 * max(each[2] for each in mine):.0f}",
                f"{sum(each[3] == each[0] for each in mine)}",
                f"{1000 * max(each[4] for each in mine):.0f}",
                f"{sum(each[5] == each[0] for each in legal)} of {len(legal)}",
                f"{sum(each[5] for each in legal) / sum(each[0] for each in legal):.3f}" if legal else "",
                f"{1000 * max(each[6] for each in mine):.0f}",
            )
        )
    head = ("set", "proven", "sum of costs", "longest, ms", "local-search: optima", "longest, ms")
    table((*head, "Mt-KaHyPar: optima of legal answers", "cost / optimum", "longest, ms, all attempts"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60, help="limit of `optimal`")
    parser.add_argument("--cases", type=int, default=20)
    parser.add_argument("--racks", action="store_true", help="the 76 cases in two racks instead")
    parser.add_argument("--peer-seeds", type=int, default=10, help="seeds of each preset of Mt-KaHyPar")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    if chosen.racks:
        racks(chosen.peer_seeds)
    else:
        prove(chosen.cases, chosen.seconds)


if __name__ == "__main__":
    main()
