"""`millrace run`: a campaign from its agenda to its report."""

import platform
import tempfile
from pathlib import Path

import click

from campaign.admin.desk import operator_at
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
@click.option("--inventory", metavar="I", help="Cluster file or name of an inventory, in place of the agenda's.")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=Path("results"),
    show_default=True,
    help="Where results go: DIR/<campaign>/<UTC start>/.",
)
@click.option(
    "--resume",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Go on with the campaign in DIR, which holds campaign.json, or with `latest`; finished runs stay as they are.",
)
@click.option("--dry-run", is_flag=True, help="Show the runs and where everything would be placed; start nothing.")
@click.option("--only", "choice", metavar="K=V,...", help="Only these runs: workload=LABEL, scheduler=NAME, cpu=LABEL.")
@click.option(
    "--accept-shortfall",
    is_flag=True,
    help="Run although nodes or links of an emulated cluster got less than 95 % of what was asked for.",
)
@click.option("--profile", is_flag=True, help="Sample what workers do while a run is measured: runs/*/profiles/.")
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
    """Run the campaign of an AGENDA, a file or the name of one that comes with Millrace, and report it.

    Ctrl-C once finishes the run under way and stops; twice, or SIGTERM, or a hang-up stops at once; --resume goes on.

    Example: millrace run demo
    """
    status, folder = conduct(
        settings, agenda, inventory, out, resume, dry_run, choice, profile, accept_shortfall, REPORTING
    )
    if folder is not None and status in (0, RUN_FAILED):
        try:
            _report(folder, settings)
        finally:
            finish_live(folder)
    return status


def conduct(
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
    """All of the command but the report: return the exit status, and the campaign's folder where one was written.

    `last_stage` is what `live.json` says of a campaign that has come to its end.
    """
    if resume is not None:
        opened = resumed(find_campaign(resume, out), agenda, inventory, _load_the_rest)
    elif agenda is not None:
        opened = new(agenda, inventory, out, _load_the_rest)
    else:
        raise InputError("run: give an agenda, or --resume with the folder of a campaign; example: millrace run demo")
    # It takes as long to load as Ansible takes to read an inventory; if that was to be done, it is loaded by now.
    from campaign.runner.launch import carry_out, prepared

    runs = only(opened.plan, choice)
    backend = select_backend(opened.plan.cluster, opened.plan.hosts, _owner(opened.folder), operator_at(settings))
    backend.check()
    if dry_run:
        # Whether every input can be used; what is prepared for that is thrown away.
        with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
            prepared(opened, runs, Path(folder), settings)
        _show(opened, runs)
        return 0, None
    ending = carry_out(opened, runs, backend, settings, profile, accept_shortfall, last_stage)
    folder = printable(opened.folder)
    _print(f"results: {folder}")
    for name, reason in ending.failed.items():
        click.echo(printable(f"millrace: {name}: {reason}"), err=True)
    if ending.interrupted:
        click.echo(f"interrupted; go on with: millrace run --resume {folder}", err=True)
        return INTERRUPTED, opened.folder
    return RUN_FAILED if ending.failed else 0, opened.folder


def _load_the_rest() -> None:
    """Load what carries out a campaign over SSH."""
    import controller.ssh.backend  # noqa: F401


def _owner(folder: Path) -> str:
    """What another controller is told when it finds one of our nodes in use."""
    return f"{this_owner(folder)}, on {platform.node()}"


def _report(folder: Path, settings: Settings) -> None:
    """Make the report; what makes it impossible does not make the results worth less."""
    from analysis.render import render

    def tell(line: str) -> None:
        if not settings.quiet:
            click.echo(printable(line), err=True)

    shown = printable(folder)
    complete = f"The results are complete in {shown}; later: millrace report {shown}"
    try:
        page = render(folder, on_progress=tell)
    except UnfitError as fault:
        raise UnfitError(f"{fault}\n{complete}") from None
    except KeyboardInterrupt:
        click.echo(f"stopped before the report was complete. {complete}", err=True)
        raise
    _print(printable(f"report: {page}"))


def _print(line: str) -> None:
    """Print a result; standard output that cannot be written ends neither the campaign nor its report."""
    try:
        click.echo(line)
    except BrokenPipeError:
        pass
    except UnfitError as fault:
        click.echo(printable(f"millrace: {fault}"), err=True)


def _show(opened: Opened, runs: list[Run]) -> None:
    """The runs in their order, then every placement once."""
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
    click.echo(f"\n{len(runs)} runs, {in_words(seconds)} without their starts and ends; nothing was started")
