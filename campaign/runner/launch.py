"""Carrying a campaign out: all that starts processes or writes, from the cluster's lock to the last run's end."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from agents.trace import skip_pandas_import
from campaign.agenda.plan import Inputs, prepare_inputs
from campaign.agenda.run_order import Run
from campaign.display.progress import view_for
from campaign.display.progress_bar import share_done
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
from workloads.preparation_progress import told


def carry_out(
    opened: Opened,
    runs: Sequence[Run],
    backend: Backend,
    settings: Settings,
    profile: bool,
    accept_shortfall: bool,
    last_stage: str,
) -> Ending:
    """Do the runs; what this leaves when it is killed is found by its state file.

    Args:
        opened: the campaign.
        runs: which of its runs are wanted.
        backend: its nodes, which are ours from before anything is written until the last run is over.
        settings: of the command line.
        profile, accept_shortfall: as `Campaign` has them.
        last_stage: what a campaign that comes to its end is said to do then.

    Raises:
        MillraceError: it cannot begin, or results cannot be written any more.
    """
    skip_pandas_import()
    for line in clean().done:
        show(f"left by a campaign that was killed, removed: {line}", error=True)
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
        with loop.turning():
            inputs = prepared(opened, runs, work / "inputs", settings)
            opened.check_inputs(inputs)
            store = opened.store()
        view = view_for(settings.quiet, settings.color)
        campaign = Campaign(opened.plan, runs, inputs, store, state, backend, work, view, profile, accept_shortfall)
        return campaign.carry_out(loop, last_stage)


def prepared(opened: Opened, runs: Sequence[Run], folder: Path, settings: Settings) -> Inputs:
    """Prepare the inputs of these runs below `folder`.

    Raises:
        InputError: an input cannot be used.
        UnfitError: it cannot be prepared on this machine.
    """
    labels = sorted({run.workload for run in runs})
    with share_done("preparing inputs", settings.quiet, settings.color) as listener, told(listener):
        return prepare_inputs(opened.plan, labels, folder)
