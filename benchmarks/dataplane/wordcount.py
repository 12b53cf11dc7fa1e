"""CPU seconds per million words of WordCount, beside Bytewax, Flink and Pathway in the same run.

    python benchmarks/dataplane/wordcount.py [--rounds 5] [--seconds 5] [--only NAME ...]

All read the same lines (CPython's documentation text), split them, exchange words by key and count. `running` emits
the count of a word whenever the word comes, `final` only at the end. Ours runs on real agents under a campaign's
control, with a checkpoint every two seconds, and every answer is compared with the reference. Rounds alternate. CPU
seconds are user + system of all worker processes (agents, which other systems have none of, are shown apart); start-up
is not counted on our side, and is subtracted on the others' by a second, shorter run. Peers get environments of their
own, made at the first call.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import peers
import psutil
from loopback import Ground, cpu_s, load, nodes, processes, run, wait

from workloads.workload import load_workload

CHECKPOINT_S = 2.0
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Case:
    """What is run; `bar` and `aim` are how many times less CPU it is to take than its peer."""

    name: str
    workload: str
    params: Mapping[str, Any]
    workers: int
    peer: str
    bar: float
    aim: float


CASES = (
    Case("columns, running", "running-count", {"api": "columns"}, 2, "bytewax running 2", 10.0, 15.0),
    Case("columns, beside Flink", "running-count", {"api": "columns"}, 2, "flink running 2", 1.3, 2.0),
    Case("columns, combined", "wordcount", {"api": "columns", "combine": True}, 2, "bytewax final 2", 8.0, 12.0),
    Case("columns, final", "wordcount", {"api": "columns"}, 2, "bytewax final 2", 0.0, 0.0),
    Case("columns, beside Pathway", "wordcount", {"api": "columns"}, 2, "pathway final 2", 0.0, 0.0),
    Case("tuple API, running", "running-count", {"api": "tuple"}, 2, "bytewax running 2", 2.0, 3.0),
    Case("batch API, running", "running-count", {"api": "batch"}, 2, "bytewax running 2", 5.0, 7.0),
    Case("batch API, beside Flink", "running-count", {"api": "batch"}, 2, "flink running 2", 0.0, 1.0),
    Case("batch API, final", "wordcount", {}, 2, "bytewax final 2", 0.0, 0.0),
    Case("batch API, combined", "wordcount", {"combine": True}, 2, "bytewax final 2", 2.0, 2.8),
    Case("tuple API, 1 worker", "running-count", {"api": "tuple"}, 1, "bytewax running 1", 1.3, 1.6),
    Case("batch API, 1 worker", "running-count", {"api": "batch"}, 1, "bytewax running 1", 0.0, 0.0),
)
LOOPS = {"running": (2, 10), "final": (5, 30), "flink": (100, 400)}


@dataclass(frozen=True)
class Cost:
    """CPU seconds per million words; memory of all workers in MB, summed: resident, proportional, not shared.

    `agents` is the CPU time of all other processes of the run, per second.
    """

    cpu: float
    agents: float
    rss: float
    pss: float
    uss: float


async def ours(on: Ground, case: Case, words_per_line: float, seconds: float) -> Cost:
    """One run."""
    components = ["spout", "split", "count", *(["out"] if case.workload == "running-count" else [])]
    params = {"parallelism": dict.fromkeys(components, 2), "ackers": 0, **case.params}
    executors = load_workload(case.workload, params).topology().executors
    places = {entry.name: f"n{entry.index % case.workers}/0" for entry in executors}
    async with run(on, case.workload, params, places, {"kind": "max"}, checkpoint_s=CHECKPOINT_S) as (play, totals):
        await wait(play, WARM_UP_S)
        await play.coordinator.mark("measure_start")
        await wait(play, 0.2)
        workers = [psutil.Process(worker.pid) for worker in play.workers.values() if worker is not None]
        others = [process for process in processes(on) if process not in workers]
        before, apart, lines = cpu_s(workers), cpu_s(others), totals.emitted
        await wait(play, seconds)
        await play.coordinator.mark("measure_end")
        await wait(play, 0.2)
        cpu, apart, lines = cpu_s(workers) - before, cpu_s(others) - apart, totals.emitted - lines
        held = [worker.memory_full_info() for worker in workers]
    sums = (sum(getattr(memory, kind) for memory in held) / 1e6 for kind in ("rss", "pss", "uss"))
    return Cost(cpu / (lines * words_per_line) * 1e6, apart / seconds, *sums)


def theirs(peer: str, text: Path, words: int, folder: Path) -> Cost:
    """One run of a peer, as the difference of two."""
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
    """Alternate, print."""
    cases = [case for case in CASES if not options.only or any(part in case.name for part in options.only)]
    costs: dict[str, list[Cost]] = {}
    async with nodes(2) as on:
        (prepared,) = load_workload("wordcount", {}).prepare(on.folder / "text")
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
                        cost = await ours(on, case, words / prepared.records, options.seconds)
                    else:
                        cost = await asyncio.to_thread(theirs, name, prepared.path, words, on.folder)
                    costs.setdefault(name, []).append(cost)
                    print(f"  {name:22} {cost.cpu:.3f} CPU s per million words; {load()}", flush=True)
    print("\n| | CPU s per million words, median (least) | MB resident | proportional | not shared | agents, CPU |")
    print("|---|---|---|---|---|---|")
    for name, found in costs.items():
        memory = " | ".join(f"{median([getattr(cost, kind) for cost in found]):.0f}" for kind in ("rss", "pss", "uss"))
        cpu = [cost.cpu for cost in found]
        apart = median([cost.agents for cost in found])
        print(f"| {name} | {median(cpu):.2f} ({min(cpu):.2f}) | {memory} | {apart:.1%} |")
    print("\n| | peer | times less CPU, median | of the least | bar | aim |\n|---|---|---|---|---|---|")
    for case in cases:
        us, them = ([cost.cpu for cost in costs[name]] for name in (case.name, case.peer))
        ratio = median(b / a for a, b in zip(us, them, strict=True))
        print(f"| {case.name} | {case.peer} | {ratio:.2f} | {min(them) / min(us):.2f} | {case.bar:g} | {case.aim:g} |")
    return 0


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of cases, with their peers")
    return asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
