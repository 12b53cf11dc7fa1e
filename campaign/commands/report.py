"""`millrace report`: tables, figures and a page from a campaign's traces."""

from pathlib import Path

import click

from analysis.render import render
from analysis.submit import LOCAL
from campaign.display.settings import Settings
from campaign.results.watch import find_campaign
from inventory.foreign import printable


@click.command("report", epilog="Example: millrace report latest")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--master", metavar="URL", help=f"Spark master; default {LOCAL}, this host's cores.")
@click.option("--baseline", metavar="SCHEDULER", help="Scheduler to compare with; default: the agenda's baseline.")
@click.pass_obj
def command(settings: Settings, folder: Path, master: str | None, baseline: str | None) -> None:
    """Build the report of a campaign.

    The report is DIR/report/index.html, with tables and figures. DIR is the folder that contains campaign.json, or
    `latest` for the newest campaign in results/. An existing report is replaced once the new one is complete.
    """

    def show_progress(line: str) -> None:
        if not settings.quiet:
            click.echo(printable(line), err=True)

    click.echo(printable(f"report: {render(find_campaign(folder), master, baseline, show_progress)}"))
