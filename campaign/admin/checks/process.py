"""`python -m campaign.admin.checks.process scheduler NAME all|answers | workload NAME FOLDER`: tries a plug-in."""

import os
import sys

from campaign.admin.checks.trial import Speaker


def main() -> None:
    """Try it; whatever the plug-in prints goes to standard error."""
    target = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    speaker = Speaker(target)
    kind, name, *rest = sys.argv[1:]
    if kind == "scheduler":
        from campaign.admin.checks.scheduler_trial import try_scheduler

        try_scheduler(name, speaker, only_answers=rest == ["answers"])
    else:
        from pathlib import Path

        from campaign.admin.checks.workload_trial import try_workload

        try_workload(name, Path(rest[0]), speaker)
    speaker.over()


if __name__ == "__main__":
    main()
