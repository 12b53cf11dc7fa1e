"""`millrace doctor`: what this machine can do."""

import shutil
import textwrap
from collections.abc import Iterable
from pathlib import Path

import click

from agents.probing import HostFiles, Status
from campaign.doctor import diagnose
from inventory.documents import dump_json
from inventory.errors import InputError

EXAMPLE = """\b
Example:
  millrace doctor
"""

NAME, STATUS, WIDEST = 12, 12, 110
COLOURS: dict[Status, str] = {"ok": "green", "absent": "yellow", "denied": "red", "unreadable": "red"}


@click.command(epilog=EXAMPLE)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@click.option("--sysfs", "root", metavar="ROOT", default="/", help="A folder that stands for /, with its sys and proc.")
def command(as_json: bool, root: str) -> None:
    """Say what this machine can do: energy sources, Java, Spark, SSH, CPU control, links, cgroups, clock.

    Only looks; nothing is changed or tried.
    """
    if not Path(root).is_dir():
        raise InputError(f"--sysfs {root}: there is no such folder")
    found = diagnose(HostFiles(Path(root)))
    if as_json:
        click.echo(dump_json(found), nl=False)
        return
    _table("energy", ((r.reader, r.status, r.reason) for r in found.power.readers))
    primary = found.power.primary
    click.echo(f"  primary: {primary}\n" if primary else "  no energy source on this host\n")
    _table("host", ((c.check, c.status, c.reason) for c in found.checks))


def _table(title: str, rows: Iterable[tuple[str, Status, str]]) -> None:
    click.secho(title, bold=True)
    width = min(shutil.get_terminal_size().columns, WIDEST)
    for name, status, reason in rows:
        first, *rest = textwrap.wrap(reason, max(20, width - NAME - STATUS - 2), break_on_hyphens=False)
        click.echo(f"  {name:<{NAME}}{click.style(f'{status:<{STATUS}}', fg=COLOURS[status])}{first}")
        for line in rest:
            click.echo(" " * (NAME + STATUS + 2) + line)
