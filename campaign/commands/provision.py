"""`millrace provision`: bare hosts become the cluster that an inventory describes."""

import click

from campaign.admin.playbook import Choice, play
from campaign.display.settings import Settings
from inventory.reading import read_hosts

EXAMPLE = """\b
Examples:
  millrace provision inventory/lab.yml
  millrace provision inventory/lab.yml --check
  millrace provision inventory/lab.yml -- --limit n1 --ask-become-pass
"""


@click.command(epilog=EXAMPLE)
@click.argument("inventory")
@click.argument("options", nargs=-1, metavar="[-- ANSIBLE_OPTIONS...]")
@click.option("--check", is_flag=True, help="Only say what would change.")
@click.pass_obj
def command(settings: Settings, inventory: str, options: tuple[str, ...], check: bool) -> None:
    """Make the hosts of an INVENTORY the cluster that it describes, and gather their facts.

    Whatever is changed is kept on the host first; `millrace restore` puts it back. Wishes that a host cannot meet are
    refused before any host is changed. Doing it twice changes nothing.

    The same as: ansible-playbook -i INVENTORY ansible/provision.yml
    """
    play("provision", read_hosts(inventory), Choice(check, options), settings)
