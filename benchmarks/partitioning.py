"""Measure W and CPU time of large placements by `local-search`, beside presets of KaMinPar and Mt-KaHyPar.

    .venv/bin/python benchmarks/partitioning.py [--families grid layered] [--executors 1000 10000] [--seeds 5]
        [--schedulers "local-search fast"] [--peers "KaMinPar default"] [--figures FOLDER]

Only partitioning is measured: every tool starts from the graph in its own format. One thread, CPU seconds, medians over
seeds. Capacities are hard: an answer that exceeds one is invalid.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time
from unittest import mock

from partitioners.graph_families import FAMILIES, NODE_SIZES, make_instance
from partitioners.peer_client import make_task, solve_tasks

from scheduler.partitioning import large_neighbourhood
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.large_neighbourhood import BEST, FAST, Preset, search_large
from scheduler.partitioning.rows import listed_pairs
from scheduler.partitioning.solving import looks_for
from scheduler.partitioning.tabu import Effort

SCHEDULERS = {"local-search fast": FAST, "local-search best": BEST}

PEERS = {
    "KaMinPar default": ("kaminpar", "default"),
    "KaMinPar eco": ("kaminpar", "eco"),
    "KaMinPar strong": ("kaminpar", "strong"),
    "Mt-KaHyPar quality": ("mt-kahypar", "QUALITY"),
    "Mt-KaHyPar highest quality": ("mt-kahypar", "HIGHEST_QUALITY"),
}

MARKERS = ("o", "s", "x", "+", "*", "^", "v")


@dataclass
class Result:
    """Medians of one tool on one problem; `w` is None if at least half of the answers are invalid."""

    w: float | None
    seconds: float
    valid: int


def summarise(answers: list[tuple[int | None, float]]) -> Result:
    """Return the medians of W (None: invalid) and seconds per seed."""
    valid = [w for w, _ in answers if w is not None]
    w = median(valid) if 2 * len(valid) > len(answers) else None
    return Result(w, median(seconds for _, seconds in answers), len(valid))


def measure_scheduler(problem: Instance, preset: Preset, seeds: int) -> Result:
    """Measure `local-search` with a preset."""
    graph = listed_pairs(problem)
    answers: list[tuple[int | None, float]] = []
    # Converting the graph is not measured, as with peers.
    with mock.patch.object(large_neighbourhood, "listed_pairs", return_value=graph):
        for seed in range(seeds):
            effort = Effort(looks_for(problem), lambda: False)
            start = process_time()
            nodes = search_large(problem, effort, seed, preset)
            seconds = process_time() - start
            answers.append((problem.cut(nodes) if nodes and problem.fits(nodes) else None, seconds))
    return summarise(answers)


def measure_peers(problem: Instance, seeds: int, names: list[str]) -> dict[str, Result]:
    """Measure the named peers."""
    task, order = make_task(problem)
    results: dict[str, Result] = {}
    for name in names:
        peer, preset = PEERS[name]
        (peer_answers,) = solve_tasks([{**task, "peer": peer, "preset": preset, "seeds": seeds}])
        answers: list[tuple[int | None, float]] = []
        for answer in peer_answers:
            nodes = [order[part] for part in answer["part"]]
            answers.append((problem.cut(nodes) if problem.fits(nodes) else None, answer["seconds"]))
        results[name] = summarise(answers)
    return results


def draw(family: str, cases: dict[str, dict[str, Result]], path: Path) -> None:
    """Plot W, as a multiple of the lowest, against CPU seconds; one panel per case, two per row."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "partitioning", "svg.fonttype": "none"})
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    rows = -(-len(cases) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(7.2, 2.6 * rows), squeeze=False, layout="constrained")
    for panel in panels.flat[len(cases) :]:
        panel.set_visible(False)
    for panel, (case, results) in zip(panels.flat, cases.items(), strict=False):
        lowest = min(result.w for result in results.values() if result.w is not None)
        for number, (tool, marker) in enumerate(zip((*SCHEDULERS, *PEERS), MARKERS, strict=True)):
            result = results.get(tool)
            if result is not None and result.w is not None:
                panel.scatter(
                    [result.seconds], [result.w / max(lowest, 1)], marker=marker, color=f"C{number}", label=tool
                )
        panel.set(xscale="log", title=case, xlabel="CPU seconds", ylabel="W / lowest W")
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter(FormatStrFormatter("%g"))
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, alpha=0.25)
    panels[0][0].legend(frameon=False, fontsize=7)
    figure.savefig(path / f"{family}.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--executors", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--nodes", nargs="+", choices=NODE_SIZES, default=list(NODE_SIZES))
    parser.add_argument("--schedulers", nargs="+", choices=SCHEDULERS, default=list(SCHEDULERS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figures", type=Path, help="folder for one figure per family")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {chosen.seeds} seeds\n")
    print("| family | executors | nodes | tool | W | W / best peer's | CPU s | valid answers |")
    print("|---|---|---|---|---|---|---|---|")
    for family in chosen.families:
        cases: dict[str, dict[str, Result]] = {}
        for executors in chosen.executors:
            for nodes in chosen.nodes:
                problem = make_instance(family, executors, nodes)
                peers = measure_peers(problem, chosen.seeds, chosen.peers)
                results = {
                    name: measure_scheduler(problem, SCHEDULERS[name], chosen.seeds) for name in chosen.schedulers
                }
                results |= peers
                cases[f"{executors:,}, {nodes} nodes"] = results
                lowest = min((r.w for r in peers.values() if r.w is not None), default=None)
                for tool, result in results.items():
                    w = "" if result.w is None else f"{result.w:,.10g}"
                    ratio = "" if result.w is None or not lowest else f"{result.w / lowest:.3f}"
                    case = f"{family} | {executors:,} | {nodes}"
                    print(f"| {case} | {tool} | {w} | {ratio} | {result.seconds:.3f} | {result.valid} |", flush=True)
        if chosen.figures:
            draw(family, cases, chosen.figures)


if __name__ == "__main__":
    main()
