"""`millrace provision`: set up the hosts of an inventory."""

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
@click.option("--check", is_flag=True, help="Print what would change; change nothing.")
@click.pass_obj
def command(settings: Settings, inventory: str, options: tuple[str, ...], check: bool) -> None:
    """Set up the hosts of an inventory and gather their facts.

    The hosts become the cluster that INVENTORY describes. Everything is saved on the host before it is changed;
    `millrace restore` restores it. Settings that a host does not support are refused before any host is changed. A
    second call changes nothing.

    The same as: ansible-playbook -i INVENTORY ansible/provision.yml
    """
    play("provision", read_hosts(inventory), Choice(check, options), settings)
