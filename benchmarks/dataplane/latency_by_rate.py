"""Measure latency and CPU time against the rate: one worker, two workers of a node, two nodes; agents, Storm, Flink.

    python benchmarks/dataplane/latency_by_rate.py [--rates 50 400 4000 16000] [--repetitions 3] [--out DIR]

Campaigns on this host, of which `--out` keeps the results; the second is left out without Storm and Flink
(`millrace engine`):

- `hop`, on agents: a source and a sink that does nothing, each with one executor;
- `wordcount`, on agents, Storm and Flink: two executors of each component, those of index 0 at the first place. Bytewax
  runs it outside of campaigns, in one process and in two, after its installation into a virtual environment; its
  latencies are of all words, its CPU time is without its start.

Sources follow their schedules, and a latency begins when a row is due. The tables have medians of the repetitions, in
ms, and the CPU time of worker processes in cores; `late` marks runs whose sources or queues fell behind. `--figure`
draws p50 and p95.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pyarrow.compute as pc
from loopback import percentile
from peers import bytewax_at_rate

from analysis.records.file_types import RunRecord
from campaign.results.open_results import Results
from engines.installation import installed
from engines.selection import AGENTS, ENGINES
from workloads.workload import load_workload

MILLRACE = Path(sys.executable).with_name("millrace")

WARM_UP_S = 5

WORKLOADS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "hop": ("linear", {"operators": 2, "tasks": 1, "workers": 2, "cost_us": 0.0, "tuple_bytes": 16}),
    "wordcount": (
        "wordcount",
        {"ackers": 0, "workers": 2, "parallelism": dict.fromkeys(("spout", "split", "count"), 2)},
    ),
}
PLACES = {
    "one-worker": (("n1", 0), ("n1", 0)),
    "two-workers": (("n1", 0), ("n1", 1)),
    "two-nodes": (("n1", 0), ("n2", 0)),
}


class Point(NamedTuple):
    """Medians of the repetitions of one set-up: latencies in ms, CPU time in cores."""

    p50: float
    p95: float
    p99: float
    cpu: float
    late: bool


def agenda(label: str, engines: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    """Return the agenda of one workload."""
    workload, params = WORKLOADS[label]
    topology = load_workload(workload, params).topology()
    schedulers = []
    for name, slots in PLACES.items():
        assignments = []
        for at, executor in enumerate(topology.executors):
            node, slot = slots[(at if label == "hop" else executor.index) % 2]
            assignments.append({"executor": executor.name, "node": node, "slot": slot})
        placement = {"topologies": {topology.id: {"assignments": assignments}}}
        schedulers.append({"name": "given", "label": name, "params": {"placement": placement}})
    return {
        "name": f"latency-{label}",
        "repetitions": options.repetitions,
        "warmup_s": WARM_UP_S,
        "duration_s": options.seconds,
        "checkpoint_s": 0,
        "sensors": ["cpu"],
        "workloads": [
            {
                "name": workload,
                "label": label,
                "params": params,
                "rate": {"kind": "constant", "tuples_per_s": options.rates[0]},
            }
        ],
        "schedulers": schedulers,
        "factors": {"engine": list(engines), f"workloads.{label}.rate.tuples_per_s": options.rates},
    }


def cpu_cores(results: Results, name: str, run: RunRecord) -> float:
    """Return the CPU time of the worker processes of a run over its measured interval, in cores."""
    begin, end = run.times.measure_start_ns, run.times.measure_end_ns
    if begin is None or end is None:
        return float("nan")
    table = results.traces("cpu", "scope", "name", "cores", runs=[name]).to_arrow()
    inside = pc.and_(pc.greater(table["t_ns"], begin), pc.less_equal(table["t_ns"], end))
    workers = table.filter(pc.and_(inside, pc.equal(table["scope"], "worker")))
    each = workers.group_by(["node", "name"]).aggregate([("cores", "mean")])
    return float(pc.sum(each["cores_mean"]).as_py() or 0.0)


def points(folder: Path, label: str) -> dict[tuple[str, int, str], Point]:
    """Return (engine, rate, placement) -> medians."""
    results = Results(folder)
    runs: defaultdict[tuple[str, int, str], list[Point]] = defaultdict(list)
    for name, run in results.runs().items():
        if run.measured is None or (latency := run.measured.latency_ms).p50 is None:
            print(f"{name}: {run.status}: {run.reason}", file=sys.stderr)
            continue
        key = (run.factors["engine"], run.factors[f"workloads.{label}.rate.tuples_per_s"], run.scheduler)
        late = run.status != "ok" or bool(run.measured.saturated)
        runs[key].append(
            Point(latency.p50, latency.p95 or 0.0, latency.p99 or 0.0, cpu_cores(results, name, run), late)
        )
    return {key: medians(each) for key, each in runs.items()}


def bytewax_points(options: argparse.Namespace, scratch: Path) -> dict[tuple[str, int, str], Point]:
    """Return the same of Bytewax, whose CPU time at start, that of a run without rows, is subtracted."""
    workload, params = WORKLOADS["wordcount"]
    (text,) = load_workload(workload, params).prepare(scratch)
    measured: dict[tuple[str, int, str], Point] = {}
    for processes, place in enumerate(list(PLACES)[:2], 1):
        idle = bytewax_at_rate(text.path, processes, 1, 0.0, 0.0, scratch).cpu_s
        for rate in options.rates:
            runs = []
            for _ in range(options.repetitions):
                with tempfile.TemporaryDirectory(dir=scratch) as folder:
                    used = bytewax_at_rate(text.path, processes, rate, WARM_UP_S, options.seconds, Path(folder))
                    values = sorted(int(line) / 1e6 for path in Path(folder).iterdir() for line in path.open())
                cores = (used.cpu_s - idle) / (WARM_UP_S + options.seconds)
                p50, p95, p99 = (percentile(values, share) for share in (0.5, 0.95, 0.99))
                runs.append(Point(p50, p95, p99, cores, late=False))
            measured["bytewax", rate, place] = medians(runs)
            print(f"bytewax, {rate:,}/s, {place}: {measured['bytewax', rate, place]}", flush=True)
    return measured


def medians(runs: Sequence[Point]) -> Point:
    """Return the medians of several runs."""
    return Point(
        median(point.p50 for point in runs),
        median(point.p95 for point in runs),
        median(point.p99 for point in runs),
        median(point.cpu for point in runs),
        any(point.late for point in runs),
    )


def table(label: str, found: Mapping[tuple[str, int, str], Point]) -> str:
    """Return the medians as a Markdown table."""
    lines = [
        "| workload | engine | rows/s | placement | p50 | p95 | p99 | CPU | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (engine, rate, place), point in sorted(found.items()):
        figures = " | ".join(f"{value:.2f}" for value in point[:-1])
        lines.append(f"| {label} | {engine} | {rate:,} | {place} | {figures} | {'late' if point.late else ''} |")
    return "\n".join(lines)


def draw(found: Mapping[tuple[str, int, str], Point], path: Path) -> None:
    """Draw p50 and p95 against the rate, a panel per placement and a line per engine."""
    from matplotlib import pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "latency", "svg.fonttype": "none"}
    figure, axes = plt.subplots(1, len(PLACES), figsize=(10, 3.4), sharex=True, sharey=True, layout="constrained")
    for axis, place in zip(axes, PLACES, strict=True):
        for at, engine in enumerate(dict.fromkeys(key[0] for key in found)):
            mine = sorted((key[1], point) for key, point in found.items() if key[0] == engine and key[2] == place)
            rates = [rate for rate, _ in mine]
            axis.loglog(rates, [point.p50 for _, point in mine], color=f"C{at}", marker="o", label=f"{engine}, p50")
            axis.loglog(rates, [point.p95 for _, point in mine], color=f"C{at}", ls="--", label=f"{engine}, p95")
        axis.set(title=place, xlabel="lines/s")
    axes[0].set_ylabel("latency, ms")
    axes[-1].legend(fontsize=7)
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Run the campaigns, and print their tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", nargs="*", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--engines", nargs="*", help="of wordcount (default: agents, engines installed, bytewax)")
    parser.add_argument("--rates", type=int, nargs="*", default=[50, 400, 4_000, 16_000], help="rows/s of all sources")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0, help="measured per run")
    parser.add_argument("--out", type=Path, help="folder that keeps the results")
    parser.add_argument("--figure", type=Path, help="write the figure of wordcount to this SVG file")
    options = parser.parse_args()
    if options.engines is None:
        options.engines = [AGENTS, *(n for n, kind in ENGINES.items() if installed(kind.jars) is not None), "bytewax"]
    with tempfile.TemporaryDirectory(prefix="millrace-latency-") as scratch:
        for label in options.workload:
            engines = [AGENTS] if label == "hop" else [each for each in options.engines if each != "bytewax"]
            path = Path(scratch) / f"{label}.json"
            path.write_text(json.dumps(agenda(label, engines, options)), encoding="utf-8")
            out = options.out or Path(scratch)
            subprocess.run([MILLRACE, "run", path, "--no-report", "--out", out], check=True)
            found = points(max((out / f"latency-{label}").glob("2*")), label)
            if label == "wordcount" and "bytewax" in options.engines:
                found |= bytewax_points(options, Path(scratch))
            print(f"\n{table(label, found)}\n", flush=True)
            if options.figure is not None and label == "wordcount":
                draw(found, options.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
