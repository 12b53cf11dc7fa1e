"""A campaign from the cluster's lock to the end of the last run: inputs, profiling runs, and the runs themselves."""

import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from agents.arrow_import import skip_pandas_import
from campaign.agenda.campaign_plan import CampaignPlan, Inputs, keep_measured, prepare_inputs
from campaign.agenda.run_order import PlannedRun
from campaign.display.progress import view_for
from campaign.display.terminal import Settings, progress_bar, show
from campaign.results.live_file import PREPARING
from campaign.results.result_store import ResultStore
from campaign.runner.campaign_loop import CampaignFiles, CampaignLoop
from campaign.runner.clean import clean
from campaign.runner.clusters import Clusters, first_inventory
from campaign.runner.open_campaign import EMULATED, Opened
from campaign.runner.profiling import begin_profiling, end_profiling
from campaign.runner.run_environment import CampaignConditions, Ending
from controller.host.cluster_lock import ClusterLock, InUseError, merged
from controller.host.disk import writing
from controller.host.ownership import CleanupLog
from controller.host.signals import interrupted_once, interrupts_blocked, raise_held_interrupt
from controller.nodes.backend import Backend
from engines.selection import AGENTS, ENGINES, ready
from inventory.errors import UnfitError
from workloads.workload import reporting_to

WAIT_S = 5.0
"""Interval of attempts to get nodes that a campaign of another controller uses."""

INPUTS = "inputs"
"""Folder of prepared inputs while a campaign works; and of its measured inputs, in the campaign's folder."""


def execute_runs(
    opened: Opened,
    runs: Sequence[PlannedRun],
    backends: Mapping[str, Backend],
    settings: Settings,
    profile: bool,
    accept_shortfall: bool,
    last_stage: str,
    wait: bool = False,
) -> Ending:
    """Execute the runs; after a crash, the state file lists what is left to clean up.

    Args:
        opened: the campaign.
        runs: its selected runs.
        backends: inventory -> access to its nodes. Those of the first cluster are reserved from before the first write,
            those of the others from before their first run; all to the end of their last run.
        settings: global options of the command line.
        profile, accept_shortfall: see `CampaignLoop`.
        last_stage: stage in `live.json` after the last run.
        wait: whether to wait for clusters that other campaigns use.

    Raises:
        InUseError: another campaign uses a cluster.
        MillraceError: the campaign cannot start, or results can no longer be written.
    """
    skip_pandas_import()
    check_engines(opened.plan, runs, backends)
    for line in clean().done:
        show(f"removed, left by a killed campaign: {line}", error=True)
    with interrupts_blocked():
        # Python tries the folder with a file, which an interruption would leave there.
        temporary = Path(tempfile.gettempdir())
    with ExitStack() as stack:
        stack.enter_context(interrupted_once())
        claim = merged(backend.claim for backend in backends.values())
        stack.enter_context(ClusterLock(claim, opened.folder, _show_wait if wait else None))
        state = stack.enter_context(CleanupLog(opened.folder))
        work = state.partial(temporary / f"millrace-{state.path.stem}")
        with writing(work):
            work.mkdir(mode=0o700)
        clusters = stack.enter_context(Clusters(backends, opened.plan, runs, state, work))
        _start(clusters, first_inventory(opened, runs, backends), wait)
        with clusters.loop.in_background():
            inputs = prepared(opened, runs, work / INPUTS, settings)
            opened.check_inputs(inputs)
            store = opened.store()
            with writing(opened.folder):
                keep_measured(inputs, work / INPUTS, opened.folder / INPUTS)
        view = view_for(settings.quiet, settings.color)

        def execute(plan: CampaignPlan, runs: Sequence[PlannedRun], store: ResultStore, last_stage: str) -> Ending:
            files = CampaignFiles(store, state, work)
            conditions = CampaignConditions.of(plan.agenda, clusters.backend, profile, accept_shortfall)
            campaign = CampaignLoop(plan, runs, inputs, files, clusters, view, conditions)
            return campaign.run_all(last_stage)

        if pending := opened.unprofiled(runs):
            with clusters.loop.in_background():
                begun = begin_profiling(opened, pending)
            ending = execute(*begun, PREPARING)
            if ending.interrupted:
                return ending
            stack.enter_context(interrupted_once())
            raise_held_interrupt()
            with clusters.loop.in_background():
                opened = end_profiling(opened, pending, ending.failed)
        return execute(opened.plan, runs, store, last_stage)


def _start(clusters: Clusters, inventory: str, wait: bool) -> None:
    """Bring up a cluster, once no campaign of another controller uses its nodes any more."""
    shown = ""
    while True:
        try:
            clusters.start(inventory)
            return
        except InUseError as fault:
            if not wait:
                raise
            if str(fault) != shown:
                _show_wait(shown := str(fault))
        time.sleep(WAIT_S)


def _show_wait(reason: str) -> None:
    show(f"waiting: {reason}", error=True)


def check_engines(plan: CampaignPlan, runs: Sequence[PlannedRun], backends: Mapping[str, Backend]) -> None:
    """Check that the engines of these runs are installed, and can use their clusters.

    Raises:
        UnfitError: one of them is not, or cannot.
    """
    for name, inventory in sorted({(plan.at(run).agenda.engine, run.inventory) for run in runs}):
        if name == AGENTS:
            continue
        if obstacle := backends[inventory].engine_obstacle:
            raise UnfitError(
                f"engine: {name} cannot run on these nodes: {obstacle}; expected such machines, or nodes of this host "
                "(inventory: loopback, a cluster file, or as root an emulated cluster)"
            )
        ready(name)
    for run in runs:
        if plan.at(run).agenda.engine == AGENTS or plan.why_unplaced(run):
            continue
        if backends[run.inventory].tier == EMULATED:
            check_memory(plan, run)


def check_memory(plan: CampaignPlan, run: PlannedRun) -> None:
    """Check that the memory limits of the nodes of a run on another engine leave it what it is known to need.

    Raises:
        UnfitError: one of them does not.
    """
    here = plan.at(run)
    kind = ENGINES[here.agenda.engine]
    workers = Counter(slot.node for slot in set(here.placed[run.workload, run.scheduler].places.values()))
    for node, count in sorted(workers.items()):
        needed, limit = kind.node_mb + count * kind.worker_mb, here.cluster.by_id[node].memory_mb
        if limit < needed:
            raise UnfitError(
                f"engine: {here.agenda.engine}: node {node} has {limit:g} MB of memory (memory_mb), and {kind.title} "
                f"needs at least {needed} there for the {count} workers of run {run.name}; give the node more memory, "
                "or place fewer workers there"
            )


def prepared(opened: Opened, runs: Sequence[PlannedRun], folder: Path, settings: Settings) -> Inputs:
    """Prepare the inputs of these runs, and of their profiling runs, below `folder`.

    Raises:
        InputError: an input cannot be used.
        UnfitError: it cannot be prepared on this machine.
    """
    placed = [run for run in runs if not opened.plan.why_unplaced(run)]
    placed += [profiling.run for profiling in opened.unprofiled(runs)]
    placed += [calibration.run for calibration in opened.plan.calibrations.values()]
    with progress_bar("preparing inputs", settings.quiet, settings.color) as listener, reporting_to(listener):
        return prepare_inputs(opened.plan, placed, folder, opened.folder / INPUTS)
