"""`millrace top`: a running campaign, live."""

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
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output: what is known now.")
@click.pass_obj
def command(settings: Settings, folder: Path | None, as_json: bool) -> None:
    """Watch a campaign while it runs: executors with their rates, queues and CPU time, and traffic between nodes.

    DIR is the campaign's folder, or `latest` for the newest under results/. Without it, the campaign that runs on this
    machine is shown. The keys r, u and b sort executors by rate, queue and busy time; q or Ctrl-C ends. Where output
    is no terminal, the state of now is printed once.
    """
    watched = look_at(campaign_meant(folder))
    if as_json:
        known = {"folder": str(watched.folder), "condition": watched.condition.value}
        click.echo(json.dumps(known | dict(watched.live or {})))
        return
    show(watched, settings.color)
