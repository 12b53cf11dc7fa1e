"""Where the demo's time goes, and how long its report takes, for its own traces and for 100 times as many rows.

    .venv/bin/python benchmarks/demo.py [DIR] [--times 100]

DIR is the folder of a finished campaign (default results/demo/latest). The larger campaign is a copy whose trace
tables hold every row 100 times; it is made in a temporary folder and removed.
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


def stages(campaign: Path) -> Counter[str]:
    """Seconds per stage, all runs together."""
    spent: Counter[str] = Counter()
    for path in campaign.glob("runs/*/run.json"):
        spent.update(json.loads(path.read_text(encoding="utf-8"))["times"]["stages_s"])
    return spent


def multiplied(campaign: Path, folder: Path, times: int) -> Path:
    """A copy of `campaign` whose trace tables hold every row `times` times."""
    copy = folder / "campaign"
    shutil.copytree(campaign, copy, ignore=shutil.ignore_patterns("report", "live.json"))
    for path in copy.glob("runs/*/traces/*.parquet"):
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table] * times), path)
    return copy


def rows_of(campaign: Path) -> int:
    return sum(pq.read_metadata(path).num_rows for path in campaign.glob("runs/*/traces/*.parquet"))


def report_s(campaign: Path) -> float:
    """Seconds of `millrace report`, start to end."""
    begin = time.perf_counter()
    subprocess.run([MILLRACE, "--quiet", "report", campaign], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("campaign", nargs="?", type=Path, default=Path("results/demo/latest"))
    arguments.add_argument("--times", type=int, default=100)
    options = arguments.parse_args()
    campaign = options.campaign.resolve()
    spent = stages(campaign)
    total = sum(spent.values())
    print(f"{'stage':<20}{'seconds':>9}{'share':>8}   (all runs, load now {os.getloadavg()[0]:.1f})")
    for stage, seconds in spent.items():
        print(f"{stage:<20}{seconds:>9.1f}{seconds / total:>8.0%}")
    print(f"{'together':<20}{total:>9.1f}")
    with tempfile.TemporaryDirectory(prefix="millrace-report-") as folder:
        own = multiplied(campaign, Path(folder) / "own", 1)
        small, rows = report_s(own), rows_of(own)
        print(f"report of {rows:,} rows: {small:.1f} s", flush=True)
        large = multiplied(campaign, Path(folder) / "large", options.times)
        took, many = report_s(large), rows_of(large)
        print(f"report of {many:,} rows: {took:.1f} s, {took / small:.1f} x the time for {many / rows:.0f} x the rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
