"""Measure the demo's time per stage, and its report's time for its own traces and for 100 times as many rows.

    .venv/bin/python benchmarks/demo.py [DIR] [--factor 100]

DIR is the folder of a finished campaign (default: results/demo/latest). The larger campaign is a temporary copy whose
trace tables repeat every row.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MILLRACE = Path(sys.executable).with_name("millrace")


def stage_seconds(campaign: Path) -> Counter[str]:
    """Return the seconds per stage over all runs."""
    spent: Counter[str] = Counter()
    for path in campaign.glob("runs/*/run.json"):
        spent.update(json.loads(path.read_text(encoding="utf-8"))["times"]["stages_s"])
    return spent


def copy_with_repeated_rows(campaign: Path, folder: Path, factor: int) -> Path:
    """Copy `campaign` into `folder`, with every trace row `factor` times; return the copy."""
    copy = folder / "campaign"
    shutil.copytree(campaign, copy, ignore=shutil.ignore_patterns("report", "live.json"))
    for path in copy.glob("runs/*/traces/*.parquet"):
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table] * factor), path)
    return copy


def count_trace_rows(campaign: Path) -> int:
    """Return the number of trace rows of all runs."""
    return sum(pq.read_metadata(path).num_rows for path in campaign.glob("runs/*/traces/*.parquet"))


def report_s(campaign: Path) -> float:
    """Return the wall time of `millrace report`."""
    begin = time.perf_counter()
    subprocess.run([MILLRACE, "--quiet", "report", campaign], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("campaign", nargs="?", type=Path, default=Path("results/demo/latest"))
    arguments.add_argument("--factor", type=int, default=100, help="repetitions of a trace row (default: 100)")
    options = arguments.parse_args()
    campaign = options.campaign.resolve()
    spent = stage_seconds(campaign)
    total = sum(spent.values())
    print(f"{'stage':<20}{'seconds':>9}{'share':>8}   (all runs, load now {os.getloadavg()[0]:.1f})")
    for stage, seconds in spent.items():
        print(f"{stage:<20}{seconds:>9.1f}{seconds / total:>8.0%}")
    print(f"{'total':<20}{total:>9.1f}")
    with tempfile.TemporaryDirectory(prefix="millrace-report-") as folder:
        own = copy_with_repeated_rows(campaign, Path(folder) / "own", 1)
        small, rows = report_s(own), count_trace_rows(own)
        print(f"report of {rows:,} rows: {small:.1f} s", flush=True)
        large = copy_with_repeated_rows(campaign, Path(folder) / "large", options.factor)
        took, many = report_s(large), count_trace_rows(large)
        print(f"report of {many:,} rows: {took:.1f} s, {took / small:.1f} x the time for {many / rows:.0f} x the rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
