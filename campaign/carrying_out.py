"""Carrying a campaign out: all that starts processes or writes, from the cluster's lock to the last run's end."""

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from agents.trace import settle_without_pandas
from campaign.campaign import Campaign, Ending
from campaign.clean import clean
from campaign.cli import Settings
from campaign.cpu.checking import check_cpus
from campaign.disk import writing
from campaign.interrupts import interrupted_once
from campaign.lock import ClusterLock
from campaign.loop import Loop
from campaign.opening import Opened
from campaign.order import Run
from campaign.plan import Inputs, prepare_inputs
from campaign.progress import view_for
from campaign.reach import Reach
from campaign.share_done import share_done
from campaign.state import RunState
from inventory.foreign import printable
from workloads.listening import told


def carry_out(
    opened: Opened,
    runs: Sequence[Run],
    reach: Reach,
    settings: Settings,
    profile: bool,
    accept_shortfall: bool,
    last_stage: str,
) -> Ending:
    """Do the runs; what this leaves when it is killed is found by its state file.

    Args:
        opened: the campaign.
        runs: which of its runs are wanted.
        reach: its nodes, which are ours from before anything is written until the last run is over.
        settings: of the command line.
        profile, accept_shortfall: as `Campaign` has them.
        last_stage: what a campaign that comes to its end is said to do then.

    Raises:
        MillraceError: it cannot begin, or results cannot be written any more.
    """
    settle_without_pandas()
    for line in clean().done:
        click.echo(printable(f"left by a campaign that was killed, removed: {line}"), err=True)
    with ExitStack() as stack:
        stack.enter_context(interrupted_once())
        stack.enter_context(ClusterLock(reach.lock, opened.folder))
        state = stack.enter_context(RunState(opened.folder))
        stack.enter_context(reach.up(state))
        loop = stack.enter_context(Loop())
        stack.enter_context(loop.within(reach))
        work = state.partial(Path(tempfile.gettempdir()) / f"millrace-{state.path.stem}")
        with writing(work):
            work.mkdir(mode=0o700)
        check_cpus(opened.plan, runs, loop, reach, state, work / "check")
        with loop.turning():
            inputs = prepared(opened, runs, work / "inputs", settings)
            opened.check_inputs(inputs)
            store = opened.store()
        view = view_for(settings.quiet, settings.color)
        campaign = Campaign(opened.plan, runs, inputs, store, state, reach, work, view, profile, accept_shortfall)
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
