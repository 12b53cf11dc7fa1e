"""`millrace run`: run the campaign of an agenda and build its report."""

import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from campaign.agenda.agenda import second_labels
from campaign.agenda.campaign_plan import select_runs
from campaign.commands.completion import complete_agendas, inventories
from campaign.commands.dry_run import print_plan, runs_json
from campaign.commands.options import operator_callbacks
from campaign.display.terminal import Settings, stages_shown
from campaign.results.live_file import FINISHED, REPORTING, find_campaign, finish_live
from campaign.runner.open_campaign import new, resumed, select_backend
from controller.host.cluster_lock import InUseError
from controller.host.disk import writing
from controller.host.ownership import this_owner
from controller.host.signals import INTERRUPTED, raise_held_interrupt
from inventory.errors import InputError, UnfitError
from inventory.foreign import printable

RUN_FAILED = 1


@click.command("run")
@click.argument("agenda", required=False, shell_complete=complete_agendas)
@click.option(
    "--inventory",
    metavar="I",
    shell_complete=inventories,
    help="Cluster file or name of an inventory; overrides the agenda's. With --resume: where the nodes are now.",
)
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
@click.option(
    "--without",
    metavar="NODE,...",
    help="With --resume: leave out nodes that have gone. The runs that remain are placed on the others, and suspect.",
)
@click.option(
    "--repetitions",
    metavar="N",
    type=click.IntRange(1, 10_000),
    help="Override the agenda's number; with --resume, add repetitions to the campaign until it has N.",
)
@click.option("--no-report", is_flag=True, help="Leave out the report; later: millrace report DIR.")
@click.option(
    "--dry-run", is_flag=True, help="Print the runs, their placements, and their time and disk space; start nothing."
)
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: one JSON document on standard output.")
@click.option(
    "--only",
    "choice",
    metavar="K=V,...",
    help="Run only these: workload=LABEL, scheduler=LABEL, cpu=LABEL, FACTOR=VALUE, or names as --dry-run prints them.",
)
@click.option(
    "--accept-shortfall",
    is_flag=True,
    help="Accept nodes and links of an emulated cluster with less than 95 % of the requested capacity.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait for nodes, and CPUs of this host, that another campaign uses; campaigns that wait get them in turn.",
)
@click.option(
    "--aa",
    is_flag=True,
    help="Run every scheduler under two labels, at least 20 times: how often does this testbed show a difference "
    "where there is none? Written to aa.json.",
)
@click.option("--profile", is_flag=True, help="Profile workers during the measured time: runs/*/profiles/.")
@click.pass_obj
def run_command(
    settings: Settings,
    agenda: str | None,
    inventory: str | None,
    out: Path,
    resume: Path | None,
    without: str | None,
    repetitions: int | None,
    no_report: bool,
    dry_run: bool,
    choice: str | None,
    accept_shortfall: bool,
    wait: bool,
    aa: bool,
    profile: bool,
    as_json: bool,
) -> int:
    """Run the campaign of an agenda and build its report.

    AGENDA is a file or the name of a built-in agenda. Ctrl-C once finishes the current run and stops. Ctrl-C twice,
    SIGTERM or SIGHUP stops at once. --resume continues.

    Example: millrace run demo
    """
    last_stage = FINISHED if no_report else REPORTING
    status, folder = run_campaign(
        settings,
        agenda,
        inventory,
        out,
        resume,
        repetitions,
        dry_run,
        choice,
        profile,
        accept_shortfall,
        last_stage,
        aa,
        as_json,
        wait,
        without,
    )
    if folder is not None and status in (0, RUN_FAILED) and not no_report:
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
    repetitions: int | None,
    dry_run: bool,
    choice: str | None,
    profile: bool,
    accept_shortfall: bool = False,
    last_stage: str = FINISHED,
    aa: bool = False,
    as_json: bool = False,
    wait: bool = False,
    without: str | None = None,
) -> tuple[int, Path | None]:
    """Run the campaign without its report; return the exit status, and the campaign's folder if one was written.

    `last_stage` is the stage of a finished campaign in `live.json`. With `aa`, every scheduler runs under two labels.
    """
    if as_json and not dry_run:
        raise InputError("--json: only together with --dry-run")
    left_out = tuple(filter(None, (without or "").split(",")))
    if left_out and resume is None:
        raise InputError("--without: only together with --resume; nodes of a new campaign: millrace_available: false")
    if resume is not None:
        campaign = find_campaign(resume, out)
        opened = resumed(campaign, agenda, inventory, _load_the_rest, repetitions, aa, left_out, choice)
        for line in opened.notices:
            click.echo(printable(f"millrace: {line}"), err=True)
    elif agenda is not None:
        opened = new(agenda, inventory, out, _load_the_rest, repetitions, aa, choice)
    else:
        raise InputError("run: give an agenda, or --resume with the folder of a campaign; example: millrace run demo")
    if accept_shortfall:
        opened = opened.accepting_shortfall()
    # Loading this takes as long as Ansible takes to read an inventory, and has been done meanwhile.
    from campaign.runner.run_campaign import execute_runs, prepared

    runs = select_runs(opened.plan, choice)
    owner, operator = _owner(opened.folder), operator_callbacks(settings)
    used = {run.inventory for run in runs} or {*opened.plan.clusters}
    backends = {
        name: select_backend(each.cluster, each.hosts, owner, operator)
        for name, each in opened.plan.clusters.items()
        if name in used
    }
    for backend in backends.values():
        backend.check()
    if dry_run:
        # Prepare the inputs to check that they can be used; discard them.
        with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
            prepared(opened, runs, Path(folder), settings)
        if as_json:
            click.echo(runs_json(opened, runs, last_stage == REPORTING), nl=False)
        else:
            print_plan(opened, runs, last_stage == REPORTING)
        return 0, None
    try:
        ending = execute_runs(opened, runs, backends, settings, profile, accept_shortfall, last_stage, wait)
    except InUseError as fault:
        raise UnfitError(f"{fault}; wait for it with --wait") from None
    folder = printable(opened.folder)
    _print(f"results: {folder}")
    for name, reason in ending.failed.items():
        click.echo(printable(f"millrace: {name}: {reason}"), err=True)
    if ending.interrupted:
        click.echo(f"interrupted; go on with: millrace run --resume {folder}", err=True)
        return INTERRUPTED, opened.folder
    if pairs := second_labels(opened.plan.agenda):
        _measure_false_positives(opened.folder, pairs)
    return RUN_FAILED if ending.failed else 0, opened.folder


