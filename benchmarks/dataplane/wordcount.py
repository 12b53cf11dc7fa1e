"""Words per CPU second of WordCount on two workers, beside Bytewax in the same run.

    python benchmarks/dataplane/wordcount.py [--rounds 3] [--seconds 5]

Both read the same lines (CPython's documentation text), split them, exchange words by key between two processes and
keep a running count per word. Rounds alternate. CPU seconds are user + system of all processes; start-up is not
counted on our side, and is subtracted on Bytewax's by a second, shorter run. Bytewax gets an environment of its own,
made at the first call.
"""

import argparse
import os
import resource
import subprocess
import sys
import venv
from pathlib import Path
from statistics import median

from workers import Cost, Workers, spread, temporary

from workloads.registry import load_workload

BYTEWAX = "bytewax==0.21.1"
HERE = Path(__file__).parent
SPLIT = {"spout": 2, "split": 2, "count": 2}
PARAMS = {"parallelism": SPLIT, "ackers": 0}


def bytewax_python() -> Path:
    """The interpreter of Bytewax's environment, made if need be."""
    folder = HERE / ".bytewax"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {BYTEWAX} into its own environment", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", BYTEWAX], check=True)
    return python


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bytewax(python: Path, text: Path, loops: int) -> float:
    """CPU seconds of one Bytewax run with two processes."""
    before = cpu_of_children()
    environment = {
        **os.environ,
        "MILLRACE_BENCH_TEXT": str(text),
        "MILLRACE_BENCH_LOOPS": str(loops),
        "PYTHONPATH": str(HERE),
    }
    command = [python, "-m", "bytewax.testing", "bytewax_flow:flow", "-p", "2"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return cpu_of_children() - before


def millrace(folder: Path, seconds: float) -> Cost:
    """One run of ours at full speed."""
    places = spread(list(SPLIT.items()), 2)
    with Workers(folder, "wordcount", PARAMS, places, 2, {"kind": "max"}) as workers:
        return workers.race(seconds)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--seconds", type=float, default=5.0)
    options = arguments.parse_args()
    python = bytewax_python()
    folder = temporary()
    (prepared,) = load_workload("wordcount", PARAMS).prepare(folder)
    words = len(prepared.path.read_text(encoding="utf-8").split())
    few, many = 2, 12
    ours, theirs, rss = [], [], []
    for number in range(options.rounds):
        cost = millrace(folder, options.seconds)
        ours.append(cost.cpu_s_per_million)
        rss.append(cost.rss_mb)
        short, long = bytewax(python, prepared.path, few), bytewax(python, prepared.path, many)
        theirs.append((long - short) / (words * (many - few)) * 1e6)
        print(
            f"round {number + 1}: millrace {ours[-1]:.3f}, bytewax {theirs[-1]:.3f} CPU s per million words; "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    print(
        f"millrace  median {median(ours):.3f} CPU s per million words, {1 / median(ours):.2f} M words per CPU s, "
        f"{median(rss):.0f} MB in two workers"
    )
    print(f"bytewax   median {median(theirs):.3f} CPU s per million words, {1 / median(theirs):.2f} M words per CPU s")
    print(f"ratio     bytewax / millrace = {median(t / o for o, t in zip(ours, theirs, strict=True)):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
