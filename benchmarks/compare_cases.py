"""Compare all installed schedulers on the micro-benchmarks and applications of I-Scheduler.

    .venv/bin/python benchmarks/compare_cases.py [--schedulers NAME,NAME,...] [--print]

Writes `docs/schedulers/comparison.md` and its pictures. With --print or --schedulers, prints the page instead. Only
the times depend on the machine.
"""

import argparse
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from campaign.place.place import PlacedProblem
from campaign.place.svg import draw
from inventory.cluster import Cluster, Node
from inventory.errors import MillraceError
from scheduler.explain.explanation import loads_by_node
from scheduler.placement_file import make_placement_file
from scheduler.problem import Plan, Problem
from scheduler.registry import computing_schedulers, make_scheduler
from scheduler.toolkit.cost import cost
from workloads.example_topologies import MICRO_SIZES, diamond, linear, smart_home, star, taxi
from workloads.topology import Topology
from workloads.traffic import Edge, Traffic

PAGE = Path(__file__).parents[1] / "docs" / "schedulers" / "comparison.md"
PICTURES = PAGE.parent / "comparison"
PICTURED_SCHEDULERS = ("even", "top-storm", "optimal")
CPU_POINTS, MEMORY_MB = 10, 128
"""Defaults of an executor; with them, limits of CPU and memory equal the capacity in executors."""

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
    """Result of one scheduler on one case; `w` is None when an executor was not placed."""

    w: int | None
    within_capacity: bool
    nodes: int


def make_cluster(capacities: Sequence[int]) -> Cluster:
    """Return nodes of one slot each, with CPU, memory and cores in proportion to capacity."""
    return Cluster(
        tuple(
            Node(
                id=f"n{at + 1:02}",
                slots=1,
                capacity=float(size),
                cpu=float(size * CPU_POINTS),
                memory_mb=float(size * MEMORY_MB),
                cores=size,
                ghz=2.0,
                flops_per_cycle=16.0,
                ram_gb=float(size),
            )
            for at, size in enumerate(capacities)
        )
    )


def make_problem(topology: Topology, capacities: Sequence[int]) -> Problem:
    """Return a case with one requested worker per node, and a heap limit that never binds."""
    heap = float(max(capacities) * MEMORY_MB)
    requested = replace(topology, workers=len(capacities), worker_max_heap_mb=heap)
    return Problem(make_cluster(capacities), (requested,))


def with_traffic(problem: Problem) -> Problem:
    """Return the case with observed traffic of 1 tuple/s per pair, and the declared loads."""
    (topology,) = problem.topologies
    edges = tuple(Edge(one.name, other.name, 1.0) for one, other in topology.pairs())
    load = {executor.name: float(CPU_POINTS) for executor in topology.executors}
    return Problem(problem.cluster, problem.topologies, Traffic(edges, load))


def micro_benchmarks() -> dict[tuple[str, str, int], Problem]:
    """Return the 72 micro-benchmarks by shape, cluster and number of executors."""
    return {
        (shape, name, size): make_problem(make(size), capacities)
        for shape, make in SHAPES.items()
        for name, capacities in CLUSTERS.items()
        for size in MICRO_SIZES
    }


def applications() -> dict[str, Problem]:
    """Return the four cases of the applications by name."""
    return {name: make_problem(topology, capacities) for name, (topology, capacities) in APPLICATIONS.items()}


def make_plan(name: str, problem: Problem) -> tuple[Problem, Plan]:
    """Return the problem as the scheduler gets it, and its validated plan."""
    scheduler = make_scheduler(name)
    if scheduler.needs.online or scheduler.needs.traffic == "required":
        problem = with_traffic(problem)
    return problem, scheduler.place(problem)


def evaluate(name: str, problem: Problem) -> Outcome:
    """Return the outcome of a scheduler on a case."""
    try:
        problem, plan = make_plan(name, problem)
    except MillraceError:
        return Outcome(None, False, 0)
    (topology,) = problem.topologies
    complete = len(plan.placements[topology.id].assignments) == len(topology.executors)
    costs = cost(problem, plan.placements)
    within_capacity = not any(node.overloaded for node in loads_by_node(problem, plan))
    return Outcome(costs.inter_node_edges if complete else None, within_capacity, costs.nodes_used)


