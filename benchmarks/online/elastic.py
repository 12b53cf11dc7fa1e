"""Measure how `ds2` reacts to a doubled rate: number and time of its revisions, and the throughput afterwards.

    .venv/bin/python benchmarks/online/elastic.py [--rate 100] [--cost-us 2500] [--target 0.4] [--after-s 60]

A chain of a source and two bolts, one executor each, in one worker, which computes on one core at a time. With the
defaults the doubled rate needs that whole core, twice the target; on a busy host, lower rates and targets have the
same effect. One run is static; the other starts with the same placement and is revised by `ds2`. Limits: at most three
revisions, finished within two windows and a second of the step where one is enough; then a throughput within 5 % of
the offered rate, measured in the last third of the time after the step. For comparison, the throughput of the static
run is shown. All answers are compared with the reference.

Example: .venv/bin/python benchmarks/online/elastic.py --after-s 40
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet

WINDOW_S, STEP_S = 10.0, 25.0
CLUSTER: Mapping[str, Any] = {
    "nodes": [{"id": f"n{at}", "address": f"127.0.0.{at + 1}", "slots": 2} for at in range(1, 4)]
}


def agenda(options: argparse.Namespace) -> Mapping[str, Any]:
    """Return an agenda of two runs with the same step of the rate."""
    params = {"operators": 3, "tasks": 1, "workers": 1, "cost_us": options.cost_us}
    online = {"window_s": WINDOW_S, "first_s": WINDOW_S, "ask_s": WINDOW_S}
    return {
        "name": "elastic",
        "inventory": "cluster.json",
        "repetitions": 1,
        "warmup_s": 1,
        "duration_s": STEP_S + options.after_s,
        "checkpoint_s": 5,
        "workloads": [
            {"name": "linear", "params": params, "rate": {"kind": "constant", "tuples_per_s": options.rate}},
        ],
        "schedulers": [
            {"name": "ds2", "label": "static", "params": {"target": options.target}},
            {"name": "ds2", "label": "ds2", "params": {"target": options.target}, "online": online},
        ],
        "timeline": [{"at_s": STEP_S, "do": "rate", "tuples_per_s": 2 * options.rate}],
        "sensors": ["cpu"],
    }


def processed_per_s(folder: Path, run: Mapping[str, Any], since_s: float, until_s: float) -> float:
    """Return the rows per second that the sink processed between two times since the start of the sources."""
    rows = pyarrow.parquet.read_table(folder / "traces" / "throughput.parquet").to_pylist()
    start_ns = run["times"]["source_start_ns"]
    processed: list[int] = [
        row["processed"]
        for row in rows
        if row["role"] == "sink" and since_s < (row["t_ns"] - start_ns) / 1e9 <= until_s
    ]
    return sum(processed) / (until_s - since_s)


def measure(options: argparse.Namespace) -> int:
    """Run both, and print a table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cluster.json").write_text(json.dumps(CLUSTER))
        (folder / "agenda.json").write_text(json.dumps(agenda(options)))
        command = [sys.executable, "-m", "millrace", "run", "agenda.json", "--no-report", "--out", "out"]
        # A separate state folder, so that other campaigns can run on this host.
        variables = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
        result = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
        if result.returncode:
            sys.stderr.write(result.stderr)
            return 1
        offered, until_s = 2 * options.rate, STEP_S + options.after_s
        since_s = until_s - options.after_s / 3
        load = f"load {os.getloadavg()[0]:.1f}"
        print(
            f"{options.rate:g} -> {offered:g} rows/s at {STEP_S:g} s, {options.cost_us:g} us per row and bolt; {load}\n"
        )
        print(
            "| | revisions after the step | last one done, s after it | executors | rows/s at the end "
            "| share of the offered rate |"
        )
        print("|---|---|---|---|---|---|")
        for run in sorted((folder / "out").glob("*/latest/runs/*")):
            print_run(run, offered, since_s, until_s)
    return 0


def print_run(folder: Path, offered: float, since_s: float, until_s: float) -> None:
    """Print the table row of a run."""
    run = json.loads((folder / "run.json").read_text())
    if run["status"] != "ok" or run["verification"]["status"] != "passed":
        raise SystemExit(f"{folder.name}: {run['reason'] or run['verification']}")
    revisions = [each for each in run["measured"].get("revisions") or () if each["outcome"] not in ("no", "stale")]
    made = [each for each in revisions if each["outcome"] == "done" and each["begun_s"] >= STEP_S]
    ended = f"{made[-1]['ended_s'] - STEP_S:.1f}" if made else "-"
    sizes: dict[str, int] = {}
    for each in run["measured"].get("scalings") or ():
        sizes[each["component"]] = each["after"]
    rate = processed_per_s(folder, run, since_s, until_s)
    executors = ", ".join(f"{component} {size}" for component, size in sizes.items()) or "unchanged"
    share = f"{100 * rate / offered:.1f} %"
    print(f"| {run['scheduler']} | {len(made)} | {ended} | {executors} | {rate:.0f} | {share} |", flush=True)


def main() -> int:
    """Parse the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0, help="rows/s before the step")
    parser.add_argument("--cost-us", type=float, default=2500.0, help="CPU time per row and bolt")
    parser.add_argument("--target", type=float, default=0.4, help="target utilization of ds2")
    parser.add_argument("--after-s", type=float, default=60.0, help="time after the step")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
