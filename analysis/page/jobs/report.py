"""Spark job: from a campaign's traces to its report.

    spark-submit analysis/page/jobs/report.py --campaign DIR --output DIR [--baseline SCHEDULER] [--pdf]

Runs in the Python environment that Millrace is installed in (set PYSPARK_PYTHON where that is not the default), on
any master; the campaign's folder must be readable under the same path everywhere.
"""

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

# pyspark warns on import about pandas features that this job does not use.
warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")

from pyspark.sql import SparkSession  # noqa: E402

from analysis.page.render import REPORT  # noqa: E402
from analysis.records.campaign import BUFFER_MB, Campaign, load_campaign  # noqa: E402
from analysis.statistics.metrics import Rows  # noqa: E402
from analysis.tables.spark_tables import TABLES, collected  # noqa: E402
from analysis.tables.summary import SPARK_COLUMNS, tidy  # noqa: E402
from analysis.tables.traces import Traces  # noqa: E402
from inventory.atomic_files import replacing_folder  # noqa: E402
from inventory.errors import MillraceError  # noqa: E402
from inventory.foreign import printable, printable_lines  # noqa: E402
from inventory.parent_death import end_with, leave_on_sigterm  # noqa: E402
from workloads.pipelines.spark_session import spark_started  # noqa: E402

AT_ONCE = 3
"""Tables computed at the same time: planning one overlaps with computing another."""

ROWS_PER_PARTITION = 500_000

STARTED = time.monotonic()


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    parser = argparse.ArgumentParser(prog="report.py", description="Turn a campaign's traces into its report.")
    parser.add_argument("--campaign", type=Path, required=True, help="folder that holds campaign.json")
    parser.add_argument("--output", type=Path, required=True, help="folder of the report; replaced when it is there")
    parser.add_argument("--baseline", help="scheduler that others are compared with (default: the agenda's)")
    parser.add_argument("--pdf", action="store_true", help="write every figure as PDF, too")
    asked = parser.parse_args(arguments)
    # Java starts this program but does not end it: exit on SIGTERM, and when Java ends.
    leave_on_sigterm()
    end_with(os.getppid())()
    try:
        campaign = load_campaign(asked.campaign)
        baseline = campaign.baseline(asked.baseline)
        # Import the drawing code while Spark starts: that takes as long and leaves a core idle. The thread is a daemon:
        # an exception from SIGTERM may leave Python's import lock held, and must not be waited for.
        drawing = Thread(target=import_module, args=("analysis.page.build",), daemon=True)
        drawing.start()
        with replacing_folder(asked.output, REPORT) as folder:
            with TemporaryDirectory(dir=folder) as scratch:
                tables = _tables(campaign, Path(scratch))
            drawing.join()
            import_module("analysis.page.build").build(campaign, tables, folder, baseline, _report_progress, asked.pdf)
    except MillraceError as fault:
        sys.stderr.write(f"{printable_lines(f'millrace: {fault}')}\n")
        return fault.exit_status
    _report_progress(f"written to {asked.output}")
    return 0


def _tables(campaign: Campaign, scratch: Path) -> dict[str, Rows]:
    """Return the rows of every table; empty tables when no run counts."""
    if not campaign.counted:
        return {name: [] for name in SPARK_COLUMNS}
    _report_progress(f"starting Spark for {len(campaign.counted)} runs with {campaign.rows:,} trace rows")
    with _spark(campaign, scratch) as traces:
        _report_progress("reading marks")
        traces.prepare()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            jobs = {name: pool.submit(collected, traces, name) for name in TABLES}
            tables = {}
            for at, (name, job) in enumerate(jobs.items(), 1):
                tables[name] = tidy(name, job.result())
                _report_progress(f"table {at} of {len(jobs)}: {name}")
    return tables


@contextmanager
def _spark(campaign: Campaign, scratch: Path) -> Iterator[Traces]:
    partitions = str(max(2, -(-campaign.rows // ROWS_PER_PARTITION)))
    builder = SparkSession.builder.appName("millrace report")
    # A separate job that lists files pays off only for many thousands of files.
    builder = builder.config("spark.sql.sources.parallelPartitionDiscovery.threshold", "10000")
    with spark_started(builder.config("spark.sql.shuffle.partitions", partitions), _report_progress) as spark:
        yield Traces(spark, campaign.counted, scratch, campaign.agenda.buffer_mb or BUFFER_MB)


def _report_progress(what: str) -> None:
    sys.stderr.write(f"report: {time.monotonic() - STARTED:5.1f} s  {printable(what)}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
