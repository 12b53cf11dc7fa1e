"""Commands that read the results of campaigns: `top`, `report`, `results`, `compare`, `traffic` and `observe`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from campaign.commands.options import (
    Seconds,
    master_option,
    output_option,
    run_argument,
    run_option,
    write_document,
)
from campaign.display.terminal import Settings, progress_bar, stages_shown
from inventory.errors import InputError
from inventory.foreign import printable

if TYPE_CHECKING:
    from analysis.measure.finished_run import FinishedRun
    from analysis.records.descriptions import ReportEngine
    from campaign.results.open_results import Results

TOP_EXAMPLE = """\b
Examples:
  millrace top
  millrace top results/demo/latest
"""


@click.command("top", epilog=TOP_EXAMPLE)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output: the current state.")
@click.pass_obj
def top_command(settings: Settings, folder: Path | None, as_json: bool) -> None:
    """Watch a running campaign.

    Executors are shown with their rates, queues and CPU time, and nodes with the traffic between them. DIR is the
    campaign's folder, or `latest` for the newest in results/; default: the campaign that runs on this machine. The
    keys r, u and b sort executors by rate, queue and busy time; q or Ctrl-C quits. If standard output is not a
    terminal, the current state is printed once.
    """
    from campaign.display.top_view import show_top
    from campaign.results.live_file import look_at, selected_campaign
    from inventory.documents import to_plain

    watched = look_at(selected_campaign(folder))
    if as_json:
        known = {"folder": str(watched.folder), "condition": watched.condition.value}
        click.echo(json.dumps(known | to_plain(watched.live or {})))
        return
    show_top(watched, settings.color)


@click.command("report", epilog="Example: millrace report latest")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@master_option
@click.option("--baseline", metavar="SCHEDULER", help="Scheduler to compare with; default: the agenda's baseline.")
@click.option("--pdf", is_flag=True, help="Write every figure as PDF, too, for papers.")
@click.option(
    "--engine",
    type=click.Choice(["spark", "sail"]),
    default="spark",
    help="What runs the job. Sail is refused: its server runs Python code for every user of this host.",
)
@click.pass_obj
def report_command(
    settings: Settings,
    folder: Path,
    master: str | None,
    baseline: str | None,
    pdf: bool,
    engine: "ReportEngine",
) -> None:
    """Build the report of a campaign.

    The report is DIR/report/index.html, with tables and figures. DIR is the folder that contains campaign.json, or
    `latest` for the newest campaign in results/. An existing report is replaced once the new one is complete. What was
    found is printed, as medians with their changes against the baseline, and then the path of the page.
    """
    from analysis.page.render import render
    from analysis.records.descriptions import NO_SAIL
    from campaign.display.findings import findings_text
    from campaign.results.live_file import find_campaign
    from campaign.results.open_results import Results

    if engine == "sail":
        raise InputError(f"--engine: {NO_SAIL}")
    with stages_shown(settings.quiet, settings.color) as show_stage:
        page = render(campaign := find_campaign(folder), master, baseline, show_stage, pdf)
    click.echo(findings_text(Results(campaign), settings.color))
    click.echo(printable(f"report: {page}"))


RESULTS_EXAMPLE = """\b
Examples:
  millrace results latest
  millrace results results/demo/latest --json
  millrace results latest --table ranking --format tex
"""


@click.command("results", epilog=RESULTS_EXAMPLE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.option("--table", metavar="NAME", help="Print this table instead; `ranking` has the medians.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "md", "tex"]),
    help="Form of the table; comparisons also as Markdown, or for LaTeX with booktabs. Default: csv.",
)
@click.pass_obj
def results_command(settings: Settings, folder: Path, as_json: bool, table: str | None, form: str | None) -> None:
    """List the runs and the medians of a campaign.

    Status and figures are read from the run.json of each run, so no report is needed. DIR is the folder that contains
    campaign.json, or `latest` for the newest campaign in results/. From Python, `millrace.Results` reads the traces and
    tables, too.
    """
    from analysis.records.campaign import load_campaign
    from campaign.results.open_results import Results, campaign_folder
    from campaign.results.run_summary import summary_of

    if as_json and table is not None:
        raise click.UsageError("--json lists the runs; leave it out with --table.")
    if form is not None and table is None:
        raise click.UsageError("--format is the form of a table; name one with --table.")
    if table is not None:
        click.echo(_table_text(Results(folder), table, form or "csv"), nl=False)
        return
    campaign = load_campaign(campaign_folder(folder))
    runs = [summary_of(run) for run in campaign.runs]
    if as_json:
        from inventory.documents import dump_json

        click.echo(dump_json({"folder": str(campaign.folder), "runs": runs}), nl=False)
        return
    from analysis.page.compared_tables import recorded_tables
    from campaign.display.findings import tables_text  # rich takes long to import
    from campaign.display.run_text import print_runs

    print_runs(runs, settings.color)
    click.echo(tables_text(recorded_tables(campaign), campaign.folder, settings.color))


def _table_text(results: "Results", name: str, form: str) -> str:
    """Return a table as text.

    Raises:
        InputError: there is no such table, or it has no form for print.
    """
    from analysis.page.print_tables import PRINTED, csv_text, printed

    table = results.table(name).to_arrow()
    if form == "csv":
        return csv_text(table.column_names, table.to_pylist())
    if name not in PRINTED:
        raise InputError(f"--format {form}: {name!r} is written as csv only; for print there are {', '.join(PRINTED)}")
    return printed(name, table.to_pylist(), form)


TRAFFIC_EXAMPLE = """\b
Examples:
  millrace traffic results/demo/latest/runs/001-wordcount-even-r1 -o observed.json
  millrace traffic latest --run 001-wordcount-even-r1 --since 60 --until 120 -o observed.json
  millrace place --cluster lab.yml --topology a.yml --scheduler t-storm --traffic observed.json
