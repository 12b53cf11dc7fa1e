"""Keep Spark's classes for the jobs of all tests, as a long job would; only the first long one of the suite did.

A small report is built, whose Java writes the archive at its end. Where there is an archive already, nothing is done.
"""

import shutil
import sys
import tempfile
from pathlib import Path

from analysis.page.render import JOB, PROGRESS
from analysis.tables.java import spark_environment
from analysis.tables.submit import QUICK_START, Job, kept_classes, submit

RESULTS = Path(__file__).resolve().parents[1] / "tests" / "kept_results" / "0.1.0"


def main() -> None:
    """Write the archive of Spark's classes unless it is there."""
    with kept_classes(spark_environment(), make=False) as classes:
        if classes.options:
            return
    with tempfile.TemporaryDirectory() as folder:
        campaign = shutil.copytree(RESULTS, Path(folder) / "campaign")
        report = Path(folder) / "report"
        arguments = ("--campaign", str(campaign), "--output", str(report))
        submit(Job("a report", JOB, arguments, PROGRESS, report, QUICK_START, long=True), None, _show)


def _show(line: str) -> None:
    sys.stderr.write(f"{line}\n")


if __name__ == "__main__":
    main()