def _load_the_rest() -> None:
    """Import the modules of a campaign over SSH."""
    import campaign.runner.run_campaign  # noqa: F401
    import controller.ssh.backend  # noqa: F401


def _owner(folder: Path) -> str:
    """Return the text that another controller shows if it finds one of these nodes in use."""
    return f"{this_owner(folder)}, on {platform.node()}"


def _measure_false_positives(folder: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Write `aa.json` of an A/A campaign, and print the rate."""
    from analysis.records.campaign import load_campaign
    from analysis.statistics.false_positives import write_false_positives

    with writing(folder):
        false_positives = write_false_positives(load_campaign(folder), pairs)
    _print(f"false positives: {false_positives.in_words}")


def _report(folder: Path, settings: Settings) -> None:
    """Build the report; on failure, say that the results are complete."""
    from analysis.page.render import render
    from campaign.display.findings import findings_text
    from campaign.results.open_results import Results

    shown = printable(folder)
    complete = f"The results are complete in {shown}; later: millrace report {shown}"
    try:
        raise_held_interrupt()
        with stages_shown(settings.quiet, settings.color) as show_stage:
            page = render(folder, on_progress=show_stage)
    except UnfitError as fault:
        raise UnfitError(f"{fault}\n{complete}") from None
    except KeyboardInterrupt:
        click.echo(f"stopped before the report was complete. {complete}", err=True)
        raise
    _print(findings_text(Results(folder), settings.color))
    _print(printable(f"report: {page}"))


def _print(line: str) -> None:
    """Print a result; a failure of standard output ends neither the campaign nor its report."""
    try:
        click.echo(line)
    except BrokenPipeError:
        pass
    except UnfitError as fault:
        click.echo(printable(f"millrace: {fault}"), err=True)
