"""Spark job: one data pipeline, from raw or prepared files to tables.

    spark-submit workloads/pipelines/job.py NAME --input PATH --output PATH [--param K=V ...] [--format F] [--stream]

Runs in the Python environment that Millrace is installed in (set PYSPARK_PYTHON where that is not the default), on
any master; input and output must be reachable under the same path everywhere.
"""

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

# On import pyspark warns about features that are not used here and do not support this version of pandas.
warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")

from inventory.errors import MillraceError  # noqa: E402
from inventory.foreign import printable_lines  # noqa: E402
from inventory.parent_death import end_with, leave_on_sigterm  # noqa: E402
from workloads.pipelines.run_pipeline import Asked, execute_pipeline  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Run the job; return the exit status."""
    parser = argparse.ArgumentParser(prog="job.py", description="Run one data pipeline.")
    parser.add_argument("name", help="see docs/reference/pipelines.md")
    parser.add_argument("--input", required=True, help="a file, a folder of parts, or tcp://HOST:PORT")
    parser.add_argument("--output", type=Path, required=True, help="folder of the tables; replaced when it is one")
    parser.add_argument("--param", action="append", default=[], metavar="K=V", help="parameter of the pipeline")
    parser.add_argument("--format", choices=("parquet", "csv"), default="parquet", help="of the tables")
    parser.add_argument("--stream", action="store_true", help="as a stream, part by part")
    asked = parser.parse_args(arguments)
    # Java starts this program but does not end it: SIGTERM does, or the end of Java.
    leave_on_sigterm()
    end_with(os.getppid())()
    try:
        execute_pipeline(Asked(asked.name, asked.input, asked.output, tuple(asked.param), asked.format, asked.stream))
    except MillraceError as fault:
        sys.stderr.write(f"{printable_lines(f'millrace: {fault}')}\n")
        return fault.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
