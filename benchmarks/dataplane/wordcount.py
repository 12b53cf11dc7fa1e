"""Measure CPU seconds per million words of WordCount, compared with Bytewax, Flink and Pathway.

    python benchmarks/dataplane/wordcount.py [--rounds 5] [--seconds 5] [--only NAME ...]

All systems read the same lines (text of CPython's documentation), split them, exchange words by key, and count them.
`running` emits a count for every word received, `final` only at the end. Millrace runs on real agents with a
checkpoint every two seconds, and every answer is compared with the reference. Rounds alternate. CPU seconds are user
plus system time of all worker processes; agents, which other systems do not have, are shown separately. Start-up is not
counted: for other systems it is subtracted by means of a second, shorter run. The first call installs the other
systems into virtual environments.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import peers
import psutil
from loopback import Nodes, cpu_s, load, processes, start_nodes, start_run, wait

from workloads.workload import load_workload

CHECKPOINT_S = 2.0
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Case:
    """A configuration of Millrace and its peer.

    Attributes:
        goal, stretch_goal: CPU time of the peer divided by that of Millrace, wanted at least; 0 if there is none.
    """

    name: str
    workload: str
    params: Mapping[str, Any]
    workers: int
    peer: str
    goal: float
    stretch_goal: float


CASES = (
    Case("columns, running", "running-count", {"api": "columns"}, 2, "bytewax running 2", 10.0, 15.0),
    Case("columns, vs Flink", "running-count", {"api": "columns"}, 2, "flink running 2", 1.3, 2.0),
    Case("columns, combined", "wordcount", {"api": "columns", "combine": True}, 2, "bytewax final 2", 8.0, 12.0),
    Case("columns, final", "wordcount", {"api": "columns"}, 2, "bytewax final 2", 0.0, 0.0),
    Case("columns, vs Pathway", "wordcount", {"api": "columns"}, 2, "pathway final 2", 0.0, 0.0),
    Case("tuple API, running", "running-count", {"api": "tuple"}, 2, "bytewax running 2", 2.0, 3.0),
    Case("batch API, running", "running-count", {"api": "batch"}, 2, "bytewax running 2", 5.0, 7.0),
    Case("batch API, vs Flink", "running-count", {"api": "batch"}, 2, "flink running 2", 0.0, 1.0),
    Case("batch API, final", "wordcount", {}, 2, "bytewax final 2", 0.0, 0.0),
    Case("batch API, combined", "wordcount", {"combine": True}, 2, "bytewax final 2", 2.0, 2.8),
    Case("tuple API, 1 worker", "running-count", {"api": "tuple"}, 1, "bytewax running 1", 1.3, 1.6),
    Case("batch API, 1 worker", "running-count", {"api": "batch"}, 1, "bytewax running 1", 0.0, 0.0),
)
LOOPS = {"running": (2, 10), "final": (5, 30), "flink": (100, 400)}


@dataclass(frozen=True)
class Cost:
    """CPU seconds per million words, and memory of all workers in MB: resident, proportional and private.

    `agents` is the CPU time of all other processes of the run, in cores.
    """

    cpu: float
    agents: float
    rss: float
    pss: float
    uss: float


async def measure_millrace(nodes: Nodes, case: Case, words_per_line: float, seconds: float) -> Cost:
    """Measure one run of Millrace."""
    components = ["spout", "split", "count", *(["out"] if case.workload == "running-count" else [])]
    params = {"parallelism": dict.fromkeys(components, 2), "ackers": 0, **case.params}
    executors = load_workload(case.workload, params).topology().executors
    places = {entry.name: f"n{entry.index % case.workers}/0" for entry in executors}
    rate = {"kind": "max"}
    async with start_run(nodes, case.workload, params, places, rate, checkpoint_s=CHECKPOINT_S) as (run, totals):
        await wait(run, WARM_UP_S)
        await run.coordinator.mark("measure_start")
        await wait(run, 0.2)
        workers = [psutil.Process(worker.pid) for worker in run.workers.values() if worker is not None]
        others = [process for process in processes(nodes) if process not in workers]
        cpu_before, others_before, lines_before = cpu_s(workers), cpu_s(others), totals.emitted
        await wait(run, seconds)
        await run.coordinator.mark("measure_end")
        await wait(run, 0.2)
        cpu, others_cpu = cpu_s(workers) - cpu_before, cpu_s(others) - others_before
        lines = totals.emitted - lines_before
        memory = [worker.memory_full_info() for worker in workers]
    sums = (sum(getattr(each, kind) for each in memory) / 1e6 for kind in ("rss", "pss", "uss"))
    return Cost(cpu / (lines * words_per_line) * 1e6, others_cpu / seconds, *sums)


def measure_peer(peer: str, text: Path, words: int, folder: Path) -> Cost:
    """Measure a peer: the difference between a long and a short run."""
    system, kind, number = peer.split()
    few, many = LOOPS["flink" if system == "flink" else kind]
    if system == "pathway":
        short, long = (peers.pathway(text, int(number), loops, folder) for loops in (few, many))
    elif system == "flink":
        short, long = (peers.flink(text, loops, CHECKPOINT_S, folder) for loops in (few, many))
    else:
        short, long = (peers.bytewax(text, kind, int(number), loops) for loops in (few, many))
    cpu = (long.cpu_s - short.cpu_s) / (words * (many - few)) * 1e6
    return Cost(cpu, 0.0, long.rss_mb, long.pss_mb, float("nan"))


async def measure(options: argparse.Namespace) -> int:
    """Alternate between all cases and their peers, and print tables."""
    cases = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]
    costs: dict[str, list[Cost]] = {}
    async with start_nodes(2) as nodes:
        (prepared,) = load_workload("wordcount", {}).prepare(nodes.folder / "text")
        words = len(prepared.path.read_text(encoding="utf-8").split())
        for number in range(options.rounds):
            print(f"round {number + 1}, {load()}", flush=True)
            done = set()
            for case in cases:
                for name in (case.name, case.peer):
                    if name in done:
                        continue
                    done.add(name)
                    if name == case.name:
                        cost = await measure_millrace(nodes, case, words / prepared.records, options.seconds)
                    else:
                        cost = await asyncio.to_thread(measure_peer, name, prepared.path, words, nodes.folder)
                    costs.setdefault(name, []).append(cost)
                    print(f"  {name:22} {cost.cpu:.3f} CPU s per million words; {load()}", flush=True)
    print_costs(costs)
    print("\n| | peer | CPU ratio, peer / Millrace, median | ratio of minima | goal | stretch goal |")
    print("|---|---|---|---|---|---|")
    for case in cases:
        own, peer = ([cost.cpu for cost in costs[name]] for name in (case.name, case.peer))
        ratio = median(b / a for a, b in zip(own, peer, strict=True))
        goals = f"{case.goal:g} | {case.stretch_goal:g}"
        print(f"| {case.name} | {case.peer} | {ratio:.2f} | {min(peer) / min(own):.2f} | {goals} |")
    return 0


def print_costs(costs: Mapping[str, Sequence[Cost]]) -> None:
    """Print a table of the medians of all cases and peers."""
    print("\n| | CPU s per million words, median (minimum) | MB resident | proportional | private | agents, CPU |")
    print("|---|---|---|---|---|---|")
    for name, rounds in costs.items():
        memory = " | ".join(f"{median([getattr(cost, kind) for cost in rounds]):.0f}" for kind in ("rss", "pss", "uss"))
        cpu = [cost.cpu for cost in rounds]
        agents = median([cost.agents for cost in rounds])
        print(f"| {name} | {median(cpu):.2f} ({min(cpu):.2f}) | {memory} | {agents:.1%} |")


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="measured per run of Millrace")
    parser.add_argument(
        "--only", nargs="*", default=[], help="only cases whose names contain one of these texts, with their peers"
    )
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
