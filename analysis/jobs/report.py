"""Spark job: from a campaign's traces to its report.

    spark-submit analysis/jobs/report.py --campaign DIR --output DIR [--baseline SCHEDULER]

Runs in the Python environment that Millrace is installed in (set PYSPARK_PYTHON where that is not the default), on
any master; the campaign's folder must be readable under the same path everywhere.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from threading import Thread

# pyspark says on import which of its features that we do not use dislike our pandas.
warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")

from pyspark.sql import SparkSession  # noqa: E402

from analysis.columns import SPARK_COLUMNS, tidy  # noqa: E402
from analysis.results import Campaign, load_campaign  # noqa: E402
from analysis.summary import Rows  # noqa: E402
from analysis.tables import TABLES  # noqa: E402
from analysis.traces import Traces  # noqa: E402
from inventory.atomic_folder import replacing  # noqa: E402
from inventory.errors import MillraceError  # noqa: E402
from inventory.foreign import printable, printable_lines  # noqa: E402
from inventory.parent_death import end_with, leave_on_sigterm  # noqa: E402
from workloads.pipelines.spark_session import started  # noqa: E402

AT_ONCE = 3
"""Tables under way at the same time: planning one overlaps with computing another."""

ROWS_PER_PARTITION = 500_000

STARTED = time.monotonic()


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    parser = argparse.ArgumentParser(prog="report.py", description="Turn a campaign's traces into its report.")
    parser.add_argument("--campaign", type=Path, required=True, help="folder that holds campaign.json")
    parser.add_argument("--output", type=Path, required=True, help="folder of the report; replaced when it is there")
    parser.add_argument("--baseline", help="scheduler that others are compared with (default: the agenda's)")
    asked = parser.parse_args(arguments)
    # Java starts this program and does not end it; whoever ends both sends SIGTERM, and so does the end of Java.
    leave_on_sigterm()
    end_with(os.getppid())()
    try:
        campaign = load_campaign(asked.campaign)
        baseline = campaign.baseline(asked.baseline)
        # What draws is imported while Spark starts, which takes as long and leaves a core idle. Leaving early waits for
        # no import, the less as an exception of SIGTERM may leave Python's import lock held.
        drawing = Thread(target=import_module, args=("analysis.build",), daemon=True)
        drawing.start()
        with replacing(asked.output) as folder:
            tables = _tables(campaign)
            drawing.join()
            import_module("analysis.build").build(campaign, tables, folder, baseline, _tell)
    except MillraceError as fault:
        sys.stderr.write(f"{printable_lines(f'millrace: {fault}')}\n")
        return fault.exit_status
    _tell(f"written to {asked.output}")
    return 0


def _tables(campaign: Campaign) -> dict[str, Rows]:
    """Every table's rows; empty ones when no run counts."""
    if not campaign.counted:
        return {name: [] for name in SPARK_COLUMNS}
    _tell(f"starting Spark for {len(campaign.counted)} runs with {campaign.rows:,} trace rows")
    partitions = str(max(2, -(-campaign.rows // ROWS_PER_PARTITION)))
    builder = SparkSession.builder.appName("millrace report")
    # Listing files in a job of its own pays only where files are many thousands.
    builder = builder.config("spark.sql.sources.parallelPartitionDiscovery.threshold", "10000")
    with started(builder.config("spark.sql.shuffle.partitions", partitions), _tell) as spark:
        traces = Traces(spark, campaign.counted)
        _tell("reading marks")
        traces.prepare()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = {name: pool.submit(lambda make: make(traces).toArrow().to_pylist(), TABLES[name]) for name in TABLES}
            tables = {}
            for at, (name, job) in enumerate(jobs.items(), 1):
                tables[name] = tidy(name, job.result())
                _tell(f"table {at} of {len(jobs)}: {name}")
    return tables


def _tell(what: str) -> None:
    sys.stderr.write(f"report: {time.monotonic() - STARTED:5.1f} s  {printable(what)}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
