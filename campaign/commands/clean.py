"""`millrace clean`: undo whatever a crashed run left on this host."""

import click

from campaign.clean import clean_all
from inventory.errors import RunError

EXAMPLE = """\b
Example:
  millrace clean
"""


@click.command(epilog=EXAMPLE)
def command() -> None:
    """Undo what a crashed campaign left on this host: its processes, incomplete result folders, state and locks.

    An emulated cluster that is up goes, too: its nodes, namespaces, control groups. Campaigns that are still running
    are left alone, with the cluster that they use. Doing it twice does no harm.
    """
    outcome = clean_all()
    for line in outcome.running:
        click.echo(f"left alone: {line} is still running", err=True)
    for line in outcome.done:
        click.echo(f"removed: {line}")
    if outcome.failed:
        raise RunError("could not be removed: " + "; ".join(outcome.failed))
    if not outcome.done:
        click.echo("nothing was left behind")
