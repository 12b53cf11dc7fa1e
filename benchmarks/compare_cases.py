"""Every installed scheduler on the micro-benchmarks and applications of I-Scheduler, as a page of the documentation.

    .venv/bin/python benchmarks/compare_cases.py [--schedulers NAME,NAME,...] [--print]

Writes `docs/schedulers/comparison.md` and its pictures; with --print, or for some of the schedulers only, prints the
page instead. Everything but the times depends on the code alone.
"""

import argparse
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from msgspec.structs import replace

from campaign.place.place import Placed
from campaign.place.svg import draw
from inventory.cluster import Cluster, Node
from inventory.errors import MillraceError
from scheduler.explain.explanation import loads_by_node
from scheduler.placement_file import make_placement_file
from scheduler.problem import Plan, Problem
from scheduler.registry import make_scheduler, scheduler_names
from scheduler.toolkit.cost import cost
from workloads.example_topologies import MICRO_SIZES, diamond, linear, smart_home, star, taxi
from workloads.topology import Topology
from workloads.traffic import Edge, Traffic

PAGE = Path(__file__).parents[1] / "docs" / "schedulers" / "comparison.md"
PICTURES = PAGE.parent / "comparison"
PICTURED = ("even", "top-storm", "optimal")
POINTS, MEGABYTES = 10, 128
"""What an executor weighs by default, so that limits in CPU and memory mean the same as capacity in executors."""

SHAPES: dict[str, Callable[[int], Topology]] = {"linear": linear, "diamond": diamond, "star": star}
CLUSTERS = {"10 x 4": [4] * 10, "3 x 6, 3 x 4, 4 x 2": [6] * 3 + [4] * 3 + [2] * 4}
APPLICATIONS: dict[str, tuple[Topology, list[int]]] = {
    "smart homes, 8 x 10": (smart_home(), [10] * 8),
    "smart homes, 2 x 10, 4 x 5": (smart_home(), [10] * 2 + [5] * 4),
    "taxi, 8 x 15": (taxi(), [15] * 8),
    "taxi, 2 x 15, 2 x 8": (taxi(), [15] * 2 + [8] * 2),
}


@dataclass(frozen=True)
class Outcome:
    """One scheduler on one case; W is None when not every executor was placed."""

    w: int | None
    kept: bool
    nodes: int
    seconds: float
    message: str = ""


def cluster_of(capacities: Sequence[int]) -> Cluster:
    """Nodes of one slot each, larger ones also stronger."""
    return Cluster(
        tuple(
            Node(
                id=f"n{at + 1:02}",
                slots=1,
                capacity=float(size),
                cpu=float(size * POINTS),
                memory_mb=float(size * MEGABYTES),
                cores=size,
                ghz=2.0,
                flops_per_cycle=16.0,
                ram_gb=float(size),
            )
            for at, size in enumerate(capacities)
        )
    )


def problem_of(topology: Topology, capacities: Sequence[int]) -> Problem:
    """The case: as many workers are asked for as there are nodes, and no worker's heap is the limit."""
    heap = float(max(capacities) * MEGABYTES)
    asked = replace(topology, workers=len(capacities), worker_max_heap_mb=heap)
    return Problem(cluster_of(capacities), (asked,))


def observed(problem: Problem) -> Problem:
    """The same case while it runs: 1 tuple/s per pair, and the declared loads."""
    (topology,) = problem.topologies
    edges = tuple(Edge(one.name, other.name, 1.0) for one, other in topology.pairs())
    load = {executor.name: float(POINTS) for executor in topology.executors}
    return Problem(problem.cluster, problem.topologies, Traffic(edges, load))


def cases() -> dict[tuple[str, str, int], Problem]:
    """(shape, cluster, executors) -> the 72 micro-benchmarks."""
    return {
        (shape, name, size): problem_of(make(size), capacities)
        for shape, make in SHAPES.items()
        for name, capacities in CLUSTERS.items()
        for size in MICRO_SIZES
    }


