"""A campaign's report, built by the Spark job in a separate process."""

from collections.abc import Callable
from pathlib import Path

from analysis.records.campaign import load_campaign
from analysis.tables.submit import QUICK_START, Job, check_master, submit
from inventory.own_files import OutputFolder

REPORT = OutputFolder("no report", r"index\.html|tables/[^/]+\.(csv|md|tex)|figures/[^/]+\.(svg|pdf)", "files.txt")

JOB = Path(__file__).parent / "jobs" / "report.py"
PROGRESS = "report: "
"""Prefix of the job's progress lines."""

SMALL_ROWS = 1_000_000
"""Below this number of trace rows, Java's optimising compiler does not pay off."""


def render(
    folder: Path,
    master: str | None = None,
    baseline: str | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
    pdf: bool = False,
) -> Path:
    """Build `folder/report` from the campaign in `folder`; return the path of its page.

    Args:
        folder: holds `campaign.json`.
        master: Spark master; default is this host's cores.
        baseline: the scheduler that others are compared with; default is the agenda's.
        on_progress: called with lines of progress.
        pdf: whether to write every figure as PDF, too.

    Raises:
        InputError: the folder holds no campaign, a file in it is wrong, the baseline is no scheduler of it, the master
            is not a valid Spark master, or the folder of the report has other files, too.
        UnfitError: Spark or Java is missing, Spark does not start, or the report cannot be written.
        RunError: the job failed; its output is in a file `report*.log` of the folder.
    """
    campaign = load_campaign(folder)
    campaign.baseline(baseline)
    check_master(master)
    target = folder / "report"
    REPORT.check(target.resolve())
    arguments = ["--campaign", str(folder.resolve()), "--output", str(target.resolve())]
    if baseline is not None:
        arguments += ["--baseline", baseline]
    if pdf:
        arguments.append("--pdf")
    java = QUICK_START if campaign.rows < SMALL_ROWS else ()
    submit(Job("the report", JOB, arguments, PROGRESS, target, java), master, on_progress)
    return target / "index.html"
