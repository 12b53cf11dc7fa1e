"""`millrace record-sysfs`: copy the files that describe this machine's meters and CPUs."""

from pathlib import Path

import click

from agents.host.recording import record
from campaign.commands.options import metered_host, sysfs_option
from inventory.foreign import printable

EXAMPLE = """\b
Example:
  millrace record-sysfs my-server
  millrace doctor --sysfs my-server
"""

MOST_NAMED = 10


@click.command("record-sysfs", epilog=EXAMPLE)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@sysfs_option
def command(folder: Path, root: str) -> None:
    """Copy the files of this machine's meters and CPUs.

    DIR is a new folder; commands with --sysfs take it for /. Serial numbers are left out. Some files can be read by
    root only.
    """
    found = record(metered_host(root).root, folder)
    click.echo(printable(f"{folder}: {found.files} files"))
    for path, reason in list(found.refused.items())[:MOST_NAMED]:
        click.echo(printable(f"could not be read: /{path}: {reason}"), err=True)
    if len(found.refused) > MOST_NAMED:
        click.echo(f"could not be read: {len(found.refused) - MOST_NAMED} more, see recording.json", err=True)