def applications() -> dict[str, Problem]:
    """The four cases of the applications."""
    return {name: problem_of(topology, capacities) for name, (topology, capacities) in APPLICATIONS.items()}


def planned(name: str, problem: Problem) -> tuple[Problem, Plan, float]:
    """The scheduler's checked plan and how long it took; with the problem as it was posed."""
    ready = make_scheduler(name)
    posed = observed(problem) if ready.needs.online or ready.needs.traffic == "required" else problem
    start = perf_counter()
    plan = ready.place(posed)
    return posed, plan, perf_counter() - start


def outcome(name: str, problem: Problem) -> Outcome:
    """Judge the scheduler's plan."""
    try:
        posed, plan, seconds = planned(name, problem)
    except MillraceError as fault:
        return Outcome(None, False, 0, 0.0, str(fault))
    (topology,) = posed.topologies
    placement = plan.placements[topology.id]
    whole = len(placement.assignments) == len(topology.executors)
    judged = cost(posed, plan.placements)
    kept = not any(host.overloaded for host in loads_by_node(posed, plan))
    return Outcome(judged.inter_node_edges if whole else None, kept, judged.nodes_used, seconds, placement.message)


def micro_row(name: str, best: dict[tuple[str, str, int], int], timed: bool = True) -> list[str]:
    """A row of the table of micro-benchmarks."""
    found = {case: outcome(name, problem) for case, problem in cases().items()}
    sums: list[str] = []
    for cluster in CLUSTERS:
        for shape in SHAPES:
            ws = [each.w for case, each in found.items() if case[:2] == (shape, cluster)]
            sums.append("-" if None in ws else str(sum(w for w in ws if w is not None)))
    right = [case for case, each in found.items() if each.w is not None and each.kept]
    most = sum(found[case].w == best[case] for case in right)
    above = [found[case].w / best[case] - 1 for case in right if best[case]]  # type: ignore[operator]  # not None there
    times = [each.seconds for each in found.values()]
    return [
        f"`{name}`",
        *sums,
        str(sum(each.w is not None for each in found.values())),
        str(len(right)),
        str(most),
        f"{statistics.fmean(above):.1%}" if above else "-",
        f"{statistics.fmean(each.nodes for each in found.values()):.1f}",
        *([f"{statistics.median(times) * 1e3:.1f}", f"{max(times) * 1e3:.0f}"] if timed else []),
    ]


def application_row(name: str, timed: bool = True) -> list[str]:
    """A row of the table of applications; W where a node holds more than its capacity is marked."""
    found = [outcome(name, problem) for problem in applications().values()]
    cells = ["-" if each.w is None else f"{each.w}{'' if each.kept else ' (!)'}" for each in found]
    return [f"`{name}`", *cells, *([f"{max(each.seconds for each in found) * 1e3:.0f}"] if timed else [])]


def optima() -> dict[tuple[str, str, int], int]:
    """The proven minimum of W of every micro-benchmark."""
    best: dict[tuple[str, str, int], int] = {}
    for case, problem in cases().items():
        posed, plan, _ = planned("optimal", problem)
        assert plan.details["proven"], case
        best[case] = cost(posed, plan.placements).inter_node_edges
    return best


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table in Markdown; the first `left` columns are text."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


def optimum_table(best: dict[tuple[str, str, int], int]) -> str:
    """The minimum of W by size."""
    head = ["executors", *(f"{shape}, {cluster}" for cluster in CLUSTERS for shape in SHAPES)]
    rows = [
        [str(size), *(str(best[shape, cluster, size]) for cluster in CLUSTERS for shape in SHAPES)]
        for size in MICRO_SIZES
    ]
    return table(head, rows, left=0)


MICRO_HEAD = [
    "scheduler",
    *(f"{shape}, {name}" for name in ("equal", "unequal") for shape in SHAPES),
    "placed",
    "within capacity",
    "of these optimal",
    "above optimum",
    "nodes",
    "ms, median",
    "ms, largest",
]

