"""`millrace clean`: undo whatever a crashed run left on this host."""

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
    """Undo what a crashed campaign left on this host: its processes, incomplete result folders, state and locks.

    An emulated cluster that is up goes, too: its nodes, namespaces, control groups; of those that are down, the logs.
    A campaign that is still running is left alone, and with it every emulated cluster. Doing it twice does no harm.
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
