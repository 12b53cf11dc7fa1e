"""Measure time and memory of the report of 100 runs with ten million trace rows.

    .venv/bin/python benchmarks/report.py [DIR] [--runs 100] [--rows 10000000]

DIR is the folder of a finished campaign (default: results/demo/latest). The large campaign is a temporary copy that
repeats its runs as further repetitions, and the rows of their trace tables.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

MILLRACE = Path(sys.executable).with_name("millrace")
POLL_S = 0.2


def enlarge(campaign: Path, copy: Path, runs: int, rows: int) -> int:
    """Write the large campaign to `copy`; return its number of trace rows."""
    shutil.copytree(campaign, copy, ignore=shutil.ignore_patterns("report", "live.json", "runs"))
    sources = sorted(path for path in (campaign / "runs").iterdir() if (path / "traces").is_dir())
    records = [json.loads((path / "run.json").read_text(encoding="utf-8")) for path in sources]
    repetitions = max(record["repetition"] for record in records)
    row_counts: list[int] = [
        sum(pq.read_metadata(file).num_rows for file in path.glob("traces/*.parquet")) for path in sources
    ]
    times = -(-rows * len(sources) // (runs * sum(row_counts)))
    for at in range(runs):
        source, record = sources[at % len(sources)], records[at % len(sources)]
        repetition = record["repetition"] + repetitions * (at // len(sources))
        target = copy / "runs" / f"{at + 1:03d}-{record['label']}-{record['scheduler']}-r{repetition}"
        (target / "traces").mkdir(parents=True)
        (target / "run.json").write_text(json.dumps(record | {"repetition": repetition}), encoding="utf-8")
        for file in source.glob("traces/*.parquet"):
            table = pq.read_table(file)
            pq.write_table(pa.concat_tables([table] * times), target / "traces" / file.name)
    document = json.loads((copy / "campaign.json").read_text(encoding="utf-8"))
    document["agenda"]["repetitions"] = repetitions * -(-runs // len(sources))
    (copy / "campaign.json").write_text(json.dumps(document), encoding="utf-8")
    return sum(row_counts[at % len(sources)] for at in range(runs)) * times


def measure_report(campaign: Path) -> tuple[float, float]:
    """Return the wall time of `millrace report`, and the peak MB of all its processes together."""
    peak, ended = 0, threading.Event()
    begin = time.perf_counter()
    with subprocess.Popen([MILLRACE, "--quiet", "report", campaign], stdout=subprocess.DEVNULL) as process:

        def watch() -> None:
            nonlocal peak
            while not ended.wait(POLL_S):
                peak = max(peak, resident_bytes(process.pid))

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        status = process.wait()
    seconds = time.perf_counter() - begin
    ended.set()
    watcher.join()
    if status != 0:
        sys.exit(f"the report failed with status {status}")
    return seconds, peak / 1e6


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; an ended process counts 0."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    total = 0
    for each in processes:
        try:
            total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("campaign", nargs="?", type=Path, default=Path("results/demo/latest"))
    arguments.add_argument("--runs", type=int, default=100)
    arguments.add_argument("--rows", type=int, default=10_000_000, help="trace rows of all runs together")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="millrace-report-") as folder:
        large = Path(folder) / "campaign"
        rows = enlarge(options.campaign.resolve(), large, options.runs, options.rows)
        print(f"{options.runs} runs, {rows:,} rows, load now {os.getloadavg()[0]:.1f}", flush=True)
        seconds, mb = measure_report(large)
        print(f"{seconds:.1f} s {mb:,.0f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