TEXT = """# All schedulers on the same cases

Written by `benchmarks/compare_cases.py`: every scheduler that Millrace registers, with its default parameters and under
the wrapper that checks its answers. Everything here but the times depends on the code alone.

The cases are those of Eskandari, Mair, Huang, Eyers: *I-Scheduler*, 2020. An executor weighs 1, a communicating pair
has rate 1, and **W** is the rate between nodes. Every node has one slot, and a topology asks for as many workers as
there are nodes, so that a scheduler decides about nodes alone; CPU, memory and cores of a node are in proportion to its
capacity. Schedulers that are meant to be asked again while topologies run are given the traffic of the model, one
tuple/s per pair. `millrace place --compare` makes such a comparison for your own cluster and topology
([tutorial](../tutorial.md)).

W is not the aim of every scheduler. Those of Storm balance numbers of executors, `pipeline-linear` and `pmod` make
cheap steps of communication, `er-stream` uses few nodes, and several know no capacity at all: where a W is *below* the
optimum, a node holds more than its capacity, and the column "within capacity" says in how many cases no node does.
Those of Flink need a slot per executor of the largest component, which the clusters of the applications do not have.

## The 72 micro-benchmarks

Linear, diamond and star of 10, 12, ... 32 executors, on 10 equal nodes (10 x 4) and on unequal ones (3 x 6, 3 x 4,
4 x 2). The first six columns are sums of W over 12 sizes, `-` where some case was not placed in full. "Placed" and the
next two columns count cases; "above optimum" is the mean over the cases within capacity; "nodes" is the mean number of
nodes used.

{micro}

The least W there is, proven by `optimal`:

{optima}

One of the cases, 20 executors in a star on unequal nodes, by {pictured}; lines are as wide as the traffic between two
nodes:

{pictures}

## The applications

Smart homes (DEBS 2014, query 1; 40 executors, 400 pairs) and frequent routes of taxis (DEBS 2015, query 1; 45
executors, 420 pairs). W, with (!) where a node holds more than its capacity:

{applications}

## How long it took

{machine}. Times are of one call of `place` in a process that has loaded the scheduler's module; what a scheduler loads
at its first call shows as its largest time.
"""


def pictured_case() -> Problem:
    """The case in the pictures."""
    return cases()["star", list(CLUSTERS)[1], 20]


def draw_pictures(folder: Path) -> list[Path]:
    """Draw one case by three schedulers."""
    drawn: list[Placed] = []
    for name in PICTURED:
        posed, plan, _ = planned(name, pictured_case())
        drawn.append(Placed(posed, plan, make_placement_file(name, {}, posed, plan, 0.0)))
    return draw(drawn, folder)


def page(names: Sequence[str]) -> str:
    """The whole page."""
    best = optima()
    machine = f"{os.cpu_count()} CPUs ({platform.machine()}), Python {platform.python_version()}"
    load = os.getloadavg()[0]
    return TEXT.format(
        micro=table(MICRO_HEAD, [micro_row(name, best) for name in names]),
        optima=optimum_table(best),
        applications=table(["scheduler", *APPLICATIONS, "ms, largest"], [application_row(name) for name in names]),
        pictured=", ".join(f"`{name}`" for name in PICTURED),
        pictures="\n".join(f"![{name}]({PICTURES.name}/{name}.svg)" for name in PICTURED),
        machine=f"{machine}, load {load:.1f} (others were at work on the machine)" if load > 1 else machine,
    )


def main() -> None:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", metavar="NAME,NAME,...", help="these only (prints the page)")
    parser.add_argument("--print", action="store_true", help="print the page, write nothing")
    chosen = parser.parse_args()
    names = chosen.schedulers.split(",") if chosen.schedulers else scheduler_names()
    text = page(names)
    if chosen.print or chosen.schedulers:
        print(text)
        return
    PAGE.write_text(text, encoding="utf-8")
    draw_pictures(PICTURES)


if __name__ == "__main__":
    main()
