"""Execution of a campaign from the cluster's lock to the end of the last run."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from agents.trace import skip_pandas_import
from campaign.agenda.plan import Inputs, prepare_inputs
from campaign.agenda.run_order import Run
from campaign.display.progress import view_for
from campaign.display.progress_bar import progress_bar
from campaign.display.settings import Settings, show
from campaign.runner.campaign_loop import Campaign, Ending
from campaign.runner.clean import clean
from campaign.runner.cpu_preflight import check_cpus
from campaign.runner.event_loop import CampaignEventLoop
from campaign.runner.open_campaign import Opened
from controller.host.cleanup_log import CleanupLog
from controller.host.cluster_lock import ClusterLock
from controller.host.durable_files import writing
from controller.host.signals import interrupted_once
from controller.nodes.backend import Backend
from workloads.preparation_progress import reporting_to


def run_all(
    opened: Opened,
    runs: Sequence[Run],
    backend: Backend,
    settings: Settings,
    profile: bool,
    accept_shortfall: bool,
    last_stage: str,
) -> Ending:
    """Execute the runs; after a crash, the state file lists what is left to clean up.

    Args:
        opened: the campaign.
        runs: its selected runs.
        backend: its nodes, reserved from before the first write to the end of the last run.
        settings: global options of the command line.
        profile, accept_shortfall: see `Campaign`.
        last_stage: stage in `live.json` after the last run.

    Raises:
        MillraceError: the campaign cannot start, or results can no longer be written.
    """
    skip_pandas_import()
    for line in clean().done:
        show(f"removed, left by a killed campaign: {line}", error=True)
    with ExitStack() as stack:
        stack.enter_context(interrupted_once())
        stack.enter_context(ClusterLock(backend.lock, opened.folder))
        state = stack.enter_context(CleanupLog(opened.folder))
        stack.enter_context(backend.up(state))
        loop = stack.enter_context(CampaignEventLoop())
        stack.enter_context(loop.within(backend))
        work = state.partial(Path(tempfile.gettempdir()) / f"millrace-{state.path.stem}")
        with writing(work):
            work.mkdir(mode=0o700)
        check_cpus(opened.plan, runs, loop, backend, state, work / "check")
        with loop.in_background():
            inputs = prepared(opened, runs, work / "inputs", settings)
            opened.check_inputs(inputs)
            store = opened.store()
        view = view_for(settings.quiet, settings.color)
        campaign = Campaign(opened.plan, runs, inputs, store, state, backend, work, view, profile, accept_shortfall)
        return campaign.run_all(loop, last_stage)


def prepared(opened: Opened, runs: Sequence[Run], folder: Path, settings: Settings) -> Inputs:
    """Prepare the inputs of these runs below `folder`.

    Raises:
        InputError: an input cannot be used.
        UnfitError: it cannot be prepared on this machine.
    """
    labels = sorted({run.workload for run in runs})
    with progress_bar("preparing inputs", settings.quiet, settings.color) as listener, reporting_to(listener):
        return prepare_inputs(opened.plan, labels, folder)
