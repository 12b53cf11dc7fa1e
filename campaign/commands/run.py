"""`millrace run`: run the campaign of an agenda and build its report."""

import platform
import tempfile
from pathlib import Path

import click

from campaign.admin.operator_callbacks import operator_callbacks
from campaign.agenda.plan import only
from campaign.agenda.run_order import Run
from campaign.display.settings import Settings
from campaign.results.live_file import FINISHED, REPORTING, finish_live, in_words
from campaign.results.watch import find_campaign
from campaign.runner.open_campaign import Opened, new, resumed
from campaign.runner.select_backend import select_backend
from controller.host.cleanup_log import this_owner
from controller.host.signals import INTERRUPTED
from inventory.errors import InputError, UnfitError
from inventory.foreign import escaped, printable

RUN_FAILED = 1


@click.command()
@click.argument("agenda", required=False)
@click.option("--inventory", metavar="I", help="Cluster file or name of an inventory; overrides the agenda's.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Folder of results: DIR/<campaign>/<UTC start>/.",
)
@click.option(
    "--resume",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Resume the campaign in DIR, which contains campaign.json, or `latest`; finished runs are not repeated.",
)
@click.option("--dry-run", is_flag=True, help="Print the runs and their placements; start nothing.")
@click.option("--only", "choice", metavar="K=V,...", help="Run only these: workload=LABEL, scheduler=NAME, cpu=LABEL.")
@click.option(
    "--accept-shortfall",
    is_flag=True,
    help="Accept nodes and links of an emulated cluster with less than 95 % of the requested capacity.",
)
@click.option("--profile", is_flag=True, help="Profile workers during the measured time: runs/*/profiles/.")
@click.pass_obj
def command(
    settings: Settings,
    agenda: str | None,
    inventory: str | None,
    out: Path,
    resume: Path | None,
    dry_run: bool,
    choice: str | None,
    accept_shortfall: bool,
    profile: bool,
) -> int:
    """Run the campaign of an agenda and build its report.

    AGENDA is a file or the name of a built-in agenda. Ctrl-C once finishes the current run and stops. Ctrl-C twice,
    SIGTERM or SIGHUP stops at once. --resume continues.

    Example: millrace run demo
    """
    status, folder = run_campaign(
        settings, agenda, inventory, out, resume, dry_run, choice, profile, accept_shortfall, REPORTING
    )
    if folder is not None and status in (0, RUN_FAILED):
        try:
            _report(folder, settings)
        finally:
            finish_live(folder)
    return status


def run_campaign(
    settings: Settings,
    agenda: str | None,
    inventory: str | None,
    out: Path,
    resume: Path | None,
    dry_run: bool,
    choice: str | None,
    profile: bool,
    accept_shortfall: bool = False,
    last_stage: str = FINISHED,
) -> tuple[int, Path | None]:
    """Run the campaign without its report; return the exit status, and the campaign's folder if one was written.

    `last_stage` is the stage of a finished campaign in `live.json`.
    """
    if resume is not None:
        opened = resumed(find_campaign(resume, out), agenda, inventory, _load_the_rest)
    elif agenda is not None:
        opened = new(agenda, inventory, out, _load_the_rest)
    else:
        raise InputError("run: give an agenda, or --resume with the folder of a campaign; example: millrace run demo")
    # Loading this takes as long as Ansible takes to read an inventory, and has been done meanwhile.
    from campaign.runner.launch import prepared, run_all

    runs = only(opened.plan, choice)
    backend = select_backend(
        opened.plan.cluster, opened.plan.hosts, _owner(opened.folder), operator_callbacks(settings)
    )
    backend.check()
    if dry_run:
        # Prepare the inputs to check that they can be used; discard them.
        with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
            prepared(opened, runs, Path(folder), settings)
        _show(opened, runs)
        return 0, None
    ending = run_all(opened, runs, backend, settings, profile, accept_shortfall, last_stage)
    folder = printable(opened.folder)
    _print(f"results: {folder}")
    for name, reason in ending.failed.items():
        click.echo(printable(f"millrace: {name}: {reason}"), err=True)
    if ending.interrupted:
        click.echo(f"interrupted; go on with: millrace run --resume {folder}", err=True)
        return INTERRUPTED, opened.folder
    return RUN_FAILED if ending.failed else 0, opened.folder


def _load_the_rest() -> None:
    """Import the modules of a campaign over SSH."""
    import campaign.runner.launch  # noqa: F401
    import controller.ssh.backend  # noqa: F401


def _owner(folder: Path) -> str:
    """Return the text that another controller shows if it finds one of these nodes in use."""
    return f"{this_owner(folder)}, on {platform.node()}"


def _report(folder: Path, settings: Settings) -> None:
    """Build the report; on failure, say that the results are complete."""
    from analysis.render import render

    def show_progress(line: str) -> None:
        if not settings.quiet:
            click.echo(printable(line), err=True)

    shown = printable(folder)
    complete = f"The results are complete in {shown}; later: millrace report {shown}"
    try:
        page = render(folder, tell=show_progress)
    except UnfitError as fault:
        raise UnfitError(f"{fault}\n{complete}") from None
    except KeyboardInterrupt:
        click.echo(f"stopped before the report was complete. {complete}", err=True)
        raise
    _print(printable(f"report: {page}"))


def _print(line: str) -> None:
    """Print a result; a failure of standard output ends neither the campaign nor its report."""
    try:
        click.echo(line)
    except BrokenPipeError:
        pass
    except UnfitError as fault:
        click.echo(printable(f"millrace: {fault}"), err=True)


def _show(opened: Opened, runs: list[Run]) -> None:
    """Print the runs in order, then every placement once."""
    plan = opened.plan
    widest = max((len(run.name) for run in runs), default=0)
    for run in runs:
        click.echo(f"{run.name:<{widest}}  seed {run.seed}")
    for workload, scheduler in dict.fromkeys((run.workload, run.scheduler) for run in runs):
        placed = plan.placed[workload, scheduler]
        answer, cost = placed.answer, placed.answer.cost
        lacks = f" (not given: {', '.join(placed.not_given)})" if placed.not_given else ""
        click.echo(
            f"\n{workload} by {scheduler}{lacks}: {cost.nodes_used} nodes, {cost.slots_used} slots, "
            f"{cost.inter_node_edges} executor pairs between nodes"
        )
        slots: dict[tuple[str, int], list[str]] = {}
        for entry in (entry for topology in answer.topologies.values() for entry in topology.assignments):
            slots.setdefault((entry.node, entry.slot), []).append(entry.executor)
        for (node, slot), executors in slots.items():
            click.echo(escaped(f"  {node} slot {slot}: {' '.join(executors)}"))
    seconds = len(runs) * (plan.agenda.warmup_s + plan.agenda.duration_s)
    click.echo(f"\n{len(runs)} runs, {in_words(seconds)} without start and end of each run; nothing was started")
