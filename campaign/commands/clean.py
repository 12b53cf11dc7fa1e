"""`millrace clean`: remove what crashed campaigns left on this host."""

import click

from campaign.runner.clean import clean_all
from inventory.errors import RunError
from inventory.foreign import printable

EXAMPLE = """\b
Examples:
  millrace clean --dry-run
  millrace clean
"""


@click.command(epilog=EXAMPLE)
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
def command(dry_run: bool) -> None:
    """Remove what a crashed campaign left on this host.

    That is: processes, incomplete result folders, state files and locks. Emulated clusters that are up are removed
    with their nodes, namespaces and control groups; of clusters that are down, the logs are removed. A campaign that
    is still running is not touched, and neither is any emulated cluster meanwhile. A second call changes nothing.
    """
    outcome = clean_all(dry_run)
    for line in outcome.running:
        click.echo(printable(f"left alone: {line}"), err=True)
    for line in outcome.done:
        click.echo(printable(f"{'would be removed' if dry_run else 'removed'}: {line}"))
    if outcome.failed:
        raise RunError("could not be removed: " + "; ".join(outcome.failed))
    if not outcome.done:
        click.echo("nothing was left behind")
