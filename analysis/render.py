"""A campaign's report, made by the Spark job in a process of its own."""

from collections.abc import Callable
from pathlib import Path

from analysis.results import load_campaign
from analysis.submit import QUICK_START, Job, check_master, submit

JOB = Path(__file__).parent / "jobs" / "report.py"
LOG = "report.log"
PROGRESS = "report: "
"""What the job's lines of progress begin with."""

SMALL_ROWS = 1_000_000
"""So many rows are worked through before Java's optimising compiler would pay."""


def render(
    folder: Path,
    master: str | None = None,
    baseline: str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """Make `folder/report` from the campaign in `folder`; return its page.

    Args:
        folder: holds `campaign.json`.
        master: Spark master; default is this host's cores.
        baseline: the scheduler that others are compared with; default is the agenda's.
        tell: gets lines of progress.

    Raises:
        InputError: the folder holds no campaign, a file in it is wrong, the baseline is no scheduler of it, or the
            master is none that Spark knows.
        UnfitError: Spark or Java is missing, Spark does not start, or the report cannot be written.
        RunError: the job failed; its output is in `report.log` of the folder.
    """
    campaign = load_campaign(folder)
    campaign.baseline(baseline)
    check_master(master)
    target = folder / "report"
    arguments = ["--campaign", str(folder.resolve()), "--output", str(target.resolve())]
    if baseline is not None:
        arguments += ["--baseline", baseline]
    java = QUICK_START if campaign.rows < SMALL_ROWS else ()
    submit(Job("the report", JOB, arguments, PROGRESS, folder / LOG, java), master, tell)
    return target / "index.html"
