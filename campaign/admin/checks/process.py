"""`python -m campaign.admin.checks.process scheduler NAME all|answers | workload NAME FOLDER`: tests a plug-in."""

import os
import sys

from campaign.admin.checks.trial import TrialReporter


def main() -> None:
    """Test the plug-in; redirect what it prints to standard error."""
    target = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reporter = TrialReporter(target)
    kind, name, *rest = sys.argv[1:]
    if kind == "scheduler":
        from campaign.admin.checks.scheduler_trial import try_scheduler

        try_scheduler(name, reporter, only_answers=rest == ["answers"])
    else:
        from pathlib import Path

        from campaign.admin.checks.workload_trial import try_workload

        try_workload(name, Path(rest[0]), reporter)
    reporter.finish()


if __name__ == "__main__":
    main()