def micro_row(name: str, best: dict[tuple[str, str, int], int]) -> list[str]:
    """Return a scheduler's row of the table of micro-benchmarks."""
    outcomes = {case: evaluate(name, problem) for case, problem in micro_benchmarks().items()}
    sums: list[str] = []
    for cluster in CLUSTERS:
        for shape in SHAPES:
            ws = [each.w for case, each in outcomes.items() if case[:2] == (shape, cluster)]
            sums.append("-" if None in ws else str(sum(w for w in ws if w is not None)))
    valid = [case for case, each in outcomes.items() if each.w is not None and each.within_capacity]
    optimal = sum(outcomes[case].w == best[case] for case in valid)
    above = [outcomes[case].w / best[case] - 1 for case in valid if best[case]]  # type: ignore[operator]  # not None
    return [
        f"`{name}`",
        *sums,
        str(sum(each.w is not None for each in outcomes.values())),
        str(len(valid)),
        str(optimal),
        f"{statistics.fmean(above):.1%}" if above else "-",
        f"{statistics.fmean(each.nodes for each in outcomes.values()):.1f}",
    ]


def application_row(name: str) -> list[str]:
    """Return a scheduler's row of the table of applications; (!) marks a W where a node exceeds its capacity."""
    outcomes = [evaluate(name, problem) for problem in applications().values()]
    cells = ["-" if each.w is None else f"{each.w}{'' if each.within_capacity else ' (!)'}" for each in outcomes]
    return [f"`{name}`", *cells]


def optima() -> dict[tuple[str, str, int], int]:
    """Return the proven minimum of W of every micro-benchmark."""
    best: dict[tuple[str, str, int], int] = {}
    for case, problem in micro_benchmarks().items():
        solved, plan = make_plan("optimal", problem)
        assert plan.details["proven"], case
        best[case] = cost(solved, plan.placements).inter_node_edges
    return best


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table whose first `left` columns are text."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))


MICRO_HEAD = [
    "scheduler",
    *(f"{shape}, {name}" for name in ("equal", "unequal") for shape in SHAPES),
    "placed",
    "within capacity",
    "of these optimal",
    "above optimum",
    "nodes",
]

TEXT = """# All schedulers on the same cases

Written by `benchmarks/compare_cases.py`: every scheduler with its default parameters.
`millrace place --compare` does the same for your own cluster and topology ([tutorial](../tutorial.md)).

The cases are those of Eskandari, Mair, Huang, Eyers: *I-Scheduler*, 2020. An executor has weight 1, a communicating
pair has rate 1 (also as observed traffic), and **W** is the rate between nodes. Every node has one slot, and CPU,
memory and cores in proportion to its capacity; a topology requests as many workers as there are nodes.

Not every scheduler minimises W, and several do not model capacity: where a W is *below* the optimum, a node exceeds
it. Flink's need a slot per executor of the largest component, which the clusters of the applications do not have.

## The 72 micro-benchmarks

Linear, diamond and star of 10, 12, ... 32 executors, on 10 equal nodes (10 x 4) and on unequal ones (3 x 6, 3 x 4,
4 x 2). The first six columns are sums of W over 12 sizes, `-` where an executor of some case was not placed; the next
three count cases; "above optimum" is the mean over the cases within capacity.

{micro}

20 executors in a star on unequal nodes, by {pictured}:

{pictures}

## The applications

Smart homes (DEBS 2014, query 1; 40 executors, 400 pairs) and frequent routes of taxis (DEBS 2015, query 1; 45
executors, 420 pairs). W, with (!) where a node exceeds its capacity:

{applications}
"""


def pictured_case() -> Problem:
    """Return the case of the pictures."""
    return micro_benchmarks()["star", list(CLUSTERS)[1], 20]


def draw_pictures(folder: Path) -> list[Path]:
    """Draw one case placed by three schedulers; return the paths."""
    drawn: list[PlacedProblem] = []
    for name in PICTURED_SCHEDULERS:
        problem, plan = make_plan(name, pictured_case())
        drawn.append(PlacedProblem(problem, plan, make_placement_file(name, {}, problem, plan, 0.0)))
    return draw(drawn, folder)


def page(names: Sequence[str]) -> str:
    """Return the text of the page."""
    best = optima()
    return TEXT.format(
        micro=table(MICRO_HEAD, [micro_row(name, best) for name in names]),
        applications=table(["scheduler", *APPLICATIONS], [application_row(name) for name in names]),
        pictured=", ".join(f"`{name}`" for name in PICTURED_SCHEDULERS),
        pictures="\n".join(f"![{name}]({PICTURES.name}/{name}.svg)" for name in PICTURED_SCHEDULERS),
    )


def main() -> None:
    """Write or print the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedulers", metavar="NAME,NAME,...", help="compare these only, and print the page")
    parser.add_argument("--print", action="store_true", help="print the page instead of writing it")
    chosen = parser.parse_args()
    names = chosen.schedulers.split(",") if chosen.schedulers else computing_schedulers()
    text = page(names)
    if chosen.print or chosen.schedulers:
        print(text)
        return
    PAGE.write_text(text, encoding="utf-8")
    draw_pictures(PICTURES)


if __name__ == "__main__":
    main()
