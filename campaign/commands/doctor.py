"""`millrace doctor`: what this machine supports."""

import shutil
import textwrap
from collections.abc import Iterable

import click

from agents.host_files import Status
from campaign.admin.doctor import Zone, diagnose
from campaign.commands.options import metered_host, sysfs_option
from inventory.documents import dump_json
from inventory.foreign import printable

EXAMPLE = """\b
Example:
  millrace doctor
"""

NAME, STATUS, MAX_WIDTH = 12, 12, 110
DOMAIN, ROLE, PART = 24, 10, 28
COLOURS: dict[Status, str] = {"ok": "green", "absent": "yellow", "denied": "red", "unreadable": "red"}


@click.command(epilog=EXAMPLE)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on standard output.")
@sysfs_option
def command(as_json: bool, root: str) -> None:
    """Report what this machine supports.

    Energy sources, Java, Spark, SSH, CPU control, links, cgroups and the clock are examined; nothing is changed.
    """
    found = diagnose(metered_host(root))
    if as_json:
        click.echo(dump_json(found), nl=False)
        return
    _table("energy", ((r.reader, r.status, r.reason) for r in found.power.readers))
    primary = found.power.primary
    click.echo(f"  primary: {primary}\n" if primary else "  no energy source on this host: energy is missing\n")
    if found.power.zones:
        _zones(found.power.zones)
    _table("host", ((c.check, c.status, c.reason) for c in found.checks))


def _table(title: str, rows: Iterable[tuple[str, Status, str]]) -> None:
    click.secho(title, bold=True)
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    for name, status, reason in rows:
        first, *rest = textwrap.wrap(printable(reason), max(20, width - NAME - STATUS - 2), break_on_hyphens=False)
        click.echo(f"  {name:<{NAME}}{click.style(f'{status:<{STATUS}}', fg=COLOURS[status])}{first}")
        for line in rest:
            click.echo(" " * (NAME + STATUS + 2) + line)


def _zones(zones: Iterable[Zone]) -> None:
    click.secho("metered", bold=True)
    for zone in zones:
        part = zone.rejected or ("part of the node" if zone.in_total else "not added")
        click.echo(printable(f"  {zone.domain:<{DOMAIN}}{zone.role:<{ROLE}}{part:<{PART}}{zone.path}"))
    click.echo()