"""


@click.command("traffic", epilog=TRAFFIC_EXAMPLE)
@run_argument
@run_option
@click.option("--since", "since_s", type=Seconds(0), metavar="S", help="Begin; default: of the measured interval.")
@click.option("--until", "until_s", type=Seconds(0), metavar="S", help="End; default: of the measured interval.")
@output_option
@click.pass_obj
def traffic_command(
    settings: Settings, folder: Path, run: str | None, since_s: float | None, until_s: float | None, output: Path | None
) -> None:
    """Write the traffic file of a finished run.

    It has the mean rates between executors and the loads of executors and nodes, from the traces of the run. DIR is the
    folder of the run, or of its campaign, or `latest` for the newest campaign in results/. Times are seconds since the
    sources started.
    """
    from analysis.measure.observed import traffic_of_run
    from campaign.results.selected_run import select_run

    finished = select_run(folder, run).finished()
    begin_s, end_s = finished.measured_s
    begin_s = begin_s if since_s is None else since_s
    end_s = end_s if until_s is None else until_s
    if begin_s >= end_s:
        raise InputError(f"the part from {begin_s:g} s to {end_s:g} s is empty")
    _check_end(finished, "--until", end_s)
    with progress_bar("reading traces", settings.quiet, settings.color) as show_progress:
        traffic = traffic_of_run(finished, begin_s, end_s, show_progress)
    if not traffic.load:
        click.echo(f"{finished.run.id}: loads are unknown: it was made without the sensor 'cpu'", err=True)
    write_document(traffic, output)


OBSERVE_EXAMPLE = """\b
Examples:
  millrace observe results/demo/latest/runs/001-wordcount-even-r1 -o observed.json
  millrace observe latest --run 001-wordcount-even-r1 --at 60 --window 50 -o observed.json
  millrace revise --cluster lab.yml --topology a.yml --scheduler i-scheduler --observation observed.json
"""


@click.command("observe", epilog=OBSERVE_EXAMPLE)
@run_argument
@run_option
@click.option(
    "--at",
    "at_s",
    type=Seconds(0, min_open=True),
    metavar="S",
    help="End; default: of the last one of an online run, else of the measured interval.",
)
@click.option(
    "--window",
    "window_s",
    type=Seconds(0, min_open=True),
    metavar="S",
    help="Length, computed from traces; default: that of the online run, else from the begin of the measured interval.",
)
@output_option
@click.pass_obj
def observe_command(
    settings: Settings, folder: Path, run: str | None, at_s: float | None, window_s: float | None, output: Path | None
) -> None:
    """Write the observation of a run.

    DIR is the folder of the run, or of its campaign, or `latest` for the newest campaign in results/. Times are seconds
    since the sources started. A window never reaches across a move, a recovery or a loss; if one cuts it, `complete`
    is false. An online run has kept the observations that its scheduler was asked about: without --window, the last
    one is written, or the last one until --at.

    Of a campaign that is running, the last second of the current run is observed, with `complete` false and without
    the rates between executors, which are known at its end.
    """
    from campaign.results.selected_run import select_run

    selected = select_run(folder, run, prefer_running=True)
    if selected.is_running:
        from campaign.results.observed_live import observe_live

        if at_s is not None or window_s is not None:
            raise InputError(
                f"{selected.name} is still running: only its last second is known, without --at and --window"
            )
        write_document(observe_live(selected.campaign, selected.cluster), output)
        click.echo(f"{selected.name} is still running: the rates between its executors are unknown", err=True)
        return
    from analysis.measure.observed import observe_run

    finished = selected.finished()
    if window_s is None and (kept := finished.kept_observation(at_s)) is not None:
        write_document(kept, output)
        return
    end_s = finished.measured_s[1] if at_s is None else at_s
    _check_end(finished, "--at", end_s)
    with progress_bar("reading traces", settings.quiet, settings.color) as show_progress:
        observation = observe_run(finished, end_s, window_s, show_progress)
    write_document(observation, output)


def _check_end(finished: "FinishedRun", option: str, end_s: float) -> None:
    """Check that the sources of the run still emitted at the end of the chosen time."""
    if end_s > finished.stopped_s:
        raise InputError(f"{option} {end_s:g}: the sources of {finished.run.id} stopped at {finished.stopped_s:g} s")


COMPARE_EXAMPLE = """\b
Example:
  millrace compare results/demo/20260301T100000Z results/demo/20260302T100000Z --out compared
"""


@click.command("compare", epilog=COMPARE_EXAMPLE)
@click.argument("folders", metavar="DIR DIR...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder of the comparison; an earlier comparison is replaced.",
)
@click.pass_obj
def compare_command(settings: Settings, folders: tuple[Path, ...], out: Path) -> None:
    """Compare several campaigns in one report.

    They may be of different versions and machines. Differences of the set-up are listed first; then, per workload and
    scheduler, the metrics of each campaign side by side, with intervals, and their ratios to the same baseline.
    Schedulers of the same name are kept apart. Reports are not needed.
    """
    from analysis.page.side_by_side import compare_campaigns
    from campaign.display.comparison import comparison_text
    from campaign.results.live_file import find_campaign

    page, tables = compare_campaigns([find_campaign(folder) for folder in folders], out)
    click.echo(comparison_text(tables, settings.color))
    click.echo(printable(f"comparison: {page}"))
