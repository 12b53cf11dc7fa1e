"""How good and how fast large placements of `local-search` are, beside KaMinPar and Mt-KaHyPar at several presets.

    .venv/bin/python benchmarks/partitioning.py [--families grid layered] [--executors 1000 10000] [--seeds 5]
        [--ours "local-search fast"] [--peers "KaMinPar default"] [--figures FOLDER]

Partitioning only: every tool starts from the graph in its own format. One thread each, CPU seconds, medians of several
seeds. Capacities are hard: an answer that exceeds one counts as none.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

from partitioners.families import FAMILIES, NODES, instance
from partitioners.rivals import ask, posed

from scheduler.partitioning import large_neighbourhood
from scheduler.partitioning.instance import Instance
from scheduler.partitioning.large_neighbourhood import BEST, FAST, Preset, search_large
from scheduler.partitioning.rows import listed
from scheduler.partitioning.solving import looks_for
from scheduler.partitioning.tabu import Effort

OURS = {"local-search fast": FAST, "local-search best": BEST}

PEERS = {
    "KaMinPar default": ("kaminpar", "default"),
    "KaMinPar eco": ("kaminpar", "eco"),
    "KaMinPar strong": ("kaminpar", "strong"),
    "Mt-KaHyPar quality": ("mt-kahypar", "QUALITY"),
    "Mt-KaHyPar highest quality": ("mt-kahypar", "HIGHEST_QUALITY"),
}

MARKS = ("o", "s", "x", "+", "*", "^", "v")


@dataclass
class Result:
    """Medians of one tool on one problem; `w` is None if most answers exceeded a capacity."""

    w: float | None
    seconds: float
    legal: int


def summary(answers: list[tuple[int | None, float]]) -> Result:
    kept = [w for w, _ in answers if w is not None]
    w = median(kept) if 2 * len(kept) > len(answers) else None
    return Result(w, median(seconds for _, seconds in answers), len(kept))


def ours(problem: Instance, preset: Preset, seeds: int) -> Result:
    graph = listed(problem)
    large_neighbourhood.listed = lambda _: graph  # the graph's conversion is not measured, as it is not with peers
    answers: list[tuple[int | None, float]] = []
    for seed in range(seeds):
        effort = Effort(looks_for(problem), lambda: False)
        start = process_time()
        nodes = search_large(problem, effort, seed, preset)
        seconds = process_time() - start
        answers.append((problem.cut(nodes) if nodes and problem.fits(nodes) else None, seconds))
    large_neighbourhood.listed = listed
    return summary(answers)


def peers(problem: Instance, seeds: int, names: list[str]) -> dict[str, Result]:
    task, order = posed(problem)
    found: dict[str, Result] = {}
    for name in names:
        peer, preset = PEERS[name]
        (done,) = ask([{**task, "peer": peer, "preset": preset, "seeds": seeds}])
        answers: list[tuple[int | None, float]] = []
        for answer in done:
            nodes = [order[part] for part in answer["part"]]
            answers.append((problem.cut(nodes) if problem.fits(nodes) else None, answer["seconds"]))
        found[name] = summary(answers)
    return found


def draw(family: str, cases: dict[str, dict[str, Result]], path: Path) -> None:
    """W, as a multiple of the lowest, against CPU seconds; one panel per case, two in a row."""
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
        for number, (tool, mark) in enumerate(zip((*OURS, *PEERS), MARKS, strict=True)):
            result = results.get(tool)
            if result is not None and result.w is not None:
                panel.scatter(
                    [result.seconds], [result.w / max(lowest, 1)], marker=mark, color=f"C{number}", label=tool
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
    parser.add_argument("--nodes", nargs="+", choices=NODES, default=list(NODES))
    parser.add_argument("--ours", nargs="+", choices=OURS, default=list(OURS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="fewer of them, for 100,000")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figures", type=Path, help="folder for a figure per family")
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {chosen.seeds} seeds\n")
    print("| family | executors | nodes | tool | W | W / best peer's | CPU s | answers within capacities |")
    print("|---|---|---|---|---|---|---|---|")
    for family in chosen.families:
        cases: dict[str, dict[str, Result]] = {}
        for executors in chosen.executors:
            for nodes in chosen.nodes:
                problem = instance(family, executors, nodes)
                theirs = peers(problem, chosen.seeds, chosen.peers)
                results = {name: ours(problem, OURS[name], chosen.seeds) for name in chosen.ours} | theirs
                cases[f"{executors:,}, {nodes} nodes"] = results
                least = min((r.w for r in theirs.values() if r.w is not None), default=None)
                for tool, result in results.items():
                    w = "" if result.w is None else f"{result.w:,.10g}"
                    ratio = "" if result.w is None or not least else f"{result.w / least:.3f}"
                    where = f"{family} | {executors:,} | {nodes}"
                    print(f"| {where} | {tool} | {w} | {ratio} | {result.seconds:.3f} | {result.legal} |", flush=True)
        if chosen.figures:
            draw(family, cases, chosen.figures)


if __name__ == "__main__":
    main()
