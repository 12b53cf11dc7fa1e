"""How `ds2` reacts to a doubled rate: when it has changed the topology, in how many steps, and what is processed then.

    .venv/bin/python benchmarks/online/elastic.py [--rate 100] [--cost-us 2500] [--target 0.4] [--after 60]

A chain of a source and two bolts, one executor each in one worker, which computes on one core at a time. With the
defaults the doubled rate is all that core can do, twice the target; on a busy host, lower rates and targets show the
same. One run has the placement that stays, the other one starts in the same way and is
revised by `ds2`. Limits: at most three revisions, finished within two windows and a second of the step where one is
enough; then within 5 % of the rate that is due, measured in the last third of the time after the step. Beside it what
the placement processes that stays. All answers are compared with the reference.

Example: .venv/bin/python benchmarks/online/elastic.py --after 40
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

WINDOW_S, BEFORE_S, MOST_STEPS, WITHIN = 10.0, 25.0, 3, 0.05
CLUSTER: Mapping[str, Any] = {
    "nodes": [{"id": f"n{at}", "address": f"127.0.0.{at + 1}", "slots": 2} for at in range(1, 4)]
}


def agenda(options: argparse.Namespace) -> Mapping[str, Any]:
    """Two runs with the same step of the rate."""
    params = {"operators": 3, "tasks": 1, "workers": 1, "cost_us": options.cost_us}
    online = {"window_s": WINDOW_S, "first_s": WINDOW_S, "ask_s": WINDOW_S}
    return {
        "name": "elastic",
        "inventory": "cluster.json",
        "repetitions": 1,
        "warmup_s": 1,
        "duration_s": BEFORE_S + options.after,
        "checkpoint_s": 5,
        "workloads": [
            {"name": "linear", "params": params, "rate": {"kind": "constant", "tuples_per_s": options.rate}},
        ],
        "schedulers": [
            {"name": "ds2", "label": "stays", "params": {"target": options.target}},
            {"name": "ds2", "label": "ds2", "params": {"target": options.target}, "online": online},
        ],
        "timeline": [{"at_s": BEFORE_S, "do": "rate", "tuples_per_s": 2 * options.rate}],
        "sensors": ["cpu"],
    }


def processed_per_s(folder: Path, run: Mapping[str, Any], since_s: float, until_s: float) -> float:
    """Return the rows per second that the sink processed between two times since the start of the sources."""
    rows = pyarrow.parquet.read_table(folder / "traces" / "throughput.parquet").to_pylist()
    start_ns = run["times"]["source_start_ns"]
    found = [
        row["processed"]
        for row in rows
        if row["role"] == "sink" and since_s < (row["t_ns"] - start_ns) / 1e9 <= until_s
    ]
    return sum(found) / (until_s - since_s)


def measure(options: argparse.Namespace) -> int:
    """Run both, and print a table."""
    with tempfile.TemporaryDirectory() as name:
        desk = Path(name)
        (desk / "cluster.json").write_text(json.dumps(CLUSTER))
        (desk / "agenda.json").write_text(json.dumps(agenda(options)))
        words = [sys.executable, "-m", "millrace", "run", "agenda.json", "--no-report", "--out", "out"]
        own = {**os.environ, "XDG_STATE_HOME": str(desk / "state")}  # so that other campaigns may run
        done = subprocess.run(words, cwd=desk, env=own, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stderr)
            return 1
        due, until_s = 2 * options.rate, BEFORE_S + options.after
        since_s = until_s - options.after / 3
        load = f"load {os.getloadavg()[0]:.1f}"
        print(
            f"{options.rate:g} -> {due:g} rows/s at {BEFORE_S:g} s, {options.cost_us:g} us per row and bolt; {load}\n"
        )
        print(
            "| | revisions behind the step | last one done, s behind it | executors | rows/s at the end | of the due |"
        )
        print("|---|---|---|---|---|---|")
        for folder in sorted((desk / "out").glob("*/latest/runs/*")):
            print_run(folder, due, since_s, until_s)
    return 0


def print_run(folder: Path, due: float, since_s: float, until_s: float) -> None:
    """Print the row of a run."""
    run = json.loads((folder / "run.json").read_text())
    if run["status"] != "ok" or run["verification"]["status"] != "passed":
        raise SystemExit(f"{folder.name}: {run['reason'] or run['verification']}")
    revisions = [each for each in run["measured"].get("revisions") or () if each["outcome"] not in ("no", "stale")]
    made = [each for each in revisions if each["outcome"] == "done" and each["begun_s"] >= BEFORE_S]
    ended = f"{made[-1]['ended_s'] - BEFORE_S:.1f}" if made else "-"
    sizes: dict[str, int] = {}
    for each in run["measured"].get("scalings") or ():
        sizes[each["component"]] = each["after"]
    rate = processed_per_s(folder, run, since_s, until_s)
    grown = ", ".join(f"{component} {size}" for component, size in sizes.items()) or "as placed"
    print(
        f"| {run['scheduler']} | {len(made)} | {ended} | {grown} | {rate:.0f} | {100 * rate / due:.1f} % |", flush=True
    )


def main() -> int:
    """Read the options, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=100.0, help="rows/s before the step")
    parser.add_argument("--cost-us", type=float, default=2500.0, help="CPU per row and bolt")
    parser.add_argument("--target", type=float, default=0.4, help="of ds2")
    parser.add_argument("--after", type=float, default=60.0, help="seconds after the step")
    return measure(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
