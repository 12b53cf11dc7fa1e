"""`millrace top`: watch a running campaign."""

import json
from pathlib import Path

import click

from campaign.display.live_display import show
from campaign.display.settings import Settings
from campaign.results.watch import campaign_meant, look_at

EXAMPLE = """\b
Examples:
  millrace top
  millrace top results/demo/latest
"""


@click.command("top", epilog=EXAMPLE)
@click.argument("folder", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output: the current state.")
@click.pass_obj
def command(settings: Settings, folder: Path | None, as_json: bool) -> None:
    """Watch a running campaign.

    Executors are shown with their rates, queues and CPU time, and nodes with the traffic between them. DIR is the
    campaign's folder, or `latest` for the newest in results/; default: the campaign that runs on this machine. The
    keys r, u and b sort executors by rate, queue and busy time; q or Ctrl-C quits. If standard output is not a
    terminal, the current state is printed once.
    """
    watched = look_at(campaign_meant(folder))
    if as_json:
        known = {"folder": str(watched.folder), "condition": watched.condition.value}
        click.echo(json.dumps(known | dict(watched.live or {})))
        return
    show(watched, settings.color)
