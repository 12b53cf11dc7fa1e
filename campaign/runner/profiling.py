"""Profiling runs before the measured runs of a campaign: what is executed, and the plan with their traffic."""

import shutil
from collections.abc import Mapping, Sequence

from campaign.agenda.campaign_plan import CampaignPlan
from campaign.agenda.profiling import ProfilingRun, profiling_plan
from campaign.agenda.run_order import PlannedRun
from campaign.results.live_file import FAILING, INTERRUPTED, PREPARING, finish_live
from campaign.results.profiles import write_traffic
from campaign.results.result_store import ResultStore
from campaign.runner.open_campaign import Opened
from inventory.errors import RunError
from inventory.foreign import printable


def begin_profiling(
    opened: Opened, pending: Sequence[ProfilingRun]
) -> tuple[CampaignPlan, Sequence[PlannedRun], ResultStore]:
    """Return the plan of these profiling runs, the runs, and the folder of their results, which is created.

    Runs that are done are not done again, unless they have measured nothing.

    Raises:
        InputError: an earlier result cannot be read.
        DiskFullError, UnfitError: it cannot be written.
    """
    store = opened.profiles
    store.begin()
    for each in pending:
        if store.is_done(each.run.name):
            # Its campaign was interrupted before the traffic was written, or there was none.
            try:
                write_traffic(opened.folder, opened.plan, each)
            except RunError:
                shutil.rmtree(store.runs / each.run.name)
    return profiling_plan(opened.plan, pending), [each.run for each in pending], store


def end_profiling(opened: Opened, pending: Sequence[ProfilingRun], failed: Mapping[str, str]) -> Opened:
    """Write the traffic files of these profiling runs; return the campaign with placements by them.

    Args:
        opened: the campaign.
        pending: the profiling runs.
        failed: name -> reason of those that failed.

    Raises:
        RunError: a profiling run failed, or measured nothing.
        InputError: a workload cannot be placed with its traffic.
        DiskFullError, UnfitError: a file cannot be written.
    """
    how = FAILING
    try:
        for name, reason in failed.items():
            raise RunError(f"{name}: {reason}")
        for each in pending:
            write_traffic(opened.folder, opened.plan, each)
        profiled = opened.with_profiles()
        how = PREPARING
        return profiled
    except RunError as fault:
        raise RunError(
            f"{fault}\nno run was measured: placements need the traffic of all profiling runs. "
            f"Try again with: millrace run --resume {printable(opened.folder)}"
        ) from None
    except KeyboardInterrupt:
        how = INTERRUPTED
        raise
    finally:
        finish_live(opened.folder, how)
